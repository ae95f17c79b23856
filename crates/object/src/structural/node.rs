//! A schema in the form in which it is used: small, because there are many, and rare things apart.
//!
//! Invariant: properties are sorted by name, checks stand in the order in which they report.

use super::format::Format;
use super::pattern::Pattern;
use super::rules::Rules;
use crate::schema;
use mizzen_value::json;
use mizzen_value::{Str, Value};

/// What a value must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Type {
    /// Anything.
    #[default]
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    /// A whole number or text.
    IntOrString,
}

/// How the items of a list belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ListType {
    /// Nothing said: replaced as a whole.
    #[default]
    Unsaid,
    Atomic,
    Set,
    Map,
}

/// One place of a schema.
#[derive(Debug, Default)]
pub(crate) struct Node {
    pub ty: Type,
    pub list: ListType,
    flags: u8,
    properties: Box<[(Str, Node)]>,
    items: Option<Box<Node>>,
    additional: Option<Box<Node>>,
    default: Option<Box<Value>>,
    pub checks: Box<[Check]>,
}

/// What is demanded of a value besides its type.
#[derive(Debug)]
pub(crate) enum Check {
    AnyOf(Box<[Node]>),
    OneOf(Box<[Node]>),
    AllOf(Box<[Node]>),
    Not(Box<Node>),
    MaxLength(i64),
    MinLength(i64),
    Pattern(Box<Pattern>),
    Format(&'static Format),
    MultipleOf(f64),
    /// A bound, and whether it is itself excluded.
    Minimum(f64, bool),
    Maximum(f64, bool),
    MinItems(i64),
    MaxItems(i64),
    UniqueItems,
    Enum(Box<[Value]>),
    MinProperties(i64),
    MaxProperties(i64),
    Required(Box<[Str]>),
    /// The fields that tell the items of a list apart.
    Keys(Box<[Str]>),
    /// Expressions that must hold.
    Rules(Box<Rules>),
}

static BOOLEAN: schema::Type = schema::Type {
    shape: schema::Shape::Bool,
    go: Str::new_static("bool"),
};
static NUMBER: schema::Type = schema::Type {
    shape: schema::Shape::Float,
    go: Str::new_static("float64"),
};
static TEXT: schema::Type = schema::Type {
    shape: schema::Shape::String,
    go: Str::new_static("string"),
};
static FORMATTED: schema::Type = schema::Type {
    shape: schema::Shape::Time,
    go: Str::new_static("string"),
};

const NULLABLE: u8 = 1;
const PRESERVES: u8 = 2;
const EMBEDDED: u8 = 4;
const ANY_PROPERTY: u8 = 8;
const ATOMIC_MAP: u8 = 16;
const NO_PROPERTY: u8 = 32;
const HAS_RULES: u8 = 64;

impl Node {
    /// The property `name`, if it is declared.
    pub(crate) fn property(&self, name: &str) -> Option<&Node> {
        let at = self
            .properties
            .binary_search_by(|(known, _)| known.as_str().cmp(name))
            .ok()?;
        Some(&self.properties[at].1)
    }

    /// What stands under a name: the property, or what every other name has.
    pub(crate) fn member(&self, name: &str) -> Option<&Node> {
        self.property(name).or(self.additional())
    }

    /// The declared properties, by name.
    pub(crate) fn properties(&self) -> impl Iterator<Item = (&Str, &Node)> {
        self.properties.iter().map(|(name, node)| (name, node))
    }

    /// What the items of a list are.
    pub(crate) fn items(&self) -> Option<&Node> {
        self.items.as_deref()
    }

    /// What stands under names that are not declared.
    pub(crate) fn additional(&self) -> Option<&Node> {
        self.additional.as_deref()
    }

    /// What it is when nobody says.
    pub(crate) fn default(&self) -> Option<&Value> {
        self.default.as_deref()
    }

    /// Whether null is a value.
    pub(crate) fn is_nullable(&self) -> bool {
        self.flags & NULLABLE != 0
    }

    /// Whether what is not declared is kept.
    pub(crate) fn preserves(&self) -> bool {
        self.flags & PRESERVES != 0
    }

    /// Whether it is an object with `apiVersion`, `kind` and `metadata`.
    pub(crate) fn is_embedded(&self) -> bool {
        self.flags & EMBEDDED != 0
    }

    /// Whether undeclared names are allowed, though nothing is said of what stands under them.
    pub(crate) fn allows_any_property(&self) -> bool {
        self.flags & ANY_PROPERTY != 0
    }

    /// Whether undeclared names are refused.
    pub(crate) fn forbids_others(&self) -> bool {
        self.flags & NO_PROPERTY != 0
    }

    /// Whether a map has one owner.
    pub(crate) fn is_atomic_map(&self) -> bool {
        self.flags & ATOMIC_MAP != 0
    }

    /// The fields that tell the items of a list apart.
    pub(crate) fn keys(&self) -> &[Str] {
        self.checks
            .iter()
            .find_map(|check| {
                if let Check::Keys(keys) = check {
                    Some(&**keys)
                } else {
                    None
                }
            })
            .unwrap_or(&[])
    }

    /// The expressions that must hold here.
    pub(crate) fn rules(&self) -> Option<&Rules> {
        self.checks.iter().find_map(|check| {
            if let Check::Rules(rules) = check {
                Some(&**rules)
            } else {
                None
            }
        })
    }

    /// Whether there are expressions here or below.
    pub(crate) fn has_rules(&self) -> bool {
        self.flags & HAS_RULES != 0
    }

    /// Whether it must be a map.
    pub(crate) fn is_object(&self) -> bool {
        self.ty == Type::Object
    }

    /// Whether it must be a list.
    pub(crate) fn is_list(&self) -> bool {
        self.ty == Type::Array
    }

    /// The built-in type that ownership takes this for, if it has no parts.
    pub(crate) fn scalar(&self) -> Option<&'static schema::Type> {
        Some(match (self.ty, self.format()) {
            (Type::Boolean, _) => &BOOLEAN,
            (Type::Integer | Type::Number, _) => &NUMBER,
            (Type::String, "" | "byte") => &TEXT,
            (Type::String, _) => &FORMATTED,
            _ => return None,
        })
    }

    /// Every node below, and this one; not the alternatives of `anyOf` and the like.
    pub(crate) fn any(&self, test: &dyn Fn(&Node) -> bool) -> bool {
        test(self) || self.below().any(|node| node.any(test))
    }

    /// Compiles a schema that has been accepted; whatever else it says is not kept.
    pub(crate) fn compile(schema: &Value) -> Node {
        let mut properties: Vec<(Str, Node)> = schema["properties"]
            .entries()
            .map(|(name, below)| (name.into(), Node::compile(below)))
            .collect();
        properties.sort_unstable_by(|left, right| left.0.cmp(&right.0));
        let ty = type_of(schema);
        let mut node = Node {
            ty,
            list: list_type(schema["x-kubernetes-list-type"].str()),
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
        if node.rules().is_some() || node.below().any(Node::has_rules) {
            node.flags |= HAS_RULES;
        }
        node
    }

    /// The nodes directly below; not the alternatives of `anyOf` and the like.
    pub(crate) fn below(&self) -> impl Iterator<Item = &Node> {
        let properties = self.properties.iter().map(|(_, node)| node);
        properties.chain(self.items()).chain(self.additional())
    }
}

fn boxed(schema: &Value) -> Box<Node> {
    Box::new(Node::compile(schema))
}

/// As Go writes and reads it again, for so defaults and allowed values reach objects.
fn compact(mut value: Value) -> Value {
    json::rewrite(&mut value);
    value
}

fn type_of(schema: &Value) -> Type {
    if schema["x-kubernetes-int-or-string"].bool() {
        return Type::IntOrString;
    }
    Type::parse(schema["type"].str())
}

impl Type {
    /// The type that a schema names.
    pub(crate) fn parse(word: &str) -> Type {
        match word {
            "object" => Type::Object,
            "array" => Type::Array,
            "string" => Type::String,
            "integer" => Type::Integer,
            "number" => Type::Number,
            "boolean" => Type::Boolean,
            _ => Type::Any,
        }
    }
}

fn list_type(word: &str) -> ListType {
    match word {
        "atomic" => ListType::Atomic,
        "set" => ListType::Set,
        "map" => ListType::Map,
        _ => ListType::Unsaid,
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

/// All checks of a schema, in the order in which upstream's validators run.
fn checks(schema: &Value, ty: Type) -> Vec<Check> {
    let mut checks = Vec::new();
    let int = |name: &str| schema[name].as_f64().map(|number| number as i64);
    checks.extend(alternatives(&schema["anyOf"]).map(Check::AnyOf));
    checks.extend(alternatives(&schema["oneOf"]).map(Check::OneOf));
    checks.extend(alternatives(&schema["allOf"]).map(Check::AllOf));
    checks.extend(
        schema
            .get("not")
            .filter(|not| !not.is_null())
            .map(|not| Check::Not(boxed(not))),
    );
    checks.extend(int("maxLength").map(Check::MaxLength));
    checks.extend(int("minLength").map(Check::MinLength));
    let pattern = schema["pattern"].str();
    checks.extend((!pattern.is_empty()).then(|| Check::Pattern(Box::new(Pattern::new(pattern)))));
    checks.extend(Format::parse(ty, schema["format"].str()).map(Check::Format));
    checks.extend(schema["multipleOf"].as_f64().map(Check::MultipleOf));
    let bound =
        |name: &str, exclusive: &str| Some((schema[name].as_f64()?, schema[exclusive].bool()));
    checks.extend(bound("minimum", "exclusiveMinimum").map(|(at, open)| Check::Minimum(at, open)));
    checks.extend(bound("maximum", "exclusiveMaximum").map(|(at, open)| Check::Maximum(at, open)));
    checks.extend(int("minItems").map(Check::MinItems));
    checks.extend(int("maxItems").map(Check::MaxItems));
    checks.extend(schema["uniqueItems"].bool().then_some(Check::UniqueItems));
    let allowed = schema["enum"].list();
    checks.extend(
        (!allowed.is_empty()).then(|| Check::Enum(allowed.iter().cloned().map(compact).collect())),
    );
    checks.extend(int("minProperties").map(Check::MinProperties));
    checks.extend(int("maxProperties").map(Check::MaxProperties));
    checks.extend(texts(&schema["required"]).map(Check::Required));
    checks.extend(texts(&schema["x-kubernetes-list-map-keys"]).map(Check::Keys));
    checks.extend(Rules::read(schema).map(Box::new).map(Check::Rules));
    checks
}

fn alternatives(schemas: &Value) -> Option<Box<[Node]>> {
    let nodes: Box<[Node]> = schemas.list().iter().map(Node::compile).collect();
    (!nodes.is_empty()).then_some(nodes)
}

fn texts(list: &Value) -> Option<Box<[Str]>> {
    let texts: Box<[Str]> = list.list().iter().map(|text| text.str().into()).collect();
    (!texts.is_empty()).then_some(texts)
}
