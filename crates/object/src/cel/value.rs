//! What is the value of an expression?
//!
//! Values borrow from the objects that they were read from: selecting a field copies a reference, never a
//! tree. What an expression makes itself is shared behind an `Arc`.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use indexmap::IndexMap;

use super::shape::{self, Merge, Shape};
use crate::time::Moment;
use crate::{self as object, Str};

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
    /// A moment.
    Timestamp(Moment),
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

/// Items: borrowed from an object or made by the expression.
#[derive(Debug, Clone)]
pub struct List<'a> {
    items: Items<'a>,
    /// How it is compared and concatenated.
    pub merge: &'a Merge,
}

#[derive(Debug, Clone)]
enum Items<'a> {
    Data(&'a [object::Value], &'a Shape),
    Made(Arc<Vec<Value<'a>>>),
}

impl<'a> List<'a> {
    /// A list of items that were computed.
    pub fn new(items: Vec<Value<'a>>) -> List<'a> {
        List { items: Items::Made(Arc::new(items)), merge: &Merge::Atomic }
    }

    /// A list in an object, each item of one shape.
    pub fn of_data(items: &'a [object::Value], shape: &'a Shape, merge: &'a Merge) -> List<'a> {
        List { items: Items::Data(items, shape), merge }
    }

    /// The same items, compared and concatenated in another way.
    pub fn with_merge(self, merge: &'a Merge) -> List<'a> {
        List { merge, ..self }
    }

    /// How many items there are.
    pub fn len(&self) -> usize {
        match &self.items {
            Items::Data(items, _) => items.len(),
            Items::Made(items) => items.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// An item; data that does not fit its shape is an error.
    pub fn get(&self, index: usize) -> Option<Outcome<'a>> {
        match &self.items {
            Items::Data(items, shape) => items.get(index).map(|item| shape::read(item, shape)),
            Items::Made(items) => items.get(index).cloned().map(Ok),
        }
    }

    /// Every item.
    pub fn iter(&self) -> impl Iterator<Item = Outcome<'a>> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// Every item, or the first error.
    pub fn to_vec(&self) -> Result<Vec<Value<'a>>, EvalError> {
        self.iter().collect()
    }

    /// Adds an item at the end; in place when nobody else holds the list.
    pub fn push(&mut self, item: Value<'a>) -> Result<(), EvalError> {
        if let Items::Data(..) = self.items {
            self.items = Items::Made(Arc::new(self.to_vec()?));
        }
        match &mut self.items {
            Items::Made(items) => Arc::make_mut(items).push(item),
            Items::Data(..) => unreachable!("was copied above"),
        }
        Ok(())
    }
}

/// A key of a map that an expression made.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Key {
    /// `true` or `false`.
    Bool(bool),
    /// A signed whole number, or an unsigned one that fits.
    Int(i64),
    /// A greater unsigned one.
    Uint(u64),
    /// Text.
    String(Str),
}

impl Key {
    /// The key that a value is, if it can be one; numbers that are equal are the same key.
    pub fn of(value: &Value) -> Option<Key> {
        Some(match value {
            Value::Bool(bool) => Key::Bool(*bool),
            Value::Int(int) => Key::Int(*int),
            Value::Uint(uint) => i64::try_from(*uint).map_or(Key::Uint(*uint), Key::Int),
            Value::Double(double) if double.fract() == 0.0 && double.abs() < 9.0e18 => {
                Key::Int(*double as i64)
            }
            Value::String(text) => Key::String(text.to_str()),
            _ => return None,
        })
    }
}

/// Keys with values: borrowed from an object, made by the expression, or asked for one by one.
#[derive(Debug, Clone)]
pub enum Map<'a> {
    /// A map in an object.
    Data(&'a object::Map, &'a Shape),
    /// A map that was computed: each key as it was written, and its value.
    Made(Arc<IndexMap<Key, (Value<'a>, Value<'a>)>>),
    /// Fields that are computed when asked for.
    Lazy(Lazy<'a>),
}

/// Fields that are computed when asked for, such as the variables of a policy.
pub trait Fields {
    /// The value of a field; `None` if there is no such field.
    fn field(&self, name: &str) -> Option<Outcome<'_>>;
}

/// A borrowed [`Fields`].
#[derive(Clone, Copy)]
pub struct Lazy<'a>(pub &'a dyn Fields);

impl fmt::Debug for Lazy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("lazy")
    }
}

impl<'a> Map<'a> {
    /// A map of entries that were computed; `None` if something else than a key is used as one.
    pub fn new(entries: impl IntoIterator<Item = (Value<'a>, Value<'a>)>) -> Option<Map<'a>> {
        let entries = entries.into_iter().map(|(key, value)| Some((Key::of(&key)?, (key, value))));
        Some(Map::Made(Arc::new(entries.collect::<Option<_>>()?)))
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        match self {
            Map::Data(map, _) => map.len(),
            Map::Made(map) => map.len(),
            Map::Lazy(_) => 0,
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a key.
    pub fn get(&self, key: &Value) -> Option<Outcome<'a>> {
        match (self, key) {
            (_, Value::String(name)) => self.field(name),
            (Map::Made(map), _) => map.get(&Key::of(key)?).map(|(_, value)| Ok(value.clone())),
            _ => None,
        }
    }

    /// The value of a key that is text.
    pub fn field(&self, name: &str) -> Option<Outcome<'a>> {
        match self {
            Map::Data(map, shape) => shape.field(map, name),
            Map::Made(map) => map.get(&Key::String(name.into())).map(|(_, value)| Ok(value.clone())),
            Map::Lazy(fields) => fields.0.field(name),
        }
    }

    /// The keys in their order.
    pub fn keys(&self) -> Vec<Value<'a>> {
        match self {
            Map::Data(map, shape) => shape.keys(map),
            Map::Made(map) => map.values().map(|(key, _)| key.clone()).collect(),
            Map::Lazy(_) => Vec::new(),
        }
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
            Value::Map(_) => "map".into(),
            Value::Duration(_) => "google.protobuf.Duration".into(),
            Value::Timestamp(_) => "google.protobuf.Timestamp".into(),
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
    Moment => |it| Value::Timestamp(it);
    Vec<Value<'a>> => |it| Value::List(List::new(it));
    List<'a> => |it| Value::List(it);
    Map<'a> => |it| Value::Map(it);
}
