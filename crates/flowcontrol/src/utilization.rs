//! Utilization over time. Kubernetes: sampled at the end of every nanosecond
//! (flowcontrol/metrics/timing_ratio_histogram.go).

use mizzen_metrics::Histogram;

use super::work_estimate::Nanos;

const REQUESTS: &[f64] = &[0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1.0];
const SEATS: &[f64] = &[
    0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0,
];
const DEMAND: &[f64] = &[0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.7, 2.0, 2.8, 4.0, 6.0];
const KINDS: &[f64] = &[
    0.0, 0.001, 0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0,
];

/// The ratio of use to capacity, over time.
pub(super) struct Utilization {
    capacity: f64,
    pub histogram: Histogram,
}

impl Utilization {
    /// Of reads, or of writes.
    pub(super) fn for_request_class() -> Utilization {
        Utilization::new(KINDS)
    }

    fn new(bounds: &'static [f64]) -> Utilization {
        Utilization {
            capacity: 1.0,
            histogram: Histogram::new(bounds),
        }
    }

    pub(super) fn set_capacity(&mut self, whole: usize) {
        self.capacity = whole.max(1) as f64;
    }

    /// Observes `used` for a duration.
    pub(super) fn observe_for(&mut self, used: usize, nanos: Nanos) {
        self.histogram
            .observe_times(used as f64 / self.capacity, nanos);
    }
}

/// Utilization of a priority level.
pub(super) struct LevelUtilization {
    /// Waiting requests, of those that may wait.
    pub waiting: Utilization,
    /// Executing requests per seat.
    pub executing: Utilization,
    /// Seats in use.
    pub seats: Utilization,
    /// Seats in use or wanted by waiting requests.
    pub demand: Utilization,
}

impl Default for LevelUtilization {
    fn default() -> LevelUtilization {
        let (waiting, executing) = (Utilization::new(REQUESTS), Utilization::new(REQUESTS));
        LevelUtilization {
            waiting,
            executing,
            seats: Utilization::new(SEATS),
            demand: Utilization::new(DEMAND),
        }
    }
}

impl LevelUtilization {
    pub(super) fn set_capacity(&mut self, max_waiting: usize, seats: usize) {
        self.waiting.set_capacity(max_waiting);
        [&mut self.executing, &mut self.seats, &mut self.demand]
            .into_iter()
            .for_each(|usage| usage.set_capacity(seats));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_samples_have_more_weight() {
        let mut usage = Utilization::new(SEATS);
        usage.set_capacity(10);
        usage.observe_for(0, 5);
        usage.observe_for(3, 7);
        usage.observe_for(20, 1);
        let mut families = mizzen_metrics::Families::default();
        families
            .histogram("x", "X.")
            .add_histogram(&[("a", "b")], &usage.histogram);
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
