//! Taking away what somebody applied before and no longer applies.
//!
//! A field goes if the one who applies now owned it and does not name it any more, and nobody else owns it.
//! Three steps, each of which may happen in another version of the object: all that he owned is taken out, what
//! anybody owns is put back, and what he never owned is put back.

use super::of::fields_of;
use super::rule::{Rule, element_of};
use super::set::{FieldSet, Node};
use crate::schema::Struct;
use mizzen_value::Value;

/// `merged` without all that is in `last`.
pub(super) fn take_out(schema: &Struct, merged: &Value, last: &FieldSet) -> Value {
    let rule = Rule::Struct(schema);
    less(rule, merged, &with_parents(rule, last))
}

/// `pruned` with what `merged` has of the fields in `owned`.
pub(super) fn put_back_owned(
    schema: &Struct,
    merged: &Value,
    pruned: &Value,
    owned: &FieldSet,
) -> Value {
    let rule = Rule::Struct(schema);
    let kept = all(schema, pruned).union(&with_parents(rule, owned));
    less(rule, merged, &all(schema, merged).difference(&kept))
}

/// `pruned` with what `merged` has of the fields that are not in `last`.
pub(super) fn put_back_others(
    schema: &Struct,
    merged: &Value,
    pruned: &Value,
    last: &FieldSet,
) -> Value {
    let rule = Rule::Struct(schema);
    let gone = all(schema, merged).difference(&all(schema, pruned));
    less(rule, merged, &gone.intersection(&with_parents(rule, last)))
}

fn all(schema: &Struct, object: &Value) -> FieldSet {
    with_parents(Rule::Struct(schema), &fields_of(schema, object))
}

/// The set with every named field that leads to a member.
fn with_parents(rule: Rule, set: &FieldSet) -> FieldSet {
    let nodes = set.nodes().iter().map(|node| {
        let (below, named) = rule.child(&node.element);
        let children = with_parents(below, &node.children);
        Node {
            element: node.element.clone(),
            member: node.member || named && !children.is_empty(),
            children,
        }
    });
    FieldSet::from_nodes(nodes.collect())
}

fn less(rule: Rule, value: &Value, set: &FieldSet) -> Value {
    let mut value = value.clone();
    if !set.is_empty() {
        remove(rule, &mut value, set);
    }
    value
}

/// Takes the members of `set` out of `value`. What is left without parts becomes null.
fn remove(rule: Rule, value: &mut Value, set: &FieldSet) {
    match (rule, &mut *value) {
        (Rule::Scalar(_), _) => return,
        (rule, Value::Bool(_) | Value::Int(_) | Value::Number(_) | Value::String(_))
            if rule.is_free() =>
        {
            return;
        }
        (Rule::Items(item, keys), Value::List(items)) => {
            let rule = Rule::of_item(item);
            items.retain_mut(|value| match element_of(item, keys, value) {
                Ok(element) => remove_at(rule, value, set.get(&element)),
                Err(_) => true,
            });
        }
        (rule, Value::Map(map)) if rule.has_members() => {
            map.retain(|name, value| remove_at(rule.member(name).0, value, set.name(name)));
        }
        _ => *value = Value::Null,
    }
    if value.list().is_empty() && value.entries().next().is_none() {
        *value = Value::Null;
    }
}

/// Whether anything is left at a place.
fn remove_at(rule: Rule, value: &mut Value, node: Option<&Node>) -> bool {
    match node {
        Some(node) if node.member => return false,
        Some(node) => remove(rule, value, &node.children),
        None => {}
    }
    true
}
