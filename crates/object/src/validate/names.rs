//! Validation of names in fields.
//!
//! Validation of a single string is in [`mizzen_value::validation::names`].

pub use mizzen_value::validation::names::*;

use crate::violation::{Path, Violations};

/// A domain of three or more labels.
pub fn fully_qualified_name(name: &str, path: &Path, violations: &mut Violations) {
    if name.is_empty() {
        return violations.required(path, "");
    }
    let wrong = is_dns1123_subdomain(name);
    if !wrong.is_empty() {
        violations.invalid(path, name, &wrong.join(","));
    } else if name.split('.').count() < 3 {
        violations.invalid(
            path,
            name,
            "should be a domain with at least three segments separated by dots",
        );
    }
}

/// A domain of two or more labels, with an optional trailing dot.
pub fn fully_qualified_domain_name(name: &str, path: &Path, violations: &mut Violations) {
    if name.is_empty() {
        return violations.required(path, "");
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let wrong = is_dns1123_subdomain(name);
    if !wrong.is_empty() {
        return violations.invalid(path, name, &wrong.join(","));
    }
    if !name.contains('.') {
        return violations.invalid(
            path,
            name,
            "should be a domain with at least two segments separated by dots",
        );
    }
    let wrong = name
        .split('.')
        .map(|label| (label, is_dns1123_label(label)))
        .find(|(_, wrong)| !wrong.is_empty());
    if let Some((label, wrong)) = wrong {
        violations.invalid(path, label, &wrong.join(","));
    }
}

/// `acme.io/foo`: a domain and an HTTP path.
pub fn domain_prefixed_path(text: &str, path: &Path, violations: &mut Violations) {
    if text.is_empty() {
        return violations.required(path, "");
    }
    let Some((host, rest)) = text
        .split_once('/')
        .filter(|(host, rest)| !host.is_empty() && !rest.is_empty())
    else {
        return violations.invalid(
            path,
            text,
            "must be a domain-prefixed path (such as \"acme.io/foo\")",
        );
    };
    for message in is_dns1123_subdomain(host) {
        violations.invalid(path, host, &message);
    }
    if !rest
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte))
    {
        violations.invalid(
            path,
            rest,
            &regex("Invalid path", r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", &[]),
        );
    }
}

/// `acme.io/foo`: a label key that has a prefix.
pub fn domain_prefixed_key(text: &str, path: &Path, violations: &mut Violations) {
    if text.is_empty() {
        return violations.required(path, "");
    }
    let wrong = is_label_key(text);
    for message in &wrong {
        violations.invalid(path, text, message);
    }
    if wrong.is_empty() && !text.contains('/') {
        violations.invalid(
            path,
            text,
            "must be a domain-prefixed key (such as \"acme.io/foo\")",
        );
    }
}
