//! The field set of an object.

use super::field_set::{FieldSet, FieldSetNode};
use super::path_element::PathElement;
use super::rule::{ListItemType, OwnershipRule, element_of};
use crate::schema::Struct;
use mizzen_value::{Map, Str, Value};

/// All fields of `object`: every leaf, every key of a map, every item of an associative list. A
/// struct field that is not a leaf is not a member itself, unless it is empty.
pub fn to_field_set(schema: &Struct, object: &Value) -> FieldSet {
    let members = object
        .as_map()
        .into_iter()
        .flat_map(|map| map.keys().zip(map.values()));
    let owned = members.filter(|(name, _)| !is_type(name));
    FieldSet::from_nodes(
        owned
            .filter_map(|(name, value)| member_node(OwnershipRule::Struct(schema), name, value))
            .collect(),
    )
}

/// Whether it is `kind` or `apiVersion`, which are not owned.
pub(super) fn is_type(name: &str) -> bool {
    matches!(name, "kind" | "apiVersion")
}

fn member_node(rule: OwnershipRule, name: &Str, value: &Value) -> Option<FieldSetNode> {
    let (rule, named) = rule.member(name);
    let empty = value.is_null() || value.as_map().is_some_and(Map::is_empty);
    node(
        PathElement::Name(name.clone()),
        rule,
        value,
        !named || empty,
    )
}

fn items_of(item: ListItemType, keys: &[Str], items: &[Value]) -> FieldSet {
    let rule = OwnershipRule::of_item(item);
    let keyed = items
        .iter()
        .filter_map(|value| Some((element_of(item, keys, value).ok()?, value)));
    let mut keyed: Vec<(PathElement, &Value)> = keyed.collect();
    keyed.sort_by(|left, right| left.0.cmp(&right.0));
    let nodes = keyed
        .chunk_by(|left, right| left.0 == right.0)
        .filter_map(|alike| match alike {
            [(element, value)] => node(element.clone(), rule, value, true),
            // Of duplicate items only the path element is owned.
            _ => Some(FieldSetNode::leaf(alike[0].0.clone())),
        });
    FieldSet::from_nodes(nodes.collect())
}

fn node(
    element: PathElement,
    rule: OwnershipRule,
    value: &Value,
    member: bool,
) -> Option<FieldSetNode> {
    let leaf = rule.is_leaf(value);
    let children = if leaf {
        FieldSet::default()
    } else {
        match (rule, value) {
            (OwnershipRule::Items(item, keys), Value::List(items)) => items_of(item, keys, items),
            _ => {
                let members = rule.members(value).into_iter();
                let members = members.flat_map(|map| map.keys().zip(map.values()));
                let nodes = members.filter_map(|(name, value)| member_node(rule, name, value));
                FieldSet::from_nodes(nodes.collect())
            }
        }
    };
    let node = FieldSetNode {
        element,
        member: member || leaf,
        children,
    };
    (node.member || !node.children.is_empty()).then_some(node)
}
