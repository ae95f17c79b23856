//! What are the parts of a URL? Reads as Go's `net/url` does, for its reading and its complaints are on the wire.
//!
//! Kubernetes: a text is a URL if it could stand in a request (no relative references, and `#` belongs to the path),
//! but it is taken apart as a reference (with a fragment, and `//host` names a host) (library/urls.go).

use super::{cost, ip, opaque, text, texts};
use crate::{EvalError, Library, Map, Opaque, Outcome, Site, Type, Value};
use mizzen_value::json::quote;

/// A URL taken apart. Two are equal when they are written equally after normalisation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Url {
    /// In lower case.
    pub scheme: String,
    opaque: String,
    user: Option<(String, Option<String>)>,
    /// The host, with its port and an IPv6 address's brackets.
    pub host: String,
    /// The path, every character that must be escaped so.
    pub escaped_path: String,
    query: Option<String>,
    fragment: Vec<u8>,
}

/// Reads a URL, or says what is wrong as Go does.
pub(super) fn parse(text: &str) -> Result<Url, String> {
    check(text)?;
    parse_reference(text)
}

/// Reads what is a URL or refers to one from somewhere, as Go's `url.Parse` does, or says what is wrong.
pub fn parse_reference(text: &str) -> Result<Url, String> {
    let (reference, fragment) = text.split_once('#').unwrap_or((text, ""));
    let mut url = read(reference, false).map_err(|error| explain(reference, &error))?;
    url.fragment = unescape(fragment, Part::Fragment).map_err(|error| explain(text, &error))?;
    Ok(url)
}

/// Whether a text could be the URL of a request, and if not why.
pub(super) fn check(text: &str) -> Result<(), String> {
    read(text, true)
        .map(|_| ())
        .map_err(|error| explain(text, &error))
}

impl Url {
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

    /// The values of each key of the query, in order of first appearance. What cannot be read is left out.
    pub fn query(&self) -> Vec<(String, Vec<String>)> {
        let mut found: Vec<(String, Vec<String>)> = Vec::new();
        for pair in self.query.as_deref().unwrap_or_default().split('&') {
            if pair.is_empty() || pair.contains(';') {
                continue;
            }
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Ok(key), Ok(value)) = (
                unescape_text(key, Part::Query),
                unescape_text(value, Part::Query),
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

fn read(text: &str, is_request: bool) -> Result<Url, String> {
    if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return Err("net/url: invalid control character in URL".into());
    }
    if text.is_empty() && is_request {
        return Err("empty url".into());
    }
    let mut url = Url::default();
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
        check_relative(rest, is_request)?;
    }
    let is_host_next = !url.scheme.is_empty() || !is_request && !rest.starts_with("///");
    let path = match rest.strip_prefix("//").filter(|_| is_host_next) {
        Some(rest) => url.read_authority(rest)?,
        None => rest,
    };
    url.escaped_path = escape_path(path)?;
    Ok(url)
}

/// Kubernetes: `:foo` is refused, `1a:foo` and `a_b:foo` have no scheme.
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

fn check_relative(rest: &str, is_request: bool) -> Result<(), String> {
    if is_request {
        return Err("invalid URI for request".into());
    }
    match rest
        .split('/')
        .next()
        .is_some_and(|segment| segment.contains(':'))
    {
        true => Err("first path segment in URL cannot contain colon".into()),
        false => Ok(()),
    }
}

impl Url {
    /// Takes user and host from the front of `rest`, and gives back the path.
    fn read_authority<'a>(&mut self, rest: &'a str) -> Result<&'a str, String> {
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (user, host) = authority
            .rsplit_once('@')
            .map_or((None, authority), |(user, host)| (Some(user), host));
        self.host = read_host(&self.scheme, host)?;
        if let Some(user) = user {
            self.user = Some(read_user(user)?);
        }
        Ok(path)
    }
}

fn read_user(text: &str) -> Result<(String, Option<String>), String> {
    if !text
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte))
    {
        return Err("net/url: invalid userinfo".into());
    }
    let (name, password) = text
        .split_once(':')
        .map_or((text, None), |(name, rest)| (name, Some(rest)));
    let password = password
        .map(|password| unescape_text(password, Part::User))
        .transpose();
    Ok((unescape_text(name, Part::User)?, password?))
}

fn read_host(scheme: &str, host: &str) -> Result<String, String> {
    match host.rfind('[') {
        Some(0) => return read_literal(host),
        Some(_) => return Err("invalid IP-literal".into()),
        None => {}
    }
    // Kubernetes: PostgreSQL lists hosts with their ports, so only the last port is looked at.
    let is_list = matches!(scheme, "postgresql" | "postgres");
    let colon = if is_list {
        host.rfind(':')
    } else {
        host.find(':')
    };
    check_port(&host[colon.unwrap_or(host.len())..])?;
    unescape_text(host, Part::Host)
}

/// An IPv6 address in brackets, perhaps with a zone, perhaps with a port after it.
fn read_literal(host: &str) -> Result<String, String> {
    let end = host.rfind(']').ok_or("missing ']' in host")?;
    let (address, port) = (&host[1..end], &host[end + 1..]);
    check_port(port)?;
    let (address, zone) = address.split_at(address.find("%25").unwrap_or(address.len()));
    let address = unescape_text(address, Part::Host)? + &unescape_text(zone, Part::Zone)?;
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

/// The path as it is written if that is a valid way to write it, else escaped anew.
fn escape_path(path: &str) -> Result<String, String> {
    let plain = unescape(path, Part::Path)?;
    let is_valid = |byte: u8| b"!$&'()*+,;=:@[]%".contains(&byte) || !Part::Path.escapes(byte);
    if path.bytes().all(is_valid) {
        return Ok(path.into());
    }
    let escape = |byte: u8| {
        if Part::Path.escapes(byte) {
            format!("%{byte:02X}")
        } else {
            char::from(byte).into()
        }
    };
    Ok(plain.into_iter().map(escape).collect())
}

/// Where a text stands in a URL: each part has its own characters.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Path,
    Host,
    Zone,
    User,
    Query,
    Fragment,
}

impl Part {
    fn is_host(self) -> bool {
        matches!(self, Part::Host | Part::Zone)
    }

    /// Whether a byte cannot stand for itself.
    fn escapes(self, byte: u8) -> bool {
        let allowed: &[u8] = match self {
            Part::Path => b"$&+,/:;=@",
            Part::Host | Part::Zone => b"!$&'()*+,;=:[]<>\"",
            Part::User => b"$&+,;=",
            Part::Query => b"",
            Part::Fragment => b"$&+,/:;=?@!()*",
        };
        !(byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) || allowed.contains(&byte))
    }
}

fn unescape_text(text: &str, part: Part) -> Result<String, String> {
    unescape(text, part).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn unescape(text: &str, part: Part) -> Result<Vec<u8>, String> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match byte {
            b'%' => {
                plain.push(unescape_byte(tail, part).ok_or_else(|| escape_error(tail))?);
                rest = &tail[2..];
            }
            b'+' if part == Part::Query => plain.push(b' '),
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

fn unescape_byte(digits: &[u8], part: Part) -> Option<u8> {
    let digit = |index: usize| char::from(*digits.get(index)?).to_digit(16);
    let byte = (digit(0)? * 16 + digit(1)?) as u8;
    let is_allowed = match part {
        Part::Host => byte >= 0x80 || byte == b'%',
        Part::Zone => matches!(byte, b'%' | b' ') || !Part::Host.escapes(byte),
        _ => true,
    };
    is_allowed.then_some(byte)
}

fn escape_error(after: &[u8]) -> String {
    let shown = String::from_utf8_lossy(&after[..after.len().min(2)]);
    format!("invalid URL escape {}", quote(&format!("%{shown}")))
}

impl Opaque for Url {
    fn type_name(&self) -> &str {
        "kubernetes.URL"
    }

    fn equals(&self, other: &dyn Opaque) -> bool {
        other.downcast() == Some(self)
    }
}

/// `url(…)` and what can be asked of one.
pub(super) fn library() -> Library {
    use Type::{Bool, String};
    let url = || Type::object("kubernetes.URL");
    let values = Type::map(String, Type::list(String));
    let functions = functions! {
        "url" {
            global "string_to_url" (String) -> url() => from_text,
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

fn query<'a>(_: &Site, arguments: &[Value<'a>]) -> Outcome<'a> {
    let entries = this(arguments)?
        .query()
        .into_iter()
        .map(|(key, values)| (key.into(), texts(values)));
    Map::new(entries)
        .map(Value::Map)
        .ok_or_else(EvalError::no_such_overload)
}

fn this<'v>(arguments: &'v [Value]) -> Result<&'v Url, EvalError> {
    opaque(arguments, 0)
}

fn from_text<'a>(_: &Site, arguments: &[Value<'a>]) -> Outcome<'a> {
    match parse(text(arguments, 0)?) {
        Ok(url) => Ok(Value::opaque(url)),
        Err(error) => Err(EvalError::new(format!(
            "URL parse error during conversion from string: {error}"
        ))),
    }
}
