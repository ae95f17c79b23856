//! Merging of lists: scalars as a set, structs by a merge key.

use std::collections::{HashMap, HashSet};
use std::mem::discriminant;

use super::lookup::PatchMetaSchema;
use super::merge::merge_map;
use super::order::arrange;
use super::{DELETE, DIRECTIVE, MERGE, MergeKeyValue, REPLACE, StrategicError, as_map, member};
use crate::patch::go_text::go_list;
use mizzen_value::Value;

pub(super) struct Merged {
    /// The items, in order.
    pub(super) items: Vec<Value>,
    /// Kubernetes: upstream's array of the old items after the merge: removed items free a slot,
    /// added ones fill it. `$setElementOrder` uses it as the order on the server.
    pub(super) slots: Vec<MergeKeyValue>,
}

/// Merges the patch's items `new` into `old`, a list of `place`s with the merge key `key`.
pub(super) fn merge_list(
    place: PatchMetaSchema,
    key: Option<&str>,
    old: Vec<Value>,
    new: &mut [Value],
) -> Result<Merged, StrategicError> {
    if old.is_empty() && new.is_empty() {
        return Ok(Merged {
            items: old,
            slots: Vec::new(),
        });
    }
    match (first_item(&old, new)?, key) {
        (Value::Map(_), Some(key)) => merge_structs(place, key, old, new),
        (Value::Map(_), None) => fail(format!(
            "cannot merge lists without merge key for {}",
            place.kind()
        )),
        _ => merge_scalars(key, old, new),
    }
}

/// Removes scalars from a list.
///
/// Kubernetes: structs are merged although the directive says delete.
pub(super) fn delete(
    place: PatchMetaSchema,
    key: Option<&str>,
    old: &mut Vec<Value>,
    new: &mut [Value],
) -> Result<(), StrategicError> {
    if old.is_empty() && new.is_empty() {
        return Ok(());
    }
    if matches!(first_item(old, new)?, Value::Map(_)) {
        *old = merge_list(place, key, std::mem::take(old), new)?.items;
        return Ok(());
    }
    let doomed: HashSet<MergeKeyValue> = MergeKeyValue::of_items(new, None)?.into_iter().collect();
    old.retain(|item| MergeKeyValue::from_value(item).is_none_or(|key| !doomed.contains(&key)));
    Ok(())
}

/// The first item, which determines the type of all items.
pub(super) fn first_item<'a>(
    old: &'a [Value],
    new: &'a [Value],
) -> Result<&'a Value, StrategicError> {
    let mut items = old.iter().chain(new);
    let Some(first) = items.next() else {
        return fail("no elements in any of the given slices".into());
    };
    match first {
        Value::Null => Err(StrategicError::not_comparable(first)),
        Value::List(_) => Err(StrategicError::Unprocessable(
            "lists of lists are not supported".into(),
        )),
        _ if items.all(|item| discriminant(item) == discriminant(first)) => Ok(first),
        _ => fail(format!(
            "list element types are not identical: [{} {}]",
            go_list(old),
            go_list(new)
        )),
    }
}

fn merge_scalars(
    key: Option<&str>,
    old: Vec<Value>,
    new: &[Value],
) -> Result<Merged, StrategicError> {
    let (slots, wanted) = (
        MergeKeyValue::of_items(&old, key)?,
        MergeKeyValue::of_items(new, key)?,
    );
    let mut seen = HashSet::new();
    let all = old.into_iter().chain(new.iter().cloned());
    let distinct = all
        .filter(|item| MergeKeyValue::from_value(item).is_none_or(|key| seen.insert(key)))
        .collect();
    Ok(Merged {
        items: arrange(distinct, &wanted, &slots, key)?,
        slots,
    })
}

fn merge_structs(
    place: PatchMetaSchema,
    key: &str,
    mut old: Vec<Value>,
    new: &mut [Value],
) -> Result<Merged, StrategicError> {
    let (doomed, replaced) = read_directives(key, new)?;
    let room = old.len();
    let mut plain: Vec<&mut Value> = new
        .iter_mut()
        .filter(|item| item.get(DIRECTIVE).is_none())
        .collect();
    if replaced {
        let items: Vec<Value> = plain.into_iter().map(|item| item.clone()).collect();
        let keys = MergeKeyValue::of_items(&items, Some(key))?;
        return Ok(Merged {
            items: arrange(items, &[], &keys, Some(key))?,
            slots: old
                .iter()
                .filter_map(|item| item.get(key).and_then(MergeKeyValue::from_value))
                .collect(),
        });
    }
    old.retain(|item| {
        !item
            .get(key)
            .and_then(MergeKeyValue::from_value)
            .is_some_and(|key| doomed.contains(&key))
    });
    let survivors = old.len();
    merge_plain(place, key, &mut old, &mut plain)?;

    let wanted = plain
        .iter()
        .map(|item| MergeKeyValue::of_item(item, Some(key)))
        .collect::<Result<Vec<_>, _>>()?;
    let mut slots = MergeKeyValue::of_items(&old, Some(key))?;
    let items = arrange(old, &wanted, &slots[..survivors], Some(key))?;
    slots.truncate(room);
    Ok(Merged { items, slots })
}

/// The keys of items to remove, and whether the patch replaces the list.
fn read_directives(
    key: &str,
    new: &[Value],
) -> Result<(HashSet<MergeKeyValue>, bool), StrategicError> {
    let (mut doomed, mut replaced) = (HashSet::new(), false);
    for item in new {
        let Some(directive) = item.get(DIRECTIVE) else {
            continue;
        };
        match directive.as_str() {
            Some(DELETE) => doomed.extend(MergeKeyValue::from_value(member(item, key)?)),
            Some(REPLACE) => replaced = true,
            Some(MERGE) => {
                return fail("merging lists cannot yet be specified in the patch".into());
            }
            _ => return Err(StrategicError::unknown_directive(directive, as_map(item)?)),
        }
    }
    Ok((doomed, replaced))
}

/// Merges each item into the first one with the same key, or appends it.
fn merge_plain(
    place: PatchMetaSchema,
    key: &str,
    old: &mut Vec<Value>,
    plain: &mut [&mut Value],
) -> Result<(), StrategicError> {
    let mut index: HashMap<MergeKeyValue, usize> = HashMap::new();
    for (at, item) in old.iter().enumerate() {
        if let Some(key) = item.get(key).and_then(MergeKeyValue::from_value) {
            index.entry(key).or_insert(at);
        }
    }
    for item in plain {
        let at = *index
            .entry(MergeKeyValue::of_item(item, Some(key))?)
            .or_insert(old.len());
        match (old.get_mut(at), &mut **item) {
            (Some(Value::Map(old)), Value::Map(new)) => merge_map(place, old, new)?,
            (_, new) => old.push(new.clone()),
        }
    }
    Ok(())
}

fn fail<T>(message: String) -> Result<T, StrategicError> {
    Err(StrategicError::Internal(message))
}
