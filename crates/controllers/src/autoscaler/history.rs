//! Recent recommendations and scale events of each target, for stabilization windows and scaling
//! policies.

use std::time::Duration;

/// A moment on the monotonic clock, in milliseconds.
pub(crate) type Moment = i64;

/// The recommendations and scale events of one target.
#[derive(Debug, Default)]
pub(crate) struct ScalingHistory {
    recommendations: Vec<(Moment, i64)>,
    /// Scale-up events: time and number of replicas added.
    grown: Vec<(Moment, i64)>,
    /// Scale-down events: time and number of replicas removed.
    shrunk: Vec<(Moment, i64)>,
}

/// How long recommendations and events are kept: the longest window and period that the API allows.
const KEPT: Duration = Duration::from_secs(3600);

impl ScalingHistory {
    /// Records the current replicas as the first recommendation.
    pub(super) fn record_initial_recommendation(&mut self, replicas: i64, now: Moment) {
        if self.recommendations.is_empty() {
            self.recommendations.push((now, replicas));
        }
    }

    pub(super) fn record_recommendation(&mut self, replicas: i64, now: Moment) {
        forget_old(&mut self.recommendations, now);
        self.recommendations.push((now, replicas));
    }

    /// Records a scale event.
    pub(super) fn record_scale_event(&mut self, before: i64, after: i64, now: Moment) {
        let changes = if after > before {
            &mut self.grown
        } else {
            &mut self.shrunk
        };
        forget_old(changes, now);
        changes.push((now, (after - before).abs()));
    }

    /// The recommendations of the last `seconds`.
    pub(super) fn recommendations_within(
        &self,
        seconds: i64,
        now: Moment,
    ) -> impl Iterator<Item = i64> {
        let since = now - seconds * 1000;
        self.recommendations
            .iter()
            .filter(move |(at, _)| *at > since)
            .map(|(_, replicas)| *replicas)
    }

    /// The replicas `seconds` ago, given `current` replicas now.
    pub(super) fn replicas_at_period_start(&self, current: i64, seconds: i64, now: Moment) -> i64 {
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
    fn recommendations_outside_of_the_window_do_not_count() {
        let mut history = ScalingHistory::default();
        history.record_initial_recommendation(3, 0);
        history.record_initial_recommendation(9, 1);
        history.record_recommendation(5, 60_000);
        let seen = |seconds, now| {
            history
                .recommendations_within(seconds, now)
                .collect::<Vec<_>>()
        };
        assert_eq!(seen(300, 60_000), [3, 5]);
        assert_eq!(seen(60, 60_000), [5]);
        assert_eq!(seen(0, 60_000), Vec::<i64>::new());
    }

    #[test]
    fn replicas_at_the_period_start_exclude_its_events() {
        let mut history = ScalingHistory::default();
        history.record_scale_event(3, 5, 0);
        history.record_scale_event(5, 4, 30_000);
        assert_eq!(history.replicas_at_period_start(4, 60, 50_000), 3);
        assert_eq!(history.replicas_at_period_start(4, 60, 70_000), 5);
        assert_eq!(history.replicas_at_period_start(4, 60, 99_000), 4);
    }

    #[test]
    fn old_recommendations_are_dropped() {
        let mut history = ScalingHistory::default();
        history.record_recommendation(3, 0);
        history.record_recommendation(4, 3_600_001);
        assert_eq!(history.recommendations, [(3_600_001, 4)]);
    }
}
