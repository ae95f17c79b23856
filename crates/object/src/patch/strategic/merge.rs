//! Merging of a patch into a map.

use std::collections::HashSet;
use std::mem::discriminant;

use super::list::{self, merge_list};
use super::lookup::PatchMetaSchema;
use super::order::merge_in_order;
use super::{DELETE, DELETE_LIST, DIRECTIVE, ELEMENT_ORDER, REPLACE, RETAIN_KEYS};
use super::{MergeKeyValue, StrategicError, has_directive};
use crate::schema::Struct;
use mizzen_value::{Map, Str, Value};

/// Applies `patch` to `target`, an object of type `ty`. Added values are not checked against the
/// schema: unknown members stay for a decoder to report. After an error the target is partly
/// patched.
///
/// Kubernetes: the patch is modified as upstream does, directives removed and nulls dropped where
/// values were added, because later errors show it ([`go_text()`](crate::patch::go_text())).
pub fn strategic_merge(
    ty: &Struct,
    target: &mut Value,
    patch: &mut Value,
) -> Result<(), StrategicError> {
    match patch {
        Value::Map(patch) => merge_map(PatchMetaSchema::root(ty), target.make_map(), patch),
        Value::Null => Ok(()),
        other => {
            let message = "into Go value of type map[string]interface {}";
            Err(StrategicError::BadRequest(format!(
                "json: cannot unmarshal {} {message}",
                other.go_word()
            )))
        }
    }
}

/// Merges `patch` into the map at `place`.
pub(super) fn merge_map(
    place: PatchMetaSchema,
    target: &mut Map,
    patch: &mut Map,
) -> Result<(), StrategicError> {
    if patch.contains_key(DIRECTIVE) {
        return take_whole(target, patch);
    }
    retain_keys(target, patch)?;
    merge_in_order(place, target, patch)?;
    // Nulls are removed all at once, because each single removal moves the members behind it.
    let nulls = patch.iter().filter(|(_, value)| value.is_null());
    let gone: HashSet<&str> = nulls.map(|(key, _)| key).collect();
    if !gone.is_empty() {
        target.retain(|key, _| !gone.contains(key));
    }
    // Kubernetes: in no defined order. Deletions come last, as upstream does after
    // `$setElementOrder`.
    let (deletions, others): (Vec<Str>, Vec<Str>) = patch
        .keys()
        .cloned()
        .partition(|key| key.starts_with(DELETE_LIST));
    for key in others.into_iter().chain(deletions) {
        merge_member(place, target, &key, patch.entry(&key))?;
    }
    Ok(())
}

fn take_whole(target: &mut Map, patch: &mut Map) -> Result<(), StrategicError> {
    match patch.get(DIRECTIVE).and_then(Value::as_str) {
        Some(REPLACE) => {
            patch.remove(DIRECTIVE);
            *target = patch.clone();
        }
        Some(DELETE) => *target = Map::default(),
        _ => {
            return Err(StrategicError::unknown_directive(
                &patch.get(DIRECTIVE).cloned().into(),
                patch,
            ));
        }
    }
    Ok(())
}

fn retain_keys(target: &mut Map, patch: &mut Map) -> Result<(), StrategicError> {
    let Some(directive) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let malformed = || StrategicError::bad_format(RETAIN_KEYS);
    let Value::List(retained) = directive else {
        return Err(malformed());
    };
    MergeKeyValue::of_items(&retained, None)?;
    let retained: HashSet<&str> = retained.iter().filter_map(Value::as_str).collect();
    let is_retained = |key: &str| retained.contains(key);
    let is_directive = |key: &str| key.starts_with(DELETE_LIST) || key.starts_with(ELEMENT_ORDER);
    if patch
        .iter()
        .any(|(key, value)| !value.is_null() && !is_directive(key) && !is_retained(key))
    {
        return Err(malformed());
    }
    target.retain(|key, _| is_retained(key));
    Ok(())
}

fn merge_member(
    place: PatchMetaSchema,
    target: &mut Map,
    key: &str,
    change: &mut Value,
) -> Result<(), StrategicError> {
    let (name, deleting) = match key.starts_with(DELETE_LIST) {
        true => (list_name(key, DELETE_LIST)?, true),
        false => (key, false),
    };
    match (target.get_mut(name), change) {
        (None, Value::Null) => {}
        (Some(_), Value::Null) => drop(target.remove(name)),
        (Some(Value::Map(old)), Value::Map(new)) => {
            let (place, how) = place.map(name)?;
            match how.replace {
                true => *old = new.clone(),
                false => merge_map(place, old, new)?,
            }
        }
        (Some(Value::List(old)), Value::List(new)) => {
            let (place, how) = place.items(name)?;
            let key = how.key.as_deref();
            match (how.merge, deleting) {
                (false, false) => *old = new.to_vec(),
                (_, false) => *old = merge_list(place, key, std::mem::take(old), new)?.items,
                (_, true) => list::delete(place, key, old, new)?,
            }
        }
        // Kubernetes: `$deleteFromPrimitiveList/<name>` of a scalar sets it.
        (old, new) if deleting => {
            if let Some(old) = old.filter(|old| discriminant(*old) == discriminant(new)) {
                *old = new.clone();
            }
        }
        (_, new) => add(target, name, new),
    }
    Ok(())
}

/// The list of a directive `<prefix>/<list>`.
pub(super) fn list_name<'a>(directive: &'a str, prefix: &str) -> Result<&'a str, StrategicError> {
    match directive
        .strip_prefix(prefix)
        .and_then(|rest| rest.strip_prefix('/'))
    {
        // Kubernetes: without a name it is about the member with the name of the directive.
        Some("") if prefix == DELETE_LIST => Ok(directive),
        Some(name) => Ok(name),
        None => Err(StrategicError::bad_format(prefix)),
    }
}

/// Sets a member that the target does not have, or has with another type.
fn add(target: &mut Map, name: &str, new: &mut Value) {
    discard_nulls(new);
    let mut value = new.clone();
    if !remove_directives(&mut value) {
        target.remove(name);
        return;
    }
    // Kubernetes: patch and object share this map.
    if matches!(value, Value::Map(_)) {
        *new = value.clone();
    }
    target.insert(name, value);
}

fn discard_nulls(value: &mut Value) {
    match value {
        Value::Map(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(discard_nulls);
        }
        Value::List(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

/// Drops values with a `$patch`; returns false if that is the value itself.
pub(super) fn remove_directives(value: &mut Value) -> bool {
    match value {
        _ if has_directive(value) => return false,
        Value::Map(map) => map.retain(|_, value| remove_directives(value)),
        Value::List(items) => items.retain_mut(remove_directives),
        _ => {}
    }
    true
}
