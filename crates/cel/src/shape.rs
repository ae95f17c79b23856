//! How is plain data read as values? A shape says what a schema says: that a text is a moment, a number a
//! double, that the order of a list does not matter, which fields an object has.

use std::sync::Arc;

use base64::Engine;
use indexmap::IndexMap;

use super::escape;
use super::standard::written_offset;
use super::types::Type;
use super::value::{EvalError, List, Map, Outcome, Text, Value};
use mizzen_value::time::{self, Moment};
use mizzen_value::{self as object, Str};

/// What data looks like.
#[derive(Debug, Clone)]
pub struct Shape {
    /// What it is when it is not null.
    pub form: Form,
    /// Whether it may be null.
    pub nullable: bool,
}

/// What data looks like when it is not null.
#[derive(Debug, Clone)]
pub enum Form {
    /// Whatever it is.
    Any,
    /// A whole number or text.
    IntOrString,
    /// `true` or `false`.
    Bool,
    /// A whole number.
    Int,
    /// A number, even if it is written as a whole one.
    Double,
    /// Text.
    String,
    /// Text that is octets in base64.
    Bytes,
    /// Text that is a day.
    Date,
    /// Text that is a moment.
    DateTime,
    /// Text that is a span of time.
    Duration,
    /// Items of one shape.
    List(Box<Shape>, Merge),
    /// Any keys, values of one shape.
    Map(Box<Shape>),
    /// Known fields, and the name of the object's type.
    Object(Str, IndexMap<Str, Field>),
}

/// A field of an object, kept under its escaped name.
#[derive(Debug, Clone)]
pub struct Field {
    /// The name in the data.
    pub name: Str,
    /// What is in it.
    pub shape: Shape,
}

/// How two lists are compared and concatenated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Merge {
    /// In order, all items.
    Atomic,
    /// Order does not matter, equal items are one.
    Set,
    /// Order does not matter, items with the same values of these fields are one.
    Map(Vec<Str>),
}

impl Shape {
    /// Anything.
    pub const ANY: Shape = Shape {
        form: Form::Any,
        nullable: true,
    };

    /// A shape that is never null.
    pub fn new(form: Form) -> Shape {
        Shape {
            form,
            nullable: false,
        }
    }

    /// An object with fields under their plain names.
    pub fn object(name: &str, fields: impl IntoIterator<Item = (Str, Shape)>) -> Shape {
        let field = |(name, shape): (Str, Shape)| {
            let key = escape::escape(&name).unwrap_or_else(|| name.clone());
            (key, Field { name, shape })
        };
        Shape::new(Form::Object(
            name.into(),
            fields.into_iter().map(field).collect(),
        ))
    }

    /// The static type of what has this shape.
    pub fn static_type(&self) -> Type {
        match &self.form {
            Form::Any | Form::IntOrString => Type::Dyn,
            Form::Bool => Type::Bool,
            Form::Int => Type::Int,
            Form::Double => Type::Double,
            Form::String => Type::String,
            Form::Bytes => Type::Bytes,
            Form::Date | Form::DateTime => Type::Timestamp,
            Form::Duration => Type::Duration,
            Form::List(items, _) => Type::list(items.static_type()),
            Form::Map(values) => Type::map(Type::String, values.static_type()),
            Form::Object(name, _) => Type::Object(name.clone()),
        }
    }

    /// A field of data that has this shape; `name` is escaped if this is an object.
    pub(super) fn field<'a>(&'a self, map: &'a object::Map, name: &str) -> Option<Outcome<'a>> {
        match &self.form {
            Form::Object(_, fields) => {
                let reserved = || fields.get(&escape::escape_reserved(name)?);
                let field = fields.get(name).or_else(reserved)?;
                // Kubernetes: a field of an object that is null is not there.
                let value = map.get(&field.name).filter(|value| !value.is_null())?;
                Some(read(value, &field.shape))
            }
            Form::Map(values) => map.get(name).map(|value| read(value, values)),
            _ => map.get(name).map(|value| read(value, &ANY)),
        }
    }

    /// The keys of data that has this shape.
    pub(super) fn keys<'a>(&'a self, map: &'a object::Map) -> Vec<Value<'a>> {
        match &self.form {
            Form::Object(_, fields) => {
                let present = fields
                    .iter()
                    .filter(|(_, field)| map.contains_key(&field.name));
                present.map(|(key, _)| key.as_str().into()).collect()
            }
            _ => map.iter().map(|(key, _)| key.into()).collect(),
        }
    }
}

static ANY: Shape = Shape::ANY;

/// Reads data as a value; only what it refers to is looked at.
pub(super) fn read<'a>(data: &'a object::Value, shape: &'a Shape) -> Outcome<'a> {
    use object::Value as Data;
    Ok(match (&shape.form, data) {
        (_, Data::Null) if shape.nullable => Value::Null,
        (_, Data::Null) => {
            return Err(EvalError::new(
                "invalid data, got null for schema with nullable=false",
            ));
        }
        (Form::Any | Form::Bool, Data::Bool(bool)) => Value::Bool(*bool),
        (Form::Any | Form::Int | Form::IntOrString, Data::Int(int)) => Value::Int(*int),
        (Form::Double, Data::Int(int)) => Value::Double(*int as f64),
        (Form::Any | Form::Double, Data::Number(_)) => {
            Value::Double(data.as_f64().unwrap_or_default())
        }
        (Form::Any | Form::String | Form::IntOrString, Data::String(text)) => {
            Value::String(Text::Borrowed(text))
        }
        (Form::Bytes | Form::Date | Form::DateTime | Form::Duration, Data::String(text)) => {
            read_text(text, &shape.form)?
        }
        (Form::Any, Data::List(items)) => List::of_data(items, &ANY, &Merge::Atomic).into(),
        (Form::List(shape, merge), Data::List(items)) => List::of_data(items, shape, merge).into(),
        (Form::Any | Form::Map(_) | Form::Object(..), Data::Map(map)) => {
            Map::Data(map, shape).into()
        }
        (form, _) => return Err(EvalError::new(mismatch(form, data))),
    })
}

fn read_text<'a>(text: &str, form: &Form) -> Outcome<'a> {
    let refuse = |what: &str, why: &dyn std::fmt::Display| {
        EvalError::new(format!("Invalid {what} {text}: {why}"))
    };
    match form {
        Form::Duration => {
            let nanos = time::duration_nanos(text).map_err(|error| refuse("duration", &error))?;
            Ok(Value::Duration(nanos))
        }
        Form::Date => {
            let moment = Moment::parse(&format!("{text}T00:00:00Z"));
            moment
                .map(Value::from)
                .map_err(|error| refuse("date formatted string", &error))
        }
        Form::DateTime => {
            let moment = Moment::parse(text);
            let value = moment.map(|moment| Value::Timestamp(moment, written_offset(text)));
            value.map_err(|error| refuse("date-time formatted string", &error))
        }
        _ => {
            let bytes = base64::engine::general_purpose::STANDARD.decode(text);
            let bytes = bytes.map_err(|error| refuse("byte formatted string", &error))?;
            Ok(Value::Bytes(Arc::from(bytes)))
        }
    }
}

/// Why data does not fit a shape; validation by schema comes first, so this is for the curious.
fn mismatch(form: &Form, data: &object::Value) -> String {
    let found = match data {
        object::Value::Int(_) => "int64",
        object::Value::Number(_) => "float64",
        object::Value::List(_) => "[]interface {}",
        object::Value::Map(_) => "map[string]interface {}",
        other => other.go_word(),
    };
    match form {
        Form::IntOrString => {
            "invalid data, expected XIntOrString value to be either a string or integer".into()
        }
        Form::Map(_) | Form::Object(..) => {
            "invalid data, expected a map for the provided schema with type=object".into()
        }
        Form::List(..) => {
            "invalid data, expected an array for the provided schema with type=array".into()
        }
        Form::Double => format!("invalid data, expected float, got {found}"),
        Form::Int => format!("invalid data, expected int, got {found}"),
        Form::Bool => format!("invalid data, expected bool, got {found}"),
        _ => format!("invalid data, expected string, got {found}"),
    }
}
