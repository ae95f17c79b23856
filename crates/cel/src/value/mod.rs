//! CEL values.
//!
//! Values borrow from the JSON data that they were read from: selecting a field copies a reference,
//! never a tree. Values that an expression creates are shared behind an `Arc`.

mod containers;

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::decl_type::{self, DeclType};
pub use containers::{Entries, Lazy, LazyFields, ListVal, MapKey, MapVal};
use mizzen_value::time::Moment;
use mizzen_value::{self as object, Str};

/// A CEL value.
#[derive(Debug, Clone)]
pub enum Value<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A signed 64-bit integer.
    Int(i64),
    /// An unsigned 64-bit integer.
    Uint(u64),
    /// A 64-bit floating point number.
    Double(f64),
    /// A string.
    String(StringVal<'a>),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// A list.
    List(ListVal<'a>),
    /// A map, or an object with fields.
    Map(MapVal<'a>),
    /// A duration in nanoseconds.
    Duration(i64),
    /// A timestamp, and the offset from UTC of its original notation in seconds.
    Timestamp(Moment, i32),
    /// A type, by its name.
    Type(Str),
    /// An optional.
    Optional(Option<Arc<Value<'a>>>),
    /// A value of a library type.
    Opaque(Arc<dyn Opaque>),
}

/// Why an evaluation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// A function or an operator failed.
    #[error("{0}")]
    Failed(Cow<'static, str>),
    /// The cost limit is exceeded.
    #[error("operation cancelled: actual cost limit exceeded")]
    CostLimit,
    /// The caller interrupted the evaluation.
    #[error("operation interrupted")]
    Interrupted,
}

impl EvalError {
    /// A failure with a message.
    pub fn new(message: impl Into<Cow<'static, str>>) -> EvalError {
        EvalError::Failed(message.into())
    }

    /// No overload matches the types of the arguments.
    pub fn no_such_overload() -> EvalError {
        EvalError::new("no such overload")
    }

    /// Whether the error ends the evaluation even inside of `||`, `&&` and comprehensions.
    pub fn is_fatal(&self) -> bool {
        !matches!(self, EvalError::Failed(_))
    }
}

/// The result of an evaluation.
pub type Outcome<'a> = Result<Value<'a>, EvalError>;

/// A value of a library type: a quantity, an IP address, an authorizer.
pub trait Opaque: fmt::Debug + Send + Sync + Any {
    /// The name of its type.
    fn type_name(&self) -> &str;

    /// Whether `other`, any opaque value, is equal.
    fn equals(&self, other: &dyn Opaque) -> bool;

    /// The size for cost accounting; `None` counts as 1.
    fn size(&self) -> Option<u64> {
        None
    }

    /// The text when it is converted to a string.
    fn text(&self) -> Option<String> {
        None
    }
}

impl dyn Opaque {
    /// The value, if it is a `T`.
    pub fn downcast<T: Opaque>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }
}

/// A string: borrowed from JSON data or created by the expression.
#[derive(Clone)]
pub enum StringVal<'a> {
    /// Borrowed.
    Borrowed(&'a str),
    /// Created, or a literal of the expression.
    Shared(Str),
}

impl Deref for StringVal<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            StringVal::Borrowed(text) => text,
            StringVal::Shared(text) => text,
        }
    }
}

impl fmt::Debug for StringVal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<'a> Value<'a> {
    /// The value of untyped JSON data.
    pub fn data(data: &'a object::Value) -> Value<'a> {
        decl_type::read(data, &DeclType::ANY).unwrap_or(Value::Null)
    }

    /// The value of JSON data with a declared type.
    pub fn shaped(data: &'a object::Value, shape: &'a DeclType) -> Outcome<'a> {
        decl_type::read(data, shape)
    }

    /// The name of its type, as `type(x)` returns it.
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

    /// The size for cost accounting: characters, bytes, items, entries; 1 for everything else.
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

    /// Kubernetes: the error names the operator if the type of its first operand has no such
    /// operator.
    pub(crate) fn has_operator(&self, function: &str) -> bool {
        use Value::{Bool, Bytes, Double, Duration, Int, List, Map, String, Timestamp, Uint};
        match function {
            "_+_" => matches!(
                self,
                Bytes(_)
                    | Double(_)
                    | Duration(_)
                    | Int(_)
                    | List(_)
                    | String(_)
                    | Timestamp(..)
                    | Uint(_)
            ),
            "_-_" => matches!(
                self,
                Double(_) | Duration(_) | Int(_) | Timestamp(..) | Uint(_)
            ),
            "_*_" | "_/_" => matches!(self, Double(_) | Int(_) | Uint(_)),
            "_%_" => matches!(self, Int(_) | Uint(_)),
            "_<_" | "_<=_" | "_>_" | "_>=_" => matches!(
                self,
                Bool(_)
                    | Bytes(_)
                    | Double(_)
                    | Duration(_)
                    | Int(_)
                    | String(_)
                    | Timestamp(..)
                    | Uint(_)
            ),
            "size" => matches!(self, String(_) | Bytes(_) | List(_) | Map(_)),
            _ => true,
        }
    }

    /// Whether it is the zero value of its type. Opaque values and optionals never are.
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Value::Null => true,
            Value::Bool(bool) => !bool,
            Value::Int(int) | Value::Duration(int) => *int == 0,
            Value::Uint(uint) => *uint == 0,
            Value::Double(double) => *double == 0.0,
            Value::String(text) => text.is_empty(),
            Value::Bytes(bytes) => bytes.is_empty(),
            Value::List(list) => list.is_empty(),
            Value::Map(map) => map.is_empty(),
            Value::Timestamp(moment, _) => *moment == Moment::ZERO,
            Value::Type(_) | Value::Optional(_) | Value::Opaque(_) => false,
        }
    }

    /// The string, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The integer, if it is a signed one.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(int) => Some(*int),
            _ => None,
        }
    }

    /// The boolean, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(bool) => Some(*bool),
            _ => None,
        }
    }

    /// The items, if it is a list.
    pub fn as_list(&self) -> Option<&ListVal<'a>> {
        match self {
            Value::List(list) => Some(list),
            _ => None,
        }
    }

    /// The map, if it is one.
    pub fn as_map(&self) -> Option<&MapVal<'a>> {
        match self {
            Value::Map(map) => Some(map),
            _ => None,
        }
    }

    /// The library value, if it is a `T`.
    pub fn as_opaque<T: Opaque>(&self) -> Option<&T> {
        match self {
            Value::Opaque(opaque) => opaque.downcast(),
            _ => None,
        }
    }

    /// Wraps a library value.
    pub fn opaque(opaque: impl Opaque) -> Value<'a> {
        Value::Opaque(Arc::new(opaque))
    }

    /// An optional with a value.
    pub fn some(value: Value<'a>) -> Value<'a> {
        Value::Optional(Some(Arc::new(value)))
    }
}

impl StringVal<'_> {
    /// The string, owned.
    pub fn to_str(&self) -> Str {
        match self {
            StringVal::Borrowed(text) => (*text).into(),
            StringVal::Shared(text) => text.clone(),
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
    &'a str => |it| Value::String(StringVal::Borrowed(it));
    String => |it| Value::String(StringVal::Shared(it.into()));
    Str => |it| Value::String(StringVal::Shared(it));
    Moment => |it| Value::Timestamp(it, 0);
    Vec<Value<'a>> => |it| Value::List(ListVal::new(it));
    ListVal<'a> => |it| Value::List(it);
    MapVal<'a> => |it| Value::Map(it);
}
