//! Merging of an applied configuration into the live object.
//!
//! Nothing is removed here: fields of only one of the two stay, for fields of both the applied
//! value wins, and items of associative lists follow the applied order where both have them.

use super::path_element::PathElement;
use super::rule::{ListItemType, OwnershipRule, element_of};
use crate::schema::Struct;
use mizzen_value::{Str, Value};

/// Merges `config` into `live`.
pub(super) fn merge(schema: &Struct, live: &mut Value, config: Value) {
    merge_value(OwnershipRule::Struct(schema), live, config);
}

fn merge_value(rule: OwnershipRule, live: &mut Value, config: Value) {
    match (rule, live, config) {
        (OwnershipRule::Items(item, keys), Value::List(live), Value::List(config))
            if !live.is_empty() =>
        {
            if !config.is_empty() {
                merge_items(item, keys, live, config);
            }
        }
        (OwnershipRule::Items(..), Value::List(live), Value::Null) if !live.is_empty() => {}
        (rule, Value::Map(live), Value::Map(config)) if rule.has_members() && !live.is_empty() => {
            for (name, value) in config {
                match live.get_mut(&name) {
                    Some(old) => merge_value(rule.member(&name).0, old, value),
                    None => drop(live.insert(name, value)),
                }
            }
        }
        (rule, Value::Map(live), Value::Null) if rule.has_members() && !live.is_empty() => {}
        (_, live, config) => *live = config,
    }
}

fn merge_items(item: ListItemType, keys: &[Str], live: &mut Vec<Value>, config: Vec<Value>) {
    let partners = Partners::new(item, keys, live, &config);
    let mut old: Vec<Option<Value>> = std::mem::take(live).into_iter().map(Some).collect();
    let mut new: Vec<Option<Value>> = config.into_iter().map(Some).collect();
    for take in partners.order() {
        let value = match take {
            MergeSource::Live(at) => old[at].take(),
            MergeSource::Applied(at) => {
                match (
                    partners.only_live(at).and_then(|left| old[left].take()),
                    new[at].take(),
                ) {
                    (Some(mut merged), Some(value)) => {
                        merge_value(OwnershipRule::of_item(item), &mut merged, value);
                        Some(merged)
                    }
                    (_, value) => value,
                }
            }
        };
        live.extend(value);
    }
}

/// The correspondence of live and applied list items.
struct Partners {
    /// The applied item of each live item.
    applied: Vec<Option<usize>>,
    /// All live items of each applied item: several for duplicate keys.
    live: Vec<Vec<usize>>,
}

/// The source of the next item of a merged list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MergeSource {
    /// Only the live list has it.
    Live(usize),
    /// The applied list has it, and perhaps the live one, too.
    Applied(usize),
}

impl Partners {
    fn new(item: ListItemType, keys: &[Str], live: &[Value], config: &[Value]) -> Partners {
        let element = |value: &Value| element_of(item, keys, value).ok();
        let mut index: Vec<(PathElement, usize)> = config
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
        Partners::from_applied(live.iter().map(find).collect(), config.len())
    }

    fn from_applied(applied: Vec<Option<usize>>, n_applied: usize) -> Partners {
        let mut live = vec![Vec::new(); n_applied];
        for (left, right) in applied.iter().enumerate() {
            if let Some(right) = right {
                live[*right].push(left);
            }
        }
        Partners { applied, live }
    }

    /// The live item that an applied one is merged with. Duplicates are replaced.
    fn only_live(&self, right: usize) -> Option<usize> {
        match self.live[right].as_slice() {
            [left] => Some(*left),
            _ => None,
        }
    }

    /// The order of the merged list. Kubernetes: structured-merge-diff's typed/merge.go, step by
    /// step, because the order is visible.
    fn order(&self) -> Vec<MergeSource> {
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
                    takes.push(MergeSource::Applied(right));
                    (left, right) = (left + 1, right + 1);
                    shared.next();
                    continue;
                }
                // In both lists, but another shared item is due first.
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
                    takes.push(MergeSource::Live(left));
                    left += 1;
                    continue;
                }
                // Applied items are merged in order, so this one was merged already.
                Some(Some(taken)) if taken < right => left += 1,
                _ => {}
            }
            if right < n_right {
                takes.push(MergeSource::Applied(right));
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
        let partners = Partners::from_applied(
            live.chars().map(|item| config.find(item)).collect(),
            config.len(),
        );
        let letter = |take| match take {
            MergeSource::Live(at) => char::from(live.as_bytes()[at]),
            MergeSource::Applied(at) => char::from(config.as_bytes()[at]),
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
    fn duplicate_items_are_merged() {
        check("aab", "a", "ab");
        check("baa", "ac", "bac");
    }
}
