//! Checks that kinds of several groups share.

use mizzen_object::validate::{field, names, selector};
use mizzen_object::{Path, Violations};
use mizzen_value::Value;
use mizzen_value::quantity::Quantity;

/// A check of a text; returns all error messages.
pub type Check = fn(&str) -> Vec<String>;

/// Each message of a check of `text` is a violation of its own.
pub fn text(text: &str, check: Check, path: &Path, violations: &mut Violations) {
    field::all(check(text), text, path, violations);
}

/// Like [`text`], but an empty text is missing, not wrong.
pub fn required_text(value: &Value, check: Check, path: &Path, violations: &mut Violations) {
    match value.str() {
        "" => violations.required(path, ""),
        name => text(name, check, path, violations),
    }
}

/// A text that, if it is there, is one of a few words.
pub fn optional_word(value: &Value, allowed: &[&str], path: &Path, violations: &mut Violations) {
    if let Some(word) = value.as_str() {
        field::one_of(word, allowed, path, violations);
    }
}

/// A number that something can listen on.
pub fn port(port: i64, path: &Path, violations: &mut Violations) {
    field::all(names::is_port_number(port), port, path, violations);
}

/// An amount that, if it is there, is not below zero.
pub fn nonnegative_amount(amount: &Value, path: &Path, violations: &mut Violations) {
    if let Some(amount) = amount
        .as_str()
        .filter(|amount| Quantity::parse_or_zero(amount).is_negative())
    {
        violations.invalid(path, amount, "must be greater than or equal to 0");
    }
}

/// A whole number or a percentage, neither below zero nor above a hundred percent.
pub fn count_or_percent(value: &Value, path: &Path, violations: &mut Violations) {
    let Some(text) = value.as_str() else {
        return field::non_negative(value.int(), path, violations);
    };
    let wrong = names::is_percent(text);
    // A number too big for the machine counts as the biggest, as in Go.
    if wrong.is_empty() && text.trim_end_matches('%').parse().unwrap_or(i64::MAX) > 100 {
        violations.invalid(path, text, "must not be greater than 100%");
    }
    field::all(wrong, text, path, violations);
}

/// A label selector. `old` is the one before an update, if there was one.
///
/// Kubernetes: an object that already has a bad selector may keep bad label values in it.
pub fn selector(new: &Value, old: Option<&Value>, path: &Path, violations: &mut Violations) {
    lenient_selector(new, old.is_some_and(is_bad_selector), path, violations);
}

/// A label selector, perhaps with bad label values.
pub fn lenient_selector(new: &Value, any_values: bool, path: &Path, violations: &mut Violations) {
    let options = selector::SelectorOptions {
        any_values,
        ..selector::SelectorOptions::default()
    };
    selector::label_selector(new, options, path, violations);
}

/// Whether a label selector is invalid.
pub fn is_bad_selector(value: &Value) -> bool {
    let mut violations = Violations::default();
    selector::label_selector(
        value,
        selector::SelectorOptions::default(),
        &Path::new(""),
        &mut violations,
    );
    !violations.is_empty()
}
