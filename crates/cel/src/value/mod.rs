//! What is the value of an expression?
//!
//! Values borrow from the objects that they were read from: selecting a field copies a reference, never a
//! tree. What an expression makes itself is shared behind an `Arc`.

mod containers;

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::shape::{self, Shape};
pub use containers::{Entries, Fields, Key, Lazy, List, Map};
use mizzen_value::time::Moment;
use mizzen_value::{self as object, Str};

/// A value during evaluation.
#[derive(Debug, Clone)]
pub enum Value<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A signed whole number.
    Int(i64),
    /// An unsigned whole number.
    Uint(u64),
    /// A number with a fraction.
    Double(f64),
    /// Text.
    String(Text<'a>),
    /// Octets.
    Bytes(Arc<[u8]>),
    /// Items.
    List(List<'a>),
    /// Keys with values, or an object with fields.
    Map(Map<'a>),
    /// A span of time in nanoseconds.
    Duration(i64),
    /// A moment, and how many seconds the clock was ahead of UTC by which it was written.
    Timestamp(Moment, i32),
    /// The name of a type.
    Type(Str),
    /// A value that may be missing.
    Optional(Option<Arc<Value<'a>>>),
    /// A value that only its library can look into.
    Opaque(Arc<dyn Opaque>),
}

/// Why an expression has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// A function or an operator refused its arguments.
    #[error("{0}")]
    Failed(Cow<'static, str>),
    /// It would have cost more than it may.
    #[error("operation cancelled: actual cost limit exceeded")]
    CostLimit,
    /// The caller lost interest.
    #[error("operation interrupted")]
    Interrupted,
}

impl EvalError {
    /// A failure with a message.
    pub fn new(message: impl Into<Cow<'static, str>>) -> EvalError {
        EvalError::Failed(message.into())
    }

    /// The function has no implementation for the types of its arguments.
    pub fn no_such_overload() -> EvalError {
        EvalError::new("no such overload")
    }

    /// Whether the evaluation must end, whatever the expression makes of errors.
    pub fn is_fatal(&self) -> bool {
        !matches!(self, EvalError::Failed(_))
    }
}

/// The outcome of evaluating something.
pub type Outcome<'a> = Result<Value<'a>, EvalError>;

/// A value that only its library can look into: a quantity, an address, an authorizer.
pub trait Opaque: fmt::Debug + Send + Sync + Any {
    /// The name of its type.
    fn type_name(&self) -> &str;

    /// Whether `other` is equal; called with any other opaque value.
    fn equals(&self, other: &dyn Opaque) -> bool;

    /// Its size where costs are counted; `None` counts as 1.
    fn size(&self) -> Option<u64> {
        None
    }

    /// Its text where it is converted to a string or shown.
    fn text(&self) -> Option<String> {
        None
    }
}

impl dyn Opaque {
    /// The value itself, if it is a `T`.
    pub fn downcast<T: Opaque>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }
}

/// Text: borrowed from an object or made by the expression.
#[derive(Clone)]
pub enum Text<'a> {
    /// Borrowed.
    Borrowed(&'a str),
    /// Made, or a literal of the expression.
    Shared(Str),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Text::Borrowed(text) => text,
            Text::Shared(text) => text,
        }
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<'a> Value<'a> {
    /// A value read from data of which nothing is known.
    pub fn data(data: &'a object::Value) -> Value<'a> {
        shape::read(data, &Shape::ANY).unwrap_or(Value::Null)
    }

    /// A value read from data of a known shape.
    pub fn shaped(data: &'a object::Value, shape: &'a Shape) -> Outcome<'a> {
        shape::read(data, shape)
    }

    /// The name of its type, as `type(x)` shows it.
    pub fn type_name(&self) -> Str {
        match self {
            Value::Null => "null_type".into(),
            Value::Bool(_) => "bool".into(),
            Value::Int(_) => "int".into(),
            Value::Uint(_) => "uint".into(),
            Value::Double(_) => "double".into(),
            Value::String(_) => "string".into(),
            Value::Bytes(_) => "bytes".into(),
            Value::List(_) => "list".into(),
            Value::Map(map) => map.kind().cloned().unwrap_or_else(|| "map".into()),
            Value::Duration(_) => "google.protobuf.Duration".into(),
            Value::Timestamp(..) => "google.protobuf.Timestamp".into(),
            Value::Type(_) => "type".into(),
            Value::Optional(_) => "optional_type".into(),
            Value::Opaque(opaque) => opaque.type_name().into(),
        }
    }

    /// Its size where costs are counted: characters, octets, items, entries; 1 for everything else.
    pub fn size(&self) -> u64 {
        match self {
            Value::String(text) => text.chars().count() as u64,
            Value::Bytes(bytes) => bytes.len() as u64,
            Value::List(list) => list.len() as u64,
            Value::Map(map) => map.len() as u64,
            Value::Optional(Some(value)) => value.size(),
            Value::Opaque(opaque) => opaque.size().unwrap_or(1),
            _ => 1,
        }
    }

    /// The text, if it is text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The whole number, if it is a signed one.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(int) => Some(*int),
            _ => None,
        }
    }

    /// The truth value, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(bool) => Some(*bool),
            _ => None,
        }
    }

    /// The items, if it is a list.
    pub fn as_list(&self) -> Option<&List<'a>> {
        match self {
            Value::List(list) => Some(list),
            _ => None,
        }
    }

    /// The entries, if it is a map.
    pub fn as_map(&self) -> Option<&Map<'a>> {
        match self {
            Value::Map(map) => Some(map),
            _ => None,
        }
    }

    /// The library's value, if it is a `T`.
    pub fn as_opaque<T: Opaque>(&self) -> Option<&T> {
        match self {
            Value::Opaque(opaque) => opaque.downcast(),
            _ => None,
        }
    }

    /// Wraps a library's value.
    pub fn opaque(opaque: impl Opaque) -> Value<'a> {
        Value::Opaque(Arc::new(opaque))
    }

    /// A value that is there, where it may be missing.
    pub fn some(value: Value<'a>) -> Value<'a> {
        Value::Optional(Some(Arc::new(value)))
    }
}

impl Text<'_> {
    /// The text, to be kept.
    pub fn to_str(&self) -> Str {
        match self {
            Text::Borrowed(text) => (*text).into(),
            Text::Shared(text) => text.clone(),
        }
    }
}

macro_rules! into_value {
    ($($from:ty => |$it:ident| $value:expr;)*) => {$(
        impl<'a> From<$from> for Value<'a> {
            fn from($it: $from) -> Value<'a> {
                $value
            }
        }
    )*};
}

into_value! {
    bool => |it| Value::Bool(it);
    i64 => |it| Value::Int(it);
    u64 => |it| Value::Uint(it);
    f64 => |it| Value::Double(it);
    &'a str => |it| Value::String(Text::Borrowed(it));
    String => |it| Value::String(Text::Shared(it.into()));
    Str => |it| Value::String(Text::Shared(it));
    Moment => |it| Value::Timestamp(it, 0);
    Vec<Value<'a>> => |it| Value::List(List::new(it));
    List<'a> => |it| Value::List(it);
    Map<'a> => |it| Value::Map(it);
}
