//! Lists and maps: borrowed from JSON data, or created by the expression.

use std::fmt;
use std::sync::Arc;

use indexmap::IndexMap;

use super::{EvalError, Outcome, Value};
use crate::decl_type::{self, DeclType, ListSemantics};
use mizzen_value::{self as object, Str};

/// A list: borrowed from JSON data or created by the expression.
#[derive(Debug, Clone)]
pub struct ListVal<'a> {
    items: Items<'a>,
    /// How it is compared and concatenated.
    pub merge: &'a ListSemantics,
}

#[derive(Debug, Clone)]
enum Items<'a> {
    Data(&'a [object::Value], &'a DeclType),
    Made(Arc<Vec<Value<'a>>>),
}

impl<'a> ListVal<'a> {
    /// A list of computed items.
    pub fn new(items: Vec<Value<'a>>) -> ListVal<'a> {
        ListVal {
            items: Items::Made(Arc::new(items)),
            merge: &ListSemantics::Atomic,
        }
    }

    /// A list in JSON data whose items have one type.
    pub fn of_data(
        items: &'a [object::Value],
        shape: &'a DeclType,
        merge: &'a ListSemantics,
    ) -> ListVal<'a> {
        ListVal {
            items: Items::Data(items, shape),
            merge,
        }
    }

    /// The same items with other list semantics.
    pub fn with_merge(self, merge: &'a ListSemantics) -> ListVal<'a> {
        ListVal { merge, ..self }
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        match &self.items {
            Items::Data(items, _) => items.len(),
            Items::Made(items) => items.len(),
        }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// An item; data that does not match its type is an error.
    pub fn get(&self, index: usize) -> Option<Outcome<'a>> {
        match &self.items {
            Items::Data(items, shape) => items.get(index).map(|item| decl_type::read(item, shape)),
            Items::Made(items) => items.get(index).cloned().map(Ok),
        }
    }

    /// Iterates over the items.
    pub fn iter(&self) -> impl Iterator<Item = Outcome<'a>> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// All items, or the first error.
    pub fn to_vec(&self) -> Result<Vec<Value<'a>>, EvalError> {
        self.iter().collect()
    }

    /// Appends an item; in place if the list is not shared.
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

/// A key of a map that an expression created.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum MapKey {
    /// `true` or `false`.
    Bool(bool),
    /// A signed integer, or an unsigned one that fits.
    Int(i64),
    /// A greater unsigned integer.
    Uint(u64),
    /// A number that is not an integer, by its bits.
    Double(u64),
    /// A string.
    String(Str),
    /// `null`.
    Null,
}

impl MapKey {
    /// The key for a value, if it can be one; equal numbers are the same key.
    pub fn from_value(value: &Value) -> Option<MapKey> {
        Some(match value {
            Value::Bool(bool) => MapKey::Bool(*bool),
            Value::Int(int) => MapKey::Int(*int),
            Value::Uint(uint) => i64::try_from(*uint).map_or(MapKey::Uint(*uint), MapKey::Int),
            Value::Double(double) if double.fract() == 0.0 && double.abs() < 9.0e18 => {
                MapKey::Int(*double as i64)
            }
            Value::Double(double) => MapKey::Double(double.to_bits()),
            Value::String(text) => MapKey::String(text.to_str()),
            Value::Null => MapKey::Null,
            _ => return None,
        })
    }
}

/// Entries of a computed map.
pub type Entries<'a> = IndexMap<MapKey, (Value<'a>, Value<'a>)>;

/// A map: borrowed from JSON data, created by the expression, or computed lazily.
#[derive(Debug, Clone)]
pub enum MapVal<'a> {
    /// A map in JSON data.
    Data(&'a object::Map, &'a DeclType),
    /// A computed map: each key as it was written, and its value.
    Made(Arc<Entries<'a>>),
    /// A computed map in which absent keys are empty maps.
    Open(Arc<Entries<'a>>),
    /// A created object: the name of its type, and its fields.
    Typed(Str, Arc<Entries<'a>>),
    /// Fields that are computed on access.
    Lazy(Lazy<'a>),
}

/// Fields that are computed on access, such as the variables of a policy.
pub trait LazyFields: Send + Sync {
    /// The value of a field; `None` if there is no such field.
    fn field(&self, name: &str) -> Option<Outcome<'_>>;
}

/// A borrowed [`LazyFields`].
#[derive(Clone, Copy)]
pub struct Lazy<'a>(pub &'a dyn LazyFields);

impl fmt::Debug for Lazy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("lazy")
    }
}

impl<'a> MapVal<'a> {
    /// A map of computed entries; `None` if a key has an invalid type.
    pub fn new(entries: impl IntoIterator<Item = (Value<'a>, Value<'a>)>) -> Option<MapVal<'a>> {
        entries_of(entries).map(|entries| MapVal::Made(Arc::new(entries)))
    }

    /// A map in which absent keys are empty maps.
    pub fn open(entries: impl IntoIterator<Item = (Value<'a>, Value<'a>)>) -> Option<MapVal<'a>> {
        entries_of(entries).map(|entries| MapVal::Open(Arc::new(entries)))
    }

    /// An object of a type.
    pub fn typed(
        kind: Str,
        fields: impl IntoIterator<Item = (Value<'a>, Value<'a>)>,
    ) -> Option<MapVal<'a>> {
        entries_of(fields).map(|fields| MapVal::Typed(kind, Arc::new(fields)))
    }

    /// The name of its type, if it is an object that an expression created.
    pub fn kind(&self) -> Option<&Str> {
        match self {
            MapVal::Typed(kind, _) => Some(kind),
            _ => None,
        }
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        match self {
            MapVal::Data(map, _) => map.len(),
            MapVal::Made(map) | MapVal::Open(map) | MapVal::Typed(_, map) => map.len(),
            MapVal::Lazy(_) => 0,
        }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a key is present.
    pub fn has(&self, key: &Value) -> Result<bool, EvalError> {
        match self {
            MapVal::Open(map) => {
                Ok(MapKey::from_value(key).is_some_and(|key| map.contains_key(&key)))
            }
            _ => Ok(self.get(key).transpose()?.is_some()),
        }
    }

    /// The value of a key.
    pub fn get(&self, key: &Value) -> Option<Outcome<'a>> {
        match (self, key) {
            (_, Value::String(name)) => self.field(name),
            (MapVal::Made(map), _) => map
                .get(&MapKey::from_value(key)?)
                .map(|(_, value)| Ok(value.clone())),
            _ => None,
        }
    }

    /// The value of a string key.
    pub fn field(&self, name: &str) -> Option<Outcome<'a>> {
        match self {
            MapVal::Data(map, shape) => shape.field(map, name),
            MapVal::Made(map) | MapVal::Typed(_, map) => map
                .get(&MapKey::String(name.into()))
                .map(|(_, value)| Ok(value.clone())),
            MapVal::Open(map) => {
                let found = map
                    .get(&MapKey::String(name.into()))
                    .map(|(_, value)| value.clone());
                Some(Ok(
                    found.unwrap_or_else(|| Value::Map(MapVal::Made(Arc::default())))
                ))
            }
            MapVal::Lazy(fields) => fields.0.field(name),
        }
    }

    /// The keys in their order.
    pub fn keys(&self) -> Vec<Value<'a>> {
        match self {
            MapVal::Data(map, shape) => shape.keys(map),
            MapVal::Made(map) | MapVal::Open(map) | MapVal::Typed(_, map) => {
                map.values().map(|(key, _)| key.clone()).collect()
            }
            MapVal::Lazy(_) => Vec::new(),
        }
    }
}

fn entries_of<'a>(
    entries: impl IntoIterator<Item = (Value<'a>, Value<'a>)>,
) -> Option<Entries<'a>> {
    entries
        .into_iter()
        .map(|(key, value)| Some((MapKey::from_value(&key)?, (key, value))))
        .collect()
}
