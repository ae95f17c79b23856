//! Laying what somebody applies over the object as it is.
//!
//! Nothing is taken away here: what only one of both has stays, of what both have the applied one wins, and
//! lists that are owned item by item follow the order of the applied one where both have an item.

use super::element::Element;
use super::rule::{Item, Rule, element_of};
use crate::schema::Struct;
use mizzen_value::{Map, Str, Value};

/// Lays `config` over `live`.
pub(super) fn merge(schema: &Struct, live: &mut Value, config: Value) {
    merge_value(Rule::Struct(schema), live, config);
}

fn merge_value(rule: Rule, live: &mut Value, config: Value) {
    match (rule, live, config) {
        (Rule::Items(item, keys), Value::List(live), Value::List(config)) if !live.is_empty() => {
            if !config.is_empty() {
                merge_items(item, keys, live, config);
            }
        }
        (Rule::Items(..), Value::List(live), Value::Null) if !live.is_empty() => {}
        (rule, Value::Map(live), Value::Map(config)) if rule.has_members() && !live.is_empty() => {
            merge_members(rule, live, config);
        }
        (rule, Value::Map(live), Value::Null) if rule.has_members() && !live.is_empty() => {}
        (_, live, config) => *live = config,
    }
}

fn merge_members(rule: Rule, live: &mut Map, config: Map) {
    for (name, value) in config {
        match live.get_mut(&name) {
            Some(old) => merge_value(rule.member(&name).0, old, value),
            None => drop(live.insert(name, value)),
        }
    }
}

fn merge_items(item: Item, keys: &[Str], live: &mut Vec<Value>, config: Vec<Value>) {
    let partners = Partners::new(item, keys, live, &config);
    let mut old: Vec<Option<Value>> = std::mem::take(live).into_iter().map(Some).collect();
    let mut new: Vec<Option<Value>> = config.into_iter().map(Some).collect();
    for take in partners.order() {
        let value = match take {
            Take::Live(at) => old[at].take(),
            Take::Applied(at) => {
                match (
                    partners.only_live(at).and_then(|left| old[left].take()),
                    new[at].take(),
                ) {
                    (Some(mut merged), Some(value)) => {
                        merge_value(Rule::of_item(item), &mut merged, value);
                        Some(merged)
                    }
                    (_, value) => value,
                }
            }
        };
        live.extend(value);
    }
}

/// Which items of the live and the applied list are the same.
struct Partners {
    /// For each live item the applied one.
    applied: Vec<Option<usize>>,
    /// For each applied item all live ones: several if they cannot be told apart.
    live: Vec<Vec<usize>>,
}

/// Where the next item of a merged list comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Take {
    /// Only the live list has it.
    Live(usize),
    /// The applied list has it, and perhaps the live one too.
    Applied(usize),
}

impl Partners {
    fn new(item: Item, keys: &[Str], live: &[Value], config: &[Value]) -> Partners {
        let element = |value: &Value| element_of(item, keys, value).ok();
        let mut index: Vec<(Element, usize)> = config
            .iter()
            .enumerate()
            .filter_map(|(at, value)| Some((element(value)?, at)))
            .collect();
        index.sort();
        let find = |value: &Value| {
            let element = element(value)?;
            let at = index
                .binary_search_by(|(known, _)| known.cmp(&element))
                .ok()?;
            Some(index[at].1)
        };
        Partners::of(live.iter().map(find).collect(), config.len())
    }

    fn of(applied: Vec<Option<usize>>, n_applied: usize) -> Partners {
        let mut live = vec![Vec::new(); n_applied];
        for (left, right) in applied.iter().enumerate() {
            if let Some(right) = right {
                live[*right].push(left);
            }
        }
        Partners { applied, live }
    }

    /// The live item that an applied one is merged with. Items that cannot be told apart are replaced.
    fn only_live(&self, right: usize) -> Option<usize> {
        match self.live[right].as_slice() {
            [left] => Some(*left),
            _ => None,
        }
    }

    /// The order of the merged list. Kubernetes: structured-merge-diff's typed/merge.go, step by step, because
    /// clients see the order.
    fn order(&self) -> Vec<Take> {
        let (n_left, n_right) = (self.applied.len(), self.live.len());
        let mut shared = (0..n_right)
            .filter(|right| !self.live[*right].is_empty())
            .peekable();
        let mut takes = Vec::with_capacity(n_left + n_right);
        let (mut left, mut right) = (0, 0);
        while left < n_left || right < n_right {
            let partner = self.applied.get(left).copied();
            if right < n_right {
                if partner == Some(Some(right)) {
                    takes.push(Take::Applied(right));
                    (left, right) = (left + 1, right + 1);
                    shared.next();
                    continue;
                }
                // In both lists, but another one is due first.
                if partner.flatten().is_some()
                    && shared
                        .peek()
                        .is_some_and(|due| Some(*due) != partner.flatten())
                {
                    left += 1;
                    continue;
                }
            }
            match partner {
                Some(None) => {
                    takes.push(Take::Live(left));
                    left += 1;
                    continue;
                }
                // Applied items are taken in their order, so this one has been.
                Some(Some(taken)) if taken < right => left += 1,
                _ => {}
            }
            if right < n_right {
                takes.push(Take::Applied(right));
                shared.next_if_eq(&right);
                right += 1;
            }
        }
        takes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each letter is an item; the same letter is the same item.
    #[track_caller]
    fn check(live: &str, config: &str, expected: &str) {
        let partners = Partners::of(
            live.chars().map(|item| config.find(item)).collect(),
            config.len(),
        );
        let letter = |take| match take {
            Take::Live(at) => char::from(live.as_bytes()[at]),
            Take::Applied(at) => char::from(config.as_bytes()[at]),
        };
        assert_eq!(
            partners.order().into_iter().map(letter).collect::<String>(),
            expected
        );
    }

    #[test]
    fn new_items_come_after_the_ones_that_were_there() {
        check("ab", "c", "abc");
        check("", "ab", "ab");
        check("ab", "", "ab");
    }

    #[test]
    fn shared_items_follow_the_applied_order() {
        check("abc", "cba", "cba");
        check("abcd", "dx", "abcdx");
        check("abcd", "db", "acdb");
        check("axb", "ba", "xba");
    }

    #[test]
    fn items_that_cannot_be_told_apart_become_one() {
        check("aab", "a", "ab");
        check("baa", "ac", "bac");
    }
}
