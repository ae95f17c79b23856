//! Answers that are good for a while.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How many answers are kept at most.
const MAX: usize = 4096;

/// Answers by question.
pub(super) struct Cache<T> {
    kept: Mutex<HashMap<String, (Instant, T)>>,
    lasts: Duration,
}

impl<T: Clone> Cache<T> {
    /// Keeps each answer for as long as said.
    pub fn new(lasts: Duration) -> Cache<T> {
        Cache { kept: Mutex::default(), lasts }
    }

    /// The answer, if it is still good.
    pub fn get(&self, question: &str) -> Option<T> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(question).filter(|(until, _)| *until > Instant::now()).map(|(_, answer)| answer.clone())
    }

    /// Keeps an answer. Where there are too many, what is no longer good goes, and if that is not enough, all.
    pub fn put(&self, question: String, answer: T) {
        let now = Instant::now();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MAX {
            kept.retain(|_, (until, _)| *until > now);
        }
        if kept.len() >= MAX {
            kept.clear();
        }
        kept.insert(question, (now + self.lasts, answer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_good_for_a_while() {
        let cache = Cache::new(Duration::from_secs(10));
        cache.put("who".into(), 1);
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(cache.get("who"), Some(1));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(cache.get("who"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn answers_are_limited() {
        let cache = Cache::new(Duration::from_secs(10));
        for number in 0..=MAX {
            cache.put(number.to_string(), number);
        }
        assert_eq!(cache.kept.lock().unwrap().len(), 1);
        assert_eq!(cache.get(&MAX.to_string()), Some(MAX));
    }
}
