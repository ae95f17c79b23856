//! The strategic merge patch between two objects.
//!
//! Null and absent are the same here, as in a patch. If a change cannot be expressed item by item
//! (missing or duplicate keys, unknown fields), the whole list or map is replaced.

use std::collections::{HashMap, HashSet};

use super::lookup::PatchMetaSchema;
use super::{DELETE, DELETE_LIST, DIRECTIVE, ELEMENT_ORDER, MergeKeyValue, REPLACE, RETAIN_KEYS};
use crate::schema::{PatchStrategy, Struct};
use mizzen_value::{Map, Str, Value};

/// A strategic merge patch that turns `from` into `to`, both objects of type `ty`; empty if they are equal.
pub fn strategic_diff(ty: &Struct, from: &Value, to: &Value) -> Value {
    let none = Map::default();
    let (from, to) = (from.as_map().unwrap_or(&none), to.as_map().unwrap_or(&none));
    let patch = diff_map(PatchMetaSchema::root(ty), false, from, to);
    Value::Map(patch.unwrap_or_else(|| whole(to)))
}

/// `None` if the change cannot be expressed member by member.
fn diff_map(place: PatchMetaSchema, retain_keys: bool, from: &Map, to: &Map) -> Option<Map> {
    let mut patch = Map::default();
    for (name, new) in to.iter() {
        match (from.get(name), new) {
            (Some(old), new) if old == new => {}
            (Some(Value::Map(old)), Value::Map(new)) => {
                let (place, how) = place.map(name).ok()?;
                let changed = match how.replace {
                    true => new.clone(),
                    false => {
                        diff_map(place, how.retain_keys, old, new).unwrap_or_else(|| whole(new))
                    }
                };
                patch.insert(name, changed);
            }
            (Some(Value::List(old)), Value::List(new)) => {
                let (place, how) = place.items(name).ok()?;
                diff_list(place, how, old, new)?.write(name, &mut patch);
            }
            _ => drop(patch.insert(name, new.clone())),
        }
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

fn whole(to: &Map) -> Map {
    let mut patch = to.clone();
    patch.insert(DIRECTIVE, REPLACE);
    patch
}

fn diff_list(
    place: PatchMetaSchema,
    how: &PatchStrategy,
    old: &[Value],
    new: &[Value],
) -> Option<ListPatch> {
    match &how.key {
        _ if !how.merge => Some(ListPatch::replace(new)),
        Some(key) => diff_structs(place, how, key, old, new).or_else(|| replace_structs(key, new)),
        None => diff_scalars(old, new),
    }
}

#[derive(Default)]
struct ListPatch {
    items: Option<Vec<Value>>,
    deleted: Vec<Value>,
    order: Vec<Value>,
}

impl ListPatch {
    fn replace(new: &[Value]) -> ListPatch {
        ListPatch {
            items: Some(new.to_vec()),
            ..ListPatch::default()
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

fn diff_scalars(old: &[Value], new: &[Value]) -> Option<ListPatch> {
    let (old_keys, new_keys) = (distinct(old, None)?, distinct(new, None)?);
    let lacking = |items: &[Value], keys: &HashSet<MergeKeyValue>| -> Vec<Value> {
        items
            .iter()
            .filter(|item| MergeKeyValue::from_value(item).is_some_and(|key| !keys.contains(&key)))
            .cloned()
            .collect()
    };
    let added = lacking(new, &old_keys.into_iter().collect());
    let deleted = lacking(old, &new_keys.into_iter().collect());
    let items = Some(added).filter(|added| !added.is_empty());
    Some(ListPatch {
        items,
        deleted,
        order: new.to_vec(),
    })
}

fn diff_structs(
    place: PatchMetaSchema,
    how: &PatchStrategy,
    key: &Str,
    old: &[Value],
    new: &[Value],
) -> Option<ListPatch> {
    let old_keys = distinct(old, Some(key))?;
    let new_keys = distinct(new, Some(key))?;
    let live: HashMap<&MergeKeyValue, &Value> = old_keys.iter().zip(old).collect();
    let mut items = Vec::new();
    for (item_key, item) in new_keys.iter().zip(new) {
        let Some(old) = live.get(item_key) else {
            items.push(item.clone());
            continue;
        };
        let mut patch = diff_map(place, how.retain_keys, old.as_map()?, item.as_map()?)?;
        if !patch.is_empty() {
            patch.insert(key.clone(), item.get(key)?.clone());
            items.push(patch.into());
        }
    }
    let kept: HashSet<&MergeKeyValue> = new_keys.iter().collect();
    let gone = old_keys
        .iter()
        .zip(old)
        .filter(|(item_key, _)| !kept.contains(item_key));
    items.extend(gone.map(|(_, item)| {
        Value::from(Map::from_iter([
            (key.clone(), item[key.as_str()].clone()),
            (DIRECTIVE.into(), DELETE.into()),
        ]))
    }));
    let order = new
        .iter()
        .map(|item| Map::from_iter([(key.clone(), item[key.as_str()].clone())]).into());
    Some(ListPatch {
        items: Some(items).filter(|items| !items.is_empty()),
        deleted: Vec::new(),
        order: order.collect(),
    })
}

/// Kubernetes: in a replaced list, items of the same key move together.
fn replace_structs(key: &Str, new: &[Value]) -> Option<ListPatch> {
    let mut keys = MergeKeyValue::of_items(new, Some(key)).ok()?;
    keys.dedup();
    let mut seen = HashSet::new();
    if !keys.iter().all(|key| seen.insert(key)) {
        return None;
    }
    let mut items = new.to_vec();
    items.push(Map::from_iter([(DIRECTIVE, REPLACE)]).into());
    Some(ListPatch::replace(&items))
}

/// The keys of the items, if they are unique.
fn distinct(items: &[Value], key: Option<&str>) -> Option<Vec<MergeKeyValue>> {
    let keys = MergeKeyValue::of_items(items, key).ok()?;
    let mut seen = HashSet::new();
    keys.iter()
        .all(|key| seen.insert(key))
        .then(|| keys.clone())
}
