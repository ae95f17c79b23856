//! Answers that are good for a while.
//!
//! Where there is no room for one more, the one that was asked for least lately goes.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// Answers by question.
pub struct LruCache<T> { entries:Mutex<LruEntries<T>>, capacity:usize,
}

struct LruEntries<T> {
    answers: HashMap<Arc<str>, CachedValue<T>>,
    /// Questions by when they were last asked. Invariant: each question is here once, under its answer's turn.
    turns: BTreeMap<u64, Arc<str>>,
    next: u64,
}

struct CachedValue<T> {
    answer: T,
    until: Instant,
    turn: u64,
}

impl<T: Clone> LruCache<T> {
    /// Keeps at most `room` answers.
pub fn new(room:usize)->LruCache<T> { let kept=LruEntries {
            answers: HashMap::new(),
            turns: BTreeMap::new(),
            next: 0,
        };
        LruCache {
            entries: Mutex::new(kept),
            capacity: room,
        }
    }

    /// The answer, if it is still good.
    pub fn get(&self, question: &str) -> Option<T> {
        let mut kept = self.kept();
        let (question, answer) = kept.take(question)?;
        if answer.until <= Instant::now() {
            return None;
        }
        let found = answer.answer.clone();
        kept.put(question, answer.answer, answer.until);
        Some(found)
    }

    /// Keeps an answer for as long as said.
    pub fn put(&self, question: String, answer: T, lasts: Duration) {
        if lasts.is_zero() {
            return;
        }
        let mut kept = self.kept();
        kept.take(&question);
        kept.put(question.into(), answer, Instant::now() + lasts);
        while kept.answers.len() > self.capacity {
            let Some((_, oldest)) = kept.turns.pop_first() else {
                break;
            };
            kept.answers.remove(&oldest);
        }
    }

    fn kept(&self) -> MutexGuard<'_, LruEntries<T>> {
        self.entries.lock()
    }
}

impl<T> LruEntries<T> {
    fn take(&mut self, question: &str) -> Option<(Arc<str>, CachedValue<T>)> {
        let (question, answer) = self.answers.remove_entry(question)?;
        self.turns.remove(&answer.turn);
        Some((question, answer))
    }

    fn put(&mut self, question: Arc<str>, answer: T, until: Instant) {
        self.next += 1;
        self.turns.insert(self.next, question.clone());
        self.answers.insert(
            question,
            CachedValue {
                answer,
                until,
                turn: self.next,
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_good_for_a_while() {
        let cache = LruCache::new(4);
        cache.put("who".into(), 1, Duration::from_secs(10));
        cache.put("nobody".into(), 2, Duration::ZERO);
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!((cache.get("who"), cache.get("nobody")), (Some(1), None));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(cache.get("who"), None);
        assert!(cache.kept().answers.is_empty() && cache.kept().turns.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_answer_that_was_asked_for_least_lately_makes_room() {
        let (cache, lasts) = (LruCache::new(3), Duration::from_secs(10));
        for number in 0..3 {
            cache.put(number.to_string(), number, lasts);
        }
        assert_eq!(cache.get("0"), Some(0));
        cache.put("2".into(), 20, lasts);
        cache.put("3".into(), 3, lasts);
        let found: Vec<_> = ["0", "1", "2", "3"]
            .map(|question| cache.get(question))
            .into();
        assert_eq!(found, [Some(0), None, Some(20), Some(3)]);
    }
}
