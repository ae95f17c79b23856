//! What was recommended and done lately?

use std::time::Duration;

/// A moment on the monotonic clock, in milliseconds.
pub(crate) type Moment = i64;

/// What happened to one target.
#[derive(Debug, Default)]
pub(crate) struct History {
    recommendations: Vec<(Moment, i64)>,
    /// By how many replicas it grew.
    grown: Vec<(Moment, i64)>,
    /// By how many replicas it shrank.
    shrunk: Vec<(Moment, i64)>,
}

/// For how long recommendations and changes are kept: the longest window and period that the API lets people ask for.
const KEPT: Duration = Duration::from_secs(3600);

impl History {
    /// What there is now counts as the first recommendation.
    pub(super) fn begin(&mut self, replicas: i64, now: Moment) {
        if self.recommendations.is_empty() {
            self.recommendations.push((now, replicas));
        }
    }

    /// Notes a recommendation.
    pub(super) fn recommend(&mut self, replicas: i64, now: Moment) {
        forget_old(&mut self.recommendations, now);
        self.recommendations.push((now, replicas));
    }

    /// Notes that the target was scaled.
    pub(super) fn scaled(&mut self, before: i64, after: i64, now: Moment) {
        let changes = if after > before {
            &mut self.grown
        } else {
            &mut self.shrunk
        };
        forget_old(changes, now);
        changes.push((now, (after - before).abs()));
    }

    /// What was recommended within the last `seconds`.
    pub(super) fn recommended(&self, seconds: i64, now: Moment) -> impl Iterator<Item = i64> {
        let since = now - seconds * 1000;
        self.recommendations
            .iter()
            .filter(move |(at, _)| *at > since)
            .map(|(_, replicas)| *replicas)
    }

    /// How many replicas there were `seconds` ago, now being `current`.
    pub(super) fn replicas_before(&self, current: i64, seconds: i64, now: Moment) -> i64 {
        let since = now - seconds * 1000;
        let sum = |changes: &[(Moment, i64)]| -> i64 {
            changes
                .iter()
                .filter(|(at, _)| *at > since)
                .map(|(_, n)| n)
                .sum()
        };
        current - sum(&self.grown) + sum(&self.shrunk)
    }
}

fn forget_old(list: &mut Vec<(Moment, i64)>, now: Moment) {
    let since = now - KEPT.as_millis() as i64;
    list.retain(|(at, _)| *at > since);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recommendations_count_within_a_window() {
        let mut history = History::default();
        history.begin(3, 0);
        history.begin(9, 1);
        history.recommend(5, 60_000);
        let seen = |seconds, now| history.recommended(seconds, now).collect::<Vec<_>>();
        assert_eq!(seen(300, 60_000), [3, 5]);
        assert_eq!(seen(60, 60_000), [5]);
        assert_eq!(seen(0, 60_000), Vec::<i64>::new());
    }

    #[test]
    fn what_was_done_within_a_period_is_undone() {
        let mut history = History::default();
        history.scaled(3, 5, 0);
        history.scaled(5, 4, 30_000);
        assert_eq!(history.replicas_before(4, 60, 50_000), 3);
        assert_eq!(history.replicas_before(4, 60, 70_000), 5);
        assert_eq!(history.replicas_before(4, 60, 99_000), 4);
    }

    #[test]
    fn what_is_old_is_forgotten() {
        let mut history = History::default();
        history.recommend(3, 0);
        history.recommend(4, 3_600_001);
        assert_eq!(history.recommendations, [(3_600_001, 4)]);
    }
}
