//! Which of the keys that can be taken comes next?
//!
//! A key of priority p that came at time t is as urgent as one of priority 0 that came p times the aging
//! before it. Urgency grows with time alike for all, so their order never changes while they wait: per
//! priority a plain queue is enough, and the next is the most urgent among the fronts.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

pub(super) struct Ready<T> {
    levels: BTreeMap<i32, VecDeque<Waiting<T>>>,
    aging: Duration,
    origin: Instant,
}

/// A key that waits to be taken. The ticket tells whether it still counts: a key whose priority rose waits
/// elsewhere too.
pub(super) struct Waiting<T> {
    pub key: T,
    pub ticket: u64,
    pub since: Instant,
}

impl<T> Ready<T> {
    pub(super) fn new(aging: Duration) -> Ready<T> {
        Ready {
            levels: BTreeMap::new(),
            aging,
            origin: Instant::now(),
        }
    }

    pub(super) fn push(&mut self, priority: i32, waiting: Waiting<T>) {
        self.levels.entry(priority).or_default().push_back(waiting);
    }

    /// Takes the most urgent.
    pub(super) fn pop(&mut self) -> Option<Waiting<T>> {
        let priority = match self.levels.len() {
            0 => return None,
            1 => *self.levels.keys().next()?,
            _ => self.most_urgent()?,
        };
        let level = self.levels.get_mut(&priority)?;
        let waiting = level.pop_front();
        // The usual level stays, so that a queue without priorities never builds one.
        if level.is_empty() && priority != 0 {
            self.levels.remove(&priority);
        }
        waiting
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
