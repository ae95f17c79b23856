//! A request that a server may lead elsewhere: redirects, followed as Go's client follows them, and the URLs that
//! client-go makes.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header};
use hyper::body::Incoming;
use mizzen_value::json;
use tokio::time::{Instant, timeout_at};

use crate::{Client, SendError, Target, whole};

/// Go: how many requests are made before a client stops to follow.
const MAX_REQUESTS: usize = 10;

/// A request that can be sent again to another URL.
#[derive(Clone)]
pub struct RedirectingCall {
    /// Its method.
    pub method: Method,
    /// Where it goes.
    pub url: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
    /// Whether a redirect to another host is the answer, as for a probe of a kubelet.
    pub stays_on_host: bool,
}

impl RedirectingCall {
    /// A GET of JSON.
    pub fn get(url: impl Into<String>) -> RedirectingCall {
        let accept = HeaderValue::from_static("application/json");
        RedirectingCall {
            method: Method::GET,
            url: url.into(),
            headers: HeaderMap::from_iter([(header::ACCEPT, accept)]),
            body: Bytes::new(),
            stays_on_host: false,
        }
    }

    /// A POST of JSON.
    pub fn post_json(url: impl Into<String>, body: impl Into<Bytes>) -> RedirectingCall {
        let json = HeaderValue::from_static("application/json");
        RedirectingCall {
            method: Method::POST,
            url: url.into(),
            headers: HeaderMap::from_iter([(header::CONTENT_TYPE, json)]),
            body: body.into(),
            stays_on_host: false,
        }
    }

    /// Sends it, and again to where the answer leads. `target` finds who must answer at a URL.
    pub async fn send(
        mut self,
        client: &Client,
        until: Instant,
        target: impl Fn(&Uri) -> Result<Target, SendError>,
    ) -> Result<Response<Incoming>, SendError> {
        let operation = operation(&self.method);
        let failed = |url: &str, error: SendError| {
            SendError(format!("{operation} {}: {}", json::quote(url), error.0))
        };
        let first = host(&self.url);
        for count in 1.. {
            let response = self
                .once(client, until, &target)
                .await
                .map_err(|error| failed(&self.url, error))?;
            let Some(location) = self.location(&response) else {
                return Ok(response);
            };
            let next = resolve(&self.url, &location).ok_or_else(|| {
                let shown = json::quote(&location);
                failed(
                    &self.url,
                    SendError(format!(
                        "failed to parse Location header {shown}: invalid URL"
                    )),
                )
            })?;
            if self.stays_on_host && host(&next) != first {
                return Ok(response);
            }
            if count == MAX_REQUESTS {
                let stopped = SendError(format!("stopped after {MAX_REQUESTS} redirects"));
                return Err(failed(&location, stopped));
            }
            self.lead_to(next, response.status().as_u16());
        }
        unreachable!("the loop ends with a return")
    }

    async fn once(
        &self,
        client: &Client,
        until: Instant,
        target: impl Fn(&Uri) -> Result<Target, SendError>,
    ) -> Result<Response<Incoming>, SendError> {
        let mut request = Request::new(whole(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.headers_mut() = self.headers.clone();
        *request.uri_mut() = self
            .url
            .parse()
            .map_err(|error| SendError(format!("{error}")))?;
        let target = target(request.uri())?;
        match timeout_at(until, client.send(&target, request)).await {
            Ok(response) => response,
            Err(_) => Err(SendError("context deadline exceeded".into())),
        }
    }

    /// Where an answer leads; one that says no place is an answer as any other.
    fn location(&self, response: &Response<Incoming>) -> Option<String> {
        let code = response.status().as_u16();
        let location = response.headers().get(header::LOCATION)?.to_str().ok()?;
        (matches!(code, 301 | 302 | 303 | 307 | 308) && !location.is_empty())
            .then(|| location.to_owned())
    }

    /// Go: 307 and 308 keep method and body; any other redirect turns a POST into a GET.
    fn lead_to(&mut self, url: String, code: u16) {
        if !matches!(code, 307 | 308) {
            self.body = Bytes::new();
            if self.method != Method::HEAD {
                self.method = Method::GET;
            }
        }
        if !is_same_domain(&self.url, &url) {
            self.headers.remove(header::AUTHORIZATION);
        }
        if let Ok(referer) = HeaderValue::from_str(&self.url) {
            self.headers.insert(header::REFERER, referer);
        }
        self.url = url;
    }
}

/// As Go begins a message about a request: `Post`.
fn operation(method: &Method) -> String {
    let mut word = method.as_str().to_ascii_lowercase();
    word[..1].make_ascii_uppercase();
    word
}

/// The host of a URL, in lower case.
fn host(url: &str) -> Option<String> {
    let uri = url.parse::<Uri>().ok()?;
    uri.host().map(str::to_ascii_lowercase)
}

/// Go: credentials go to the host they were meant for, and to those below it.
fn is_same_domain(first: &str, next: &str) -> bool {
    match (host(first), host(next)) {
        (Some(first), Some(next)) => {
            let below = next
                .strip_suffix(&first)
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
            below && (next == first || first.parse::<std::net::IpAddr>().is_err())
        }
        _ => false,
    }
}

/// The URL that a reference leads to from another one (RFC 3986).
fn resolve(base: &str, reference: &str) -> Option<String> {
    let reference = reference.split('#').next().unwrap_or_default();
    let base: Uri = base.parse().ok()?;
    let (scheme, authority) = (base.scheme_str()?, base.authority()?);
    let path = base.path();
    let url = if reference.contains("://") {
        reference.to_owned()
    } else if reference.starts_with("//") {
        format!("{scheme}:{reference}")
    } else if reference.starts_with('/') {
        format!("{scheme}://{authority}{}", without_dots(reference))
    } else if reference.starts_with('?') {
        format!("{scheme}://{authority}{path}{reference}")
    } else if reference.is_empty() {
        format!("{scheme}://{authority}{}", base.path_and_query()?)
    } else {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        format!(
            "{scheme}://{authority}{}",
            without_dots(&format!("{folder}/{reference}"))
        )
    };
    let parsed: Uri = url.parse().ok()?;
    parsed.host().filter(|host| !host.is_empty()).map(|_| url)
}

/// A path and query without the segments `.` and `..`.
fn without_dots(target: &str) -> String {
    let (path, query) = target
        .split_once('?')
        .map_or((target, None), |(path, query)| (path, Some(query)));
    let mut kept: Vec<&str> = Vec::new();
    let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    for (at, segment) in segments.iter().enumerate() {
        let last = at + 1 == segments.len();
        match *segment {
            "." if last => kept.push(""),
            "." => {}
            ".." => {
                kept.pop();
                if last {
                    kept.push("");
                }
            }
            segment => kept.push(segment),
        }
    }
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    format!("/{}{query}", kept.join("/"))
}

/// The path of a URL as client-go calls it: joined and cleaned, without a slash at the end, and encoded anew.
pub fn clean_path(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(kept.pop()),
            segment => kept.push(segment),
        }
    }
    encode(&format!("/{}", kept.join("/")))
}

/// Encodes a path as Go's `net/url` does.
fn encode(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte);
    let mut text = String::with_capacity(path.len());
    for byte in path.bytes() {
        match plain(byte) {
            true => text.push(char::from(byte)),
            false => text += &format!("%{byte:02X}"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_joined_as_client_go_joins_them() {
        for (path, expected) in [
            ("", "/"),
            ("/", "/"),
            ("//a//b/", "/a/b"),
            ("a", "/a"),
            ("/a/./b/../c", "/a/c"),
            ("/../a", "/a"),
            ("/a b?c", "/a%20b%3Fc"),
            ("/v1:x@y", "/v1:x@y"),
        ] {
            assert_eq!(clean_path(path), expected, "{path:?}");
        }
    }

    #[test]
    fn references_are_resolved() {
        for (reference, expected) in [
            ("https://b:2/x", Some("https://b:2/x")),
            ("//b/x", Some("https://b/x")),
            ("/x?y#z", Some("https://a:1/x?y")),
            ("/x/../y", Some("https://a:1/y")),
            ("x", Some("https://a:1/p/x")),
            ("../x/", Some("https://a:1/x/")),
            ("?x", Some("https://a:1/p/q?x")),
            ("https://", None),
            ("/\u{7f}", None),
        ] {
            assert_eq!(
                resolve("https://a:1/p/q?r", reference).as_deref(),
                expected,
                "{reference:?}"
            );
        }
    }

    #[test]
    fn credentials_stay_in_their_domain() {
        assert!(is_same_domain("https://a.io/", "https://A.io:8/x"));
        assert!(is_same_domain("https://a.io/", "https://b.a.io/"));
        assert!(!is_same_domain("https://a.io/", "https://ba.io/"));
        assert!(!is_same_domain("https://b.a.io/", "https://a.io/"));
        assert!(!is_same_domain("https://1.1.1.1/", "https://2.1.1.1.1/"));
    }
}
