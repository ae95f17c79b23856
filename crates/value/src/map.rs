//! The members of a JSON object in insertion order.
//!
//! Most objects have a handful of members, and comparing a few names is cheaper than hashing one.
//! Members are kept in a vector that is searched linearly; only a long one gets a hash index.

use std::collections::HashMap;
use std::{fmt, vec};

use super::{Str, Value};

/// The members of a JSON object in insertion order.
#[derive(Clone, Default)]
pub struct Map {
    members: Vec<(Str, Value)>,
    /// Invariant: present if and only if there are more than [`ROW`] members; maps each key to its
    /// position.
    index: Option<Box<Index>>,
}

type Index = HashMap<Str, usize, foldhash::fast::RandomState>;

/// Maps of up to this many members are searched linearly.
const ROW: usize = 16;

impl Map {
    /// An empty map with capacity for `n` members.
    pub fn with_capacity(n: usize) -> Map {
        Map {
            members: Vec::with_capacity(n),
            index: None,
        }
    }

    /// The number of members.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are no members.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.place(key).map(|place| &self.members[place].1)
    }

    /// The value of `key`, mutable.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.place(key).map(|place| &mut self.members[place].1)
    }

    /// Whether `key` is present.
    pub fn contains_key(&self, key: &str) -> bool {
        self.place(key).is_some()
    }

    /// The value of `key`, inserted as `Null` if absent.
    pub fn entry(&mut self, key: &str) -> &mut Value {
        let place = self
            .place(key)
            .unwrap_or_else(|| self.push(key.into(), Value::Null));
        &mut self.members[place].1
    }

    /// Like [`Map::entry`], with whether the key was absent.
    pub fn entry_or_null(&mut self, key: Str) -> (&mut Value, bool) {
        let found = self.place(&key);
        let place = found.unwrap_or_else(|| self.push(key, Value::Null));
        (&mut self.members[place].1, found.is_none())
    }

    /// Sets a member, in place if the key is present, at the end otherwise; returns the previous
    /// value.
    pub fn insert(&mut self, key: impl Into<Str>, value: impl Into<Value>) -> Option<Value> {
        let (key, value) = (key.into(), value.into());
        match self.place(&key) {
            Some(place) => Some(std::mem::replace(&mut self.members[place].1, value)),
            None => {
                self.push(key, value);
                None
            }
        }
    }

    /// Inserts a member that is absent at a position; at the end if that is the length.
    ///
    /// # Panics
    /// If the position is beyond the end.
    pub fn insert_at(&mut self, position: usize, key: impl Into<Str>, value: impl Into<Value>) {
        let key = key.into();
        debug_assert!(self.place(&key).is_none(), "{key} is present");
        self.members.insert(position, (key, value.into()));
        self.rebuild_index();
    }

    /// Removes a member and keeps the order of the remaining ones.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        let place = self.place(key)?;
        note_moved(self.members.len() - place);
        let (key, value) = self.members.remove(place);
        self.close_gap(&key, place);
        Some(value)
    }

    /// Removes a member in constant time: the last member moves to its position.
    pub fn swap_remove(&mut self, key: &str) -> Option<Value> {
        let place = self.place(key)?;
        note_moved(1);
        let (key, value) = self.members.swap_remove(place);
        match (&mut self.index, self.members.get(place)) {
            (index, _) if self.members.len() <= ROW => *index = None,
            (Some(index), moved) => {
                index.remove(&key);
                index.extend(moved.map(|(key, _)| (key.clone(), place)));
            }
            (None, _) => {}
        }
        Some(value)
    }

    /// Keeps only the members for which `keep` returns true.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &mut Value) -> bool) {
        note_moved(self.members.len());
        self.members.retain_mut(|(key, value)| keep(key, value));
        self.rebuild_index();
    }

    /// Sorts the members by key, as Go writes maps.
    pub fn sort(&mut self) {
        if !self
            .members
            .is_sorted_by(|(one, _), (other, _)| one <= other)
        {
            self.members
                .sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
            self.rebuild_index();
        }
    }

    /// Sorts the members by a rank of their keys.
    pub fn sort_by_rank<R: Ord>(&mut self, mut rank: impl FnMut(&str) -> R) {
        self.members.sort_by_cached_key(|(key, _)| rank(key));
        self.rebuild_index();
    }

    /// Iterates over the members in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.members
            .iter()
            .map(|(key, value)| (key.as_str(), value))
    }

    /// Iterates over the members in order, with mutable values.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&Str, &mut Value)> {
        self.members.iter_mut().map(|(key, value)| (&*key, value))
    }

    /// Iterates over the keys in order.
    pub fn keys(&self) -> impl Iterator<Item = &Str> {
        self.members.iter().map(|(key, _)| key)
    }

    /// Iterates over the values in order.
    pub fn values(&self) -> impl Iterator<Item = &Value> {
        self.members.iter().map(|(_, value)| value)
    }

    /// Iterates over the values in order, mutable.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Value> {
        self.members.iter_mut().map(|(_, value)| value)
    }

    fn place(&self, key: &str) -> Option<usize> {
        match &self.index {
            None => self.members.iter().position(|(name, _)| name == key),
            Some(index) => index.get(key).copied(),
        }
    }

    /// Appends a key that is not present yet; returns its position.
    fn push(&mut self, key: Str, value: Value) -> usize {
        let place = self.members.len();
        if let Some(index) = &mut self.index {
            index.insert(key.clone(), place);
        }
        self.members.push((key, value));
        if place == ROW {
            self.rebuild_index();
        }
        place
    }

    /// Updates the index after a removal: members behind `gap` have moved up by one.
    fn close_gap(&mut self, key: &str, gap: usize) {
        let Some(index) = self.index.as_mut().filter(|index| index.len() > ROW + 1) else {
            self.index = None;
            return;
        };
        index.remove(key);
        index
            .values_mut()
            .filter(|place| **place > gap)
            .for_each(|place| *place -= 1);
    }

    fn rebuild_index(&mut self) {
        if self.members.len() <= ROW {
            self.index = None;
            return;
        }
        let index = self.index.get_or_insert_default();
        index.clear();
        index.extend(
            self.members
                .iter()
                .enumerate()
                .map(|(place, (key, _))| (key.clone(), place)),
        );
    }
}

#[cfg(feature = "count-moves")]
thread_local! {
    static MOVED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The number of members that this thread has moved in removals since the last call.
#[cfg(feature = "count-moves")]
pub fn take_moved() -> usize {
    MOVED.take()
}

/// Counts moved members, for tests.
fn note_moved(_n: usize) {
    #[cfg(feature = "count-moves")]
    MOVED.set(MOVED.get() + _n);
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Maps are equal if they have the same members in any order.
impl PartialEq for Map {
    fn eq(&self, other: &Map) -> bool {
        self.len() == other.len()
            && self
                .iter()
                .all(|(key, value)| other.get(key) == Some(value))
    }
}

impl<K: Into<Str>, V: Into<Value>> FromIterator<(K, V)> for Map {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(members: I) -> Map {
        let members = members.into_iter();
        let mut map = Map::with_capacity(members.size_hint().0);
        for (key, value) in members {
            map.insert(key, value);
        }
        map
    }
}

impl IntoIterator for Map {
    type Item = (Str, Value);
    type IntoIter = vec::IntoIter<(Str, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.members.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(n: usize) -> Map {
        (0..n)
            .map(|number| (format!("key-{number:03}"), Value::Int(number as i64)))
            .collect()
    }

    /// Every expected member is found, in order, and no other.
    #[track_caller]
    fn check(map: &Map, expected: impl Iterator<Item = usize>) {
        let expected: Vec<_> = expected.collect();
        let found: Vec<_> = map.values().map(Value::int).collect();
        assert_eq!(
            found,
            expected
                .iter()
                .map(|number| *number as i64)
                .collect::<Vec<_>>()
        );
        for number in expected {
            assert_eq!(
                map.get(&format!("key-{number:03}")),
                Some(&Value::Int(number as i64))
            );
        }
        assert_eq!(map.index.is_some(), map.len() > ROW);
        assert_eq!(map.get("other"), None);
    }

    #[test]
    fn members_are_found_however_many_there_are() {
        for n in [0, 1, ROW - 1, ROW, ROW + 1, 200] {
            check(&numbered(n), 0..n);
        }
    }

    #[test]
    fn remove_keeps_the_order() {
        for n in [3, ROW, ROW + 1, ROW + 2, 100] {
            let mut map = numbered(n);
            assert_eq!(map.remove("key-001"), Some(Value::Int(1)));
            assert_eq!(map.remove("key-001"), None);
            check(&map, (0..n).filter(|number| *number != 1));
            map.retain(|_, value| value.int() % 2 == 0);
            check(&map, (0..n).filter(|number| number % 2 == 0));
        }
    }

    #[test]
    fn swap_remove_moves_the_last_member() {
        for n in [4, ROW, ROW + 1, ROW + 2, 100] {
            let mut map = numbered(n);
            assert_eq!(map.swap_remove("key-001"), Some(Value::Int(1)));
            assert_eq!(map.swap_remove("key-001"), None);
            check(&map, [0, n - 1].into_iter().chain(2..n - 1));
            assert_eq!(
                map.swap_remove(&format!("key-{:03}", n - 2)),
                Some(Value::Int(n as i64 - 2))
            );
            map.sort();
            check(
                &map,
                (0..n).filter(|number| *number != 1 && *number != n - 2),
            );
        }
    }

    #[test]
    fn short_and_long_lists_are_ordered() {
        for n in [4, 40] {
            let mut map = numbered(n);
            map.sort_by_rank(|key| std::cmp::Reverse(key.to_owned()));
            check(&map, (0..n).rev());
            map.sort();
            check(&map, 0..n);
        }
    }

    #[test]
    fn a_member_that_is_set_again_keeps_its_place() {
        for n in [4, 40] {
            let mut map = numbered(n);
            assert_eq!(map.insert("key-002", 2), Some(Value::Int(2)));
            *map.entry("key-003") = 3.into();
            check(&map, 0..n);
        }
    }

    #[test]
    fn maps_are_equal_whatever_their_order() {
        for n in [4, 40] {
            let mut map = numbered(n);
            map.sort_by_rank(|key| std::cmp::Reverse(key.to_owned()));
            assert_eq!(map, numbered(n));
            assert_ne!(map, numbered(n - 1));
        }
    }

    #[test]
    fn a_value_is_small() {
        assert_eq!(size_of::<Value>(), 32);
    }
}
