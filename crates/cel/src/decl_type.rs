//! Declared types: how JSON data is converted to CEL values according to a schema. Kubernetes:
//! `DeclType` (apiserver/pkg/cel/types.go).

use std::sync::Arc;

use base64::Engine;
use indexmap::IndexMap;

use super::escape;
use super::standard::written_offset;
use super::types::Type;
use super::value::{EvalError, ListVal, MapVal, Outcome, StringVal, Value};
use mizzen_value::time::{self, Moment};
use mizzen_value::{self as object, Str};

/// The declared type of data.
#[derive(Debug, Clone)]
pub struct DeclType {
    /// The type if it is not null.
    pub form: DeclForm,
    /// Whether it may be null.
    pub nullable: bool,
}

/// The type of data that is not null.
#[derive(Debug, Clone)]
pub enum DeclForm {
    /// Any value.
    Any,
    /// An integer or a string.
    IntOrString,
    /// `true` or `false`.
    Bool,
    /// An integer.
    Int,
    /// A number, even if it is written as an integer.
    Double,
    /// A string.
    String,
    /// A string with base64.
    Bytes,
    /// A string with a date.
    Date,
    /// A string with a date and time.
    DateTime,
    /// A string with a duration.
    Duration,
    /// A list of items of one type.
    List(Box<DeclType>, ListSemantics),
    /// A map from strings to values of one type.
    Map(Box<DeclType>),
    /// An object with declared fields, and the name of its type.
    Object(Str, IndexMap<Str, DeclField>),
}

/// A field of an object, kept under its escaped name.
#[derive(Debug, Clone)]
pub struct DeclField {
    /// The name in the data.
    pub name: Str,
    /// The type of the field.
    pub shape: DeclType,
}

/// How lists are compared and concatenated: `x-kubernetes-list-type`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListSemantics {
    /// In order, with all items.
    Atomic,
    /// Order is ignored, equal items are merged.
    Set,
    /// Order is ignored, items with the same values of these fields are merged.
    Map(Vec<Str>),
}

impl DeclType {
    /// Any value.
    pub const ANY: DeclType = DeclType {
        form: DeclForm::Any,
        nullable: true,
    };

    /// A type that is not nullable.
    pub fn new(form: DeclForm) -> DeclType {
        DeclType {
            form,
            nullable: false,
        }
    }

    /// An object type with fields under their unescaped names.
    pub fn object(name: &str, fields: impl IntoIterator<Item = (Str, DeclType)>) -> DeclType {
        let field = |(name, shape): (Str, DeclType)| {
            let key = escape::escape(&name).unwrap_or_else(|| name.clone());
            (key, DeclField { name, shape })
        };
        DeclType::new(DeclForm::Object(
            name.into(),
            fields.into_iter().map(field).collect(),
        ))
    }

    /// The static type for the checker.
    pub fn static_type(&self) -> Type {
        match &self.form {
            DeclForm::Any | DeclForm::IntOrString => Type::Dyn,
            DeclForm::Bool => Type::Bool,
            DeclForm::Int => Type::Int,
            DeclForm::Double => Type::Double,
            DeclForm::String => Type::String,
            DeclForm::Bytes => Type::Bytes,
            DeclForm::Date | DeclForm::DateTime => Type::Timestamp,
            DeclForm::Duration => Type::Duration,
            DeclForm::List(items, _) => Type::list(items.static_type()),
            DeclForm::Map(values) => Type::map(Type::String, values.static_type()),
            DeclForm::Object(name, _) => Type::Object(name.clone()),
        }
    }

    /// A field of data of this type; `name` is escaped for an object.
    pub(super) fn field<'a>(&'a self, map: &'a object::Map, name: &str) -> Option<Outcome<'a>> {
        match &self.form {
            DeclForm::Object(_, fields) => {
                let reserved = || fields.get(&escape::escape_reserved(name)?);
                let field = fields.get(name).or_else(reserved)?;
                // Kubernetes: a null field of an object is absent.
                let value = map.get(&field.name).filter(|value| !value.is_null())?;
                Some(read(value, &field.shape))
            }
            DeclForm::Map(values) => map.get(name).map(|value| read(value, values)),
            _ => map.get(name).map(|value| read(value, &ANY)),
        }
    }

    /// The keys of data of this type.
    pub(super) fn keys<'a>(&'a self, map: &'a object::Map) -> Vec<Value<'a>> {
        match &self.form {
            DeclForm::Object(_, fields) => {
                let present = fields
                    .iter()
                    .filter(|(_, field)| map.contains_key(&field.name));
                present.map(|(key, _)| key.as_str().into()).collect()
            }
            _ => map.iter().map(|(key, _)| key.into()).collect(),
        }
    }
}

static ANY: DeclType = DeclType::ANY;

/// Converts data to a value lazily: nested data is converted when it is accessed.
pub(super) fn read<'a>(data: &'a object::Value, shape: &'a DeclType) -> Outcome<'a> {
    use object::Value as Data;
    Ok(match (&shape.form, data) {
        (_, Data::Null) if shape.nullable => Value::Null,
        (_, Data::Null) => {
            return Err(EvalError::new(
                "invalid data, got null for schema with nullable=false",
            ));
        }
        (DeclForm::Any | DeclForm::Bool, Data::Bool(bool)) => Value::Bool(*bool),
        (DeclForm::Any | DeclForm::Int | DeclForm::IntOrString, Data::Int(int)) => Value::Int(*int),
        (DeclForm::Double, Data::Int(int)) => Value::Double(*int as f64),
        (DeclForm::Any | DeclForm::Double, Data::Number(_)) => {
            Value::Double(data.as_f64().unwrap_or_default())
        }
        (DeclForm::Any | DeclForm::String | DeclForm::IntOrString, Data::String(text)) => {
            Value::String(StringVal::Borrowed(text))
        }
        (
            DeclForm::Bytes | DeclForm::Date | DeclForm::DateTime | DeclForm::Duration,
            Data::String(text),
        ) => shape.form.parse_text(text)?,
        (DeclForm::Any, Data::List(items)) => {
            ListVal::of_data(items, &ANY, &ListSemantics::Atomic).into()
        }
        (DeclForm::List(shape, merge), Data::List(items)) => {
            ListVal::of_data(items, shape, merge).into()
        }
        (DeclForm::Any | DeclForm::Map(_) | DeclForm::Object(..), Data::Map(map)) => {
            MapVal::Data(map, shape).into()
        }
        (form, _) => return Err(EvalError::new(form.mismatch(data))),
    })
}

impl DeclForm {
    /// Parses a string with this format.
    fn parse_text<'a>(&self, text: &str) -> Outcome<'a> {
        let refuse = |what: &str, why: &dyn std::fmt::Display| {
            EvalError::new(format!("Invalid {what} {text}: {why}"))
        };
        match self {
            DeclForm::Duration => {
                let nanos =
                    time::duration_nanos(text).map_err(|error| refuse("duration", &error))?;
                Ok(Value::Duration(nanos))
            }
            DeclForm::Date => {
                let moment = Moment::parse(&format!("{text}T00:00:00Z"));
                moment
                    .map(Value::from)
                    .map_err(|error| refuse("date formatted string", &error))
            }
            DeclForm::DateTime => {
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

    /// The error for data that does not match its type. Schema validation runs first, so this is rare.
    fn mismatch(&self, data: &object::Value) -> String {
        let found = match data {
            object::Value::Int(_) => "int64",
            object::Value::Number(_) => "float64",
            object::Value::List(_) => "[]interface {}",
            object::Value::Map(_) => "map[string]interface {}",
            other => other.go_word(),
        };
        match self {
            DeclForm::IntOrString => {
                "invalid data, expected XIntOrString value to be either a string or integer".into()
            }
            DeclForm::Map(_) | DeclForm::Object(..) => {
                "invalid data, expected a map for the provided schema with type=object".into()
            }
            DeclForm::List(..) => {
                "invalid data, expected an array for the provided schema with type=array".into()
            }
            DeclForm::Double => format!("invalid data, expected float, got {found}"),
            DeclForm::Int => format!("invalid data, expected int, got {found}"),
            DeclForm::Bool => format!("invalid data, expected bool, got {found}"),
            _ => format!("invalid data, expected string, got {found}"),
        }
    }
}
