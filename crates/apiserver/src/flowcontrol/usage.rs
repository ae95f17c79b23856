//! How much of something was in use, over time? Observed as upstream does it: at the end of every nanosecond.

use super::work::Nanos;
use mizzen_metrics::Histogram;

const REQUESTS: &[f64] = &[0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1.0];
const SEATS: &[f64] = &[
    0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0,
];
const DEMAND: &[f64] = &[0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.7, 2.0, 2.8, 4.0, 6.0];
const KINDS: &[f64] = &[
    0.0, 0.001, 0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0,
];

/// The part that was in use of what there is.
pub(super) struct Usage {
    /// What there is.
    whole: f64,
    pub spread: Histogram,
}

impl Usage {
    /// Of reads, or of writes.
    pub(super) fn of_kind() -> Usage {
        Usage::new(KINDS)
    }

    fn new(bounds: &'static [f64]) -> Usage {
        Usage {
            whole: 1.0,
            spread: Histogram::new(bounds),
        }
    }

    /// There is so much from now on.
    pub(super) fn resize(&mut self, whole: usize) {
        self.whole = whole.max(1) as f64;
    }

    /// So many were in use for so long.
    pub(super) fn lasted(&mut self, used: usize, nanos: Nanos) {
        self.spread.observe_times(used as f64 / self.whole, nanos);
    }
}

/// What a level used.
pub(super) struct LevelUsage {
    /// Requests that wait, of those that may.
    pub waiting: Usage,
    /// Requests that are answered, for each seat.
    pub executing: Usage,
    /// Seats that are taken.
    pub seats: Usage,
    /// Seats that are taken or wanted.
    pub demand: Usage,
}

impl Default for LevelUsage {
    fn default() -> LevelUsage {
        let (waiting, executing) = (Usage::new(REQUESTS), Usage::new(REQUESTS));
        LevelUsage {
            waiting,
            executing,
            seats: Usage::new(SEATS),
            demand: Usage::new(DEMAND),
        }
    }
}

impl LevelUsage {
    /// So many may wait, and so many seats are the whole, from now on.
    pub(super) fn resize(&mut self, room_to_wait: usize, seats: usize) {
        self.waiting.resize(room_to_wait);
        [&mut self.executing, &mut self.seats, &mut self.demand]
            .into_iter()
            .for_each(|usage| usage.resize(seats));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts_longer_counts_more() {
        let mut usage = Usage::new(SEATS);
        usage.resize(10);
        usage.lasted(0, 5);
        usage.lasted(3, 7);
        usage.lasted(20, 1);
        let mut families = mizzen_metrics::Families::default();
        families
            .histogram("x", "X.")
            .add_histogram(&[("a", "b")], &usage.spread);
        let text = families.to_string();
        for line in [
            r#"x_bucket{a="b",le="0"} 5"#,
            r#"x_bucket{a="b",le="0.2"} 5"#,
            r#"x_bucket{a="b",le="0.3"} 12"#,
            r#"x_bucket{a="b",le="1"} 12"#,
            r#"x_bucket{a="b",le="+Inf"} 13"#,
            r#"x_count{a="b"} 13"#,
        ] {
            assert!(
                text.lines().any(|known| known == line),
                "{line} is not in\n{text}"
            );
        }
    }
}
