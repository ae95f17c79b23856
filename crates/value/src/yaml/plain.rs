//! A fast path: most applied documents are JSON, which is parsed much faster.
//!
//! Invariant: the YAML parser gives the same result for whatever is accepted here. So nothing is
//! accepted where the two could differ: numbers other than integers, escapes, duplicate or very
//! long keys, tabs, anything but ASCII.

use crate::Value;
use crate::json;

/// Kubernetes: go-yaml stops looking for the colon after a key of 1024 bytes.
const MAX_KEY: usize = 1000;

/// The value of a text that is a plain JSON object.
pub(super) fn read(text: &[u8]) -> Option<Value> {
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~' | b'\n') && *byte != b'\\';
    if text.first() != Some(&b'{') || !text.iter().all(is_plain) {
        return None;
    }
    let mut value = json::parse(text).ok()?;
    let mut n_members = 0;
    sort_and_count(&mut value, &mut n_members)?;
    // If a key is duplicated, fewer members remain.
    (n_members == n_colons(text)).then_some(value)
}

/// Sorts maps as the YAML parser does, and counts their members.
fn sort_and_count(value: &mut Value, n_members: &mut usize) -> Option<()> {
    match value {
        Value::Number(_) => None,
        Value::List(items) => items
            .iter_mut()
            .try_for_each(|item| sort_and_count(item, n_members)),
        Value::Map(map) => {
            *n_members += map.len();
            map.sort();
            map.iter_mut().try_for_each(|(key, value)| {
                if key.len() > MAX_KEY {
                    return None;
                }
                sort_and_count(value, n_members)
            })
        }
        _ => Some(()),
    }
}

/// The number of members in the text: colons outside of strings.
fn n_colons(text: &[u8]) -> usize {
    let mut inside = false;
    let mut n_colons = 0;
    for byte in text {
        match byte {
            b'"' => inside = !inside,
            b':' if !inside => n_colons += 1,
            _ => {}
        }
    }
    n_colons
}

#[cfg(test)]
mod tests {
    use super::super::{compose, construct};
    use super::read;

    #[track_caller]
    fn check(text: &str, taken: bool) {
        let short = read(text.as_bytes());
        assert_eq!(short.is_some(), taken, "{text}");
        if let Some(short) = short {
            let tree = compose::compose(text.as_bytes()).unwrap().unwrap();
            let long = construct::construct(&tree).unwrap();
            assert_eq!((long.value, long.complaint), (short, None), "{text}");
        }
    }

    #[test]
    fn the_fast_path_equals_the_yaml_parser() {
        check("{}", true);
        check(
            r#"{"b":{"z":1,"a":[true,null,-5,"x: y","yes","1"]},"a":" # {no}"}"#,
            true,
        );
        check("{\n  \"a\": [\n    {\"b\": \"\"}\n  ]\n}\n", true);
        check(r#"{"a":9223372036854775807,"b":0}"#, true);
    }

    #[test]
    fn ambiguous_json_is_left_to_the_yaml_parser() {
        check(r#"{"a":1,"a":2}"#, false);
        check(r#"{"a":1.5}"#, false);
        check(r#"{"a":1e3}"#, false);
        check(r#"{"a":"\u0041"}"#, false);
        check("{\"a\":\t1}", false);
        check("{\"a\":\"é\"}", false);
        check("{a: 1}", false);
        check("a: 1", false);
        check(&format!(r#"{{"{}":1}}"#, "k".repeat(1001)), false);
    }
}
