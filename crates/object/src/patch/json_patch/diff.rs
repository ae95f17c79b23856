//! The JSON Patch from one value to another.

use mizzen_value::{Value, value};

/// The operations that change `old` to `new`, as RFC 6902 writes them. Lists are compared item by
/// item; a list that grew or shrank changes at its end.
///
/// ```
/// use mizzen_object::patch::json_diff;
/// use mizzen_value::{json, value};
///
/// let patch = json_diff(&value!({"a": 1, "b": {"c": [1]}}), &value!({"b": {"c": [2, 3]}}));
/// assert_eq!(
///     json::to_string(&patch),
///     r#"[{"op":"remove","path":"/a"},{"op":"replace","path":"/b/c/0","value":2},{"op":"add","path":"/b/c/-","value":3}]"#
/// );
/// ```
pub fn json_diff(old: &Value, new: &Value) -> Value {
    let mut operations = Vec::new();
    compare(&mut String::new(), old, new, &mut operations);
    Value::List(operations)
}

fn compare(path: &mut String, old: &Value, new: &Value, operations: &mut Vec<Value>) {
    let parent = path.len();
    match (old, new) {
        (old, new) if old == new => {}
        (Value::Map(old), Value::Map(new)) => {
            for (key, was) in old.iter() {
                push_segment(path, key);
                match new.get(key) {
                    Some(is) => compare(path, was, is, operations),
                    None => operations.push(value!({ "op": "remove", "path": (path.as_str()) })),
                }
                path.truncate(parent);
            }
            for (key, is) in new.iter().filter(|(key, _)| !old.contains_key(key)) {
                push_segment(path, key);
                operations
                    .push(value!({ "op": "add", "path": (path.as_str()), "value": (is.clone()) }));
                path.truncate(parent);
            }
        }
        (Value::List(old), Value::List(new)) => {
            for (idx, (was, is)) in old.iter().zip(new).enumerate() {
                push_segment(path, &idx.to_string());
                compare(path, was, is, operations);
                path.truncate(parent);
            }
            // From the end, so that the index of each is valid when it is removed.
            for idx in (new.len()..old.len()).rev() {
                operations.push(value!({ "op": "remove", "path": (format!("{path}/{idx}")) }));
            }
            for is in new.iter().skip(old.len()) {
                let path = format!("{path}/-");
                operations.push(value!({ "op": "add", "path": path, "value": (is.clone()) }));
            }
        }
        (_, new) => operations
            .push(value!({ "op": "replace", "path": (path.as_str()), "value": (new.clone()) })),
    }
}

fn push_segment(path: &mut String, key: &str) {
    path.push('/');
    path.push_str(&key.replace('~', "~0").replace('/', "~1"));
}

#[cfg(test)]
mod tests {
    use mizzen_value::json;
    use proptest::prelude::*;

    use super::*;
    use crate::patch::JsonPatch;

    #[track_caller]
    fn check(old: Value, new: Value, n_operations: usize) {
        let patch = json_diff(&old, &new);
        assert_eq!(patch.list().len(), n_operations, "{patch:?}");
        let mut patched = old.clone();
        let patch = JsonPatch::parse(json::to_string(&patch).as_bytes()).unwrap();
        patch.apply(&mut patched).unwrap();
        assert_eq!(patched, new, "from {old:?}");
    }

    #[test]
    fn equal_values_have_no_difference() {
        check(
            value!({"a": [1, {"b": null}]}),
            value!({"a": [1, {"b": null}]}),
            0,
        );
    }

    #[test]
    fn members_are_added_removed_and_replaced() {
        check(value!({"a": 1, "b": 2}), value!({"b": 3, "c": null}), 3);
        check(value!({"a": {"b": 1}}), value!({"a": [1]}), 1);
    }

    #[test]
    fn keys_are_escaped() {
        check(value!({"a/b": 1, "m~n": 1}), value!({"a/b": 2}), 2);
        check(value!({}), value!({"example.com/~x": {"": 1}}), 1);
    }

    #[test]
    fn lists_change_at_their_end() {
        check(value!({"l": [1, 2, 3, 4]}), value!({"l": [1, 5]}), 3);
        check(value!({"l": [1]}), value!({"l": [1, 2, 3]}), 2);
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..3i64).prop_map(Value::Int),
            "[a/~]{0,2}".prop_map(|text| Value::String(text.into())),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::List),
                proptest::collection::vec(("[a-c/~]{0,2}", inner), 0..4)
                    .prop_map(|members| Value::Map(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_difference_leads_from_one_value_to_the_other(old in any_value(), new in any_value()) {
            let (old, new) = (value!({ "root": old }), value!({ "root": new }));
            let patch = json::to_string(&json_diff(&old, &new));
            let mut patched = old.clone();
            JsonPatch::parse(patch.as_bytes()).unwrap().apply(&mut patched).unwrap();
            prop_assert_eq!(patched, new);
        }
    }
}
