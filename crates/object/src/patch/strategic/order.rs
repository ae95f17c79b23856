//! Where the items of a merged list end up.
//!
//! Items that the patch names keep the order in which it names them, the others keep the order they had. The two
//! rows are then interleaved: an item of the server goes before an item of the patch only if it stood before it
//! on the server. So what is new comes first.

use std::collections::{HashMap, HashSet};
use std::mem::discriminant;

use super::list::{Merged, first_item, merge_list};
use super::lookup::Place;
use super::merge::{list_name, remove_directives};
use super::{DELETE, DIRECTIVE, ELEMENT_ORDER, Key, StrategicError, as_map, has_directive, member};
use crate::patch::go_text::go_list;
use mizzen_value::{Map, Str, Value};

/// Up to this length Go sorts by insertion, which shows when the order is none.
const INSERTION_SORTED: usize = 20;

/// Merges the lists for which the patch has a `$setElementOrder`, and takes both out of the patch.
pub(super) fn merge_in_order(
    place: Place,
    target: &mut Map,
    patch: &mut Map,
) -> Result<(), StrategicError> {
    let directives: Vec<Str> = patch
        .keys()
        .filter(|key| key.starts_with(ELEMENT_ORDER))
        .cloned()
        .collect();
    for directive in directives {
        let order = patch.remove(&directive).unwrap_or_default();
        let order = as_list(Some(&order))?.unwrap_or_default();
        merge_one(
            place,
            target,
            patch,
            list_name(&directive, ELEMENT_ORDER)?,
            order,
        )?;
    }
    Ok(())
}

fn merge_one(
    place: Place,
    target: &mut Map,
    patch: &mut Map,
    name: &str,
    order: &[Value],
) -> Result<(), StrategicError> {
    let (live, change) = (as_list(target.get(name))?, as_list(patch.get(name))?);
    let (place, how) = place.items(name)?;
    check_order(change.unwrap_or_default(), order, how.key.as_deref())?;
    let any_item = live.into_iter().chain(change).flatten().next();
    // Kubernetes: without a key, structs are told apart by the key "", which none of them has.
    let key = how
        .key
        .as_deref()
        .or(any_item.and_then(Value::as_map).map(|_| ""));
    let Merged { items, slots } = match (live, change) {
        (None, None) => return Ok(()),
        (None, Some(change)) => Merged {
            items: kept(change),
            slots: Vec::new(),
        },
        (Some(live), None) => Merged {
            items: live.to_vec(),
            slots: Key::of_items(live, key)?,
        },
        (Some(live), Some(change)) if how.merge => {
            merge_list(place, key, live.to_vec(), &mut change.to_vec())?
        }
        (Some(live), Some(change)) => Merged {
            items: change.to_vec(),
            slots: Key::of_items(live, key)?,
        },
    };
    let wanted = wanted_keys(order, key, &Key::of_items(&items, key)?)?;
    first_item(live.unwrap_or_default(), change.unwrap_or_default())?;
    target.insert(name, arrange(items, &wanted, &slots, key)?);
    patch.remove(name);
    Ok(())
}

fn as_list(value: Option<&Value>) -> Result<Option<&[Value]>, StrategicError> {
    match value {
        None => Ok(None),
        Some(Value::List(items)) => Ok(Some(items)),
        Some(other) => Err(StrategicError::wrong_type("[]interface {}", other)),
    }
}

fn kept(change: &[Value]) -> Vec<Value> {
    let mut items = change.to_vec();
    items.retain_mut(remove_directives);
    items
}

/// The keys in `order`; `present` are those of the list to be ordered.
fn wanted_keys(
    order: &[Value],
    key: Option<&str>,
    present: &[Key],
) -> Result<Vec<Key>, StrategicError> {
    let stranger = order.iter().position(|item| !matches!(item, Value::Map(_)));
    let (Some(_), Some(at)) = (key, stranger) else {
        return Key::of_items(order, key);
    };
    let before: HashSet<Key> = Key::of_items(&order[..at], key)?.into_iter().collect();
    match present.iter().all(|key| before.contains(key)) {
        true => Err(StrategicError::wrong_type(
            "map[string]interface {}",
            &order[at],
        )),
        false => Err(StrategicError::Internal(format!(
            "value for key {at} is not a map"
        ))),
    }
}

/// The patch may name only items that the order names, and in the same order.
fn check_order(change: &[Value], order: &[Value], key: Option<&str>) -> Result<(), StrategicError> {
    if change.is_empty() || order.is_empty() {
        return Ok(());
    }
    if key.is_some() {
        change.iter().try_for_each(|item| as_map(item).map(drop))?;
    }
    let is_deleted = |item: &Value| key.is_some() && item[DIRECTIVE].as_str() == Some(DELETE);
    let mut named = change.iter().filter(|item| !is_deleted(item)).peekable();
    let mut order_left = order.iter();
    while let (Some(item), false) = (named.peek(), order_left.len() == 0) {
        if has_directive(item) || same(item, order_left.next(), key)? {
            named.next();
        }
    }
    if named.peek().is_none() {
        return Ok(());
    }
    let (change, order) = (go_list(change), go_list(order));
    let message = format!(
        "The order in patch list:\n{change}\n doesn't match {ELEMENT_ORDER} list:\n{order}\n"
    );
    Err(StrategicError::Internal(message))
}

fn same(item: &Value, ordered: Option<&Value>, key: Option<&str>) -> Result<bool, StrategicError> {
    let Some(ordered) = ordered else {
        return Ok(false);
    };
    let Some(key) = key else {
        return equal(item, ordered);
    };
    as_map(ordered)?;
    equal(member(item, key)?, member(ordered, key)?)
}

fn equal(left: &Value, right: &Value) -> Result<bool, StrategicError> {
    match (Key::of(left), Key::of(right)) {
        (None, None) if discriminant(left) == discriminant(right) => {
            Err(StrategicError::not_comparable(left))
        }
        (None, _) => Ok(false),
        (left, right) => Ok(left == right),
    }
}

/// Orders merged `items`: `wanted` is the order of the patch, `live` that on the server.
pub(super) fn arrange(
    items: Vec<Value>,
    wanted: &[Key],
    live: &[Key],
    key: Option<&str>,
) -> Result<Vec<Value>, StrategicError> {
    let (wanted, live) = (Ranks::new(wanted), Ranks::new(live));
    let keys = Key::of_items(&items, key)?;
    let (mut named, mut others): (Vec<_>, Vec<_>) = keys
        .into_iter()
        .zip(items)
        .partition(|(key, _)| wanted.of(key).is_some());
    wanted.sort(&mut named);
    live.sort(&mut others);
    Ok(interleave(named, others, &live))
}

type Item = (Key, Value);

fn interleave(named: Vec<Item>, others: Vec<Item>, live: &Ranks) -> Vec<Value> {
    let mut result = Vec::with_capacity(named.len() + others.len());
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    while let (Some((name, _)), Some((other, _))) = (named.peek(), others.peek()) {
        let other_first =
            matches!((live.of(other), live.of(name)), (Some(other), Some(name)) if other < name);
        let next = if other_first {
            others.next()
        } else {
            named.next()
        };
        result.extend(next.map(|(_, value)| value));
    }
    result.extend(others.chain(named).map(|(_, value)| value));
    result
}

/// Where in a list each key first stands.
struct Ranks<'a>(HashMap<&'a Key, usize>);

impl<'a> Ranks<'a> {
    fn new(keys: &'a [Key]) -> Ranks<'a> {
        let mut ranks = HashMap::with_capacity(keys.len());
        for (at, key) in keys.iter().enumerate() {
            ranks.entry(key).or_insert(at);
        }
        Ranks(ranks)
    }

    fn of(&self, key: &Key) -> Option<usize> {
        self.0.get(key).copied()
    }

    fn sort(&self, items: &mut [Item]) {
        if items.len() > INSERTION_SORTED || items.iter().all(|(key, _)| self.of(key).is_some()) {
            items.sort_by_key(|(key, _)| self.of(key));
        } else {
            self.insertion_sort(items);
        }
    }

    /// Kubernetes: whatever has no rank is less than everything, and everything is less than it; where items
    /// end up depends on how Go sorts.
    fn insertion_sort(&self, items: &mut [Item]) {
        let less = |left: &Item, right: &Item| match (self.of(&left.0), self.of(&right.0)) {
            (Some(left), Some(right)) => left < right,
            _ => true,
        };
        for end in 1..items.len() {
            let mut at = end;
            while at > 0 && less(&items[at], &items[at - 1]) {
                items.swap(at, at - 1);
                at -= 1;
            }
        }
    }
}
