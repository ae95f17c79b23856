//! The change of a typed object, applied to the text that was sent.
//!
//! A type knows a part of its kind: decoding drops unknown fields, and encoding adds the fields
//! that the type always writes. So the text is not compared with the encoded type. What the author
//! changed is the difference of two encodings, and only that is applied to the text.

use mizzen_value::Value;

/// `sent` with the changes from `before` to `after`, the encodings of the decoded object.
pub(super) fn merge_change(sent: &Value, before: &Value, after: &Value) -> Value {
    match (sent, before, after) {
        (sent, before, after) if before == after => sent.clone(),
        (Value::Map(sent), Value::Map(before), Value::Map(after)) => {
            let mut merged = sent.clone();
            for (key, is) in after.iter() {
                match (before.get(key), sent.get(key)) {
                    (Some(was), _) if was == is => {}
                    (Some(was), Some(sent)) => {
                        merged.insert(key, merge_change(sent, was, is));
                    }
                    _ => {
                        merged.insert(key, is.clone());
                    }
                }
            }
            for key in before.keys().filter(|key| !after.contains_key(key)) {
                merged.remove(key);
            }
            Value::Map(merged)
        }
        (Value::List(sent), Value::List(before), Value::List(after))
            if sent.len() == before.len() =>
        {
            let mut unmatched: Vec<usize> = (0..before.len()).collect();
            let mut take = |matches: &dyn Fn(usize) -> bool| {
                let at = unmatched.iter().position(|idx| matches(*idx))?;
                Some(unmatched.remove(at))
            };
            let is_same_length = before.len() == after.len();
            let items = after.iter().enumerate().map(|(idx, is)| {
                // Equal items first, then the one of the same name, then that of the same index.
                let origin = take(&|at| before[at] == *is)
                    .or_else(|| {
                        take(&|at| {
                            is["name"].as_str().is_some() && before[at]["name"] == is["name"]
                        })
                    })
                    .or_else(|| take(&|at| is_same_length && at == idx));
                match origin {
                    Some(at) => merge_change(&sent[at], &before[at], is),
                    None => is.clone(),
                }
            });
            Value::List(items.collect())
        }
        (_, _, after) => after.clone(),
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    #[track_caller]
    fn check(sent: Value, before: Value, after: Value, expected: Value) {
        assert_eq!(merge_change(&sent, &before, &after), expected);
    }

    #[test]
    fn unknown_fields_stay() {
        check(
            value!({"known": 1, "unknown": 2, "nested": {"unknown": 3}}),
            value!({"known": 1, "nested": {}}),
            value!({"known": 5, "nested": {"added": 6}}),
            value!({"known": 5, "unknown": 2, "nested": {"unknown": 3, "added": 6}}),
        );
    }

    #[test]
    fn fields_that_the_type_always_writes_are_not_added() {
        check(
            value!({"spec": {}}),
            value!({"spec": {"always": 0, "list": []}}),
            value!({"spec": {"always": 0, "list": [], "added": 1}}),
            value!({"spec": {"added": 1}}),
        );
    }

    #[test]
    fn a_field_that_the_author_removes_is_removed() {
        check(
            value!({"a": 1, "b": 2}),
            value!({"a": 1}),
            value!({}),
            value!({"b": 2}),
        );
    }

    #[test]
    fn items_of_a_list_keep_their_unknown_fields_when_it_grows() {
        check(
            value!([{"name": "a", "unknown": 1}, {"name": "b", "unknown": 2}]),
            value!([{"name": "a"}, {"name": "b"}]),
            value!([{"name": "new"}, {"name": "a"}, {"name": "b", "image": "x"}]),
            value!([{"name": "new"}, {"name": "a", "unknown": 1}, {"name": "b", "unknown": 2, "image": "x"}]),
        );
    }

    #[test]
    fn items_without_a_name_are_matched_by_index_if_their_number_is_the_same() {
        check(
            value!([{"port": 1, "unknown": 1}, {"port": 2, "unknown": 2}]),
            value!([{"port": 1}, {"port": 2}]),
            value!([{"port": 1}, {"port": 3}]),
            value!([{"port": 1, "unknown": 1}, {"port": 3, "unknown": 2}]),
        );
        check(value!([1, 2]), value!([1, 2]), value!([2]), value!([2]));
    }
}
