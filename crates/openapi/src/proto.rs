//! Swagger 2.0 as protobuf: gnostic's `openapi.v2.Document`, encoded from the same values as the
//! JSON. OpenAPI 3.0 has tables of its own (`proto3`).
//!
//! Each message is a table: the JSON name of a member, its field number, and its encoding. Members
//! that start with `x-` are encoded as extensions in YAML, of which JSON is a subset.

use mizzen_value::{Value, json};

/// The encoding of a JSON object as a message.
pub(super) struct Message {
    pub fields: &'static [(&'static str, u32, ProtoShape)],
    /// The field number of the extensions, 0 if it has none.
    pub extensions: u32,
}

/// The encoding of a member.
#[derive(Clone, Copy)]
pub(super) enum ProtoShape {
    /// A string.
    Text,
    /// A boolean.
    Bool,
    /// An integer.
    Int,
    /// Any number.
    Double,
    /// Any value, as YAML.
    Any,
    /// A message.
    One(&'static Message),
    /// Each item of a list.
    Many(&'static ProtoShape),
    /// Each member of an object as a message of name and value, in a message around them all.
    Named(u32, &'static ProtoShape),
    /// A message with one field.
    In(u32, &'static ProtoShape),
    /// A boolean as field 2 of a message, or anything else as its field 1.
    OrBool(&'static ProtoShape),
    /// A parameter, or a reference to one.
    ParameterOrReference,
    /// A message as field 1, or a reference to one as field 2.
    OrReference(&'static Message),
    /// A number, a boolean or a string, each in its own field of a message; anything else as an
    /// empty message.
    Scalar,
}

use ProtoShape::*;

static SCHEMA: Message = Message {
    fields: &[
        ("$ref", 1, Text),
        ("format", 2, Text),
        ("title", 3, Text),
        ("description", 4, Text),
        ("default", 5, Any),
        ("multipleOf", 6, Double),
        ("maximum", 7, Double),
        ("exclusiveMaximum", 8, Bool),
        ("minimum", 9, Double),
        ("exclusiveMinimum", 10, Bool),
        ("maxLength", 11, Int),
        ("minLength", 12, Int),
        ("pattern", 13, Text),
        ("maxItems", 14, Int),
        ("minItems", 15, Int),
        ("uniqueItems", 16, Bool),
        ("maxProperties", 17, Int),
        ("minProperties", 18, Int),
        ("required", 19, Many(&Text)),
        ("enum", 20, Many(&Any)),
        ("additionalProperties", 21, OrBool(&One(&SCHEMA))),
        ("type", 22, In(1, &Text)),
        ("items", 23, In(1, &One(&SCHEMA))),
        ("properties", 25, Named(1, &One(&SCHEMA))),
        ("externalDocs", 29, One(&EXTERNAL_DOCS)),
        ("example", 30, Any),
    ],
    extensions: 31,
};

pub(super) static EXTERNAL_DOCS: Message = Message {
    fields: &[("description", 1, Text), ("url", 2, Text)],
    extensions: 3,
};

static BODY: Message = Message {
    fields: &[
        ("name", 2, Text),
        ("in", 3, Text),
        ("required", 4, Bool),
        ("schema", 5, One(&SCHEMA)),
    ],
    extensions: 6,
};

static QUERY: Message = Message {
    fields: &[
        ("required", 1, Bool),
        ("in", 2, Text),
        ("description", 3, Text),
        ("name", 4, Text),
        ("type", 6, Text),
        ("uniqueItems", 20, Bool),
    ],
    extensions: 23,
};

static PATH: Message = Message {
    fields: &[
        ("required", 1, Bool),
        ("in", 2, Text),
        ("description", 3, Text),
        ("name", 4, Text),
        ("type", 5, Text),
        ("uniqueItems", 19, Bool),
    ],
    extensions: 22,
};

static REFERENCE: Message = Message {
    fields: &[("$ref", 1, Text)],
    extensions: 0,
};

static RESPONSE: Message = Message {
    fields: &[
        ("description", 1, Text),
        ("schema", 2, In(1, &One(&SCHEMA))),
    ],
    extensions: 5,
};

static OPERATION: Message = Message {
    fields: &[
        ("tags", 1, Many(&Text)),
        ("description", 3, Text),
        ("operationId", 5, Text),
        ("produces", 6, Many(&Text)),
        ("consumes", 7, Many(&Text)),
        ("parameters", 8, Many(&ParameterOrReference)),
        ("responses", 9, Named(1, &In(1, &One(&RESPONSE)))),
        ("schemes", 10, Many(&Text)),
    ],
    extensions: 13,
};

static PATH_ITEM: Message = Message {
    fields: &[
        ("get", 2, One(&OPERATION)),
        ("put", 3, One(&OPERATION)),
        ("post", 4, One(&OPERATION)),
        ("delete", 5, One(&OPERATION)),
        ("options", 6, One(&OPERATION)),
        ("head", 7, One(&OPERATION)),
        ("patch", 8, One(&OPERATION)),
        ("parameters", 9, Many(&ParameterOrReference)),
    ],
    extensions: 10,
};

static INFO: Message = Message {
    fields: &[("title", 1, Text), ("version", 2, Text)],
    extensions: 7,
};

static API_KEY: Message = Message {
    fields: &[
        ("type", 1, Text),
        ("name", 2, Text),
        ("in", 3, Text),
        ("description", 4, Text),
    ],
    extensions: 5,
};

/// The document from its encoded parts.
pub(super) fn document(
    info: &Value,
    paths: impl IntoIterator<Item = (String, Vec<u8>)>,
    definitions: impl IntoIterator<Item = (String, Vec<u8>)>,
    parameters: impl IntoIterator<Item = (String, Vec<u8>)>,
    security: &Value,
) -> Vec<u8> {
    let mut out = Vec::new();
    bytes(&mut out, 1, b"2.0");
    bytes(&mut out, 2, &message(&INFO, info));
    bytes(&mut out, 8, &named(2, paths));
    bytes(&mut out, 9, &named(1, definitions));
    bytes(&mut out, 10, &named(1, parameters));
    let scheme = |value: Vec<u8>| [("BearerToken".to_string(), value)];
    bytes(&mut out, 12, &named(1, scheme(Vec::new())));
    let mut key = Vec::new();
    bytes(&mut key, 2, &message(&API_KEY, security));
    bytes(&mut out, 13, &named(1, scheme(key)));
    out
}

pub(super) fn path_item(value: &Value) -> Vec<u8> {
    message(&PATH_ITEM, value)
}

pub(super) fn schema(value: &Value) -> Vec<u8> {
    message(&SCHEMA, value)
}

pub(super) fn parameter(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    match value["in"].str() {
        "body" => bytes(&mut out, 1, &message(&BODY, value)),
        place => {
            let (number, table) = if place == "path" {
                (4, &PATH)
            } else {
                (3, &QUERY)
            };
            let mut inner = Vec::new();
            bytes(&mut inner, number, &message(table, value));
            bytes(&mut out, 2, &inner);
        }
    }
    out
}

pub(super) fn message(table: &Message, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, number, shape) in table.fields {
        if let Some(member) = value.get(name).filter(|member| !shape.is_zero(member)) {
            field(&mut out, *number, *shape, member);
        }
    }
    for (name, member) in value
        .entries()
        .filter(|(name, _)| name.starts_with("x-") && table.extensions > 0)
    {
        bytes(&mut out, table.extensions, &entry(name, &any(member)));
    }
    out
}

impl ProtoShape {
    /// Whether a member is the zero value of its type, which protobuf omits.
    fn is_zero(self, value: &Value) -> bool {
        match self {
            Text => value.str().is_empty(),
            Bool => !value.bool(),
            Int => value.int() == 0,
            Double => value.as_f64() == Some(0.0),
            _ => false,
        }
    }
}

fn field(out: &mut Vec<u8>, number: u32, shape: ProtoShape, value: &Value) {
    match shape {
        Text => bytes(out, number, value.str().as_bytes()),
        Bool => varint_field(out, number, value.bool().into()),
        Int => varint_field(out, number, value.int() as u64),
        Double => {
            varint(out, u64::from(number) << 3 | 1);
            out.extend_from_slice(&value.as_f64().unwrap_or_default().to_le_bytes());
        }
        Any => bytes(out, number, &any(value)),
        One(table) => bytes(out, number, &message(table, value)),
        Many(item) => value
            .list()
            .iter()
            .for_each(|value| field(out, number, *item, value)),
        In(inner, item) => bytes(out, number, &single(inner, *item, value)),
        Named(inner, item) => {
            let members = value
                .entries()
                .map(|(name, member)| (name.to_string(), bare(*item, member)));
            bytes(out, number, &named(inner, members));
        }
        OrBool(item) => {
            let (inner, item) = if value.as_bool().is_some() {
                (2, Bool)
            } else {
                (1, *item)
            };
            bytes(out, number, &single(inner, item, value));
        }
        OrReference(_) => bytes(out, number, &bare(shape, value)),
        Scalar => {
            let scalar = match value {
                Value::Bool(_) => single(2, Bool, value),
                Value::String(_) => single(3, Text, value),
                _ if value.as_f64().is_some() => single(1, Double, value),
                _ => Vec::new(),
            };
            bytes(out, number, &scalar);
        }
        ParameterOrReference => {
            let mut item = Vec::new();
            match value.get("$ref") {
                Some(_) => bytes(&mut item, 2, &message(&REFERENCE, value)),
                None => bytes(&mut item, 1, &parameter(value)),
            }
            bytes(out, number, &item);
        }
    }
}

/// A message of one field.
fn single(number: u32, shape: ProtoShape, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    field(&mut out, number, shape, value);
    out
}

/// The content of a message, without its field header.
fn bare(shape: ProtoShape, value: &Value) -> Vec<u8> {
    match shape {
        One(table) => message(table, value),
        In(number, item) => single(number, *item, value),
        OrReference(table) => match value.get("$ref") {
            Some(_) => single(2, One(&REFERENCE), value),
            None => single(1, One(table), value),
        },
        _ => unreachable!("only messages have names"),
    }
}

fn named(number: u32, members: impl IntoIterator<Item = (String, Vec<u8>)>) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in members {
        bytes(&mut out, number, &entry(&name, &value));
    }
    out
}

fn entry(name: &str, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len() + value.len() + 8);
    bytes(&mut out, 1, name.as_bytes());
    bytes(&mut out, 2, value);
    out
}

/// An `Any`, whose second field is YAML.
fn any(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    bytes(&mut out, 2, json::to_string(value).as_bytes());
    out
}

fn bytes(out: &mut Vec<u8>, number: u32, content: &[u8]) {
    varint(out, u64::from(number) << 3 | 2);
    varint(out, content.len() as u64);
    out.extend_from_slice(content);
}

fn varint_field(out: &mut Vec<u8>, number: u32, value: u64) {
    varint(out, u64::from(number) << 3);
    varint(out, value);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
