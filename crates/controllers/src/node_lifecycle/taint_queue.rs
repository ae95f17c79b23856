//! The rate-limited taint queue of a zone.

use std::collections::VecDeque;

use k8s_openapi::jiff::Timestamp;

/// The nodes of a zone that wait for their NoExecute taint.
#[derive(Debug)]
pub(super) struct TaintQueue {
    line: VecDeque<String>,
    rate: f64,
    /// Tokens of the rate limiter, at most 1.
    tokens: f64,
    counted: Timestamp,
}

impl TaintQueue {
    /// An empty queue with one token.
    pub(super) fn new(rate: f64, now: Timestamp) -> TaintQueue {
        TaintQueue {
            line: VecDeque::new(),
            rate,
            tokens: 1.0,
            counted: now,
        }
    }

    /// Appends a node unless it is queued.
    pub(super) fn add(&mut self, node: &str) {
        if !self.line.iter().any(|waiting| waiting == node) {
            self.line.push_back(node.into());
        }
    }

    pub(super) fn remove(&mut self, node: &str) {
        self.line.retain(|waiting| waiting != node);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// The next node, if the rate limiter admits it.
    pub(super) fn next(&mut self, now: Timestamp) -> Option<String> {
        self.refill(now);
        if self.line.is_empty() || self.rate <= 0.0 || self.tokens < 1.0 {
            return None;
        }
        self.tokens -= 1.0;
        self.line.pop_front()
    }

    /// Sets the rate. Tokens that were used stay used.
    pub(super) fn swap_limiter(&mut self, rate: f64, now: Timestamp) {
        if self.rate == rate {
            return;
        }
        self.refill(now);
        let was_closed = self.rate <= 0.0;
        self.tokens = if self.tokens >= 1.0 && !was_closed {
            1.0
        } else {
            0.0
        };
        self.rate = rate;
    }

    fn refill(&mut self, now: Timestamp) {
        let passed = now.duration_since(self.counted).as_secs_f64().max(0.0);
        self.tokens = (self.tokens + passed * self.rate).min(1.0);
        self.counted = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn waiting(rate: f64) -> TaintQueue {
        let mut waiting = TaintQueue::new(rate, at(0));
        ["a", "b", "c", "b"]
            .iter()
            .for_each(|node| waiting.add(node));
        waiting
    }

    #[test]
    fn nodes_are_admitted_in_order_at_the_rate() {
        let mut waiting = waiting(0.1);
        let passed: Vec<_> = [0, 1, 9, 10, 15, 20, 30]
            .map(|second| waiting.next(at(second)))
            .into_iter()
            .flatten()
            .collect();
        assert_eq!(passed, ["a", "b", "c"]);
        assert!(waiting.is_empty());
    }

    #[test]
    fn none_are_admitted_at_rate_zero() {
        let mut waiting = waiting(0.1);
        waiting.swap_limiter(0.0, at(0));
        assert_eq!(waiting.next(at(1000)), None);
    }

    #[test]
    fn a_queue_that_resumes_starts_without_tokens() {
        let mut waiting = waiting(0.0);
        waiting.swap_limiter(0.1, at(100));
        assert_eq!(waiting.next(at(105)), None);
        assert_eq!(waiting.next(at(110)).as_deref(), Some("a"));
    }

    #[test]
    fn tokens_survive_a_change_of_rate() {
        let mut waiting = waiting(0.1);
        waiting.swap_limiter(0.01, at(0));
        assert_eq!(waiting.next(at(0)).as_deref(), Some("a"));
        assert_eq!(waiting.next(at(50)), None);
    }

    #[test]
    fn a_removed_node_is_not_queued() {
        let mut waiting = waiting(1.0);
        waiting.remove("a");
        assert_eq!(waiting.next(at(0)).as_deref(), Some("b"));
    }
}
