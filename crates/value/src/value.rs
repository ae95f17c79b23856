//! A JSON value with Kubernetes' semantics: integers are `i64`, maps keep the order of their keys.
//!
//! Reads are lenient: a missing member is `Null`, so a hook can write
//! `pod["spec"]["nodeName"].str()` and gets `""`, which is Go's zero value. Writes are explicit.
//!
//! Invariant: a number that fits an `i64` and has neither fraction nor exponent is `Int`; every
//! other number is kept as its literal, so that decoding and encoding lose nothing.

use std::ops::Index;

use smol_str::SmolStr;

use crate::map::Map;

/// A string that is cheap to clone; short strings need no allocation.
pub type Str = SmolStr;

/// Any JSON value.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Value {
    /// `null`, and the value of anything absent.
    #[default]
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// Any other number, as its literal.
    Number(Box<str>),
    /// A string.
    String(Str),
    /// An array.
    List(Vec<Value>),
    /// An object.
    Map(Map),
}

static NULL: Value = Value::Null;

/// Go's `int64(float)` on amd64: truncated; out of range becomes `i64::MIN`.
pub fn go_int(float: f64) -> i64 {
    if float < i64::MAX as f64 {
        float as i64
    } else {
        i64::MIN
    }
}

impl Value {
    /// An empty map.
    pub fn object() -> Value {
        Value::Map(Map::default())
    }

    /// The member `key`, if this is a map that has it.
    pub fn get(&self, key: &str) -> Option<&Value> {
        match self {
            Value::Map(map) => map.get(key),
            _ => None,
        }
    }

    /// The member `key`, mutable, if this is a map that has it.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        match self {
            Value::Map(map) => map.get_mut(key),
            _ => None,
        }
    }

    /// The member `key`, mutable; missing maps and members are created.
    pub fn entry(&mut self, key: &str) -> &mut Value {
        self.make_map().entry(key)
    }

    /// This value as a map; anything else is replaced by an empty one.
    pub fn make_map(&mut self) -> &mut Map {
        if !matches!(self, Value::Map(_)) {
            *self = Value::object();
        }
        match self {
            Value::Map(map) => map,
            _ => unreachable!("was made a map above"),
        }
    }

    /// This value as a list; anything else is replaced by an empty one.
    pub fn make_list(&mut self) -> &mut Vec<Value> {
        if !matches!(self, Value::List(_)) {
            *self = Value::List(Vec::new());
        }
        match self {
            Value::List(list) => list,
            _ => unreachable!("was made a list above"),
        }
    }

    /// Sets the member `key`; anything but a map is replaced by one.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.make_map().insert(key, value.into());
    }

    /// Sets the member `key` if it is absent or null.
    pub fn set_default(&mut self, key: &str, value: impl Into<Value>) {
        let slot = self.entry(key);
        if slot.is_null() {
            *slot = value.into();
        }
    }

    /// Removes the member `key`.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        match self {
            Value::Map(map) => map.remove(key),
            _ => None,
        }
    }

    /// The value at a dotted path, or `Null`.
    pub fn at(&self, path: &str) -> &Value {
        path.split('.').fold(self, |value, key| &value[key])
    }

    /// Like [`Value::at`], mutable; `None` if the path does not exist.
    pub fn at_mut(&mut self, path: &str) -> Option<&mut Value> {
        path.split('.')
            .try_fold(self, |value, key| value.get_mut(key))
    }

    /// Whether this is `null` or absent.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// Whether Go's `omitempty` omits this: null, false, 0, "", an empty list or map.
    pub fn is_empty(&self) -> bool {
        match self {
            Value::Null | Value::Bool(false) | Value::Int(0) => true,
            Value::Bool(_) | Value::Int(_) => false,
            Value::Number(literal) => literal.parse() == Ok(0.0),
            Value::String(text) => text.is_empty(),
            Value::List(list) => list.is_empty(),
            Value::Map(map) => map.is_empty(),
        }
    }

    /// The string, or `""`.
    pub fn str(&self) -> &str {
        self.as_str().unwrap_or_default()
    }

    /// The string, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The integer, or 0.
    pub fn int(&self) -> i64 {
        self.as_int().unwrap_or_default()
    }

    /// The integer, if it is one.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(int) => Some(*int),
            _ => None,
        }
    }

    /// The number, if it is one.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::Int(int) => Some(*int as f64),
            Value::Number(literal) => literal.parse().ok(),
            _ => None,
        }
    }

    /// The boolean, or false.
    pub fn bool(&self) -> bool {
        self.as_bool().unwrap_or_default()
    }

    /// The boolean, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(bool) => Some(*bool),
            _ => None,
        }
    }

    /// The items, or an empty slice.
    pub fn list(&self) -> &[Value] {
        match self {
            Value::List(list) => list,
            _ => &[],
        }
    }

    /// The items one by one; none if this is not a list.
    pub fn items(&self) -> std::slice::Iter<'_, Value> {
        self.list().iter()
    }

    /// The items, mutable, or an empty slice.
    pub fn list_mut(&mut self) -> &mut [Value] {
        match self {
            Value::List(list) => list,
            _ => &mut [],
        }
    }

    /// The members in order; none if this is not a map.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.as_map().into_iter().flat_map(Map::iter)
    }

    /// The map, if it is one.
    pub fn as_map(&self) -> Option<&Map> {
        match self {
            Value::Map(map) => Some(map),
            _ => None,
        }
    }

    /// The name of this value's type in Go's JSON decoder errors.
    pub fn go_word(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Int(_) | Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::List(_) => "array",
            Value::Map(_) => "object",
        }
    }
}

impl Index<&str> for Value {
    type Output = Value;

    fn index(&self, key: &str) -> &Value {
        self.get(key).unwrap_or(&NULL)
    }
}

impl Index<usize> for Value {
    type Output = Value;

    fn index(&self, index: usize) -> &Value {
        self.list().get(index).unwrap_or(&NULL)
    }
}

macro_rules! into_value {
    ($($from:ty => |$it:ident| $value:expr;)*) => {$(
        impl From<$from> for Value {
            fn from($it: $from) -> Value {
                $value
            }
        }
    )*};
}

into_value! {
    bool => |it| Value::Bool(it);
    i64 => |it| Value::Int(it);
    i32 => |it| Value::Int(it.into());
    u32 => |it| Value::Int(it.into());
    u16 => |it| Value::Int(it.into());
    &str => |it| Value::String(it.into());
    &String => |it| Value::String(it.as_str().into());
    String => |it| Value::String(it.into());
    Str => |it| Value::String(it);
    &Str => |it| Value::String(it.clone());
    Vec<Value> => |it| Value::List(it);
    Map => |it| Value::Map(it);
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(option: Option<T>) -> Value {
        option.map_or(Value::Null, Into::into)
    }
}

/// Builds a [`Value`] from JSON-like syntax: `value!({"kind": "Status", "code": code})`.
#[macro_export]
macro_rules! value {
    (null) => { $crate::Value::Null };
    ([ $($item:tt),* $(,)? ]) => { $crate::Value::List(vec![ $( $crate::value!($item) ),* ]) };
    ({ $($key:literal : $value:tt),* $(,)? }) => {{
        #[allow(unused_mut)]
        let mut map = $crate::Map::default();
        $( map.insert($key, $crate::value!($value)); )*
        $crate::Value::Map(map)
    }};
    ($other:expr) => { $crate::Value::from($other) };
}
