//! Sets and maps as lists (`x-kubernetes-list-type`): no duplicates.

use std::collections::HashMap;

use super::Structural;
use super::node::{ListType, SchemaNode};
use crate::violation::{Path, Violations};
use mizzen_value::Value;
use mizzen_value::json;

impl Structural {
    /// Reports duplicates in sets and maps. Duplicates in `old` are tolerated.
    pub fn validate_lists(&self, new: &Value, old: Option<&Value>, violations: &mut Violations) {
        let found = |object: &Value| {
            let mut found = Violations::default();
            value(&self.root, object, &Path::new(""), &mut found);
            found.0
        };
        if self.distinct && old.is_none_or(|old| found(old).is_empty()) {
            violations.0.extend(found(new));
        }
    }
}

fn value(node: &SchemaNode, it: &Value, path: &Path, violations: &mut Violations) {
    match it {
        Value::Map(map) => {
            for (name, member) in map.iter() {
                match (node.property(name), node.additional()) {
                    (Some(below), _) => value(below, member, &path.child(name), violations),
                    (None, Some(below)) => value(below, member, &path.key(name), violations),
                    (None, None) => {}
                }
            }
        }
        Value::List(items) => {
            match node.list {
                ListType::Set => {
                    for index in repeated(items.iter()) {
                        violations.duplicate(path.index(index), items[index].clone());
                    }
                }
                ListType::Map => keyed(node, items, path, violations),
                ListType::Unsaid | ListType::Atomic => {}
            }
            if let Some(below) = node.items() {
                for (index, item) in items.iter().enumerate() {
                    value(below, item, &path.index(index), violations);
                }
            }
        }
        _ => {}
    }
}

fn keyed(node: &SchemaNode, items: &[Value], path: &Path, violations: &mut Violations) {
    let odd = |item: &Value| !matches!(item, Value::Null | Value::Map(_));
    if let Some(index) = items.iter().position(odd) {
        let detail = "must be an object for an array of list-type map";
        return violations.invalid(path.index(index), items[index].clone(), detail);
    }
    let key_of = |item: &Value| {
        let keys = node
            .keys()
            .iter()
            .filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
        let mut key = Value::Map(keys.collect());
        super::sort(&mut key);
        key
    };
    let keys: Vec<Value> = items.iter().map(key_of).collect();
    for index in repeated(keys.iter()) {
        violations.duplicate(path.index(index), keys[index].clone());
    }
}

/// The index of the second occurrence of each value. Later ones are not reported.
fn repeated<'a>(values: impl ExactSizeIterator<Item = &'a Value>) -> Vec<usize> {
    if values.len() < 2 {
        return Vec::new();
    }
    let mut times: HashMap<String, usize> = HashMap::with_capacity(values.len());
    let mut second = |value: &Value| {
        let mut value = value.clone();
        super::sort(&mut value);
        mark_floats(&mut value);
        let count = times.entry(json::to_string(&value)).or_default();
        *count += 1;
        *count == 2
    };
    values
        .enumerate()
        .filter(|(_, value)| second(value))
        .map(|(index, _)| index)
        .collect()
}

/// Kubernetes: an integer and a float differ even if they are the same number.
fn mark_floats(value: &mut Value) {
    match value {
        Value::Map(map) => map.values_mut().for_each(mark_floats),
        Value::List(items) => items.iter_mut().for_each(mark_floats),
        Value::Number(literal) => *literal = format!("{literal}.").into(),
        _ => {}
    }
}
