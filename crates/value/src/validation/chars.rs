//! Character rules of names. Upstream uses regular expressions for them.

/// `[a-z0-9]([-a-z0-9]*[a-z0-9])?`
pub(super) fn is_label(text: &str) -> bool {
    between(
        text,
        is_lower_alphanumeric,
        |byte| is_lower_alphanumeric(byte) || byte == b'-',
        is_lower_alphanumeric,
    )
}

/// Labels joined by dots.
pub(super) fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

/// Labels joined by dots, in either case.
pub(super) fn is_subdomain_caseless(text: &str) -> bool {
    is_subdomain(&text.to_ascii_lowercase())
}

/// `_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?`, joined by dots.
pub(super) fn is_subdomain_with_underscore(text: &str) -> bool {
    let inner = |byte| is_lower_alphanumeric(byte) || matches!(byte, b'-' | b'_');
    text.split('.').all(|label| {
        let rest = label.strip_prefix('_').unwrap_or(label);
        between(rest, is_lower_alphanumeric, inner, is_lower_alphanumeric)
    })
}

/// `[a-z]([-a-z0-9]*[a-z0-9])?`
pub(super) fn is_label_1035(text: &str) -> bool {
    is_label(text) && text.starts_with(|first: char| first.is_ascii_lowercase())
}

/// `([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]`
pub(super) fn is_label_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    between(
        text,
        |byte| byte.is_ascii_alphanumeric(),
        inner,
        |byte| byte.is_ascii_alphanumeric(),
    )
}

/// `first(inner*last)?`: one byte of `first`, or bytes of `inner` between a `first` and a `last`.
pub(super) fn between(
    text: &str,
    first: impl Fn(u8) -> bool,
    inner: impl Fn(u8) -> bool,
    last: impl Fn(u8) -> bool,
) -> bool {
    match text.as_bytes() {
        [] => false,
        [only] => first(*only),
        [head, middle @ .., tail] => {
            first(*head) && middle.iter().all(|byte| inner(*byte)) && last(*tail)
        }
    }
}

/// `[…]+`
pub(super) fn all(text: &str, allowed: impl Fn(u8) -> bool) -> bool {
    !text.is_empty() && text.bytes().all(allowed)
}

fn is_lower_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}
