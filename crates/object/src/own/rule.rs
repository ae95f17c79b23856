//! How the parts of a value are owned, as its type and its field say.

use super::element::Element;
use crate::schema::{Field, Merge, Patch, Shape, Struct, Type};
use crate::structural::{ListType, Node};
use mizzen_value::{Map, Str, Value};

/// How the parts of a value are owned.
#[derive(Debug, Clone, Copy)]
pub(super) enum Rule<'a> {
    /// It has no parts.
    Scalar(&'a Type),
    /// It has parts, but one owner.
    Atomic(&'a Type),
    /// Field by field.
    Struct(&'a Struct),
    /// Key by key.
    Map(&'a Type),
    /// Item by item, told apart by these fields, or by their values if there are none.
    Items(Item<'a>, &'a [Str]),
    /// As a definition says: property by property.
    Defined(Defined<'a>),
    /// As a definition says, but with one owner.
    Whole(Defined<'a>),
    /// Nothing is known about it: a map is owned key by key, everything else as a whole.
    Any,
}

/// A place that a definition describes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Defined<'a> {
    pub node: &'a Node,
    /// Whether it or anything around it keeps what is not declared.
    pub open: bool,
}

/// What the items of a list are.
#[derive(Debug, Clone, Copy)]
pub(super) enum Item<'a> {
    /// Of a built-in type.
    Typed(&'a Type),
    /// As a definition says.
    Defined(Defined<'a>),
}

impl<'a> Rule<'a> {
    /// How the value of a field is owned.
    pub(super) fn of_field(field: &'a Field) -> Rule<'a> {
        Rule::new(&field.ty, &field.merge, Some(&field.patch))
    }

    /// How an item of a list is owned.
    pub(super) fn of_item(item: Item<'a>) -> Rule<'a> {
        match item {
            Item::Typed(ty) => Rule::of_type(ty),
            Item::Defined(defined) => Rule::of_node(defined.node, defined.open),
        }
    }

    /// How a value of a type is owned that no field says more about.
    pub(super) fn of_type(ty: &'a Type) -> Rule<'a> {
        Rule::new(ty, &Merge::Unsaid, None)
    }

    /// How a value is owned that a definition describes. Kubernetes: kube-openapi's schemaconv/openapi.go.
    pub(super) fn of_node(node: &'a Node, open: bool) -> Rule<'a> {
        let defined = Defined {
            node,
            open: open || node.preserves(),
        };
        if let Some(ty) = node.scalar() {
            return Rule::Scalar(ty);
        }
        match (node.is_list(), node.items(), node.list) {
            (true, Some(item), ListType::Map) => Rule::Items(
                Item::Defined(Defined {
                    node: item,
                    ..defined
                }),
                node.keys(),
            ),
            (true, Some(item), ListType::Set) => Rule::Items(
                Item::Defined(Defined {
                    node: item,
                    ..defined
                }),
                &[],
            ),
            (true, ..) => Rule::Whole(defined),
            (false, ..) if node.is_atomic_map() => Rule::Whole(defined),
            (false, ..) => Rule::Defined(defined),
        }
    }

    fn new(ty: &'a Type, merge: &'a Merge, patch: Option<&'a Patch>) -> Rule<'a> {
        match (&ty.shape, merge) {
            (Shape::Struct(_) | Shape::Map(_) | Shape::List(_), Merge::Atomic) => Rule::Atomic(ty),
            (Shape::Struct(inner), Merge::Unsaid) if inner.atomic => Rule::Atomic(ty),
            (Shape::Struct(inner), _) => Rule::Struct(inner),
            (Shape::Map(item), _) => Rule::Map(item),
            (Shape::List(item), Merge::Keyed(keys)) => Rule::Items(Item::Typed(item), keys),
            (Shape::List(item), Merge::Set) => Rule::Items(Item::Typed(item), &[]),
            // Kubernetes: kube-openapi's schemaconv; a list that only strategic merge knows merges all the same.
            (Shape::List(item), Merge::Unsaid) if patch.is_some_and(|patch| patch.merge) => {
                Rule::Items(
                    Item::Typed(item),
                    patch.map_or(&[], |patch| patch.key.as_slice()),
                )
            }
            (Shape::List(_) | Shape::Raw | Shape::Or(..), _) => Rule::Atomic(ty),
            (Shape::Json, _) => Rule::Any,
            _ => Rule::Scalar(ty),
        }
    }

    /// The parts of `value` if they are owned one by one and known by name.
    pub(super) fn members(self, value: &Value) -> Option<&Map> {
        match value {
            Value::Map(map) if self.has_members() => Some(map),
            _ => None,
        }
    }

    /// Whether a map of this rule is owned member by member.
    pub(super) fn has_members(self) -> bool {
        matches!(
            self,
            Rule::Struct(_) | Rule::Map(_) | Rule::Any | Rule::Defined(_)
        )
    }

    /// Whether a value of this rule may be a map or something without parts.
    pub(super) fn is_free(self) -> bool {
        match self {
            Rule::Any => true,
            Rule::Defined(defined) => !defined.node.is_object(),
            _ => false,
        }
    }

    /// How the member `name` is owned, and whether the type names it itself.
    pub(super) fn member(self, name: &str) -> (Rule<'a>, bool) {
        match self {
            Rule::Struct(ty) => match ty.field(name) {
                Some(field) => (Rule::of_field(field), true),
                None => match ty.rest() {
                    Some(rest) => Rule::of_node(rest.root(), false).member(name),
                    None => (Rule::Any, false),
                },
            },
            Rule::Map(item) => (Rule::of_type(item), false),
            Rule::Defined(defined) | Rule::Whole(defined) => defined.member(name),
            _ => (Rule::Any, false),
        }
    }

    /// How the part that a step leads to is owned, and whether it is a named field of a struct.
    pub(super) fn child(self, element: &Element) -> (Rule<'a>, bool) {
        match (self, element) {
            (Rule::Items(item, _), _) => (Rule::of_item(item), false),
            (_, Element::Name(name)) => self.member(name),
            _ => (Rule::Any, false),
        }
    }

    /// Whether a value of this rule is owned as a whole.
    pub(super) fn is_leaf(self, value: &Value) -> bool {
        match self {
            Rule::Scalar(_) | Rule::Atomic(_) | Rule::Whole(_) => true,
            _ if self.is_free() => !matches!(value, Value::Map(_) | Value::Null),
            _ => false,
        }
    }
}

impl<'a> Defined<'a> {
    /// The place at the root of a definition.
    pub(super) fn of(node: &'a Node) -> Defined<'a> {
        Defined {
            node,
            open: node.preserves(),
        }
    }

    /// How the member `name` is owned, and whether it is declared. The kind and the metadata of an embedded object
    /// are declared without a word, but here nothing is known of the latter's parts.
    fn member(self, name: &str) -> (Rule<'a>, bool) {
        let implied = self.node.is_embedded() && matches!(name, "kind" | "apiVersion" | "metadata");
        match (self.node.property(name), self.node.additional()) {
            (Some(node), _) => (Rule::of_node(node, self.open), true),
            (None, Some(node)) if !implied => (Rule::of_node(node, self.open), false),
            (None, _) => (Rule::Any, implied),
        }
    }

    /// Whether a member `name` may be there.
    pub(super) fn allows(self, name: &str) -> bool {
        let node = self.node;
        let free = self.open || node.allows_any_property() || node.properties().next().is_none();
        let implied = node.is_embedded() && matches!(name, "kind" | "apiVersion" | "metadata");
        free || implied || node.member(name).is_some()
    }
}

/// Why a list item cannot be told from the others.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ItemError {
    /// It is not what the schema of another version says.
    #[error("{0}")]
    Undeclared(String),
    /// It is null in a list of structs.
    #[error("associative list with keys may not have a null element")]
    Null,
    /// It is no struct in a list of structs.
    #[error("associative list with keys may not have non-map elements")]
    NoMap,
    /// It has none of the fields that tell.
    #[error(
        "associative list with keys has an element that omits all key fields [{0}] (and doesn't have default \
         values for any key fields)"
    )]
    NoKey(String),
    /// It is a struct in a set.
    #[error("associative list without keys has an element that's a map type")]
    MapInSet,
    /// It is a list in a set.
    #[error("not supported: associative list with lists as elements")]
    ListInSet,
    /// It is null in a set.
    #[error("associative list without keys has an element that's an explicit null")]
    NullInSet,
}

/// The step that leads to an item of a list that is owned item by item. A key field that the item lacks has
/// the value that the schema gives it.
pub(super) fn element_of(item: Item, keys: &[Str], value: &Value) -> Result<Element, ItemError> {
    match value {
        Value::Map(_) if keys.is_empty() => Err(ItemError::MapInSet),
        Value::List(_) if keys.is_empty() => Err(ItemError::ListInSet),
        Value::Null if keys.is_empty() => Err(ItemError::NullInSet),
        scalar if keys.is_empty() => Ok(Element::Value(Box::new(scalar.clone()))),
        Value::Null => Err(ItemError::Null),
        Value::Map(map) => key_of(item, keys, map),
        _ => Err(ItemError::NoMap),
    }
}

fn key_of(item: Item, keys: &[Str], map: &Map) -> Result<Element, ItemError> {
    let default = |key: &Str| match item {
        Item::Typed(ty) => ty.as_struct()?.field(key)?.default.as_ref(),
        Item::Defined(defined) => defined.node.property(key)?.default(),
    };
    let fields: Vec<(Str, Value)> = keys
        .iter()
        .filter_map(|key| Some((key.clone(), map.get(key).or_else(|| default(key))?.clone())))
        .collect();
    if fields.is_empty() {
        let keys: Vec<String> = keys
            .iter()
            .map(|key| mizzen_value::json::quote(key))
            .collect();
        return Err(ItemError::NoKey(keys.join(" ")));
    }
    Ok(Element::key(fields))
}
