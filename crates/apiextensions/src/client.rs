//! Webhook client configuration: a URL or a service reference.

use mizzen_object::validate::names;
use mizzen_object::{Path, Violations};
use mizzen_value::{Value, json};

/// A client configuration names a URL or a service, one of them.
pub fn validate(client: &Value, path: &Path, violations: &mut Violations) {
    match (client["url"].as_str(), client.get("service")) {
        (Some(url), None) => validate_url(url, &path.child("url"), violations),
        (None, Some(service)) => {
            // Kubernetes: upstream passes the service's name and namespace in the wrong order, so that each is missed
            // under the other's name.
            let path = path.child("service");
            if service["namespace"].is_empty() {
                violations.required(path.child("name"), "");
            }
            if service["name"].is_empty() {
                violations.required(path.child("namespace"), "");
            }
            let port = service["port"].int();
            let wrong = names::is_port_number(port);
            if !wrong.is_empty() {
                violations.invalid(
                    path.child("port"),
                    port,
                    &format!("port is not valid: {}", wrong.join(", ")),
                );
            }
            validate_path(service["path"].str(), &path.child("path"), violations);
        }
        _ => violations.required(path, "exactly one of url or service is required"),
    }
}

const FORM: &str = "; desired format: https://host[/path]";

fn validate_url(text: &str, path: &Path, violations: &mut Violations) {
    let url = match ParsedUrl::parse(text) {
        Ok(url) => url,
        Err(error) => {
            let text = json::quote(text);
            let detail = format!("url must be a valid URL: parse {text}: {error}{FORM}");
            return violations.required(path, &detail);
        }
    };
    if url.scheme != "https" {
        let detail = format!("'https' is the only allowed URL scheme{FORM}");
        violations.invalid(path, url.scheme.as_str(), &detail);
    }
    if url.host.is_empty() {
        violations.invalid(path, "", &format!("host must be specified{FORM}"));
    }
    if let Some(user) = url.user {
        violations.invalid(path, user, "user information is not permitted in the URL");
    }
    if !url.fragment.is_empty() {
        violations.invalid(path, url.fragment, "fragments are not permitted in the URL");
    }
    if !url.query.is_empty() {
        violations.invalid(
            path,
            url.query,
            "query parameters are not permitted in the URL",
        );
    }
}

/// The parts of a URL that are validated.
pub(crate) struct ParsedUrl<'a> {
    pub(crate) scheme: String,
    user: Option<&'a str>,
    pub(crate) host: &'a str,
    query: &'a str,
    fragment: &'a str,
}

impl<'a> ParsedUrl<'a> {
    /// Takes a URL apart as Go does.
    pub(crate) fn parse(text: &'a str) -> Result<ParsedUrl<'a>, String> {
        if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return Err("net/url: invalid control character in URL".into());
        }
        let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
        let end = rest
            .find(|char: char| !(char.is_ascii_alphanumeric() || matches!(char, '+' | '-' | '.')));
        let (scheme, rest) = match end {
            Some(0) if rest.starts_with(':') => return Err("missing protocol scheme".into()),
            Some(end)
                if rest[end..].starts_with(':')
                    && rest.starts_with(|char: char| char.is_ascii_alphabetic()) =>
            {
                (rest[..end].to_ascii_lowercase(), &rest[end + 1..])
            }
            _ => (String::new(), rest),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let Some(rest) = rest.strip_prefix("//") else {
            return ParsedUrl::without_host(scheme, rest, query, fragment);
        };
        let (authority, tail) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        check_host(host)?;
        check_escapes(tail)?;
        Ok(ParsedUrl {
            scheme,
            user,
            host,
            query,
            fragment,
        })
    }

    fn without_host(
        scheme: String,
        rest: &str,
        query: &'a str,
        fragment: &'a str,
    ) -> Result<ParsedUrl<'a>, String> {
        let segment = rest.split('/').next().unwrap_or_default();
        if scheme.is_empty() && segment.contains(':') {
            return Err("first path segment in URL cannot contain colon".into());
        }
        check_escapes(rest)?;
        Ok(ParsedUrl {
            scheme,
            user: None,
            host: "",
            query,
            fragment,
        })
    }
}

fn check_host(host: &str) -> Result<(), String> {
    if let Some(bad) = host.chars().find(|char| {
        matches!(
            char,
            ' ' | '"' | '<' | '>' | '\\' | '^' | '`' | '{' | '|' | '}'
        )
    }) {
        return Err(format!(
            "invalid character {:?} in host name",
            bad.to_string()
        ));
    }
    let port = match host.rfind(']') {
        Some(end) => &host[end + 1..],
        None => host.find(':').map_or("", |colon| &host[colon..]),
    };
    let is_port = port.is_empty()
        || port.starts_with(':') && port[1..].bytes().all(|byte| byte.is_ascii_digit());
    if is_port {
        Ok(())
    } else {
        Err(format!("invalid port {port:?} after host"))
    }
}

fn check_escapes(text: &str) -> Result<(), String> {
    for (at, _) in text.match_indices('%') {
        let escape: String = text[at..].chars().take(3).collect();
        if escape.len() < 3 || !escape[1..].bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(format!("invalid URL escape {escape:?}"));
        }
    }
    Ok(())
}

fn validate_path(text: &str, path: &Path, violations: &mut Violations) {
    match text {
        "" | "/" => return,
        "//" => return violations.invalid(path, text, "segment[0] may not be empty"),
        text if !text.starts_with('/') => violations.invalid(path, text, "must start with a '/'"),
        _ => {}
    }
    let inner = text.get(1..).unwrap_or_default();
    for (index, segment) in inner
        .strip_suffix('/')
        .unwrap_or(inner)
        .split('/')
        .enumerate()
    {
        if segment.is_empty() {
            violations.invalid(path, text, &format!("segment[{index}] may not be empty"));
            continue;
        }
        for message in names::is_dns1123_subdomain(segment) {
            violations.invalid(path, text, &format!("segment[{index}]: {message}"));
        }
    }
}
