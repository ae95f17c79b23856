//! The order of keys that can be taken.
//!
//! A key of priority p that arrived at time t is as urgent as one of priority 0 that arrived p
//! times the aging earlier. Urgency grows alike for all, so the order never changes while keys
//! wait: a plain queue per priority is enough, and the next key is the most urgent of their fronts.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

pub(super) struct ReadyKeys<T> {
    levels: BTreeMap<i32, VecDeque<ReadyKey<T>>>,
    aging: Duration,
    origin: Instant,
}

/// A queued key. The ticket is current if it matches the state: a key whose priority rose is queued
/// twice.
pub(super) struct ReadyKey<T> {
    pub key: T,
    pub ticket: u64,
    pub since: Instant,
}

impl<T> ReadyKeys<T> {
    pub(super) fn new(aging: Duration) -> ReadyKeys<T> {
        ReadyKeys {
            levels: BTreeMap::new(),
            aging,
            origin: Instant::now(),
        }
    }

    pub(super) fn push(&mut self, priority: i32, ready_key: ReadyKey<T>) {
        self.levels
            .entry(priority)
            .or_default()
            .push_back(ready_key);
    }

    /// Takes the most urgent key.
    pub(super) fn pop(&mut self) -> Option<ReadyKey<T>> {
        let priority = match self.levels.len() {
            0 => return None,
            1 => *self.levels.keys().next()?,
            _ => self.most_urgent()?,
        };
        let level = self.levels.get_mut(&priority)?;
        let ready_key = level.pop_front();
        // Level 0 stays, so that a queue without priorities never rebuilds it.
        if level.is_empty() && priority != 0 {
            self.levels.remove(&priority);
        }
        ready_key
    }

    fn most_urgent(&self) -> Option<i32> {
        let fronts = self.levels.iter().filter_map(|(priority, level)| {
            let since = level.front()?.since.saturating_duration_since(self.origin);
            let bonus = i128::from(*priority) * self.aging.as_nanos() as i128;
            Some((since.as_nanos() as i128 - bonus, *priority))
        });
        Some(
            fronts
                .min_by_key(|(came, priority)| (*came, -i64::from(*priority)))?
                .1,
        )
    }
}
