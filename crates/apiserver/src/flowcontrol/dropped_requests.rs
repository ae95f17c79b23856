//! When should who is turned away come back? The more had to be turned away lately, the later.

use std::collections::VecDeque;

/// The longest that anybody is told to wait, in seconds.
const LONGEST: u64 = 32;

/// How many requests of a level were turned away lately, second by second.
#[derive(Debug)]
pub(super) struct DroppedRequestsTracker {
    /// What clients are told, in seconds.
    after: u64,
    /// When they were last told to wait longer.
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
    /// Somebody is turned away. Returns when to come back, in seconds from now.
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

    /// Doubles the time when too many came back too early, and shortens it by a second when few did.
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
    fn who_is_turned_away_often_is_told_to_wait_longer() {
        let mut retry = DroppedRequestsTracker::default();
        let told: Vec<u64> = (1..=6)
            .map(|second| {
                (0..20)
                    .map(|_| retry.record_dropped(second))
                    .last()
                    .unwrap()
            })
            .collect();
        assert_eq!(told, [1, 2, 2, 4, 4, 4]);
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
    fn when_it_is_quiet_again_the_time_gets_shorter() {
        let mut retry = DroppedRequestsTracker::default();
        (1..=6).for_each(|second| assert!((0..20).all(|_| retry.record_dropped(second) <= 4)));
        let told: Vec<u64> = [100, 200, 300, 400]
            .map(|second| retry.record_dropped(second))
            .into();
        assert_eq!(told, [3, 2, 1, 1]);
    }
}
