//! `Retry-After`: the more requests of a level were dropped lately, the later clients retry.

use std::collections::VecDeque;

/// The maximum, in seconds.
const LONGEST: u64 = 32;

/// The dropped requests of a level by second. Kubernetes: flowcontrol/dropped_requests_tracker.go.
#[derive(Debug)]
pub(super) struct DroppedRequestsTracker {
    /// The current `Retry-After`, in seconds.
    after: u64,
    /// When it was last raised.
    raised: Option<u64>,
    second: u64,
    in_second: u64,
    past: VecDeque<(u64, u64)>,
}

impl Default for DroppedRequestsTracker {
    fn default() -> DroppedRequestsTracker {
        DroppedRequestsTracker {
            after: 1,
            raised: None,
            second: 0,
            in_second: 0,
            past: VecDeque::new(),
        }
    }
}

impl DroppedRequestsTracker {
    /// Records a dropped request. Returns the `Retry-After` in seconds.
    pub(super) fn record_dropped(&mut self, second: u64) -> u64 {
        if self.second != second {
            self.past.push_back((self.second, self.in_second));
            let kept = (2 * self.after).min(LONGEST);
            self.past
                .retain(|(past, _)| self.second.saturating_sub(*past) <= kept);
            (self.second, self.in_second) = (second, 0);
            self.update_retry_after();
        }
        self.in_second += 1;
        self.after
    }

    /// Doubles the time if too many retries came too early, and shortens it by a second if few did.
    fn update_retry_after(&mut self) {
        let lately = self
            .past
            .iter()
            .filter(|(past, _)| self.second - past <= self.after);
        let dropped: u64 = lately.map(|(_, dropped)| dropped).sum();
        let may_raise = self
            .raised
            .is_none_or(|raised| self.second - raised >= self.after);
        if may_raise && dropped >= 3 * self.after {
            self.after = (2 * self.after).min(LONGEST);
            self.raised = Some(self.second);
        } else if dropped < self.after && self.after > 1 {
            self.after -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_dropped_requests_raise_retry_after() {
        let mut retry = DroppedRequestsTracker::default();
        let retry_after: Vec<u64> = (1..=6)
            .map(|second| {
                (0..20)
                    .map(|_| retry.record_dropped(second))
                    .last()
                    .unwrap()
            })
            .collect();
        assert_eq!(retry_after, [1, 2, 2, 4, 4, 4]);
        let later = (7..200)
            .map(|second| {
                (0..200)
                    .map(|_| retry.record_dropped(second))
                    .last()
                    .unwrap()
            })
            .last();
        assert_eq!(later, Some(LONGEST));
    }

    #[test]
    fn few_dropped_requests_lower_retry_after() {
        let mut retry = DroppedRequestsTracker::default();
        (1..=6).for_each(|second| assert!((0..20).all(|_| retry.record_dropped(second) <= 4)));
        let retry_after: Vec<u64> = [100, 200, 300, 400]
            .map(|second| retry.record_dropped(second))
            .into();
        assert_eq!(retry_after, [3, 2, 1, 1]);
    }
}
