//! How do expressions see the data at a place of a schema, and how much of it can there be?
//!
//! Kubernetes: what has no type is not seen, and neither are lists and maps of it (cel/common/schemas.go). Sizes are
//! bounded by what the schema says, or else by the greatest request.

use std::sync::LazyLock;

use crate::structural::ListType;
use crate::structural::node::{Check, Node, Type};
use mizzen_cel as cel;
use mizzen_cel::{Form, Merge, Range, Shape, Sizes, escape};
use mizzen_value::value;
use mizzen_value::{Str, Value};

/// The greatest request, in octets.
const REQUEST: u64 = 3 * 1024 * 1024;

/// A place of a schema, and whether an object with metadata stands there.
#[derive(Clone, Copy)]
pub(super) struct Declared<'a> {
    pub node: &'a Node,
    resource: bool,
}

/// What an object says of itself, whatever its schema says.
static OBJECT: LazyLock<Node> = LazyLock::new(|| {
    Node::compile(&value!({"properties": {
        "kind": {"type": "string"},
        "apiVersion": {"type": "string"},
        "metadata": {"type": "object", "properties": {
            "name": {"type": "string"},
            "generateName": {"type": "string"}
        }}
    }}))
});

impl<'a> Declared<'a> {
    pub(super) fn new(node: &'a Node, resource: bool) -> Declared<'a> {
        Declared { node, resource }
    }

    /// A place below.
    pub(super) fn below(node: &'a Node) -> Declared<'a> {
        Declared {
            node,
            resource: node.is_embedded(),
        }
    }

    /// Whether expressions can see it.
    pub(super) fn is_visible(self) -> bool {
        let node = self.node;
        let items_are =
            |items: Option<&'a Node>| items.is_some_and(|node| Declared::below(node).is_visible());
        match node.ty {
            Type::Any => false,
            Type::Array => items_are(node.items()),
            Type::Object => node.additional().is_none() || items_are(node.additional()),
            _ => true,
        }
    }

    /// How data is read here; `name` is that of the type if it is an object. `None` if it cannot be seen.
    pub(super) fn shape(self, name: &str) -> Option<Shape> {
        let (node, inside) = (self.node, |node: &Node, step: &str| {
            Some(Box::new(
                Declared::below(node).shape(&format!("{name}.{step}"))?,
            ))
        });
        let form = match node.ty {
            Type::Any => return None,
            Type::IntOrString => Form::IntOrString,
            Type::Boolean => Form::Bool,
            Type::Integer => Form::Int,
            Type::Number => Form::Double,
            Type::String => text_form(node.format()),
            Type::Array => Form::List(inside(node.items()?, "@idx")?, merge(node)),
            Type::Object => match node.additional() {
                Some(values) => Form::Map(inside(values, "@elem")?),
                None => self.object(name),
            },
        };
        Some(Shape {
            form,
            nullable: node.is_nullable(),
        })
    }

    fn object(self, name: &str) -> Form {
        let fields = self.fields().into_iter();
        let shapes = fields.filter_map(|(field, below)| {
            Some((field.clone(), below.shape(&format!("{name}.{field}"))?))
        });
        Shape::object(name, shapes).form
    }

    /// The fields of an object. Kubernetes: unless kind, version and names are all declared, those of the schema do
    /// not count.
    fn fields(self) -> Vec<(&'a Str, Declared<'a>)> {
        let added = self.adds_metadata();
        let own = self
            .node
            .properties()
            .filter(|(name, _)| !added || OBJECT.property(name).is_none());
        let meta = OBJECT.properties().filter(|_| added);
        own.chain(meta)
            .map(|(name, node)| (name, Declared::below(node)))
            .collect()
    }

    fn adds_metadata(self) -> bool {
        self.resource && !says_what_it_is(self.node)
    }

    /// The least octets that a value takes.
    pub(super) fn min_size(self) -> u64 {
        match (self.node.ty, self.node.format()) {
            (Type::Boolean, _) => 4,
            (Type::IntOrString | Type::Integer | Type::Number, _) => 1,
            (Type::String, "duration") => 3,
            (Type::String, "date") => 12,
            (Type::String, "date-time") => 21,
            (Type::Object, _) if self.node.additional().is_none() => 2 + self.min_size_of_fields(),
            _ => 2,
        }
    }

    /// Fields that have a default need not be sent.
    fn min_size_of_fields(self) -> u64 {
        let required = self.node.check(|check| match check {
            Check::Required(names) => Some(&**names),
            _ => None,
        });
        let required = required.unwrap_or_default();
        let sent = |(name, below): &(&Str, Declared)| {
            required.contains(name) && below.node.default().is_none() && below.is_visible()
        };
        let size = |(name, below): (&Str, Declared)| name.len() as u64 + below.min_size() + 4;
        self.fields().into_iter().filter(sent).map(size).sum()
    }

    /// The most characters of a text, items of a list or members of a map; nothing for everything else.
    fn max_elements(self) -> u64 {
        let node = self.node;
        let inside = |node: &Node| Declared::below(node).min_size();
        match (node.ty, node.items(), node.additional()) {
            (Type::IntOrString, ..) => node.max_length().map_or(REQUEST - 2, |max| max * 4),
            (Type::String, ..) => max_text(node),
            (Type::Array, Some(items), _) => node
                .max_items()
                .unwrap_or_else(|| (REQUEST - 2) / (inside(items) + 1)),
            (Type::Object, _, Some(values)) => node
                .max_properties()
                .unwrap_or_else(|| (REQUEST - 2) / (inside(values) + 6)),
            _ => 0,
        }
    }

    /// One step of a path in data.
    fn step(self, name: &str) -> Option<Declared<'a>> {
        match name {
            "@items" | "@values" => self
                .node
                .items()
                .or(self.node.additional())
                .map(Declared::below),
            _ if self.node.additional().is_some() => None,
            _ => self.field(name).filter(|below| below.is_visible()),
        }
    }

    /// The field that expressions know by a name. Only names with two underscores in a row may have been escaped.
    fn field(self, name: &str) -> Option<Declared<'a>> {
        if name.contains("__") {
            let mut fields = self.fields().into_iter();
            let found =
                fields.find(|(field, _)| escape(field).is_some_and(|escaped| escaped == name));
            return found.map(|(_, below)| below);
        }
        let added = OBJECT.property(name).filter(|_| self.adds_metadata());
        added.or(self.node.property(name)).map(Declared::below)
    }
}

impl Sizes for Declared<'_> {
    fn size(&self, node: &cel::Node) -> Option<Range> {
        let (_, path) = node.path.split_first()?;
        let (keys, path) = match path.split_last() {
            Some((last, path)) if last == "@keys" => (true, path),
            _ => (false, path),
        };
        let place = path
            .iter()
            .try_fold(*self, |place, name| place.step(name))?;
        match (keys, place.node.additional()) {
            (false, _) => Some(Range {
                min: 0,
                max: place.max_elements(),
            }),
            // Kubernetes: nothing is counted for the keys of a map.
            (true, Some(_)) => Some(Range::ZERO),
            (true, None) => None,
        }
    }
}

/// How often a value can stand in one object if nothing else bounds it.
pub(super) fn cardinality(declared: Declared) -> u64 {
    REQUEST / (declared.min_size() + 1)
}

fn says_what_it_is(node: &Node) -> bool {
    let is = |node: Option<&Node>, ty: Type| node.is_some_and(|node| node.ty == ty);
    let metadata = node.property("metadata");
    let name = |name: &str| metadata.and_then(|metadata| metadata.property(name));
    is(node.property("kind"), Type::String)
        && is(node.property("apiVersion"), Type::String)
        && is(metadata, Type::Object)
        && is(name("name"), Type::String)
        && is(name("generateName"), Type::String)
}

fn text_form(format: &str) -> Form {
    match format {
        "byte" => Form::Bytes,
        "duration" => Form::Duration,
        "date" => Form::Date,
        "date-time" => Form::DateTime,
        _ => Form::String,
    }
}

fn merge(node: &Node) -> Merge {
    match node.list {
        ListType::Set => Merge::Set,
        ListType::Map => Merge::Map(node.keys().to_vec()),
        ListType::Unsaid | ListType::Atomic => Merge::Atomic,
    }
}

/// Kubernetes: a character may take four octets.
fn max_text(node: &Node) -> u64 {
    let longest = |values: &[Value]| values.iter().map(|value| value.str().len() as u64).max();
    match node.format() {
        "byte" => node.max_length().unwrap_or(REQUEST - 2),
        "duration" | "date-time" => 32,
        "date" => 12,
        _ => {
            let bound = node.max_length().map(|max| max * 4);
            let listed = || {
                node.check(|check| {
                    if let Check::Enum(values) = check {
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

impl Node {
    /// The first check that answers.
    fn check<'a, T>(&'a self, answer: impl FnMut(&'a Check) -> Option<T>) -> Option<T> {
        self.checks.iter().find_map(answer)
    }

    fn max_length(&self) -> Option<u64> {
        self.check(|check| {
            if let Check::MaxLength(max) = check {
                Some(count(*max))
            } else {
                None
            }
        })
    }

    fn max_items(&self) -> Option<u64> {
        self.check(|check| {
            if let Check::MaxItems(max) = check {
                Some(count(*max))
            } else {
                None
            }
        })
    }

    fn max_properties(&self) -> Option<u64> {
        self.check(|check| {
            if let Check::MaxProperties(max) = check {
                Some(count(*max))
            } else {
                None
            }
        })
    }
}

/// No less than nothing.
fn count(n: i64) -> u64 {
    u64::try_from(n).unwrap_or_default()
}
