//! JSON merge patch (RFC 7386): null removes, objects merge, everything else replaces.

use std::collections::HashSet;

use mizzen_value::Value;

/// Applies `patch` to `target`.
pub fn merge(target: &mut Value, patch: Value) {
    let Value::Map(patch) = patch else {
        *target = patch;
        return;
    };
    let map = target.make_map();
    let mut gone = HashSet::new();
    for (key, value) in patch {
        match (value, map.get_mut(&key)) {
            (Value::Null, _) => drop(gone.insert(key)),
            (value @ Value::Map(_), Some(old @ Value::Map(_))) => merge(old, value),
            // Kubernetes: nulls survive in a list that replaces an object, and only there.
            (value @ Value::List(_), Some(old @ Value::Map(_))) => *old = value,
            (mut value, _) => {
                remove_nulls(&mut value);
                map.insert(key, value);
            }
        }
    }
    // All at once, because each single removal moves the members behind it.
    if !gone.is_empty() {
        map.retain(|key, _| !gone.contains(key));
    }
    map.sort();
}

/// Values that a patch adds have no nulls in their objects.
fn remove_nulls(value: &mut Value) {
    match value {
        Value::Map(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(remove_nulls);
            map.sort();
        }
        Value::List(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json;

    #[track_caller]
    fn check(target: &str, patch: &str, expected: &str) {
        let mut value = json::parse(target.as_bytes()).unwrap();
        merge(&mut value, json::parse(patch.as_bytes()).unwrap());
        assert_eq!(json::to_string(&value), expected);
    }

    #[test]
    fn null_removes_and_objects_merge() {
        check(
            r#"{"a":{"x":1,"y":2},"b":1}"#,
            r#"{"a":{"y":null,"z":3},"b":[1]}"#,
            r#"{"a":{"x":1,"z":3},"b":[1]}"#,
        );
        check(
            r#"{"a":1}"#,
            r#"{"b":{"c":null,"d":1}}"#,
            r#"{"a":1,"b":{"d":1}}"#,
        );
        check(r#"{"a":[1,2]}"#, r#"{"a":{"b":1}}"#, r#"{"a":{"b":1}}"#);
    }

    #[test]
    fn nulls_leave_objects_in_lists_too() {
        let list = r#"[{"z":null,"y":1,"b":{"d":null}},null]"#;
        let patch = format!(r#"{{"a":{list}}}"#);
        check("{}", &patch, r#"{"a":[{"b":{},"y":1},null]}"#);
        check(r#"{"a":1}"#, &patch, r#"{"a":[{"b":{},"y":1},null]}"#);
        check(r#"{"a":{}}"#, &patch, &patch);
    }
}
