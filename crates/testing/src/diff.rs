//! Differences between objects and between texts, for people.

use std::collections::BTreeMap;

use mizzen_value::{Value, json};

/// How many changed fields a line has.
const MAX_FIELDS: usize = 4;

/// System metadata, which every write changes.
const IGNORED: [&str; 3] = [
    "metadata.managedFields",
    "metadata.resourceVersion",
    "metadata.generation",
];

/// The fields that differ between two states of an object, without system metadata, in a line.
pub(crate) fn changes_between(old: &Value, new: &Value) -> String {
    let mut changes = Vec::new();
    collect_changes("", old, new, &mut changes);
    let n_more = changes.len().saturating_sub(MAX_FIELDS);
    changes.truncate(MAX_FIELDS);
    match (changes.is_empty(), n_more) {
        (true, _) => "unchanged".into(),
        (_, 0) => changes.join(", "),
        (_, n) => format!("{}, and {n} more", changes.join(", ")),
    }
}

fn collect_changes(path: &str, old: &Value, new: &Value, changes: &mut Vec<String>) {
    if old == new || IGNORED.contains(&path) {
        return;
    }
    match (old, new) {
        (Value::Map(before), Value::Map(after)) => {
            for (field, value) in after.iter() {
                let old = before.get(field).unwrap_or(&Value::Null);
                collect_changes(&join(path, field), old, value, changes);
            }
            for (field, value) in before
                .iter()
                .filter(|(field, _)| after.get(field).is_none())
            {
                collect_changes(&join(path, field), value, &Value::Null, changes);
            }
        }
        _ if path == "status.conditions" => changes.push(conditions(new)),
        (_, Value::Map(_) | Value::List(_)) => changes.push(format!("{path} set")),
        (_, Value::Null) => changes.push(format!("{path} removed")),
        (Value::Null | Value::Map(_) | Value::List(_), _) => {
            changes.push(format!("{path} {}", text(new)));
        }
        _ => changes.push(format!("{path} {} → {}", text(old), text(new))),
    }
}

/// What of `expected` is different in `actual`, a line each. Fields that `expected` does not have are not compared.
pub(crate) fn missing_fields(path: &str, actual: &Value, expected: &Value) -> Vec<String> {
    match (actual, expected) {
        (_, Value::Map(fields)) => fields
            .iter()
            .flat_map(|(field, value)| missing_fields(&join(path, field), &actual[field], value))
            .collect(),
        _ if actual == expected => Vec::new(),
        _ => vec![format!(
            "{path}: expected {}, found {}",
            text(expected),
            text(actual)
        )],
    }
}

/// The lines that only one of two texts has: `- ` before those of `expected`, `+ ` before those of `found`.
pub(crate) fn line_diff(expected: &str, found: &str) -> String {
    let mut counts: BTreeMap<&str, i64> = BTreeMap::new();
    expected
        .lines()
        .for_each(|line| *counts.entry(line).or_default() -= 1);
    found
        .lines()
        .for_each(|line| *counts.entry(line).or_default() += 1);
    let lines = counts.into_iter().flat_map(|(line, n)| {
        let sign = if n < 0 { '-' } else { '+' };
        std::iter::repeat_n(format!("{sign} {line}\n"), n.unsigned_abs() as usize)
    });
    lines.collect()
}

fn join(path: &str, field: &str) -> String {
    match path {
        "" => field.to_owned(),
        path => format!("{path}.{field}"),
    }
}

fn conditions(list: &Value) -> String {
    let all = list.list().iter();
    all.map(|one| format!("{}={}", one["type"].str(), one["status"].str()))
        .collect::<Vec<_>>()
        .join(" ")
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.to_string(),
        value => json::to_string(value),
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    #[test]
    fn a_change_is_told_field_by_field_without_system_metadata() {
        let old = value!({"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 2}, "status": {"x": "a"}});
        let new = value!({
            "metadata": {"resourceVersion": "2", "labels": {"app": "web"}}, "spec": {"replicas": 3},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}
        });
        assert_eq!(
            changes_between(&old, &new),
            "metadata.labels set, spec.replicas 2 → 3, Ready=True, status.x removed"
        );
        assert_eq!(changes_between(&old, &old), "unchanged");
    }

    #[test]
    fn only_expected_fields_are_compared() {
        let actual = value!({"replicas": 3, "readyReplicas": 2, "observedGeneration": 1});
        let expected = value!({"replicas": 3, "readyReplicas": 3});
        let found = missing_fields("status", &actual, &expected);
        assert_eq!(found, ["status.readyReplicas: expected 3, found 2"]);
    }

    #[test]
    fn a_diff_has_the_lines_of_one_side() {
        assert_eq!(line_diff("a\nb\nb\n", "b\nc\n"), "- a\n- b\n+ c\n");
    }
}
