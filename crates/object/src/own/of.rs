//! Which fields an object has.

use super::element::Element;
use super::rule::{Item, Rule, element_of};
use super::set::{FieldSet, Node};
use crate::schema::Struct;
use mizzen_value::{Map, Str, Value};

/// The set of all fields of `object`: every leaf, every key of a map, every item of a list that is owned item
/// by item. A struct's field that is no leaf is not a member itself, unless it is empty.
pub fn fields_of(schema: &Struct, object: &Value) -> FieldSet {
    let members = object
        .as_map()
        .into_iter()
        .flat_map(|map| map.keys().zip(map.values()));
    let owned = members.filter(|(name, _)| !is_type(name));
    FieldSet::from_nodes(
        owned
            .filter_map(|(name, value)| member(Rule::Struct(schema), name, value))
            .collect(),
    )
}

/// Whether a field of an object itself says what kind it is, which nobody owns.
pub(super) fn is_type(name: &str) -> bool {
    matches!(name, "kind" | "apiVersion")
}

fn below(rule: Rule, value: &Value) -> FieldSet {
    match (rule, value) {
        (Rule::Items(item, keys), Value::List(items)) => items_of(item, keys, items),
        _ => rule
            .members(value)
            .map_or_else(FieldSet::default, |map| members_of(rule, map)),
    }
}

fn members_of(rule: Rule, map: &Map) -> FieldSet {
    let members = map.keys().zip(map.values());
    FieldSet::from_nodes(
        members
            .filter_map(|(name, value)| member(rule, name, value))
            .collect(),
    )
}

fn member(rule: Rule, name: &Str, value: &Value) -> Option<Node> {
    let (rule, named) = rule.member(name);
    let empty = value.is_null() || value.as_map().is_some_and(Map::is_empty);
    node(Element::Name(name.clone()), rule, value, !named || empty)
}

fn items_of(item: Item, keys: &[Str], items: &[Value]) -> FieldSet {
    let rule = Rule::of_item(item);
    let told = items
        .iter()
        .filter_map(|value| Some((element_of(item, keys, value).ok()?, value)));
    let mut told: Vec<(Element, &Value)> = told.collect();
    told.sort_by(|left, right| left.0.cmp(&right.0));
    let nodes = told
        .chunk_by(|left, right| left.0 == right.0)
        .filter_map(|alike| match alike {
            [(element, value)] => node(element.clone(), rule, value, true),
            // Of items that cannot be told apart only the place is owned.
            _ => Some(Node::leaf(alike[0].0.clone())),
        });
    FieldSet::from_nodes(nodes.collect())
}

fn node(element: Element, rule: Rule, value: &Value, member: bool) -> Option<Node> {
    let leaf = rule.is_leaf(value);
    let children = if leaf {
        FieldSet::default()
    } else {
        below(rule, value)
    };
    let node = Node {
        element,
        member: member || leaf,
        children,
    };
    (node.member || !node.children.is_empty()).then_some(node)
}
