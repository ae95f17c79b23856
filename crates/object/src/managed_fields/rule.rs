//! Ownership rules: how the parts of a value are owned, from its type and field.

use super::path_element::PathElement;
use crate::schema::{FieldShape, FieldType, Merge, PatchStrategy, Struct, StructField};
use crate::structural::{ListType, SchemaNode};
use mizzen_value::{Map, Str, Value};

/// How the parts of a value are owned.
#[derive(Debug, Clone, Copy)]
pub(super) enum OwnershipRule<'a> {
    /// It has no parts.
    Scalar(&'a FieldType),
    /// As a whole.
    Atomic(&'a FieldType),
    /// Field by field.
    Struct(&'a Struct),
    /// Key by key.
    Map(&'a FieldType),
    /// Item by item, with these key fields, or as a set if there are none.
    Items(ListItemType<'a>, &'a [Str]),
    /// By a structural schema: property by property.
    Defined(Defined<'a>),
    /// By a structural schema: as a whole.
    Whole(Defined<'a>),
    /// Untyped: a map key by key, everything else as a whole.
    Any,
}

/// A node of a structural schema.
#[derive(Debug, Clone, Copy)]
pub(super) struct Defined<'a> {
    pub node: &'a SchemaNode,
    /// Whether it or a parent preserves unknown fields.
    pub open: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum ListItemType<'a> {
    /// A built-in type.
    Typed(&'a FieldType),
    /// A node of a structural schema.
    Defined(Defined<'a>),
}

impl<'a> OwnershipRule<'a> {
    /// The rule for a field's value.
    pub(super) fn of_field(field: &'a StructField) -> OwnershipRule<'a> {
        OwnershipRule::new(&field.ty, &field.merge, Some(&field.patch))
    }

    /// The rule for a list item.
    pub(super) fn of_item(item: ListItemType<'a>) -> OwnershipRule<'a> {
        match item {
            ListItemType::Typed(ty) => OwnershipRule::of_type(ty),
            ListItemType::Defined(defined) => OwnershipRule::of_node(defined.node, defined.open),
        }
    }

    /// The rule for a type without a field.
    pub(super) fn of_type(ty: &'a FieldType) -> OwnershipRule<'a> {
        OwnershipRule::new(ty, &Merge::Unsaid, None)
    }

    /// The rule for a node of a structural schema. Kubernetes: kube-openapi's
    /// schemaconv/openapi.go.
    pub(super) fn of_node(node: &'a SchemaNode, open: bool) -> OwnershipRule<'a> {
        let defined = Defined {
            node,
            open: open || node.preserves(),
        };
        if let Some(ty) = node.scalar() {
            return OwnershipRule::Scalar(ty);
        }
        match (node.is_list(), node.items(), node.list) {
            (true, Some(item), ListType::Map) => OwnershipRule::Items(
                ListItemType::Defined(Defined {
                    node: item,
                    ..defined
                }),
                node.keys(),
            ),
            (true, Some(item), ListType::Set) => OwnershipRule::Items(
                ListItemType::Defined(Defined {
                    node: item,
                    ..defined
                }),
                &[],
            ),
            (true, ..) => OwnershipRule::Whole(defined),
            (false, ..) if node.is_atomic_map() => OwnershipRule::Whole(defined),
            (false, ..) => OwnershipRule::Defined(defined),
        }
    }

    fn new(
        ty: &'a FieldType,
        merge: &'a Merge,
        patch: Option<&'a PatchStrategy>,
    ) -> OwnershipRule<'a> {
        match (&ty.shape, merge) {
            (FieldShape::Struct(_) | FieldShape::Map(_) | FieldShape::List(_), Merge::Atomic) => {
                OwnershipRule::Atomic(ty)
            }
            (FieldShape::Struct(inner), Merge::Unsaid) if inner.atomic => OwnershipRule::Atomic(ty),
            (FieldShape::Struct(inner), _) => OwnershipRule::Struct(inner),
            (FieldShape::Map(item), _) => OwnershipRule::Map(item),
            (FieldShape::List(item), Merge::Keyed(keys)) => {
                OwnershipRule::Items(ListItemType::Typed(item), keys)
            }
            (FieldShape::List(item), Merge::Set) => {
                OwnershipRule::Items(ListItemType::Typed(item), &[])
            }
            // Kubernetes: kube-openapi's schemaconv; a list that merges only in strategic merge
            // patch is associative, too.
            (FieldShape::List(item), Merge::Unsaid) if patch.is_some_and(|patch| patch.merge) => {
                OwnershipRule::Items(
                    ListItemType::Typed(item),
                    patch.map_or(&[], |patch| patch.key.as_slice()),
                )
            }
            (FieldShape::List(_) | FieldShape::Raw | FieldShape::Or(..), _) => {
                OwnershipRule::Atomic(ty)
            }
            (FieldShape::Json, _) => OwnershipRule::Any,
            _ => OwnershipRule::Scalar(ty),
        }
    }

    /// The members of `value`, if they are owned one by one.
    pub(super) fn members(self, value: &Value) -> Option<&Map> {
        match value {
            Value::Map(map) if self.has_members() => Some(map),
            _ => None,
        }
    }

    /// Whether a map is owned member by member.
    pub(super) fn has_members(self) -> bool {
        matches!(
            self,
            OwnershipRule::Struct(_)
                | OwnershipRule::Map(_)
                | OwnershipRule::Any
                | OwnershipRule::Defined(_)
        )
    }

    /// Whether a value may be a map or a scalar.
    pub(super) fn is_free(self) -> bool {
        match self {
            OwnershipRule::Any => true,
            OwnershipRule::Defined(defined) => !defined.node.is_object(),
            _ => false,
        }
    }

    /// The rule for the member `name`, and whether the type declares it.
    pub(super) fn member(self, name: &str) -> (OwnershipRule<'a>, bool) {
        match self {
            OwnershipRule::Struct(ty) => match ty.field(name) {
                Some(field) => (OwnershipRule::of_field(field), true),
                None => match ty.rest() {
                    Some(rest) => OwnershipRule::of_node(rest.root(), false).member(name),
                    None => (OwnershipRule::Any, false),
                },
            },
            OwnershipRule::Map(item) => (OwnershipRule::of_type(item), false),
            OwnershipRule::Defined(defined) | OwnershipRule::Whole(defined) => defined.member(name),
            _ => (OwnershipRule::Any, false),
        }
    }

    /// The rule for a path element, and whether it is a declared field of a struct.
    pub(super) fn child(self, element: &PathElement) -> (OwnershipRule<'a>, bool) {
        match (self, element) {
            (OwnershipRule::Items(item, _), _) => (OwnershipRule::of_item(item), false),
            (_, PathElement::Name(name)) => self.member(name),
            _ => (OwnershipRule::Any, false),
        }
    }

    /// Whether a value is owned as a whole.
    pub(super) fn is_leaf(self, value: &Value) -> bool {
        match self {
            OwnershipRule::Scalar(_) | OwnershipRule::Atomic(_) | OwnershipRule::Whole(_) => true,
            _ if self.is_free() => !matches!(value, Value::Map(_) | Value::Null),
            _ => false,
        }
    }
}

impl<'a> Defined<'a> {
    /// The root of a structural schema.
    pub(super) fn root(node: &'a SchemaNode) -> Defined<'a> {
        Defined {
            node,
            open: node.preserves(),
        }
    }

    /// The rule for the member `name`, and whether it is declared. The kind and the metadata of an
    /// embedded object are declared implicitly, but its metadata is untyped here.
    fn member(self, name: &str) -> (OwnershipRule<'a>, bool) {
        let implied = self.node.is_embedded() && matches!(name, "kind" | "apiVersion" | "metadata");
        match (self.node.property(name), self.node.additional()) {
            (Some(node), _) => (OwnershipRule::of_node(node, self.open), true),
            (None, Some(node)) if !implied => (OwnershipRule::of_node(node, self.open), false),
            (None, _) => (OwnershipRule::Any, implied),
        }
    }

    /// Whether a member `name` is allowed.
    pub(super) fn allows(self, name: &str) -> bool {
        let node = self.node;
        let free = self.open || node.allows_any_property() || node.properties().next().is_none();
        let implied = node.is_embedded() && matches!(name, "kind" | "apiVersion" | "metadata");
        free || implied || node.member(name).is_some()
    }
}

/// Why a list item has no path element.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ItemError {
    /// It does not match the schema of another version.
    #[error("{0}")]
    Undeclared(String),
    /// It is null in a list of structs.
    #[error("associative list with keys may not have a null element")]
    Null,
    /// It is not a struct in a list of structs.
    #[error("associative list with keys may not have non-map elements")]
    NoMap,
    /// It has none of the key fields.
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

/// The path element of an item of an associative list. A missing key field has its default.
pub(super) fn element_of(
    item: ListItemType,
    keys: &[Str],
    value: &Value,
) -> Result<PathElement, ItemError> {
    match value {
        Value::Map(_) if keys.is_empty() => Err(ItemError::MapInSet),
        Value::List(_) if keys.is_empty() => Err(ItemError::ListInSet),
        Value::Null if keys.is_empty() => Err(ItemError::NullInSet),
        scalar if keys.is_empty() => Ok(PathElement::Value(Box::new(scalar.clone()))),
        Value::Null => Err(ItemError::Null),
        Value::Map(map) => key_of(item, keys, map),
        _ => Err(ItemError::NoMap),
    }
}

fn key_of(item: ListItemType, keys: &[Str], map: &Map) -> Result<PathElement, ItemError> {
    let default = |key: &Str| match item {
        ListItemType::Typed(ty) => ty.as_struct()?.field(key)?.default.as_ref(),
        ListItemType::Defined(defined) => defined.node.property(key)?.default(),
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
    Ok(PathElement::key(fields))
}
