//! The links of a proxied server, rewritten so that they lead through the proxy.
//!
//! Kubernetes: apimachinery/pkg/util/proxy/transport.go, `rewriteURL`. Links are written as Go's `net/url` writes them.
//!
//! Invariant: pure.

use std::borrow::Cow;

use http::{HeaderMap, HeaderValue, header};
use mizzen_object::Status;
use mizzen_transport::clean_path;
use mizzen_value::percent;

/// Rewrites the links of one response.
pub(super) struct LinkRewriter {
    /// The path of the proxy, decoded.
    prefix: String,
    /// The host and port of the proxied server.
    server: String,
    /// The `Host` of the request.
    host: String,
}

/// Why a text is no URL, in Go's words.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(super) enum LinkError {
    #[error("net/url: invalid control character in URL")]
    ControlCharacter,
    #[error("missing protocol scheme")]
    NoScheme,
    #[error("first path segment in URL cannot contain colon")]
    Colon,
    #[error("invalid URL escape {0}")]
    Escape(String),
}

impl LinkRewriter {
    /// Links of `server`, whose path `below` was reached at the path `requested` of `host`.
    pub(super) fn new(requested: &str, below: &str, server: String, host: &str) -> LinkRewriter {
        let (requested, below) = (percent::decode(requested), percent::decode(below));
        let prefix = requested.strip_suffix(&*below).unwrap_or(&requested);
        LinkRewriter {
            prefix: prefix.to_owned(),
            server,
            host: host.to_owned(),
        }
    }

    /// Rewrites a redirect.
    pub(super) fn rewrite_location(&self, headers: &mut HeaderMap) -> Result<(), Status> {
        let Some(location) = headers.get(header::LOCATION) else {
            return Ok(());
        };
        let location = String::from_utf8_lossy(location.as_bytes());
        let invalid = |error: LinkError| {
            let shown = mizzen_value::json::quote(&location);
            Status::internal(format!(
                "error trying to parse Location header: parse {shown}: {error}"
            ))
        };
        let rewritten = self.rewrite(&location).map_err(invalid)?;
        if let Ok(rewritten) = HeaderValue::from_str(&rewritten) {
            headers.insert(header::LOCATION, rewritten);
        }
        Ok(())
    }

    /// The link as it leads through the proxy. A relative one, and one to another host, leads where it led.
    pub(super) fn rewrite(&self, link: &str) -> Result<String, LinkError> {
        let Link {
            origin,
            host,
            path,
            rest,
        } = Link::parse(link)?;
        let decoded = percent::decode(path);
        let is_elsewhere = !host.is_empty() && host != self.server && host != self.host;
        if is_elsewhere || !decoded.starts_with('/') {
            return Ok(format!("{origin}{}{rest}", encoded(path)));
        }
        // Kubernetes: scheme and host stay if they are those of the request.
        let origin = match !host.is_empty() && host == self.host {
            true => origin,
            false => "",
        };
        if decoded.starts_with(&self.prefix) {
            return Ok(format!("{origin}{}{rest}", encoded(path)));
        }
        let mut path = clean_path(&format!("{}/{decoded}", self.prefix));
        if decoded.ends_with('/') && !path.ends_with('/') {
            path.push('/');
        }
        Ok(format!("{origin}{path}{rest}"))
    }
}

/// The parts of a link, as they are written.
#[derive(Debug, PartialEq)]
struct Link<'a> {
    /// Scheme, user and host; all of a link without a path, such as `mailto:`.
    origin: &'a str,
    /// The host and its port.
    host: &'a str,
    path: &'a str,
    /// Query and fragment.
    rest: &'a str,
}

impl<'a> Link<'a> {
    /// Go: `url.Parse`.
    fn parse(text: &'a str) -> Result<Link<'a>, LinkError> {
        if text.bytes().any(|byte| byte.is_ascii_control()) {
            return Err(LinkError::ControlCharacter);
        }
        let (main, rest) = text.split_at(text.find(['?', '#']).unwrap_or(text.len()));
        let after_scheme = main.len() - without_scheme(main)?.len();
        let mut at = after_scheme;
        let below = &main[at..];
        if !below.starts_with('/') {
            if after_scheme > 0 {
                return Ok(Link {
                    origin: main,
                    host: "",
                    path: "",
                    rest,
                });
            }
            if below.split('/').next().is_some_and(|it| it.contains(':')) {
                return Err(LinkError::Colon);
            }
        }
        let mut host = "";
        let has_authority = after_scheme > 0 || !below.starts_with("///");
        if let Some(authority) = below.strip_prefix("//").filter(|_| has_authority) {
            let authority = authority.split('/').next().unwrap_or_default();
            host = authority
                .rsplit_once('@')
                .map_or(authority, |(_, host)| host);
            at += 2 + authority.len();
        }
        let (origin, path) = main.split_at(at);
        check_escapes(path)?;
        Ok(Link {
            origin,
            host,
            path,
            rest,
        })
    }
}

/// What follows the scheme, if there is one.
fn without_scheme(text: &str) -> Result<&str, LinkError> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    match text.bytes().position(|byte| !is_part(byte)) {
        Some(0) if text.starts_with(':') => Err(LinkError::NoScheme),
        Some(end) if text[end..].starts_with(':') && text.as_bytes()[0].is_ascii_alphabetic() => {
            Ok(&text[end + 1..])
        }
        _ => Ok(text),
    }
}

fn check_escapes(path: &str) -> Result<(), LinkError> {
    for (at, _) in path.match_indices('%') {
        let digits = path.as_bytes().get(at + 1..at + 3);
        if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
            let shown: String = path[at..].chars().take(3).collect();
            return Err(LinkError::Escape(mizzen_value::json::quote(&shown)));
        }
    }
    Ok(())
}

/// A path with what a URL cannot have encoded, such as `<`. Go: `URL.EscapedPath`.
fn encoded(path: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte);
    let may_stay = |byte: u8| is_plain(byte) || b"!'()*[]%".contains(&byte);
    if path.bytes().all(may_stay) {
        return path.into();
    }
    let mut text = String::with_capacity(path.len());
    for byte in percent::decode(path).bytes() {
        match is_plain(byte) {
            true => text.push(char::from(byte)),
            false => text += &format!("%{byte:02X}"),
        }
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROXY: &str = "/api/v1/namespaces/a/pods/p:80/proxy";

    fn links() -> LinkRewriter {
        let requested = format!("{PROXY}/x");
        LinkRewriter::new(&requested, "/x", "10.0.0.9:80".into(), "api.example.com")
    }

    #[test]
    fn a_link_to_the_proxied_server_leads_through_the_proxy() {
        for (link, expected) in [
            // Paths.
            ("/login", "PROXY/login"),
            ("/login/?a=b/c#d", "PROXY/login/?a=b/c#d"),
            ("/", "PROXY/"),
            ("///x", "PROXY/x"),
            ("/a//../b", "PROXY/b"),
            ("more", "more"),
            ("../up", "../up"),
            ("?a=/b", "?a=/b"),
            ("#top", "#top"),
            ("", ""),
            // It leads there already.
            ("PROXY/login", "PROXY/login"),
            // The hosts of the server and of the request.
            ("http://10.0.0.9:80/login", "PROXY/login"),
            ("https://10.0.0.9:80/login?a", "PROXY/login?a"),
            ("//10.0.0.9:80/login", "PROXY/login"),
            ("http://10.0.0.9:80PROXY/login", "PROXY/login"),
            (
                "https://api.example.com/login",
                "https://api.example.comPROXY/login",
            ),
            (
                "https://api.example.comPROXY/login",
                "https://api.example.comPROXY/login",
            ),
            ("http:///login", "PROXY/login"),
            ("http://10.0.0.9:80", "http://10.0.0.9:80"),
            // Other hosts.
            ("https://example.com/", "https://example.com/"),
            ("//example.com/x", "//example.com/x"),
            ("http://10.0.0.9:81/login", "http://10.0.0.9:81/login"),
            ("http://10.0.0.9:80@evil/", "http://10.0.0.9:80@evil/"),
            ("mailto:me@example.com", "mailto:me@example.com"),
            ("javascript:go()", "javascript:go()"),
            // What a URL cannot have is encoded.
            (
                "/%00<script>alert(1)</script>/",
                "PROXY/%00%3Cscript%3Ealert%281%29%3C/script%3E/",
            ),
            (
                "http://example.com/%00<script>",
                "http://example.com/%00%3Cscript%3E",
            ),
            ("a b", "a%20b"),
            ("/caf\u{e9}", "PROXY/caf%C3%A9"),
            ("a/(b)", "a/(b)"),
        ] {
            let (link, expected) = (
                link.replace("PROXY", PROXY),
                expected.replace("PROXY", PROXY),
            );
            assert_eq!(links().rewrite(&link), Ok(expected), "{link}");
        }
    }

    #[test]
    fn what_is_no_url_is_an_error() {
        for (link, error) in [
            (":x", "missing protocol scheme"),
            ("1:x", "first path segment in URL cannot contain colon"),
            ("/a\tb", "net/url: invalid control character in URL"),
            ("/%zz", "invalid URL escape \"%zz\""),
            ("/%1", "invalid URL escape \"%1\""),
        ] {
            assert_eq!(links().rewrite(link).unwrap_err().to_string(), error);
        }
    }

    #[test]
    fn a_redirect_is_rewritten_or_an_error() {
        let mut headers = HeaderMap::new();
        links().rewrite_location(&mut headers).unwrap();
        assert!(headers.is_empty());
        headers.insert(header::LOCATION, HeaderValue::from_static("/y"));
        links().rewrite_location(&mut headers).unwrap();
        assert_eq!(headers[header::LOCATION], format!("{PROXY}/y"));
        headers.insert(header::LOCATION, HeaderValue::from_static(":x"));
        let status = links().rewrite_location(&mut headers).unwrap_err();
        let problem =
            "error trying to parse Location header: parse \":x\": missing protocol scheme";
        assert_eq!(status.code, 500);
        assert!(status.message.ends_with(problem), "{}", status.message);
    }

    #[test]
    fn the_prefix_is_what_was_requested_before_the_path_of_the_server() {
        for (requested, below, prefix) in [
            ("/p/proxy/x", "/x", "/p/proxy"),
            ("/p/proxy/a%20b/", "/a%20b/", "/p/proxy"),
            ("/p/proxy/", "/", "/p/proxy"),
            // Admission has changed the path.
            ("/p/proxy/x", "/y", "/p/proxy/x"),
        ] {
            let links = LinkRewriter::new(requested, below, String::new(), "");
            assert_eq!(links.prefix, prefix, "{requested} {below}");
        }
    }
}
