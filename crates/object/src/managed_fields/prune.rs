//! Removal of fields that an applier owned and no longer applies.
//!
//! A field is removed if the applier owned it, its configuration no longer has it, and no other
//! manager owns it. Three steps, each possibly in another version of the object: remove all that
//! the applier owned, restore what any manager owns, and restore what the applier never owned.

use super::field_set::{FieldSet, FieldSetNode};
use super::rule::{OwnershipRule, element_of};
use super::to_field_set::to_field_set;
use crate::schema::Struct;
use mizzen_value::Value;

/// `merged` without the fields of `last`.
pub(super) fn remove_owned(schema: &Struct, merged: &Value, last: &FieldSet) -> Value {
    let rule = OwnershipRule::Struct(schema);
    less(rule, merged, &with_parents(rule, last))
}

/// `pruned` with the fields of `merged` that are in `owned`.
pub(super) fn restore_owned(
    schema: &Struct,
    merged: &Value,
    pruned: &Value,
    owned: &FieldSet,
) -> Value {
    let rule = OwnershipRule::Struct(schema);
    let kept = all(schema, pruned).union(&with_parents(rule, owned));
    less(rule, merged, &all(schema, merged).difference(&kept))
}

/// `pruned` with the fields of `merged` that are not in `last`.
pub(super) fn restore_unowned(
    schema: &Struct,
    merged: &Value,
    pruned: &Value,
    last: &FieldSet,
) -> Value {
    let rule = OwnershipRule::Struct(schema);
    let gone = all(schema, merged).difference(&all(schema, pruned));
    less(rule, merged, &gone.intersection(&with_parents(rule, last)))
}

fn all(schema: &Struct, object: &Value) -> FieldSet {
    with_parents(OwnershipRule::Struct(schema), &to_field_set(schema, object))
}

/// The set with every named field on the path to a member.
fn with_parents(rule: OwnershipRule, set: &FieldSet) -> FieldSet {
    let nodes = set.nodes().iter().map(|node| {
        let (below, named) = rule.child(&node.element);
        let children = with_parents(below, &node.children);
        FieldSetNode {
            element: node.element.clone(),
            member: node.member || named && !children.is_empty(),
            children,
        }
    });
    FieldSet::from_nodes(nodes.collect())
}

fn less(rule: OwnershipRule, value: &Value, set: &FieldSet) -> Value {
    let mut value = value.clone();
    if !set.is_empty() {
        remove(rule, &mut value, set);
    }
    value
}

/// Removes the members of `set` from `value`. A value without remaining parts becomes null.
fn remove(rule: OwnershipRule, value: &mut Value, set: &FieldSet) {
    match (rule, &mut *value) {
        (OwnershipRule::Scalar(_), _) => return,
        (rule, Value::Bool(_) | Value::Int(_) | Value::Number(_) | Value::String(_))
            if rule.is_free() =>
        {
            return;
        }
        (OwnershipRule::Items(item, keys), Value::List(items)) => {
            let rule = OwnershipRule::of_item(item);
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

/// Whether anything remains at a path element.
fn remove_at(rule: OwnershipRule, value: &mut Value, node: Option<&FieldSetNode>) -> bool {
    match node {
        Some(node) if node.member => return false,
        Some(node) => remove(rule, value, &node.children),
        None => {}
    }
    true
}
