//! Merging an apply configuration into an object without managed fields, for
//! MutatingAdmissionPolicies. Kubernetes: policy/mutating/patch/smd.go.

use super::merge::merge;
use super::path_element::PathElement;
use super::rule::{Defined, ListItemType, OwnershipRule};
use super::shape::validate_shape;
use crate::schema::{FieldShape, Struct};
use mizzen_value::{Map, Value};

/// Why a configuration cannot be merged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StructuredMergeError {
    /// It does not match the schema.
    #[error("failed to convert patch object to typed object: {0}")]
    Shape(String),
    /// It sets an atomic list, map or struct, which would replace all of it.
    #[error("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}", .0.join(", "))]
    Atomic(Vec<String>),
}

/// Merges `part` into `object`; fields that it does not have stay.
pub fn apply_structured_merge(
    schema: &Struct,
    object: &mut Value,
    part: Value,
) -> Result<(), StructuredMergeError> {
    if let Some(complaint) = validate_shape(schema, &part) {
        return Err(StructuredMergeError::Shape(complaint));
    }
    let mut atomics = Atomics {
        path: Vec::new(),
        found: Vec::new(),
    };
    atomics.visit(OwnershipRule::Struct(schema), &part);
    if !atomics.found.is_empty() {
        return Err(StructuredMergeError::Atomic(atomics.found));
    }
    merge(schema, object, part);
    Ok(())
}

/// Collects atomic values.
struct Atomics {
    path: Vec<PathElement>,
    found: Vec<String>,
}

impl Atomics {
    fn visit(&mut self, rule: OwnershipRule, value: &Value) {
        if matches!(
            (rule, value),
            (
                OwnershipRule::Atomic(_) | OwnershipRule::Whole(_),
                Value::Map(_) | Value::List(_)
            )
        ) {
            self.found
                .push(self.path.iter().map(PathElement::to_string).collect());
        }
        match (rule, value) {
            (
                OwnershipRule::Struct(_) | OwnershipRule::Defined(_) | OwnershipRule::Whole(_),
                Value::Map(map),
            ) => self.members(rule, map),
            (OwnershipRule::Atomic(ty), Value::Map(map)) => {
                if let FieldShape::Struct(ty) = &ty.shape {
                    self.members(OwnershipRule::Struct(ty), map);
                }
            }
            (OwnershipRule::Atomic(ty), Value::List(items)) => {
                if let FieldShape::List(item) = &ty.shape {
                    self.items(ListItemType::Typed(item), items);
                }
            }
            (OwnershipRule::Items(item, _), Value::List(items)) => self.items(item, items),
            (OwnershipRule::Whole(defined), Value::List(items)) => {
                if let Some(node) = defined.node.items() {
                    self.items(ListItemType::Defined(Defined { node, ..defined }), items);
                }
            }
            _ => {}
        }
    }

    /// Visits declared members. Kubernetes: keys of plain maps are not visited
    /// (policy/mutating/patch/smd.go).
    fn members(&mut self, rule: OwnershipRule, map: &Map) {
        for (name, value) in map.iter() {
            let (rule, declared) = rule.member(name);
            if declared {
                self.at(PathElement::Name(name.into()), rule, value);
            }
        }
    }

    fn items(&mut self, item: ListItemType, items: &[Value]) {
        for (index, value) in items.iter().enumerate() {
            self.at(
                PathElement::Index(index as i64),
                OwnershipRule::of_item(item),
                value,
            );
        }
    }

    fn at(&mut self, element: PathElement, rule: OwnershipRule, value: &Value) {
        self.path.push(element);
        self.visit(rule, value);
        self.path.pop();
    }
}
