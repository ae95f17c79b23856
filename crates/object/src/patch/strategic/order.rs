//! The order of the items of a merged list.
//!
//! Items in the patch keep the order of the patch, the remaining ones keep their order. The two
//! sequences are then interleaved: an item of the server comes before an item of the patch only if
//! it was before it on the server. So new items come first.

use std::collections::{HashMap, HashSet};
use std::mem::discriminant;

use super::list::{Merged, first_item, merge_list};
use super::lookup::PatchMetaSchema;
use super::merge::{list_name, remove_directives};
use super::{
    DELETE, DIRECTIVE, ELEMENT_ORDER, MergeKeyValue, StrategicError, as_map, has_directive, member,
};
use crate::patch::go_text::go_list;
use mizzen_value::{Map, Str, Value};

/// Up to this length Go uses insertion sort, which is visible if the order is inconsistent.
const INSERTION_SORTED: usize = 20;

/// Merges the lists for which the patch has a `$setElementOrder`, and removes both from the patch.
pub(super) fn merge_in_order(
    place: PatchMetaSchema,
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
    place: PatchMetaSchema,
    target: &mut Map,
    patch: &mut Map,
    name: &str,
    order: &[Value],
) -> Result<(), StrategicError> {
    let (live, change) = (as_list(target.get(name))?, as_list(patch.get(name))?);
    let (place, how) = place.items(name)?;
    check_order(change.unwrap_or_default(), order, how.key.as_deref())?;
    let any_item = live.into_iter().chain(change).flatten().next();
    // Kubernetes: without a merge key, structs are identified by the key "", which none of them
    // has.
    let key = how
        .key
        .as_deref()
        .or(any_item.and_then(Value::as_map).map(|_| ""));
    let Merged { items, slots } = match (live, change) {
        (None, None) => return Ok(()),
        (None, Some(change)) => {
            let mut items = change.to_vec();
            items.retain_mut(remove_directives);
            let slots = Vec::new();
            Merged { items, slots }
        }
        (Some(live), None) => Merged {
            items: live.to_vec(),
            slots: MergeKeyValue::of_items(live, key)?,
        },
        (Some(live), Some(change)) if how.merge => {
            merge_list(place, key, live.to_vec(), &mut change.to_vec())?
        }
        (Some(live), Some(change)) => Merged {
            items: change.to_vec(),
            slots: MergeKeyValue::of_items(live, key)?,
        },
    };
    let wanted = wanted_keys(order, key, &MergeKeyValue::of_items(&items, key)?)?;
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

/// The keys in `order`; `present` are those of the list to be ordered.
fn wanted_keys(
    order: &[Value],
    key: Option<&str>,
    present: &[MergeKeyValue],
) -> Result<Vec<MergeKeyValue>, StrategicError> {
    let stranger = order.iter().position(|item| !matches!(item, Value::Map(_)));
    let (Some(_), Some(at)) = (key, stranger) else {
        return MergeKeyValue::of_items(order, key);
    };
    let before: HashSet<MergeKeyValue> = MergeKeyValue::of_items(&order[..at], key)?
        .into_iter()
        .collect();
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

/// The patch may have only items that the order lists, in the same order.
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
    match (
        MergeKeyValue::from_value(left),
        MergeKeyValue::from_value(right),
    ) {
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
    wanted: &[MergeKeyValue],
    live: &[MergeKeyValue],
    key: Option<&str>,
) -> Result<Vec<Value>, StrategicError> {
    let (wanted, live) = (Ranks::new(wanted), Ranks::new(live));
    let keys = MergeKeyValue::of_items(&items, key)?;
    let (mut named, mut others): (Vec<_>, Vec<_>) = keys
        .into_iter()
        .zip(items)
        .partition(|(key, _)| wanted.rank(key).is_some());
    wanted.sort(&mut named);
    live.sort(&mut others);
    Ok(interleave(named, others, &live))
}

type Item = (MergeKeyValue, Value);

fn interleave(named: Vec<Item>, others: Vec<Item>, live: &Ranks) -> Vec<Value> {
    let mut result = Vec::with_capacity(named.len() + others.len());
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    while let (Some((name, _)), Some((other, _))) = (named.peek(), others.peek()) {
        let other_first = matches!((live.rank(other), live.rank(name)), (Some(other), Some(name)) if other < name);
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

/// The first position of each key in a list.
struct Ranks<'a>(HashMap<&'a MergeKeyValue, usize>);

impl<'a> Ranks<'a> {
    fn new(keys: &'a [MergeKeyValue]) -> Ranks<'a> {
        let mut ranks = HashMap::with_capacity(keys.len());
        for (at, key) in keys.iter().enumerate() {
            ranks.entry(key).or_insert(at);
        }
        Ranks(ranks)
    }

    fn rank(&self, key: &MergeKeyValue) -> Option<usize> {
        self.0.get(key).copied()
    }

    fn sort(&self, items: &mut [Item]) {
        if items.len() > INSERTION_SORTED || items.iter().all(|(key, _)| self.rank(key).is_some()) {
            items.sort_by_key(|(key, _)| self.rank(key));
        } else {
            self.insertion_sort(items);
        }
    }

    /// Kubernetes: an item without a rank is less than every other, and every other is less than
    /// it; the result depends on Go's sort.
    fn insertion_sort(&self, items: &mut [Item]) {
        let less = |left: &Item, right: &Item| match (self.rank(&left.0), self.rank(&right.0)) {
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
