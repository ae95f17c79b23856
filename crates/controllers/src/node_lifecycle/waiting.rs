//! Which node may lose its pods next? The nodes of a zone wait in line and are let through at a rate.

use std::collections::VecDeque;

use k8s_openapi::jiff::Timestamp;

/// The nodes of a zone that wait for their taint.
#[derive(Debug)]
pub(super) struct Waiting {
    line: VecDeque<String>,
    rate: f64,
    /// What may be spent: at most one node at once.
    tokens: f64,
    counted: Timestamp,
}

impl Waiting {
    /// Nobody waits yet; the first may pass at once.
    pub(super) fn new(rate: f64, now: Timestamp) -> Waiting {
        Waiting {
            line: VecDeque::new(),
            rate,
            tokens: 1.0,
            counted: now,
        }
    }

    /// Puts a node at the end of the line, unless it waits already.
    pub(super) fn add(&mut self, node: &str) {
        if !self.line.iter().any(|waiting| waiting == node) {
            self.line.push_back(node.into());
        }
    }

    /// Takes a node out of the line.
    pub(super) fn remove(&mut self, node: &str) {
        self.line.retain(|waiting| waiting != node);
    }

    /// Whether nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// The node that may pass now.
    pub(super) fn next(&mut self, now: Timestamp) -> Option<String> {
        self.count(now);
        if self.line.is_empty() || self.rate <= 0.0 || self.tokens < 1.0 {
            return None;
        }
        self.tokens -= 1.0;
        self.line.pop_front()
    }

    /// Changes how many nodes may pass each second. What was spent under the old rate stays spent.
    pub(super) fn set_rate(&mut self, rate: f64, now: Timestamp) {
        if self.rate == rate {
            return;
        }
        self.count(now);
        let was_closed = self.rate <= 0.0;
        self.tokens = if self.tokens >= 1.0 && !was_closed {
            1.0
        } else {
            0.0
        };
        self.rate = rate;
    }

    fn count(&mut self, now: Timestamp) {
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

    fn waiting(rate: f64) -> Waiting {
        let mut waiting = Waiting::new(rate, at(0));
        ["a", "b", "c", "b"]
            .iter()
            .for_each(|node| waiting.add(node));
        waiting
    }

    #[test]
    fn nodes_pass_in_order_at_the_rate() {
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
    fn none_pass_at_rate_zero() {
        let mut waiting = waiting(0.1);
        waiting.set_rate(0.0, at(0));
        assert_eq!(waiting.next(at(1000)), None);
    }

    #[test]
    fn a_line_that_opens_again_begins_without_credit() {
        let mut waiting = waiting(0.0);
        waiting.set_rate(0.1, at(100));
        assert_eq!(waiting.next(at(105)), None);
        assert_eq!(waiting.next(at(110)).as_deref(), Some("a"));
    }

    #[test]
    fn credit_outlives_a_change_between_open_rates() {
        let mut waiting = waiting(0.1);
        waiting.set_rate(0.01, at(0));
        assert_eq!(waiting.next(at(0)).as_deref(), Some("a"));
        assert_eq!(waiting.next(at(50)), None);
    }

    #[test]
    fn a_node_that_came_back_does_not_wait() {
        let mut waiting = waiting(1.0);
        waiting.remove("a");
        assert_eq!(waiting.next(at(0)).as_deref(), Some("b"));
    }
}
