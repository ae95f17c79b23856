//! Timers: one heap for everything that is due.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::moment::Moment;

/// Keys by due time, each perhaps more than once.
#[derive(Debug)]
pub(crate) struct Timers<K>(BinaryHeap<Reverse<(Moment, K)>>);

impl<K: Ord> Default for Timers<K> {
    fn default() -> Timers<K> {
        Timers(BinaryHeap::new())
    }
}

impl<K: Ord> Timers<K> {
    /// Adds a key that is due at `at`.
    pub(crate) fn add(&mut self, at: Moment, key: K) {
        self.0.push(Reverse((at, key)));
    }

    /// When the next key is due.
    pub(crate) fn next(&self) -> Option<Moment> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }

    /// The next key that is due now, with its due time.
    pub(crate) fn pop(&mut self, now: Moment) -> Option<(Moment, K)> {
        self.next().filter(|at| *at <= now)?;
        self.0.pop().map(|Reverse(due)| due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_popped_in_order_once_they_are_due() {
        let mut timers = Timers::default();
        for seconds in [3, 1, 2] {
            timers.add(Moment::from_secs(seconds), seconds);
        }
        let due: Vec<u64> = std::iter::from_fn(|| timers.pop(Moment::from_secs(2)))
            .map(|(_, key)| key)
            .collect();
        assert_eq!(due, [1, 2]);
        assert_eq!(timers.next(), Some(Moment::from_secs(3)));
    }
}
