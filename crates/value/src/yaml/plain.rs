//! A short cut: most of what is applied is JSON, which is read much faster as such.
//!
//! Invariant: what is read here, the long way reads as well. So nothing is taken in which the two could differ: other
//! numbers than integers, escapes, repeated or very long keys, tabs, anything that is not ASCII.

use crate::json;
use crate::{Map, Value};

/// Kubernetes: go-yaml gives up looking for the colon after a key of 1024 bytes.
const MAX_KEY: usize = 1000;

/// The value of a text that is a plain JSON object.
pub(super) fn read(text: &[u8]) -> Option<Value> {
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~' | b'\n') && *byte != b'\\';
    if text.first() != Some(&b'{') || !text.iter().all(is_plain) {
        return None;
    }
    let mut value = json::parse(text).ok()?;
    let mut n_members = 0;
    bring(&mut value, &mut n_members)?;
    // Of a repeated key one member is left.
    (n_members == n_colons(text)).then_some(value)
}

/// Sorts maps as the long way does, and counts their members.
fn bring(value: &mut Value, n_members: &mut usize) -> Option<()> {
    match value {
        Value::Number(_) => None,
        Value::List(items) => items.iter_mut().try_for_each(|item| bring(item, n_members)),
        Value::Map(map) => {
            *n_members += map.len();
            map.sort();
            bring_members(map, n_members)
        }
        _ => Some(()),
    }
}

fn bring_members(map: &mut Map, n_members: &mut usize) -> Option<()> {
    map.iter_mut().try_for_each(|(key, value)| {
        if key.len() > MAX_KEY {
            return None;
        }
        bring(value, n_members)
    })
}

/// How many members the text has: colons outside of strings.
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
    fn plain_json_is_read_as_the_long_way_reads_it() {
        check("{}", true);
        check(
            r#"{"b":{"z":1,"a":[true,null,-5,"x: y","yes","1"]},"a":" # {no}"}"#,
            true,
        );
        check("{\n  \"a\": [\n    {\"b\": \"\"}\n  ]\n}\n", true);
        check(r#"{"a":9223372036854775807,"b":0}"#, true);
    }

    #[test]
    fn whatever_could_differ_goes_the_long_way() {
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
