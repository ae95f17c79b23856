//! The patch that turns one object into another.
//!
//! Null and absent are the same here, as they are in a patch. Where a change cannot be said piece by piece (keys
//! that are missing or not distinct, fields that the schema does not know) the whole list or map is replaced.

use std::collections::{HashMap, HashSet};

use super::lookup::Place;
use super::{DELETE, DELETE_LIST, DIRECTIVE, ELEMENT_ORDER, Key, REPLACE, RETAIN_KEYS};
use crate::schema::{Patch, Struct};
use mizzen_value::{Map, Str, Value};

/// A strategic merge patch that turns `from` into `to`, both objects of type `ty`; empty if they are equal.
pub fn strategic_diff(ty: &Struct, from: &Value, to: &Value) -> Value {
    let none = Map::default();
    let (from, to) = (from.as_map().unwrap_or(&none), to.as_map().unwrap_or(&none));
    let patch = diff_map(Place::root(ty), false, from, to);
    Value::Map(patch.unwrap_or_else(|| whole(to)))
}

/// `None` where the change cannot be said member by member.
fn diff_map(place: Place, retain_keys: bool, from: &Map, to: &Map) -> Option<Map> {
    let mut patch = Map::default();
    for (name, new) in to.iter() {
        diff_member(place, name, from.get(name), new, &mut patch)?;
    }
    for name in from.keys().filter(|name| !to.contains_key(name)) {
        patch.insert(name.clone(), Value::Null);
    }
    if retain_keys && !patch.is_empty() {
        let retained = to
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, _)| Value::from(name));
        patch.insert(RETAIN_KEYS, retained.collect::<Vec<_>>());
    }
    Some(patch)
}

fn diff_member(
    place: Place,
    name: &str,
    old: Option<&Value>,
    new: &Value,
    patch: &mut Map,
) -> Option<()> {
    match (old, new) {
        (Some(old), new) if old == new => {}
        (Some(Value::Map(old)), Value::Map(new)) => {
            let (place, how) = place.map(name).ok()?;
            patch.insert(name, changed_map(place, how, old, new));
        }
        (Some(Value::List(old)), Value::List(new)) => {
            let (place, how) = place.items(name).ok()?;
            patch_list(place, how, name, old, new, patch)?;
        }
        _ => drop(patch.insert(name, new.clone())),
    }
    Some(())
}

fn changed_map(place: Place, how: &Patch, old: &Map, new: &Map) -> Map {
    match how.replace {
        true => new.clone(),
        false => diff_map(place, how.retain_keys, old, new).unwrap_or_else(|| whole(new)),
    }
}

fn whole(to: &Map) -> Map {
    let mut patch = to.clone();
    patch.insert(DIRECTIVE, REPLACE);
    patch
}

fn patch_list(
    place: Place,
    how: &Patch,
    name: &str,
    old: &[Value],
    new: &[Value],
    patch: &mut Map,
) -> Option<()> {
    let change = match &how.key {
        _ if !how.merge => Change::replace(new),
        Some(key) => match diff_structs(place, how, key, old, new) {
            Some(change) => change,
            None => replace_structs(key, new)?,
        },
        None => diff_scalars(old, new)?,
    };
    change.write(name, patch);
    Some(())
}

/// What a patch says about a list.
#[derive(Default)]
struct Change {
    items: Option<Vec<Value>>,
    deleted: Vec<Value>,
    order: Vec<Value>,
}

impl Change {
    fn replace(new: &[Value]) -> Change {
        Change {
            items: Some(new.to_vec()),
            ..Change::default()
        }
    }

    fn write(self, name: &str, patch: &mut Map) {
        if let Some(items) = self.items {
            patch.insert(name, items);
        }
        if !self.deleted.is_empty() {
            patch.insert(format!("{DELETE_LIST}/{name}"), self.deleted);
        }
        if !self.order.is_empty() {
            patch.insert(format!("{ELEMENT_ORDER}/{name}"), self.order);
        }
    }
}

fn diff_scalars(old: &[Value], new: &[Value]) -> Option<Change> {
    let (old_keys, new_keys) = (distinct(old, None)?, distinct(new, None)?);
    let lacking = |items: &[Value], keys: &HashSet<Key>| -> Vec<Value> {
        items
            .iter()
            .filter(|item| Key::of(item).is_some_and(|key| !keys.contains(&key)))
            .cloned()
            .collect()
    };
    let added = lacking(new, &old_keys.into_iter().collect());
    let deleted = lacking(old, &new_keys.into_iter().collect());
    let items = Some(added).filter(|added| !added.is_empty());
    Some(Change {
        items,
        deleted,
        order: new.to_vec(),
    })
}

fn diff_structs(
    place: Place,
    how: &Patch,
    key: &Str,
    old: &[Value],
    new: &[Value],
) -> Option<Change> {
    let old_keys = distinct(old, Some(key))?;
    let new_keys = distinct(new, Some(key))?;
    let live: HashMap<&Key, &Value> = old_keys.iter().zip(old).collect();
    let mut items = Vec::new();
    for (item_key, item) in new_keys.iter().zip(new) {
        items.extend(match live.get(item_key) {
            Some(old) => changed_item(place, how, key, old.as_map()?, item.as_map()?)?,
            None => Some(item.clone()),
        });
    }
    let kept: HashSet<&Key> = new_keys.iter().collect();
    let gone = old_keys
        .iter()
        .zip(old)
        .filter(|(item_key, _)| !kept.contains(item_key));
    items.extend(gone.map(|(_, item)| deletion(key, item)));
    let order = new
        .iter()
        .map(|item| Map::from_iter([(key.clone(), item[key.as_str()].clone())]).into());
    Some(Change {
        items: Some(items).filter(|items| !items.is_empty()),
        deleted: Vec::new(),
        order: order.collect(),
    })
}

/// The patch of an item, `Some(None)` if it did not change.
fn changed_item(
    place: Place,
    how: &Patch,
    key: &Str,
    old: &Map,
    new: &Map,
) -> Option<Option<Value>> {
    let mut patch = diff_map(place, how.retain_keys, old, new)?;
    if patch.is_empty() {
        return Some(None);
    }
    patch.insert(key.clone(), new.get(key)?.clone());
    Some(Some(patch.into()))
}

fn deletion(key: &Str, item: &Value) -> Value {
    Map::from_iter([
        (key.clone(), item[key.as_str()].clone()),
        (DIRECTIVE.into(), DELETE.into()),
    ])
    .into()
}

/// Kubernetes: in a replaced list, items of the same key move together.
fn replace_structs(key: &Str, new: &[Value]) -> Option<Change> {
    let mut keys = Key::of_items(new, Some(key)).ok()?;
    keys.dedup();
    let mut seen = HashSet::new();
    if !keys.iter().all(|key| seen.insert(key)) {
        return None;
    }
    let mut items = new.to_vec();
    items.push(Map::from_iter([(DIRECTIVE, REPLACE)]).into());
    Some(Change::replace(&items))
}

/// The keys of the items, if each has one of its own.
fn distinct(items: &[Value], key: Option<&str>) -> Option<Vec<Key>> {
    let keys = Key::of_items(items, key).ok()?;
    let mut seen = HashSet::new();
    keys.iter()
        .all(|key| seen.insert(key))
        .then(|| keys.clone())
}
