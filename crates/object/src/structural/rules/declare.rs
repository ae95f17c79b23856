//! Declarations: how CEL sees the data of a schema, and estimates of its size.
//!
//! Kubernetes: untyped values are not accessible, and neither are lists and maps of them
//! (cel/common/schemas.go). Sizes are bounded by the schema, or else by the request limit.

use std::sync::LazyLock;

use crate::structural::ListType;
use crate::structural::node::{NodeCheck, NodeType, SchemaNode};
use mizzen_cel as cel;
use mizzen_cel::{CostRange, DeclForm, DeclType, ListSemantics, SizeEstimator, escape};
use mizzen_value::value;
use mizzen_value::{Str, Value};

/// The maximum size of a request, in bytes.
const REQUEST: u64 = 3 * 1024 * 1024;

/// A node of a schema, and whether it is a resource with metadata.
#[derive(Clone, Copy)]
pub(super) struct DeclaredNode<'a> {
    pub node: &'a SchemaNode,
    resource: bool,
}

/// The fields of a resource that are declared implicitly.
static OBJECT: LazyLock<SchemaNode> = LazyLock::new(|| {
    SchemaNode::compile(&value!({"properties": {
        "kind": {"type": "string"},
        "apiVersion": {"type": "string"},
        "metadata": {"type": "object", "properties": {
            "name": {"type": "string"},
            "generateName": {"type": "string"}
        }}
    }}))
});

impl<'a> DeclaredNode<'a> {
    pub(super) fn new(node: &'a SchemaNode, resource: bool) -> DeclaredNode<'a> {
        DeclaredNode { node, resource }
    }

    /// A child node.
    pub(super) fn below(node: &'a SchemaNode) -> DeclaredNode<'a> {
        DeclaredNode {
            node,
            resource: node.is_embedded(),
        }
    }

    /// Whether CEL can access it.
    pub(super) fn is_visible(self) -> bool {
        let node = self.node;
        let items_are = |items: Option<&'a SchemaNode>| {
            items.is_some_and(|node| DeclaredNode::below(node).is_visible())
        };
        match node.ty {
            NodeType::Any => false,
            NodeType::Array => items_are(node.items()),
            NodeType::Object => node.additional().is_none() || items_are(node.additional()),
            _ => true,
        }
    }

    /// The declared type; `name` is the name of an object type. `None` if CEL cannot access it.
    pub(super) fn shape(self, name: &str) -> Option<DeclType> {
        let (node, inside) = (self.node, |node: &SchemaNode, step: &str| {
            Some(Box::new(
                DeclaredNode::below(node).shape(&format!("{name}.{step}"))?,
            ))
        });
        let form = match node.ty {
            NodeType::Any => return None,
            NodeType::IntOrString => DeclForm::IntOrString,
            NodeType::Boolean => DeclForm::Bool,
            NodeType::Integer => DeclForm::Int,
            NodeType::Number => DeclForm::Double,
            NodeType::String => match node.format() {
                "byte" => DeclForm::Bytes,
                "duration" => DeclForm::Duration,
                "date" => DeclForm::Date,
                "date-time" => DeclForm::DateTime,
                _ => DeclForm::String,
            },
            NodeType::Array => {
                let semantics = match node.list {
                    ListType::Set => ListSemantics::Set,
                    ListType::Map => ListSemantics::Map(node.keys().to_vec()),
                    ListType::Unsaid | ListType::Atomic => ListSemantics::Atomic,
                };
                DeclForm::List(inside(node.items()?, "@idx")?, semantics)
            }
            NodeType::Object => match node.additional() {
                Some(values) => DeclForm::Map(inside(values, "@elem")?),
                None => self.object(name),
            },
        };
        Some(DeclType {
            form,
            nullable: node.is_nullable(),
        })
    }

    fn object(self, name: &str) -> DeclForm {
        let fields = self.fields().into_iter();
        let shapes = fields.filter_map(|(field, below)| {
            Some((field.clone(), below.shape(&format!("{name}.{field}"))?))
        });
        DeclType::object(name, shapes).form
    }

    /// The fields of an object. Kubernetes: unless kind, version and names are all declared, those
    /// of the schema are ignored.
    fn fields(self) -> Vec<(&'a Str, DeclaredNode<'a>)> {
        let added = self.adds_metadata();
        let own = self
            .node
            .properties()
            .filter(|(name, _)| !added || OBJECT.property(name).is_none());
        let meta = OBJECT.properties().filter(|_| added);
        own.chain(meta)
            .map(|(name, node)| (name, DeclaredNode::below(node)))
            .collect()
    }

    fn adds_metadata(self) -> bool {
        let (node, metadata) = (self.node, self.node.property("metadata"));
        let is = |node: Option<&SchemaNode>, ty: NodeType| node.is_some_and(|node| node.ty == ty);
        let name = |name: &str| metadata.and_then(|metadata| metadata.property(name));
        let is_declared = is(node.property("kind"), NodeType::String)
            && is(node.property("apiVersion"), NodeType::String)
            && is(metadata, NodeType::Object)
            && is(name("name"), NodeType::String)
            && is(name("generateName"), NodeType::String);
        self.resource && !is_declared
    }

    /// The minimum size of a value, in bytes.
    pub(super) fn min_size(self) -> u64 {
        match (self.node.ty, self.node.format()) {
            (NodeType::Boolean, _) => 4,
            (NodeType::IntOrString | NodeType::Integer | NodeType::Number, _) => 1,
            (NodeType::String, "duration") => 3,
            (NodeType::String, "date") => 12,
            (NodeType::String, "date-time") => 21,
            (NodeType::Object, _) if self.node.additional().is_none() => {
                2 + self.min_size_of_fields()
            }
            _ => 2,
        }
    }

    /// Fields with a default can be omitted.
    fn min_size_of_fields(self) -> u64 {
        let required = self.node.check(|check| match check {
            NodeCheck::Required(names) => Some(&**names),
            _ => None,
        });
        let required = required.unwrap_or_default();
        let sent = |(name, below): &(&Str, DeclaredNode)| {
            required.contains(name) && below.node.default().is_none() && below.is_visible()
        };
        let size = |(name, below): (&Str, DeclaredNode)| name.len() as u64 + below.min_size() + 4;
        self.fields().into_iter().filter(sent).map(size).sum()
    }

    /// The maximum number of characters of a string, items of a list or members of a map; zero for
    /// everything else.
    fn max_elements(self) -> u64 {
        let node = self.node;
        let inside = |node: &SchemaNode| DeclaredNode::below(node).min_size();
        match (node.ty, node.items(), node.additional()) {
            (NodeType::IntOrString, ..) => node.max_length().map_or(REQUEST - 2, |max| max * 4),
            (NodeType::String, ..) => max_text(node),
            (NodeType::Array, Some(items), _) => node
                .max_items()
                .unwrap_or_else(|| (REQUEST - 2) / (inside(items) + 1)),
            (NodeType::Object, _, Some(values)) => node
                .max_properties()
                .unwrap_or_else(|| (REQUEST - 2) / (inside(values) + 6)),
            _ => 0,
        }
    }

    /// Resolves one element of a path.
    fn step(self, name: &str) -> Option<DeclaredNode<'a>> {
        match name {
            "@items" | "@values" => self
                .node
                .items()
                .or(self.node.additional())
                .map(DeclaredNode::below),
            _ if self.node.additional().is_some() => None,
            _ => self.field(name).filter(|below| below.is_visible()),
        }
    }

    /// The field with an escaped name. Only names with two underscores in a row can be escaped.
    fn field(self, name: &str) -> Option<DeclaredNode<'a>> {
        if name.contains("__") {
            let mut fields = self.fields().into_iter();
            let found =
                fields.find(|(field, _)| escape(field).is_some_and(|escaped| escaped == name));
            return found.map(|(_, below)| below);
        }
        let added = OBJECT.property(name).filter(|_| self.adds_metadata());
        added.or(self.node.property(name)).map(DeclaredNode::below)
    }
}

impl SizeEstimator for DeclaredNode<'_> {
    fn size(&self, node: &cel::AstNode) -> Option<CostRange> {
        let (_, path) = node.path.split_first()?;
        let (keys, path) = match path.split_last() {
            Some((last, path)) if last == "@keys" => (true, path),
            _ => (false, path),
        };
        let place = path
            .iter()
            .try_fold(*self, |place, name| place.step(name))?;
        match (keys, place.node.additional()) {
            (false, _) => Some(CostRange {
                min: 0,
                max: place.max_elements(),
            }),
            // Kubernetes: the keys of a map have no size.
            (true, Some(_)) => Some(CostRange::ZERO),
            (true, None) => None,
        }
    }
}

/// The maximum number of occurrences of a value in an object, if nothing else bounds it.
pub(super) fn cardinality(declared: DeclaredNode) -> u64 {
    REQUEST / (declared.min_size() + 1)
}

/// Kubernetes: a character may take four bytes.
fn max_text(node: &SchemaNode) -> u64 {
    let longest = |values: &[Value]| values.iter().map(|value| value.str().len() as u64).max();
    match node.format() {
        "byte" => node.max_length().unwrap_or(REQUEST - 2),
        "duration" | "date-time" => 32,
        "date" => 12,
        _ => {
            let bound = node.max_length().map(|max| max * 4);
            let listed = || {
                node.check(|check| {
                    if let NodeCheck::Enum(values) = check {
                        longest(values)
                    } else {
                        None
                    }
                })
            };
            bound.or_else(listed).unwrap_or(REQUEST - 2)
        }
    }
}

impl SchemaNode {
    /// The first check for which `find` returns a value.
    fn check<'a, T>(&'a self, find: impl FnMut(&'a NodeCheck) -> Option<T>) -> Option<T> {
        self.checks.iter().find_map(find)
    }

    fn max_length(&self) -> Option<u64> {
        self.check(|check| {
            if let NodeCheck::MaxLength(max) = check {
                Some(count(*max))
            } else {
                None
            }
        })
    }

    fn max_items(&self) -> Option<u64> {
        self.check(|check| {
            if let NodeCheck::MaxItems(max) = check {
                Some(count(*max))
            } else {
                None
            }
        })
    }

    fn max_properties(&self) -> Option<u64> {
        self.check(|check| {
            if let NodeCheck::MaxProperties(max) = check {
                Some(count(*max))
            } else {
                None
            }
        })
    }
}

/// A count that is not negative.
fn count(n: i64) -> u64 {
    u64::try_from(n).unwrap_or_default()
}
