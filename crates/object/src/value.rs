//! A JSON value as Kubernetes means it: whole numbers are `i64`, maps keep the order of their keys.
//!
//! Reading is forgiving: looking into something that is not there yields `Null`, so a hook can write
//! `pod["spec"]["nodeName"].str()` and gets `""` where Go's zero value would be. Writing is explicit.
//!
//! Invariant: a number that fits an `i64` and was written without fraction or exponent is `Int`; every
//! other number is kept as its literal, so that nothing is lost between reading and writing.

use std::ops::Index;

use indexmap::IndexMap;
use smol_str::SmolStr;

/// A string that is cheap to clone and short ones of which need no heap.
pub type Str = SmolStr;

/// Any JSON value.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Value {
    /// `null`, and whatever is not there.
    #[default]
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number, as it was written.
    Number(Box<str>),
    /// Text.
    String(Str),
    /// An array.
    List(Vec<Value>),
    /// An object.
    Map(Map),
}

static NULL: Value = Value::Null;

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

    /// The member `key`, to be changed, if this is a map that has it.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        match self {
            Value::Map(map) => map.get_mut(key),
            _ => None,
        }
    }

    /// The member `key`; this value becomes a map, and the member `Null`, where they are not yet.
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

    /// Sets the member `key`; this value becomes a map where it is none.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.make_map().insert(key, value.into());
    }

    /// Sets the member `key` unless it is there and not null.
    pub fn set_default(&mut self, key: &str, value: impl Into<Value>) {
        let slot = self.entry(key);
        if slot.is_null() {
            *slot = value.into();
        }
    }

    /// Takes the member `key` out.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        match self {
            Value::Map(map) => map.remove(key),
            _ => None,
        }
    }

    /// The value that a dotted path leads to; `Null` where it leads nowhere.
    pub fn at(&self, path: &str) -> &Value {
        path.split('.').fold(self, |value, key| &value[key])
    }

    /// Like [`Value::at`], to be changed; `None` where it leads nowhere.
    pub fn at_mut(&mut self, path: &str) -> Option<&mut Value> {
        path.split('.').try_fold(self, |value, key| value.get_mut(key))
    }

    /// Whether this is `null` or missing.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// Whether Go's `omitempty` would leave this out: null, false, 0, "", an empty list or map.
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

    /// The text, or `""`.
    pub fn str(&self) -> &str {
        self.as_str().unwrap_or_default()
    }

    /// The text, if it is text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The whole number, or 0.
    pub fn int(&self) -> i64 {
        self.as_int().unwrap_or_default()
    }

    /// The whole number, if it is one.
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

    /// The truth value, or false.
    pub fn bool(&self) -> bool {
        self.as_bool().unwrap_or_default()
    }

    /// The truth value, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(bool) => Some(*bool),
            _ => None,
        }
    }

    /// The items, or none.
    pub fn list(&self) -> &[Value] {
        match self {
            Value::List(list) => list,
            _ => &[],
        }
    }

    /// The items to be changed, or none.
    pub fn list_mut(&mut self) -> &mut [Value] {
        match self {
            Value::List(list) => list,
            _ => &mut [],
        }
    }

    /// The members in their order, or none.
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

    /// The word that Go's JSON decoder uses for what this is.
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

/// The members of a JSON object, in their order.
#[derive(Debug, Clone, Default)]
pub struct Map(IndexMap<Str, Value, foldhash::fast::RandomState>);

impl Map {
    /// An empty map with room for `n` members.
    pub fn with_capacity(n: usize) -> Map {
        Map(IndexMap::with_capacity_and_hasher(n, Default::default()))
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The member `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// The member `key`, to be changed.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.0.get_mut(key)
    }

    /// Whether there is a member `key`.
    pub fn contains_key(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// The member `key`, made `Null` if it is not there.
    pub fn entry(&mut self, key: &str) -> &mut Value {
        self.0.entry(key.into()).or_default()
    }

    /// Sets a member, in its place if it is there, at the end otherwise; returns what it was.
    pub fn insert(&mut self, key: impl Into<Str>, value: impl Into<Value>) -> Option<Value> {
        self.0.insert(key.into(), value.into())
    }

    /// Takes a member out; the others keep their order.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        self.0.shift_remove(key)
    }

    /// Keeps only the members that `keep` accepts.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &mut Value) -> bool) {
        self.0.retain(|key, value| keep(key, value));
    }

    /// Orders the members by name, as Go writes maps.
    pub fn sort(&mut self) {
        if !self.0.keys().is_sorted() {
            self.0.sort_unstable_keys();
        }
    }

    /// Orders the members by a rank.
    pub fn sort_by_rank<R: Ord>(&mut self, mut rank: impl FnMut(&str) -> R) {
        self.0.sort_by_cached_key(|key, _| rank(key));
    }

    /// The members in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// The members in their order, values to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&Str, &mut Value)> {
        self.0.iter_mut()
    }

    /// The names in their order.
    pub fn keys(&self) -> impl Iterator<Item = &Str> {
        self.0.keys()
    }

    /// The values in their order.
    pub fn values(&self) -> impl Iterator<Item = &Value> {
        self.0.values()
    }

    /// The values in their order, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Value> {
        self.0.values_mut()
    }
}

/// Two maps are equal when they have the same members, in whatever order.
impl PartialEq for Map {
    fn eq(&self, other: &Map) -> bool {
        self.0 == other.0
    }
}

impl<K: Into<Str>, V: Into<Value>> FromIterator<(K, V)> for Map {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(members: I) -> Map {
        Map(members.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }
}

impl IntoIterator for Map {
    type Item = (Str, Value);
    type IntoIter = indexmap::map::IntoIter<Str, Value>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
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
