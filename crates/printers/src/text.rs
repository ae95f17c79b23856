//! Text of table cells: ages, labels, selectors, shortened lists.

use mizzen_object::condition::find;
pub(super) use mizzen_object::condition::is_true;
use mizzen_object::select::selector_text;
use mizzen_value::{Value, time};

use super::row;

/// Stands for something that is not there.
pub(super) const NONE: &str = "<none>";
/// Shown for a value that is not set.
pub(super) const UNSET: &str = "<unset>";
/// Shown for a value that is not known.
pub(super) const UNKNOWN: &str = "<unknown>";

/// How long ago the object was made.
pub(super) fn age(object: &Value, now: i64) -> String {
    since(&object["metadata"]["creationTimestamp"], now)
}

/// The cells of a kind that shows nothing else.
pub(super) fn only_age(object: &Value, now: i64) -> Vec<Value> {
    row![age(object, now)]
}

/// How long ago a time was.
pub(super) fn since(time: &Value, now: i64) -> String {
    match time::to_unix(time.str()) {
        Some(then) => time::age(now - then),
        None => UNKNOWN.into(),
    }
}

/// The text, or `absent` where there is none.
pub(super) fn text_or<'a>(text: &'a Value, absent: &'a str) -> &'a str {
    match text.str() {
        "" => absent,
        text => text,
    }
}

/// The text of an optional field, or `absent` if it was not given; an empty text was given.
pub(super) fn given_or<'a>(text: &'a Value, absent: &'a str) -> &'a str {
    text.as_str().unwrap_or(absent)
}

/// A whole number or text, as either is written.
pub(super) fn int_or_text(value: &Value) -> String {
    match value {
        Value::Int(int) => int.to_string(),
        other => other.str().into(),
    }
}

/// The first condition of the type, or nothing.
pub(super) fn condition<'a>(conditions: &'a Value, of_type: &str) -> &'a Value {
    find(conditions, of_type).unwrap_or(&Value::Null)
}

/// The items' texts, joined.
pub(super) fn join(items: &Value, separator: &str) -> String {
    items
        .items()
        .map(Value::str)
        .collect::<Vec<_>>()
        .join(separator)
}

/// One member of every item, joined: `join_member(containers, "image")`.
pub(super) fn join_member(items: &Value, member: &str) -> String {
    items
        .items()
        .map(|item| item[member].str())
        .collect::<Vec<_>>()
        .join(",")
}

/// The first `limit` items, and how many more there are.
pub(super) fn cut_short(items: &[String], limit: usize, separator: &str) -> String {
    let shown = items[..items.len().min(limit)].join(separator);
    match items.len().saturating_sub(limit) {
        0 => shown,
        more => format!("{shown} + {more} more..."),
    }
}

/// Labels as `a=b,c=d`.
pub(super) fn labels(labels: &Value) -> String {
    let mut pairs: Vec<_> = labels
        .entries()
        .map(|(key, value)| format!("{key}={}", value.str()))
        .collect();
    pairs.sort_unstable();
    or_none(pairs.join(","))
}

/// A label selector as text, or a word that says that it selects by nothing.
pub(super) fn selector(selector: &Value) -> String {
    or_none(selector_text(selector))
}

fn or_none(text: String) -> String {
    if text.is_empty() { NONE.into() } else { text }
}
