//! A compiled schema. Nodes are small, because there are many; rare attributes are kept apart.
//!
//! Invariant: properties are sorted by name, checks are in reporting order.

use super::format::StringFormat;
use super::pattern::Pattern;
use super::rules::NodeRules;
use crate::schema;
use mizzen_value::json;
use mizzen_value::{Str, Value};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum NodeType {
    /// Any type.
    #[default]
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    /// An integer or a string.
    IntOrString,
}

/// `x-kubernetes-list-type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ListType {
    /// Unspecified: atomic.
    #[default]
    Unsaid,
    Atomic,
    Set,
    Map,
}

#[derive(Debug, Default)]
pub(crate) struct SchemaNode {
    pub ty: NodeType,
    pub list: ListType,
    flags: u8,
    properties: Box<[(Str, SchemaNode)]>,
    items: Option<Box<SchemaNode>>,
    additional: Option<Box<SchemaNode>>,
    default: Option<Box<Value>>,
    pub checks: Box<[NodeCheck]>,
}

/// A constraint besides the type.
#[derive(Debug)]
pub(crate) enum NodeCheck {
    AnyOf(Box<[SchemaNode]>),
    OneOf(Box<[SchemaNode]>),
    AllOf(Box<[SchemaNode]>),
    Not(Box<SchemaNode>),
    MaxLength(i64),
    MinLength(i64),
    Pattern(Box<Pattern>),
    Format(&'static StringFormat),
    MultipleOf(f64),
    /// A bound, and whether it is exclusive.
    Minimum(f64, bool),
    Maximum(f64, bool),
    MinItems(i64),
    MaxItems(i64),
    UniqueItems,
    Enum(Box<[Value]>),
    MinProperties(i64),
    MaxProperties(i64),
    Required(Box<[Str]>),
    /// `x-kubernetes-list-map-keys`.
    Keys(Box<[Str]>),
    /// CEL rules.
    Rules(Box<NodeRules>),
}

static BOOLEAN: schema::FieldType = schema::FieldType {
    shape: schema::FieldShape::Bool,
    go: Str::new_static("bool"),
};
static NUMBER: schema::FieldType = schema::FieldType {
    shape: schema::FieldShape::Float,
    go: Str::new_static("float64"),
};
static TEXT: schema::FieldType = schema::FieldType {
    shape: schema::FieldShape::String,
    go: Str::new_static("string"),
};
static FORMATTED: schema::FieldType = schema::FieldType {
    shape: schema::FieldShape::Time,
    go: Str::new_static("string"),
};

const NULLABLE: u8 = 1;
const PRESERVES: u8 = 2;
const EMBEDDED: u8 = 4;
const ANY_PROPERTY: u8 = 8;
const ATOMIC_MAP: u8 = 16;
const NO_PROPERTY: u8 = 32;
const HAS_RULES: u8 = 64;

impl SchemaNode {
    /// The property `name`, if it is declared.
    pub(crate) fn property(&self, name: &str) -> Option<&SchemaNode> {
        let at = self
            .properties
            .binary_search_by(|(known, _)| known.as_str().cmp(name))
            .ok()?;
        Some(&self.properties[at].1)
    }

    /// The schema of a member: the property, or `additionalProperties`.
    pub(crate) fn member(&self, name: &str) -> Option<&SchemaNode> {
        self.property(name).or(self.additional())
    }

    /// The declared properties, by name.
    pub(crate) fn properties(&self) -> impl Iterator<Item = (&Str, &SchemaNode)> {
        self.properties.iter().map(|(name, node)| (name, node))
    }

    /// The schema of list items.
    pub(crate) fn items(&self) -> Option<&SchemaNode> {
        self.items.as_deref()
    }

    /// The schema of `additionalProperties`.
    pub(crate) fn additional(&self) -> Option<&SchemaNode> {
        self.additional.as_deref()
    }

    pub(crate) fn default(&self) -> Option<&Value> {
        self.default.as_deref()
    }

    /// Whether null is allowed.
    pub(crate) fn is_nullable(&self) -> bool {
        self.flags & NULLABLE != 0
    }

    /// Whether unknown fields are preserved.
    pub(crate) fn preserves(&self) -> bool {
        self.flags & PRESERVES != 0
    }

    /// Whether it is an object with `apiVersion`, `kind` and `metadata`.
    pub(crate) fn is_embedded(&self) -> bool {
        self.flags & EMBEDDED != 0
    }

    /// Whether undeclared members are allowed without a schema.
    pub(crate) fn allows_any_property(&self) -> bool {
        self.flags & ANY_PROPERTY != 0
    }

    /// Whether undeclared members are forbidden.
    pub(crate) fn forbids_others(&self) -> bool {
        self.flags & NO_PROPERTY != 0
    }

    pub(crate) fn is_atomic_map(&self) -> bool {
        self.flags & ATOMIC_MAP != 0
    }

    /// The map keys of a list.
    pub(crate) fn keys(&self) -> &[Str] {
        self.checks
            .iter()
            .find_map(|check| {
                if let NodeCheck::Keys(keys) = check {
                    Some(&**keys)
                } else {
                    None
                }
            })
            .unwrap_or(&[])
    }

    /// The CEL rules of this node.
    pub(crate) fn rules(&self) -> Option<&NodeRules> {
        self.checks.iter().find_map(|check| {
            if let NodeCheck::Rules(rules) = check {
                Some(&**rules)
            } else {
                None
            }
        })
    }

    /// Whether this node or one below has CEL rules.
    pub(crate) fn has_rules(&self) -> bool {
        self.flags & HAS_RULES != 0
    }

    /// Whether it must be a map.
    pub(crate) fn is_object(&self) -> bool {
        self.ty == NodeType::Object
    }

    /// Whether it must be a list.
    pub(crate) fn is_list(&self) -> bool {
        self.ty == NodeType::Array
    }

    /// The equivalent built-in type for field ownership, if it is a scalar.
    pub(crate) fn scalar(&self) -> Option<&'static schema::FieldType> {
        Some(match (self.ty, self.format()) {
            (NodeType::Boolean, _) => &BOOLEAN,
            (NodeType::Integer | NodeType::Number, _) => &NUMBER,
            (NodeType::String, "" | "byte") => &TEXT,
            (NodeType::String, _) => &FORMATTED,
            _ => return None,
        })
    }

    /// Whether `test` holds for this node or any node below; without alternatives of `anyOf` and
    /// the like.
    pub(crate) fn any(&self, test: &dyn Fn(&SchemaNode) -> bool) -> bool {
        test(self) || self.below().any(|node| node.any(test))
    }

    /// Compiles an accepted schema.
    pub(crate) fn compile(schema: &Value) -> SchemaNode {
        let mut properties: Vec<(Str, SchemaNode)> = schema["properties"]
            .entries()
            .map(|(name, below)| (name.into(), SchemaNode::compile(below)))
            .collect();
        properties.sort_unstable_by(|left, right| left.0.cmp(&right.0));
        let ty = match schema["x-kubernetes-int-or-string"].bool() {
            true => NodeType::IntOrString,
            false => NodeType::parse(schema["type"].str()),
        };
        let mut node = SchemaNode {
            ty,
            list: match schema["x-kubernetes-list-type"].str() {
                "atomic" => ListType::Atomic,
                "set" => ListType::Set,
                "map" => ListType::Map,
                _ => ListType::Unsaid,
            },
            flags: flags(schema),
            properties: properties.into(),
            items: schema.get("items").map(boxed),
            additional: schema
                .get("additionalProperties")
                .filter(|below| below.as_map().is_some())
                .map(boxed),
            default: schema
                .get("default")
                .filter(|value| !value.is_null())
                .cloned()
                .map(compact)
                .map(Box::new),
            checks: checks(schema, ty).into(),
        };
        if node.rules().is_some() || node.below().any(SchemaNode::has_rules) {
            node.flags |= HAS_RULES;
        }
        node
    }

    /// The direct children; without alternatives of `anyOf` and the like.
    pub(crate) fn below(&self) -> impl Iterator<Item = &SchemaNode> {
        let properties = self.properties.iter().map(|(_, node)| node);
        properties.chain(self.items()).chain(self.additional())
    }
}

fn boxed(schema: &Value) -> Box<SchemaNode> {
    Box::new(SchemaNode::compile(schema))
}

/// Decoded from Go's encoding, which is how defaults and enum values reach objects.
fn compact(mut value: Value) -> Value {
    json::rewrite(&mut value);
    value
}

impl NodeType {
    /// The type of this name.
    pub(crate) fn parse(word: &str) -> NodeType {
        match word {
            "object" => NodeType::Object,
            "array" => NodeType::Array,
            "string" => NodeType::String,
            "integer" => NodeType::Integer,
            "number" => NodeType::Number,
            "boolean" => NodeType::Boolean,
            _ => NodeType::Any,
        }
    }
}

fn flags(schema: &Value) -> u8 {
    let said = [
        (NULLABLE, schema["nullable"].bool()),
        (
            PRESERVES,
            schema["x-kubernetes-preserve-unknown-fields"].bool(),
        ),
        (EMBEDDED, schema["x-kubernetes-embedded-resource"].bool()),
        (ANY_PROPERTY, schema["additionalProperties"].bool()),
        (
            NO_PROPERTY,
            schema["additionalProperties"] == Value::Bool(false),
        ),
        (
            ATOMIC_MAP,
            schema["x-kubernetes-map-type"].str() == "atomic",
        ),
    ];
    said.iter()
        .filter(|(_, set)| *set)
        .map(|(flag, _)| flag)
        .sum()
}

/// The constraints of a schema, in the order of upstream's validators.
fn checks(schema: &Value, ty: NodeType) -> Vec<NodeCheck> {
    let mut checks = Vec::new();
    let int = |name: &str| schema[name].as_f64().map(|number| number as i64);
    checks.extend(alternatives(&schema["anyOf"]).map(NodeCheck::AnyOf));
    checks.extend(alternatives(&schema["oneOf"]).map(NodeCheck::OneOf));
    checks.extend(alternatives(&schema["allOf"]).map(NodeCheck::AllOf));
    checks.extend(
        schema
            .get("not")
            .filter(|not| !not.is_null())
            .map(|not| NodeCheck::Not(boxed(not))),
    );
    checks.extend(int("maxLength").map(NodeCheck::MaxLength));
    checks.extend(int("minLength").map(NodeCheck::MinLength));
    let pattern = schema["pattern"].str();
    checks
        .extend((!pattern.is_empty()).then(|| NodeCheck::Pattern(Box::new(Pattern::new(pattern)))));
    checks.extend(StringFormat::parse(ty, schema["format"].str()).map(NodeCheck::Format));
    checks.extend(schema["multipleOf"].as_f64().map(NodeCheck::MultipleOf));
    let bound =
        |name: &str, exclusive: &str| Some((schema[name].as_f64()?, schema[exclusive].bool()));
    checks.extend(
        bound("minimum", "exclusiveMinimum").map(|(at, open)| NodeCheck::Minimum(at, open)),
    );
    checks.extend(
        bound("maximum", "exclusiveMaximum").map(|(at, open)| NodeCheck::Maximum(at, open)),
    );
    checks.extend(int("minItems").map(NodeCheck::MinItems));
    checks.extend(int("maxItems").map(NodeCheck::MaxItems));
    checks.extend(
        schema["uniqueItems"]
            .bool()
            .then_some(NodeCheck::UniqueItems),
    );
    let allowed = schema["enum"].list();
    checks.extend(
        (!allowed.is_empty())
            .then(|| NodeCheck::Enum(allowed.iter().cloned().map(compact).collect())),
    );
    checks.extend(int("minProperties").map(NodeCheck::MinProperties));
    checks.extend(int("maxProperties").map(NodeCheck::MaxProperties));
    checks.extend(texts(&schema["required"]).map(NodeCheck::Required));
    checks.extend(texts(&schema["x-kubernetes-list-map-keys"]).map(NodeCheck::Keys));
    checks.extend(NodeRules::read(schema).map(Box::new).map(NodeCheck::Rules));
    checks
}

fn alternatives(schemas: &Value) -> Option<Box<[SchemaNode]>> {
    let nodes: Box<[SchemaNode]> = schemas.list().iter().map(SchemaNode::compile).collect();
    (!nodes.is_empty()).then_some(nodes)
}

fn texts(list: &Value) -> Option<Box<[Str]>> {
    let texts: Box<[Str]> = list.list().iter().map(|text| text.str().into()).collect();
    (!texts.is_empty()).then_some(texts)
}
