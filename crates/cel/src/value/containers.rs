//! Lists and maps: borrowed from an object, or made by the expression.

use std::fmt;
use std::sync::Arc;

use indexmap::IndexMap;

use super::{EvalError, Outcome, Value};
use crate::shape::{self, Merge, Shape};
use mizzen_value::{self as object, Str};

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
        List {
            items: Items::Made(Arc::new(items)),
            merge: &Merge::Atomic,
        }
    }

    /// A list in an object, each item of one shape.
    pub fn of_data(items: &'a [object::Value], shape: &'a Shape, merge: &'a Merge) -> List<'a> {
        List {
            items: Items::Data(items, shape),
            merge,
        }
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
    /// A number that is no whole one, by its bits.
    Double(u64),
    /// Text.
    String(Str),
    /// `null`.
    Null,
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
            Value::Double(double) => Key::Double(double.to_bits()),
            Value::String(text) => Key::String(text.to_str()),
            Value::Null => Key::Null,
            _ => return None,
        })
    }
}

/// Entries of a map that was computed.
pub type Entries<'a> = IndexMap<Key, (Value<'a>, Value<'a>)>;

/// Keys with values: borrowed from an object, made by the expression, or asked for one by one.
#[derive(Debug, Clone)]
pub enum Map<'a> {
    /// A map in an object.
    Data(&'a object::Map, &'a Shape),
    /// A map that was computed: each key as it was written, and its value.
    Made(Arc<Entries<'a>>),
    /// The same, but where nothing is there is an empty map.
    Open(Arc<Entries<'a>>),
    /// An object that was made: the name of its type, and its fields.
    Typed(Str, Arc<Entries<'a>>),
    /// Fields that are computed when asked for.
    Lazy(Lazy<'a>),
}

/// Fields that are computed when asked for, such as the variables of a policy.
pub trait Fields: Send + Sync {
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
        entries_of(entries).map(|entries| Map::Made(Arc::new(entries)))
    }

    /// The same, but where nothing is there is an empty map.
    pub fn open(entries: impl IntoIterator<Item = (Value<'a>, Value<'a>)>) -> Option<Map<'a>> {
        entries_of(entries).map(|entries| Map::Open(Arc::new(entries)))
    }

    /// An object of a type, by its name.
    pub fn typed(
        kind: Str,
        fields: impl IntoIterator<Item = (Value<'a>, Value<'a>)>,
    ) -> Option<Map<'a>> {
        entries_of(fields).map(|fields| Map::Typed(kind, Arc::new(fields)))
    }

    /// The name of its type, if it is an object that an expression made.
    pub fn kind(&self) -> Option<&Str> {
        match self {
            Map::Typed(kind, _) => Some(kind),
            _ => None,
        }
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        match self {
            Map::Data(map, _) => map.len(),
            Map::Made(map) | Map::Open(map) | Map::Typed(_, map) => map.len(),
            Map::Lazy(_) => 0,
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether there is a key.
    pub fn has(&self, key: &Value) -> Result<bool, EvalError> {
        match self {
            Map::Open(map) => Ok(Key::of(key).is_some_and(|key| map.contains_key(&key))),
            _ => Ok(self.get(key).transpose()?.is_some()),
        }
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
            Map::Made(map) | Map::Typed(_, map) => map
                .get(&Key::String(name.into()))
                .map(|(_, value)| Ok(value.clone())),
            Map::Open(map) => {
                let found = map
                    .get(&Key::String(name.into()))
                    .map(|(_, value)| value.clone());
                Some(Ok(
                    found.unwrap_or_else(|| Value::Map(Map::Made(Arc::default())))
                ))
            }
            Map::Lazy(fields) => fields.0.field(name),
        }
    }

    /// The keys in their order.
    pub fn keys(&self) -> Vec<Value<'a>> {
        match self {
            Map::Data(map, shape) => shape.keys(map),
            Map::Made(map) | Map::Open(map) | Map::Typed(_, map) => {
                map.values().map(|(key, _)| key.clone()).collect()
            }
            Map::Lazy(_) => Vec::new(),
        }
    }
}

fn entries_of<'a>(
    entries: impl IntoIterator<Item = (Value<'a>, Value<'a>)>,
) -> Option<Entries<'a>> {
    entries
        .into_iter()
        .map(|(key, value)| Some((Key::of(&key)?, (key, value))))
        .collect()
}
