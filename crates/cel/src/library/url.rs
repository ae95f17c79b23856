//! The URL library. Parses as Go's `net/url` does, because its errors are on the wire.
//!
//! Kubernetes: a string is a URL if it is a valid request URI (not a relative reference, and `#`
//! belongs to the path), but it is split as a reference (with a fragment, and `//host` has a host)
//! (library/urls.go).

use super::{cost, ip, opaque, text, texts};
use crate::{CallSite, EvalError, Library, MapVal, Opaque, Outcome, Type, Value};
use mizzen_value::json::quote;

/// A parsed URL. Two are equal if their normalized forms are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UrlVal {
    /// The scheme in lower case.
    pub scheme: String,
    opaque: String,
    user: Option<(String, Option<String>)>,
    /// The host with its port, and the brackets of an IPv6 address.
    pub host: String,
    /// The escaped path.
    pub escaped_path: String,
    query: Option<String>,
    fragment: Vec<u8>,
}

/// Parses a URL, or returns Go's error.
pub(super) fn parse(text: &str) -> Result<UrlVal, String> {
    check(text)?;
    parse_reference(text)
}

/// Parses a URL or a relative reference like Go's `url.Parse`, or returns its error.
pub fn parse_reference(text: &str) -> Result<UrlVal, String> {
    let (reference, fragment) = text.split_once('#').unwrap_or((text, ""));
    let mut url = read(reference, false).map_err(|error| explain(reference, &error))?;
    url.fragment = unescape(fragment, UrlPart::Fragment).map_err(|error| explain(text, &error))?;
    Ok(url)
}

/// Checks that a string is a request URI.
pub(super) fn check(text: &str) -> Result<(), String> {
    read(text, true)
        .map(|_| ())
        .map_err(|error| explain(text, &error))
}

impl UrlVal {
    /// The host without port and brackets.
    pub fn hostname(&self) -> &str {
        let host = self.split_port().0;
        host.strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host)
    }

    /// The port, as text.
    pub fn port(&self) -> &str {
        self.split_port().1
    }

    fn split_port(&self) -> (&str, &str) {
        match self.host.rsplit_once(':') {
            Some((host, port)) if is_digits(port) => (host, port),
            _ => (&self.host, ""),
        }
    }

    /// The values of each query key, in order of first appearance. Invalid pairs are left out.
    pub fn query(&self) -> Vec<(String, Vec<String>)> {
        let mut found: Vec<(String, Vec<String>)> = Vec::new();
        for pair in self.query.as_deref().unwrap_or_default().split('&') {
            if pair.is_empty() || pair.contains(';') {
                continue;
            }
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Ok(key), Ok(value)) = (
                unescape_text(key, UrlPart::Query),
                unescape_text(value, UrlPart::Query),
            ) else {
                continue;
            };
            match found.iter_mut().find(|(known, _)| *known == key) {
                Some((_, values)) => values.push(value),
                None => found.push((key, vec![value])),
            }
        }
        found
    }
}

fn explain(text: &str, error: &str) -> String {
    format!("parse {}: {error}", quote(text))
}

fn read(text: &str, is_request: bool) -> Result<UrlVal, String> {
    if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return Err("net/url: invalid control character in URL".into());
    }
    if text.is_empty() && is_request {
        return Err("empty url".into());
    }
    let mut url = UrlVal::default();
    if text == "*" {
        url.escaped_path = "*".into();
        return Ok(url);
    }
    let (scheme, rest) = split_scheme(text)?;
    url.scheme = scheme.to_ascii_lowercase();
    let (rest, query) = rest
        .split_once('?')
        .map_or((rest, None), |(rest, query)| (rest, Some(query.into())));
    url.query = query;
    if !rest.starts_with('/') {
        if !url.scheme.is_empty() {
            url.opaque = rest.into();
            return Ok(url);
        }
        if is_request {
            return Err("invalid URI for request".into());
        }
        let first = rest.split('/').next().unwrap_or_default();
        if first.contains(':') {
            return Err("first path segment in URL cannot contain colon".into());
        }
    }
    let is_host_next = !url.scheme.is_empty() || !is_request && !rest.starts_with("///");
    let path = match rest.strip_prefix("//").filter(|_| is_host_next) {
        Some(rest) => url.read_authority(rest)?,
        None => rest,
    };
    url.escaped_path = escape_path(path)?;
    Ok(url)
}

/// Kubernetes: `:foo` is rejected, `1a:foo` and `a_b:foo` have no scheme.
fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    match text.bytes().position(|byte| !is_inner(byte)) {
        Some(0) if text.starts_with(':') => Err("missing protocol scheme".into()),
        Some(end) if text.as_bytes()[end] == b':' && text.as_bytes()[0].is_ascii_alphabetic() => {
            Ok((&text[..end], &text[end + 1..]))
        }
        _ => Ok(("", text)),
    }
}

impl UrlVal {
    /// Parses user and host; returns the path.
    fn read_authority<'a>(&mut self, rest: &'a str) -> Result<&'a str, String> {
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (user, host) = authority
            .rsplit_once('@')
            .map_or((None, authority), |(user, host)| (Some(user), host));
        self.host = read_host(&self.scheme, host)?;
        if let Some(user) = user {
            let is_valid =
                |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
            if !user.bytes().all(is_valid) {
                return Err("net/url: invalid userinfo".into());
            }
            let (name, password) = user
                .split_once(':')
                .map_or((user, None), |(name, rest)| (name, Some(rest)));
            let password = password
                .map(|password| unescape_text(password, UrlPart::User))
                .transpose();
            self.user = Some((unescape_text(name, UrlPart::User)?, password?));
        }
        Ok(path)
    }
}

fn read_host(scheme: &str, host: &str) -> Result<String, String> {
    match host.rfind('[') {
        Some(0) => return read_literal(host),
        Some(_) => return Err("invalid IP-literal".into()),
        None => {}
    }
    // Kubernetes: PostgreSQL URLs list several hosts with ports, so only the last port is checked.
    let is_list = matches!(scheme, "postgresql" | "postgres");
    let colon = if is_list {
        host.rfind(':')
    } else {
        host.find(':')
    };
    check_port(&host[colon.unwrap_or(host.len())..])?;
    unescape_text(host, UrlPart::Host)
}

/// Parses an IPv6 address in brackets, with an optional zone and port.
fn read_literal(host: &str) -> Result<String, String> {
    let end = host.rfind(']').ok_or("missing ']' in host")?;
    let (address, port) = (&host[1..end], &host[end + 1..]);
    check_port(port)?;
    let (address, zone) = address.split_at(address.find("%25").unwrap_or(address.len()));
    let address = unescape_text(address, UrlPart::Host)? + &unescape_text(zone, UrlPart::Zone)?;
    match ip::parse_address(&address).map_err(|error| format!("invalid host: {error}"))? {
        (std::net::IpAddr::V4(_), _) => Err("invalid IP-literal".into()),
        _ => Ok(format!("[{address}]{port}")),
    }
}

fn check_port(port: &str) -> Result<(), String> {
    match port.is_empty() || port.starts_with(':') && is_digits(&port[1..]) {
        true => Ok(()),
        false => Err(format!("invalid port {} after host", quote(port))),
    }
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The path as it is written if that is a valid encoding, or else escaped again.
fn escape_path(path: &str) -> Result<String, String> {
    let plain = unescape(path, UrlPart::Path)?;
    let is_valid = |byte: u8| b"!$&'()*+,;=:@[]%".contains(&byte) || !UrlPart::Path.escapes(byte);
    if path.bytes().all(is_valid) {
        return Ok(path.into());
    }
    let escape = |byte: u8| {
        if UrlPart::Path.escapes(byte) {
            format!("%{byte:02X}")
        } else {
            char::from(byte).into()
        }
    };
    Ok(plain.into_iter().map(escape).collect())
}

/// The parts of a URL, each with its own set of characters.
#[derive(Clone, Copy, PartialEq)]
enum UrlPart {
    Path,
    Host,
    Zone,
    User,
    Query,
    Fragment,
}

impl UrlPart {
    fn is_host(self) -> bool {
        matches!(self, UrlPart::Host | UrlPart::Zone)
    }

    /// The byte that two hexadecimal digits encode, if it may be escaped in this part.
    fn unescape(self, digits: &[u8]) -> Option<u8> {
        let digit = |index: usize| char::from(*digits.get(index)?).to_digit(16);
        let byte = (digit(0)? * 16 + digit(1)?) as u8;
        let is_allowed = match self {
            UrlPart::Host => byte >= 0x80 || byte == b'%',
            UrlPart::Zone => matches!(byte, b'%' | b' ') || !UrlPart::Host.escapes(byte),
            _ => true,
        };
        is_allowed.then_some(byte)
    }

    /// Whether a byte must be escaped.
    fn escapes(self, byte: u8) -> bool {
        let allowed: &[u8] = match self {
            UrlPart::Path => b"$&+,/:;=@",
            UrlPart::Host | UrlPart::Zone => b"!$&'()*+,;=:[]<>\"",
            UrlPart::User => b"$&+,;=",
            UrlPart::Query => b"",
            UrlPart::Fragment => b"$&+,/:;=?@!()*",
        };
        !(byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) || allowed.contains(&byte))
    }
}

fn unescape_text(text: &str, part: UrlPart) -> Result<String, String> {
    unescape(text, part).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn unescape(text: &str, part: UrlPart) -> Result<Vec<u8>, String> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match byte {
            b'%' => {
                let byte = part.unescape(tail).ok_or_else(|| {
                    let shown = String::from_utf8_lossy(&tail[..tail.len().min(2)]);
                    format!("invalid URL escape {}", quote(&format!("%{shown}")))
                })?;
                plain.push(byte);
                rest = &tail[2..];
            }
            b'+' if part == UrlPart::Query => plain.push(b' '),
            _ if part.is_host() && byte < 0x80 && part.escapes(byte) => {
                return Err(format!(
                    "invalid character {} in host name",
                    quote(&char::from(byte).to_string())
                ));
            }
            _ => plain.push(byte),
        }
    }
    Ok(plain)
}

impl Opaque for UrlVal {
    fn type_name(&self) -> &str {
        "kubernetes.URL"
    }

    fn equals(&self, other: &dyn Opaque) -> bool {
        other.downcast() == Some(self)
    }
}

/// The functions of `url(…)`.
pub(super) fn library() -> Library {
    use Type::{Bool, String};
    let url = || Type::object("kubernetes.URL");
    let values = Type::map(String, Type::list(String));
    let functions = functions! {
        "url" {
            global "string_to_url" (String) -> url() =>
                |_, it| parse(text(it, 0)?).map(Value::opaque).map_err(|error| {
                    EvalError::new(format!("URL parse error during conversion from string: {error}"))
                }),
                costs cost::traverse, cost::estimate_traverse_sized;
        }
        "isURL" {
            global "is_url_string" (String) -> Bool =>
                |_, arguments| Ok(check(text(arguments, 0)?).is_ok().into());
        }
        "getScheme" {
            member "url_get_scheme" (url()) -> String => |_, it| Ok(this(it)?.scheme.clone().into());
        }
        "getHost" { member "url_get_host" (url()) -> String => |_, it| Ok(this(it)?.host.clone().into()); }
        "getHostname" {
            member "url_get_hostname" (url()) -> String => |_, it| Ok(this(it)?.hostname().to_owned().into());
        }
        "getPort" {
            member "url_get_port" (url()) -> String => |_, it| Ok(this(it)?.port().to_owned().into());
        }
        "getEscapedPath" {
            member "url_get_escaped_path" (url()) -> String =>
                |_, it| Ok(this(it)?.escaped_path.clone().into());
        }
        "getQuery" { member "url_get_query" (url()) -> values => query; }
    };
    Library::new("kubernetes.urls", (1, 0), functions)
}

fn query<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    let entries = this(arguments)?
        .query()
        .into_iter()
        .map(|(key, values)| (key.into(), texts(values)));
    MapVal::new(entries)
        .map(Value::Map)
        .ok_or_else(EvalError::no_such_overload)
}

fn this<'v>(arguments: &'v [Value]) -> Result<&'v UrlVal, EvalError> {
    opaque(arguments, 0)
}
