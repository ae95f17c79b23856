//! Rewrites the request line of HTTP/1.1, so that hyper accepts and rejects the same lines as Go's server.
//!
//! The `http` crate rejects some targets that Go accepts, accepts some that Go rejects, and cuts a target at `#`, which is a
//! character of the path or query for Go. So the line is parsed here by Go's rules (net/http, `readRequest`; net/url,
//! `ParseRequestURI`), and hyper gets only the path and query, escaped. A line that Go rejects gets a target that no other
//! line can have, by which [`fault`] finds it.

use http::Uri;

/// Why Go's server rejects a request line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestLineFault {
    /// The line or its target is no valid one.
    Malformed,
    /// The version of HTTP is not supported.
    Version,
}

/// The targets of rejected lines: no other path has an escape without digits.
const MALFORMED: &[u8] = b"/%";
const VERSION: &[u8] = b"/%v";
/// A target without a path: `http://example.com`, `mailto:me`.
const NO_PATH: &[u8] = b"x:0";

/// Why the request with this target is rejected, if it is.
pub fn fault(target: &Uri) -> Option<RequestLineFault> {
    let path = target.path();
    let is_rooted = matches!(path, "" | "*") || path.starts_with('/');
    match path.as_bytes() {
        VERSION => Some(RequestLineFault::Version),
        _ if is_rooted && is_escaped(path.as_bytes()) => None,
        _ => Some(RequestLineFault::Malformed),
    }
}

/// Rewrites a line, given without its line end.
pub(crate) fn rewrite(line: &[u8]) -> Vec<u8> {
    let mut parts = line.splitn(3, |byte| *byte == b' ');
    let (Some(method), Some(target), Some(version)) = (parts.next(), parts.next(), parts.next())
    else {
        return [b"GET ", MALFORMED, b" HTTP/1.1"].concat();
    };
    let version = match version {
        b"HTTP/1.0" => version,
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'0'..=b'9'] => b"HTTP/1.1",
        [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'] => {
            return [b"GET ", VERSION, b" HTTP/1.1"].concat();
        }
        _ => return [b"GET ", MALFORMED, b" HTTP/1.1"].concat(),
    };
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let is_method = !method.is_empty() && method.iter().all(is_token);
    match is_method.then(|| parse(method, target)).flatten() {
        Some(target) => [method, b" ", &target, b" ", version].concat(),
        None => [b"GET ", MALFORMED, b" ", version].concat(),
    }
}

/// The escaped path and query of a target; `None` if Go rejects it.
pub(crate) fn parse(method: &[u8], target: &[u8]) -> Option<Vec<u8>> {
    if target.is_empty() || target.iter().any(u8::is_ascii_control) {
        return None;
    }
    if target == b"*" {
        return Some(target.to_vec());
    }
    if method == b"CONNECT" && !target.starts_with(b"/") {
        return is_authority(target).then(|| NO_PATH.to_vec());
    }
    let (scheme, rest) = split_scheme(target)?;
    let path_end = rest.iter().position(|byte| *byte == b'?');
    let (mut path, query) = rest.split_at(path_end.unwrap_or(rest.len()));
    if !path.starts_with(b"/") {
        return (!scheme.is_empty()).then(|| NO_PATH.to_vec());
    }
    if !scheme.is_empty() && path.starts_with(b"//") {
        let end = path[2..].iter().position(|byte| *byte == b'/');
        let (authority, rest) = path[2..].split_at(end.unwrap_or(path.len() - 2));
        if !is_authority(authority) {
            return None;
        }
        if rest.is_empty() {
            return Some(NO_PATH.to_vec());
        }
        path = rest;
    }
    if !is_escaped(path) {
        return None;
    }
    let target = [path, query].concat();
    let is_utf8 = std::str::from_utf8(&target).is_ok();
    let mut escaped = Vec::with_capacity(target.len());
    for byte in target {
        match b" #<>\"`".contains(&byte) || !is_utf8 && byte >= 0x80 {
            true => escaped.extend_from_slice(format!("%{byte:02X}").as_bytes()),
            false => escaped.push(byte),
        }
    }
    Some(escaped)
}

/// Go: `getScheme`. `None` if the target begins with a colon.
fn split_scheme(target: &[u8]) -> Option<(&[u8], &[u8])> {
    for (at, byte) in target.iter().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return None,
            b':' => return Some((&target[..at], &target[at + 1..])),
            _ => break,
        }
    }
    Some((b"", target))
}

/// Go: `parseAuthority`.
fn is_authority(authority: &[u8]) -> bool {
    let host = match authority.iter().rposition(|byte| *byte == b'@') {
        Some(at) => &authority[at + 1..],
        None => authority,
    };
    let is_of_host = |byte: &u8| {
        byte.is_ascii_alphanumeric() || *byte >= 0x80 || b"-_.~!$&'()*+,;=:[]<>\"".contains(byte)
    };
    let port = match host.iter().rposition(|byte| *byte == b']') {
        Some(end) => &host[end + 1..],
        None => host
            .iter()
            .rposition(|byte| *byte == b':')
            .map_or(&b""[..], |at| &host[at..]),
    };
    let is_port = |port: &[u8]| match port {
        [] => true,
        [b':', digits @ ..] => digits.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    host.iter().all(is_of_host) && is_port(port)
}

/// Whether two digits follow each `%`.
fn is_escaped(path: &[u8]) -> bool {
    let mut escapes = path.split(|byte| *byte == b'%').skip(1);
    escapes.all(|rest| rest.len() >= 2 && rest[..2].iter().all(u8::is_ascii_hexdigit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: &str) {
        let rewritten = rewrite(line.as_bytes());
        assert_eq!(String::from_utf8_lossy(&rewritten), expected, "{line:?}");
    }

    fn fault_of(line: &[u8]) -> Option<RequestLineFault> {
        let line = String::from_utf8(rewrite(line)).unwrap();
        fault(&line.split(' ').nth(1).unwrap().parse().unwrap())
    }

    #[test]
    fn targets_that_go_accepts_reach_hyper_as_path_and_query() {
        for (target, expected) in [
            ("/a/%2Fb?c=%zz", "/a/%2Fb?c=%zz"),
            ("//a//b", "//a//b"),
            ("/%2Fa", "/%2Fa"),
            ("*", "*"),
            ("/a#b?c=<#>\"`", "/a%23b?c=%3C%23%3E%22%60"),
            ("/[{x}]|\\^é", "/[{x}]|\\^é"),
            ("http://example.com/a?b", "/a?b"),
            ("HTTPS://u:p@[::1]:80/a", "/a"),
            ("http:///a", "/a"),
            ("ftp://x//a", "//a"),
            ("http:/a", "/a"),
            ("http://example.com", "x:0"),
            ("http://example.com?a", "x:0"),
            ("example.com:443", "x:0"),
            ("mailto:x", "x:0"),
        ] {
            check(
                &format!("GET {target} HTTP/1.1"),
                &format!("GET {expected} HTTP/1.1"),
            );
            assert_eq!(fault_of(format!("GET {target} HTTP/1.1").as_bytes()), None);
        }
        assert_eq!(rewrite(b"GET /\xff HTTP/1.1"), b"GET /%FF HTTP/1.1");
        check("get / HTTP/1.0", "get / HTTP/1.0");
        check("get / HTTP/1.7", "get / HTTP/1.1");
        check("CONNECT example.com:443 HTTP/1.1", "CONNECT x:0 HTTP/1.1");
        check("CONNECT /a HTTP/1.1", "CONNECT /a HTTP/1.1");
    }

    #[test]
    fn lines_that_go_rejects_are_found_by_their_target() {
        for line in [
            "GET  HTTP/1.1",
            "GET HTTP/1.1",
            "GET",
            "GET %2Fa HTTP/1.1",
            "GET a/b HTTP/1.1",
            "GET ?a HTTP/1.1",
            "GET #a HTTP/1.1",
            "GET :a HTTP/1.1",
            "GET /% HTTP/1.1",
            "GET /%v HTTP/1.1",
            "GET /%zz HTTP/1.1",
            "GET /a%2 HTTP/1.1",
            "GET /a%2?b HTTP/1.1",
            "GET /\u{1} HTTP/1.1",
            "GET /a?\u{7f} HTTP/1.1",
            "GET http://ex%zz/ HTTP/1.1",
            "GET http://a:b/ HTTP/1.1",
            "GET /a b HTTP/1.1",
            "G@T / HTTP/1.1",
            "GET / HTTPS/1.1",
            "GET / http/1.1",
            "GET / HTTP/1.1 x",
            "GET / HTTP/1.10",
            "CONNECT a:b HTTP/1.1",
        ] {
            assert_eq!(
                fault_of(line.as_bytes()),
                Some(RequestLineFault::Malformed),
                "{line:?}"
            );
        }
        for version in ["0.9", "2.0", "3.1"] {
            let line = format!("GET / HTTP/{version}");
            assert_eq!(fault_of(line.as_bytes()), Some(RequestLineFault::Version));
        }
    }
}
