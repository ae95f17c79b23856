//! String formats, with the semantics of the Go functions that upstream uses, whatever a standard
//! says.

use super::node::NodeType;
use super::pattern::Pattern;
use crate::validate::ip;
use mizzen_value::time;

/// A format that is validated. Unknown formats are ignored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StringFormat {
    /// The name in schemas.
    pub name: &'static str,
    test: fn(&str) -> bool,
}

impl StringFormat {
    /// The format of this name for a type, if it is validated.
    pub(crate) fn parse(ty: NodeType, name: &str) -> Option<&'static StringFormat> {
        let formats = match ty {
            NodeType::Any | NodeType::String | NodeType::IntOrString => TEXT,
            NodeType::Integer => INTEGER,
            NodeType::Number => NUMBER,
            NodeType::Object | NodeType::Array | NodeType::Boolean => &[],
        };
        formats.iter().find(|format| format.name == name)
    }

    /// Whether text has this format.
    pub(crate) fn is_match(&self, text: &str) -> bool {
        (self.test)(text)
    }
}

/// Whether a format is validated for a type, by the names in schemas.
pub fn is_known_format(ty: &str, name: &str) -> bool {
    StringFormat::parse(NodeType::parse(ty), name).is_some()
}

const fn format(name: &'static str, test: fn(&str) -> bool) -> StringFormat {
    StringFormat { name, test }
}

static INTEGER: &[StringFormat] = &[format("int32", |_| true), format("int64", |_| true)];
static NUMBER: &[StringFormat] = &[format("float", |_| true), format("double", |_| true)];

static TEXT: &[StringFormat] = &[
    format("bsonobjectid", |text| {
        text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    }),
    format("uri", is_request_uri),
    format("email", is_email),
    format("hostname", |text| {
        let has_short_labels = text.split('.').all(|label| label.len() <= 63);
        HOSTNAME.is_match(text) && text.len() <= 255 && has_short_labels
    }),
    format("ipv4", |text| {
        text.contains('.') && ip::parse_sloppy(text).is_some()
    }),
    format("ipv6", |text| {
        text.contains(':') && text.parse::<std::net::Ipv6Addr>().is_ok()
    }),
    format("cidr", |text| ip::Cidr::parse_sloppy(text).is_some()),
    format("mac", is_mac),
    format("uuid", |text| UUID.is_match(text)),
    format("uuid3", |text| UUID3.is_match(text)),
    format("uuid4", |text| UUID4.is_match(text)),
    format("uuid5", |text| UUID5.is_match(text)),
    format("isbn", |text| is_isbn10(text) || is_isbn13(text)),
    format("isbn10", is_isbn10),
    format("isbn13", is_isbn13),
    format("creditcard", is_credit_card),
    format("ssn", |text| text.len() == 11 && SSN.is_match(text)),
    format("hexcolor", |text| HEX_COLOR.is_match(text)),
    format("rgbcolor", |text| RGB_COLOR.is_match(text)),
    format("byte", |text| BASE64.is_match(text)),
    format("password", |_| true),
    format("date", is_date),
    // Go's durations, or numbers with units in words anywhere in the text.
    format("duration", |text| {
        time::duration_nanos(text).is_ok() || SPANS.is_match(text)
    }),
    format("datetime", is_date_time),
    format("date-time", is_date_time),
    format("k8s-short-name", |text| {
        text.len() <= 63 && SHORT_NAME.is_match(text)
    }),
    format("k8s-long-name", |text| {
        text.len() <= 253 && LONG_NAME.is_match(text)
    }),
];

static UUID: Pattern =
    Pattern::fixed("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$");
static UUID3: Pattern =
    Pattern::fixed("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$");
static UUID4: Pattern =
    Pattern::fixed("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$");
static UUID5: Pattern =
    Pattern::fixed("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$");
static SSN: Pattern = Pattern::fixed(r"^\d{3}[- ]?\d{2}[- ]?\d{4}$");
static HEX_COLOR: Pattern = Pattern::fixed("^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$");
static RGB_COLOR: Pattern = Pattern::fixed(
    r"^rgb\(\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*\)$",
);
static BASE64: Pattern = Pattern::fixed(
    "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$",
);
static SHORT_NAME: Pattern = Pattern::fixed("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$");
static LONG_NAME: Pattern =
    Pattern::fixed(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$");
static HOSTNAME: Pattern = Pattern::fixed(
    r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$",
);
static CREDIT_CARD: Pattern = Pattern::fixed(
    r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11})$",
);
static TIME: Pattern =
    Pattern::fixed(r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$");
static SPANS: Pattern = Pattern::fixed(
    r"(?i)\d+\s*((ns|us|µs|ms|s|m|h|hr|d|w|wk)([^a-zµ]|$)|nano|micro|milli|sec|min|hour|day|week)",
);

/// Six, eight or twenty bytes in hexadecimal, as Go's `net.ParseMAC` accepts them.
fn is_mac(text: &str) -> bool {
    let parts = |separator: char, width: usize| {
        let parts: Vec<&str> = text.split(separator).collect();
        let plain =
            |part: &&str| part.len() == width && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        parts.iter().all(plain).then_some(parts.len() * width / 2)
    };
    [parts(':', 2), parts('-', 2), parts('.', 4)]
        .iter()
        .any(|bytes| matches!(bytes, Some(6 | 8 | 20)))
}

fn is_isbn10(text: &str) -> bool {
    let plain = without_spaces(text);
    let Some((last, digits)) = plain.as_bytes().split_last() else {
        return false;
    };
    let is_plain =
        digits.iter().all(u8::is_ascii_digit) && (last.is_ascii_digit() || *last == b'X');
    if plain.len() != 10 || !is_plain {
        return false;
    }
    let sum: u32 = digits
        .iter()
        .zip(1..)
        .map(|(digit, weight)| weight * u32::from(digit - b'0'))
        .sum();
    let last = if *last == b'X' {
        10
    } else {
        u32::from(last - b'0')
    };
    (sum + 10 * last).is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let plain = without_spaces(text);
    if plain.len() != 13 || !plain.bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    let weights = [1, 3].into_iter().cycle();
    plain
        .bytes()
        .zip(weights)
        .map(|(digit, weight)| weight * u32::from(digit - b'0'))
        .sum::<u32>()
        % 10
        == 0
}

fn without_spaces(text: &str) -> String {
    text.chars()
        .filter(|char| !matches!(char, ' ' | '\t' | '\n' | '\x0c' | '\r' | '-'))
        .collect()
}

fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let doubled = |(at, digit): (usize, u8)| match u32::from(digit - b'0') {
        digit if at % 2 == 0 => digit,
        digit if digit >= 5 => digit * 2 - 9,
        digit => digit * 2,
    };
    CREDIT_CARD.is_match(&digits)
        && digits.bytes().rev().enumerate().map(doubled).sum::<u32>() % 10 == 0
}

fn is_date(text: &str) -> bool {
    let plain = text.len() == 10 && text.is_ascii();
    plain && time::Moment::parse(&format!("{text}T00:00:00Z")).is_ok()
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(clock)) = (parts.next(), parts.next()) else {
        return false;
    };
    is_date(date)
        && TIME.is_match(clock)
        && (&clock[..2] <= "23" && &clock[3..5] <= "59" && &clock[6..8] <= "59")
}

/// Go's `url.ParseRequestURI`: an absolute URI, or an absolute path.
fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return false;
    }
    if text == "*" {
        return true;
    }
    let Some((scheme, rest)) = split_scheme(text) else {
        return false;
    };
    let (rest, _) = rest.split_once('?').unwrap_or((rest, ""));
    if !rest.starts_with('/') {
        return !scheme.is_empty();
    }
    match rest
        .strip_prefix("//")
        .filter(|rest| !rest.starts_with('/') && !scheme.is_empty())
    {
        Some(rest) => {
            let end = rest.find('/').unwrap_or(rest.len());
            is_authority(&rest[..end]) && is_escaped(&rest[end..])
        }
        None => is_escaped(rest),
    }
}

/// The scheme and the rest; the scheme is empty if there is none.
fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|char: char| !(char.is_ascii_alphanumeric() || "+-.".contains(char)));
    match end {
        Some(0) if text.starts_with(':') => None,
        Some(end)
            if text[end..].starts_with(':')
                && text.starts_with(|char: char| char.is_ascii_alphabetic()) =>
        {
            Some((&text[..end], &text[end + 1..]))
        }
        _ => Some(("", text)),
    }
}

fn is_authority(text: &str) -> bool {
    let (user, host) = text.rsplit_once('@').unwrap_or(("", text));
    let is_user = |char: char| char.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(char);
    let (name, port) = match host.rfind(']') {
        Some(end) if host.starts_with('[') => (&host[..=end], &host[end + 1..]),
        _ => host.find(':').map_or((host, ""), |at| host.split_at(at)),
    };
    let is_port = port.is_empty()
        || port
            .strip_prefix(':')
            .is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let is_host = |char: char| {
        !char.is_ascii() || char.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:[]<>\"%".contains(char)
    };
    user.chars().all(is_user)
        && is_escaped(user)
        && is_port
        && name.chars().all(is_host)
        && is_escaped(name)
}

/// Whether every percent sign starts an escape.
fn is_escaped(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    (0..bytes.len())
        .filter(|at| bytes[*at] == b'%')
        .all(|at| is_hex(at + 1) && is_hex(at + 2))
}

/// Go's `mail.ParseAddress`: `a@b`, or `Name <a@b>`.
fn is_email(text: &str) -> bool {
    let is_phrase = |name: &str| {
        let is_quoted = name.len() >= 2 && name.starts_with('"') && name.ends_with('"');
        let mut words = name.split([' ', '.']);
        is_quoted || words.all(|word| word.chars().all(is_atom))
    };
    let text = text.trim_matches([' ', '\t']);
    match text.strip_suffix('>') {
        Some(rest) => rest
            .split_once('<')
            .is_some_and(|(name, address)| is_phrase(name.trim()) && is_address(address)),
        None => is_address(text),
    }
}

fn is_address(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else {
        return false;
    };
    let dotted = |text: &str| {
        text.split('.')
            .all(|atom| !atom.is_empty() && atom.chars().all(is_atom))
    };
    let quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    (quoted || dotted(local))
        && (dotted(domain) || domain.starts_with('[') && domain.ends_with(']'))
}

fn is_atom(char: char) -> bool {
    !char.is_ascii() || char.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(char)
}
