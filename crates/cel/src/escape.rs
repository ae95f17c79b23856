//! Escaping of field names that are not identifiers: `a-b` is `a__dash__b`, `in` is `__in__`.

use mizzen_value::Str;

/// The reserved words.
pub(super) const RESERVED: &[&str] = &[
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Whether a name is an identifier.
pub fn is_identifier(name: &str) -> bool {
    let is_word = name
        .bytes()
        .all(|byte| byte == b'_' || byte.is_ascii_alphanumeric());
    is_word
        && !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && !RESERVED.contains(&name)
}

/// The escaped form of a reserved word. Kubernetes: such a field can also be selected by the word
/// itself, which is valid after a dot (apiserver/pkg/cel/types.go).
pub(super) fn escape_reserved(name: &str) -> Option<Str> {
    RESERVED
        .contains(&name)
        .then(|| format!("__{name}__").into())
}

/// The escaped form of a name; `None` if it cannot be escaped.
pub fn escape(name: &str) -> Option<Str> {
    if let Some(reserved) = escape_reserved(name) {
        return Some(reserved);
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/');
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(plain)
    {
        return None;
    }
    // Kubernetes: underscores are escaped in pairs from the left; a single one stays (cel/escaping.go).
    let name = name.replace("__", "__underscores__");
    let name = name
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__");
    Some(name.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_as_kubernetes_does() {
        let check = |name: &str, expect: Option<&str>| {
            assert_eq!(escape(name).as_deref(), expect, "{name}")
        };
        check("plain_1", Some("plain_1"));
        check("a.b-c/d", Some("a__dot__b__dash__c__slash__d"));
        check("a__b___c", Some("a__underscores__b__underscores___c"));
        check("namespace", Some("__namespace__"));
        check("int", Some("int"));
        check("1a", None);
        check("", None);
        check("a$", None);
        check("é", None);
    }
}
