//! Validation of names, keys, ports and other short strings of the API.
//!
//! Kubernetes: k8s.io/apimachinery/pkg/util/validation and pkg/api/validate/content. One counts
//! "characters" in its messages, the other "bytes"; both wordings are kept.

use super::{chars, ip};

/// The maximum length of a DNS label.
pub const LABEL_LENGTH: usize = 63;
/// The maximum length of a DNS subdomain.
pub const SUBDOMAIN_LENGTH: usize = 253;

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const LABEL_NAME: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_NAME_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
                               with an alphanumeric character";

/// How the names of a kind are validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NameRule {
    /// A DNS subdomain of up to 253 characters.
    #[default]
    Subdomain,
    /// A DNS label of up to 63 characters.
    Label,
    /// A DNS label that starts with a letter.
    Label1035,
    /// Like `Subdomain`, declared in the schema: prefixes of generated names are not validated.
    LongName,
    /// Anything that can be a path segment.
    PathSegment,
    /// An IP address. Names are not generated: the prefix is the name.
    Ip,
    /// Only by the kind's own validation.
    Any,
}

/// Validates a name, or a `generateName` prefix, by a kind's rule.
pub fn is_name(rule: NameRule, name: &str, prefix: bool) -> Vec<String> {
    match rule {
        NameRule::Subdomain => is_dns1123_subdomain(&masked(name, prefix)),
        NameRule::Label => is_dns1123_label(&masked(name, prefix)),
        NameRule::Label1035 => is_dns1035_label(&masked(name, prefix)),
        NameRule::LongName if prefix => Vec::new(),
        NameRule::LongName => is_dns1123_subdomain(name),
        NameRule::Ip => ip::is_ip(name),
        NameRule::PathSegment if prefix => is_path_segment_prefix(name),
        NameRule::PathSegment => is_path_segment_name(name),
        NameRule::Any => Vec::new(),
    }
}

/// A name, or a prefix of one, that must be a DNS subdomain.
pub fn name_is_dns_subdomain(name: &str, prefix: bool) -> Vec<String> {
    is_name(NameRule::Subdomain, name, prefix)
}

/// A name, or a prefix of one, that must be a DNS label.
pub fn name_is_dns_label(name: &str, prefix: bool) -> Vec<String> {
    is_name(NameRule::Label, name, prefix)
}

/// A name, or a prefix of one, that must be a DNS label and start with a letter.
pub fn name_is_dns1035_label(name: &str, prefix: bool) -> Vec<String> {
    is_name(NameRule::Label1035, name, prefix)
}

/// A prefix may end with a dash, because a suffix follows.
///
/// Kubernetes: `maskTrailingDash` also drops the character before the dash.
fn masked(name: &str, prefix: bool) -> std::borrow::Cow<'_, str> {
    let body = name
        .strip_suffix('-')
        .filter(|body| prefix && body.ends_with(|last: char| last.is_ascii()));
    match body {
        Some(body) => format!("{}a", &body[..body.len() - 1]).into(),
        None => name.into(),
    }
}

/// Whether a name can be a path segment.
pub fn is_path_segment_name(name: &str) -> Vec<String> {
    match name {
        "." | ".." => vec![format!("may not be '{name}'")],
        _ => is_path_segment_prefix(name),
    }
}

/// Whether a prefix can start a path segment.
pub fn is_path_segment_prefix(name: &str) -> Vec<String> {
    ["/", "%"]
        .iter()
        .filter(|part| name.contains(**part))
        .map(|part| format!("may not contain '{part}'"))
        .collect()
}

/// A label or annotation key, a finalizer and the like: a name with an optional DNS prefix.
pub fn is_label_key(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts[..] {
        [name] => name,
        [prefix, name] => {
            match prefix {
                "" => wrong.push("prefix part must be non-empty".into()),
                _ => {
                    let length = length_in_bytes(prefix, SUBDOMAIN_LENGTH).into_iter();
                    let messages = length.chain(subdomain_shape(prefix));
                    wrong.extend(messages.map(|message| format!("prefix part {message}")));
                }
            }
            name
        }
        _ => {
            let rule = regex(
                LABEL_NAME_RULE,
                LABEL_NAME,
                &["MyName", "my.name", "123-abc"],
            );
            let suffix =
                "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {rule} {suffix}")];
        }
    };
    wrong.extend(label_name(name));
    wrong
}

/// Upstream's older name for [`is_label_key`].
pub fn is_qualified_name(text: &str) -> Vec<String> {
    is_label_key(text)
}

fn label_name(name: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if name.is_empty() {
        wrong.push("must be non-empty".into());
    }
    wrong.extend(length_in_bytes(name, LABEL_LENGTH));
    if !chars::is_label_name(name) {
        wrong.push(regex(
            LABEL_NAME_RULE,
            LABEL_NAME,
            &["MyName", "my.name", "123-abc"],
        ));
    }
    wrong
        .into_iter()
        .map(|message| format!("name part {message}"))
        .collect()
}

/// The value of a label.
pub fn is_label_value(text: &str) -> Vec<String> {
    let mut wrong = Vec::from_iter(length_in_bytes(text, LABEL_LENGTH));
    if !text.is_empty() && !chars::is_label_name(text) {
        let rule = format!(
            "a valid label must be an empty string or {}",
            LABEL_NAME_RULE.trim_start_matches("must ")
        );
        wrong.push(regex(
            &rule,
            &format!("({LABEL_NAME})?"),
            &["MyValue", "my_value", "12345"],
        ));
    }
    wrong
}

/// A DNS label as in RFC 1123.
pub fn is_dns1123_label(text: &str) -> Vec<String> {
    let mut wrong = Vec::from_iter(length(text, LABEL_LENGTH));
    if !chars::is_label(text) {
        wrong.push(match chars::is_subdomain(text) {
            true => "must not contain dots".into(),
            false => regex(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                 start and end with an alphanumeric character",
                LABEL,
                &["my-name", "123-abc"],
            ),
        });
    }
    wrong
}

/// DNS labels as in RFC 1123, joined by dots.
pub fn is_dns1123_subdomain(text: &str) -> Vec<String> {
    length(text, SUBDOMAIN_LENGTH)
        .into_iter()
        .chain(subdomain_shape(text))
        .collect()
}

fn subdomain_shape(text: &str) -> Option<String> {
    (!chars::is_subdomain(text)).then(|| {
        regex(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
             must start and end with an alphanumeric character",
            SUBDOMAIN,
            &["example.com"],
        )
    })
}

/// A DNS subdomain in upper or lower case.
pub fn is_dns1123_subdomain_caseless(text: &str) -> Vec<String> {
    let mut wrong = Vec::from_iter(length_in_bytes(text, SUBDOMAIN_LENGTH));
    if !chars::is_subdomain_caseless(text) {
        wrong.push(regex(
            "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and end \
             with an alphanumeric character",
            SUBDOMAIN,
            &["Example.com"],
        ));
    }
    wrong
}

/// A DNS subdomain whose labels may have underscores.
pub fn is_dns1123_subdomain_with_underscore(text: &str) -> Vec<String> {
    let mut wrong = Vec::from_iter(length(text, SUBDOMAIN_LENGTH));
    if !chars::is_subdomain_with_underscore(text) {
        wrong.push(regex(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', \
             and must start and end with an alphanumeric character",
            r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*",
            &["example.com"],
        ));
    }
    wrong
}

/// A DNS label as in RFC 1035, which starts with a letter.
pub fn is_dns1035_label(text: &str) -> Vec<String> {
    let mut wrong = Vec::from_iter(length(text, LABEL_LENGTH));
    if !chars::is_label_1035(text) {
        wrong.push(regex(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    wrong
}

/// `*.` and a DNS subdomain.
pub fn is_wildcard_dns1123_subdomain(text: &str) -> Vec<String> {
    let mut wrong = Vec::from_iter(length(text, SUBDOMAIN_LENGTH));
    if !text.strip_prefix("*.").is_some_and(chars::is_subdomain) {
        wrong.push(regex(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must \
             consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
            &format!(r"\*\.{SUBDOMAIN}"),
            &["*.example.com"],
        ));
    }
    wrong
}

/// A C identifier.
pub fn is_c_identifier(text: &str) -> Vec<String> {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    unless(chars::between(text, first, inner, inner), || {
        regex(
            "a valid C identifier must start with alphabetic character or '_', followed by a string of \
             alphanumeric characters or '_'",
            "[A-Za-z_][A-Za-z0-9_]*",
            &["my_name", "MY_NAME", "MyName"],
        )
    })
}

/// A port number.
pub fn is_port_number(port: i64) -> Vec<String> {
    is_in_range(port, 1, 65535)
}

/// A user or group ID.
pub fn is_user_id(id: i64) -> Vec<String> {
    is_in_range(id, 0, i32::MAX.into())
}

/// An integer in an inclusive range.
pub fn is_in_range(number: i64, low: i64, high: i64) -> Vec<String> {
    unless((low..=high).contains(&number), || {
        format!("must be between {low} and {high}, inclusive")
    })
}

/// A port name: up to 15 characters, one of them a letter.
pub fn is_port_name(text: &str) -> Vec<String> {
    let mut wrong = Vec::from_iter(length(text, 15));
    let mut check = |fine: bool, message: &str| wrong.extend((!fine).then(|| message.to_string()));
    check(
        chars::all(text, |byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'
        }),
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    );
    check(
        text.bytes().any(|byte| byte.is_ascii_lowercase()),
        "must contain at least one letter (a-z)",
    );
    check(!text.contains("--"), "must not contain consecutive hyphens");
    check(
        !text.starts_with('-') && !text.ends_with('-'),
        "must not begin or end with a hyphen",
    );
    wrong
}

/// Digits and a percent sign.
pub fn is_percent(text: &str) -> Vec<String> {
    let fine = text
        .strip_suffix('%')
        .is_some_and(|digits| chars::all(digits, |byte| byte.is_ascii_digit()));
    let rule = "a valid percent string must be a numeric string followed by an ending '%'";
    unless(fine, || regex(rule, "[0-9]+%", &["1%", "93%"]))
}

/// The name of an HTTP header.
pub fn is_http_header_name(text: &str) -> Vec<String> {
    let fine = chars::all(text, |byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let rule = "a valid HTTP header must consist of alphanumeric characters or '-'";
    unless(fine, || regex(rule, "[-A-Za-z0-9]+", &["X-Header-Name"]))
}

/// An environment variable name by the old, narrow rule.
pub fn is_env_var_name(text: &str) -> Vec<String> {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let first = |byte: u8| inner(byte) && !byte.is_ascii_digit();
    let mut wrong = unless(chars::between(text, first, inner, inner), || {
        regex(
            "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', \
             and must not start with a digit",
            "[-._a-zA-Z][-._a-zA-Z0-9]*",
            &["my.env-name", "MY_ENV.NAME", "MyEnvName1"],
        )
    });
    wrong.extend(leads_elsewhere(text));
    wrong
}

/// An environment variable name: any printable characters except `=`.
pub fn is_relaxed_env_var_name(text: &str) -> Vec<String> {
    if text.is_empty() {
        return vec!["environment variable name must be non-empty".into()];
    }
    unless(
        text.bytes()
            .all(|byte| matches!(byte, b' '..=b'~') && byte != b'='),
        || {
            "a valid environment variable name must consist only of printable ASCII characters other than '='"
            .into()
        },
    )
}

/// The key of an item in a ConfigMap or Secret.
pub fn is_config_map_key(text: &str) -> Vec<String> {
    let mut wrong = Vec::from_iter(length(text, SUBDOMAIN_LENGTH));
    if !chars::all(text, |byte| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_')
    }) {
        wrong.push(regex(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    wrong.extend(leads_elsewhere(text));
    wrong
}

/// A decimal integer without sign or leading zeros.
pub fn is_decimal_integer(text: &str) -> Vec<String> {
    if text.is_empty() {
        return vec!["must be non-empty".into()];
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    let fine =
        text == "0" || chars::all(digits, |byte| byte.is_ascii_digit()) && !digits.starts_with('0');
    unless(fine, || {
        "must be a valid decimal integer in canonical form".into()
    })
}

/// A condition's reason.
pub fn is_condition_reason(text: &str) -> Vec<String> {
    let last = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let inner = |byte: u8| last(byte) || matches!(byte, b',' | b':');
    let is_valid = chars::between(text, |byte| byte.is_ascii_alphabetic(), inner, last);
    unless(is_valid, || {
        regex(
            "a condition reason must start with alphabetic character, optionally followed by a string of \
             alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'",
            "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?",
            &[
                "my_name",
                "MY_NAME",
                "MyName",
                "ReasonA,ReasonB",
                "ReasonA:ReasonB",
            ],
        )
    })
}

/// The message for a string that does not match a regular expression.
pub fn regex(rule: &str, regex: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{rule} (regex used for validation is '{regex}')");
    }
    let examples: Vec<String> = examples
        .iter()
        .map(|example| format!("'{example}', "))
        .collect();
    format!(
        "{rule} (e.g. {}regex used for validation is '{regex}')",
        examples.join(" or ")
    )
}

fn length(text: &str, max: usize) -> Option<String> {
    (text.len() > max).then(|| format!("must be no more than {max} characters"))
}

fn length_in_bytes(text: &str, max: usize) -> Option<String> {
    (text.len() > max).then(|| format!("must be no more than {max} bytes"))
}

fn leads_elsewhere(text: &str) -> Option<String> {
    match text {
        "." | ".." => Some(format!("must not be '{text}'")),
        _ => text
            .starts_with("..")
            .then(|| "must not start with '..'".into()),
    }
}

fn unless(fine: bool, message: impl FnOnce() -> String) -> Vec<String> {
    if fine { Vec::new() } else { vec![message()] }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each text with the start of each message that it gets.
    #[track_caller]
    fn check(is: fn(&str) -> Vec<String>, cases: &[(&str, &[&str])]) {
        for (text, expected) in cases {
            let wrong = is(text);
            let matches = wrong.len() == expected.len()
                && wrong
                    .iter()
                    .zip(*expected)
                    .all(|(message, start)| message.starts_with(start));
            assert!(matches, "{text:?}: {wrong:?}");
        }
    }

    fn long(n: usize) -> &'static str {
        "x".repeat(n).leak()
    }

    #[test]
    fn a_label_key_has_a_name_and_an_optional_prefix() {
        check(
            is_label_key,
            &[
                ("a", &[]),
                ("a.b/C_d-9", &[]),
                (
                    "",
                    &["name part must be non-empty", "name part must consist"],
                ),
                ("/x", &["prefix part must be non-empty"]),
                (
                    "example.com/",
                    &["name part must be non-empty", "name part must consist"],
                ),
                ("a/b/c", &["a valid label key must consist"]),
                (
                    "UPPER.com/x",
                    &["prefix part a lowercase RFC 1123 subdomain"],
                ),
                (long(63), &[]),
                (long(64), &["name part must be no more than 63 bytes"]),
                ("a b", &["name part must consist"]),
                ("-a", &["name part must consist"]),
            ],
        );
    }

    #[test]
    fn a_label_value_is_empty_or_a_name() {
        check(
            is_label_value,
            &[
                ("", &[]),
                ("MyValue", &[]),
                (long(64), &["must be no more than 63 bytes"]),
                (
                    "_x",
                    &[
                        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_'",
                    ],
                ),
            ],
        );
    }

    #[test]
    fn a_dns_label_has_no_dots() {
        check(
            is_dns1123_label,
            &[
                ("a-1", &[]),
                ("0", &[]),
                ("a.b", &["must not contain dots"]),
                ("A", &["a lowercase RFC 1123 label must consist"]),
                ("a-", &["a lowercase RFC 1123 label must consist"]),
                ("", &["a lowercase RFC 1123 label must consist"]),
                (long(64), &["must be no more than 63 characters"]),
            ],
        );
    }

    #[test]
    fn names_of_ports_have_a_letter() {
        check(
            is_port_name,
            &[
                ("http-2", &[]),
                ("80", &["must contain at least one letter"]),
                (
                    "-a--",
                    &[
                        "must not contain consecutive hyphens",
                        "must not begin or end",
                    ],
                ),
                (
                    "",
                    &[
                        "must contain only alpha-numeric",
                        "must contain at least one letter",
                    ],
                ),
                (long(16), &["must be no more than 15 characters"]),
            ],
        );
    }

    #[test]
    fn config_map_keys_cannot_traverse_directories() {
        check(
            is_config_map_key,
            &[
                ("a.b_C-1", &[]),
                (".", &["must not be '.'"]),
                ("..a", &["must not start with '..'"]),
                ("a/b", &["a valid config key must consist"]),
                ("", &["a valid config key must consist"]),
            ],
        );
    }

    #[test]
    fn a_prefix_may_end_with_a_dash() {
        assert!(is_name(NameRule::Subdomain, "web-", true).is_empty());
        assert!(is_name(NameRule::Label, "-", true).len() == 1);
        assert!(is_name(NameRule::Subdomain, "web-", false).len() == 1);
        assert_eq!(
            is_name(NameRule::PathSegment, "..", false),
            ["may not be '..'"]
        );
        assert_eq!(
            is_name(NameRule::PathSegment, "a/%", true),
            ["may not contain '/'", "may not contain '%'"]
        );
    }

    #[test]
    fn other_texts() {
        check(
            is_percent,
            &[
                ("5%", &[]),
                ("%", &["a valid percent"]),
                ("5", &["a valid percent"]),
            ],
        );
        check(
            is_wildcard_dns1123_subdomain,
            &[
                ("*.a.b", &[]),
                ("*", &["a wildcard"]),
                ("*.*.b", &["a wildcard"]),
            ],
        );
        check(
            is_dns1035_label,
            &[
                ("a1", &[]),
                ("1a", &["a DNS-1035 label"]),
                ("", &["a DNS-1035 label"]),
            ],
        );
        check(
            is_c_identifier,
            &[
                ("_a1", &[]),
                ("1a", &["a valid C identifier"]),
                ("", &["a valid C identifier"]),
            ],
        );
        check(
            is_relaxed_env_var_name,
            &[
                ("a b", &[]),
                ("a=b", &["a valid env"]),
                ("", &["environment variable"]),
            ],
        );
        check(
            is_decimal_integer,
            &[
                ("0", &[]),
                ("-12", &[]),
                ("-0", &["must be a valid"]),
                ("01", &["must be"]),
            ],
        );
    }
}
