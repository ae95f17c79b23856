//! How large, or how long, was what was observed? Counted by upper bounds.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// How many of what was observed were not more than each of some bounds.
pub struct Histogram {
    bounds: &'static [f64],
    buckets: Vec<u64>,
    count: u64,
    sum: f64,
}

impl Histogram {
    /// Buckets with these upper bounds, in order.
    pub fn new(bounds: &'static [f64]) -> Histogram {
        Histogram {
            bounds,
            buckets: vec![0; bounds.len()],
            count: 0,
            sum: 0.0,
        }
    }

    /// Something of this size.
    pub fn observe(&mut self, size: f64) {
        self.observe_times(size, 1);
    }

    /// The same was observed so many times.
    pub fn observe_times(&mut self, size: f64, times: u64) {
        self.count += times;
        self.sum += size * times as f64;
        if let Some(bucket) = self.bounds.iter().position(|bound| size <= *bound) {
            self.buckets[bucket] += times;
        }
    }

    /// How many were observed.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether nothing was observed yet.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Writes it in Prometheus' text form. `labels` may be empty.
    pub fn write(&self, out: &mut String, name: &str, labels: &str) {
        let comma = if labels.is_empty() { "" } else { "," };
        let mut below = 0;
        for (bound, count) in self.bounds.iter().zip(&self.buckets) {
            below += count;
            let _ = writeln!(
                out,
                "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {below}"
            );
        }
        let Histogram { count, sum, .. } = self;
        let _ = writeln!(out, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {count}");
        let labels = if labels.is_empty() {
            String::new()
        } else {
            format!("{{{labels}}}")
        };
        let _ = writeln!(
            out,
            "{name}_sum{labels} {sum}\n{name}_count{labels} {count}"
        );
    }
}

/// Durations, counted without a lock by many at a time.
///
/// Invariant: observing allocates nothing and waits for nobody.
#[derive(Debug)]
pub struct Timings {
    bounds: &'static [f64],
    /// One for each bound, and one for what is above all of them.
    buckets: Box<[AtomicU64]>,
    nanos: AtomicU64,
}

impl Timings {
    /// Buckets with these upper bounds in seconds, in order.
    pub fn new(bounds: &'static [f64]) -> Timings {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::default()).collect();
        Timings {
            bounds,
            buckets,
            nanos: AtomicU64::default(),
        }
    }

    /// Something took so long.
    pub fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = self
            .bounds
            .iter()
            .position(|bound| seconds <= *bound)
            .unwrap_or(self.bounds.len());
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.nanos
            .fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// How many were observed.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Relaxed)).sum()
    }

    /// Writes them in Prometheus' text form, if there are any.
    pub fn write(&self, out: &mut String, name: &str, labels: &str) {
        let mut buckets: Vec<u64> = self
            .buckets
            .iter()
            .map(|bucket| bucket.load(Relaxed))
            .collect();
        let count = buckets.iter().sum();
        buckets.pop();
        let sum = self.nanos.load(Relaxed) as f64 / 1e9;
        if count > 0 {
            Histogram {
                bounds: self.bounds,
                buckets,
                count,
                sum,
            }
            .write(out, name, labels);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_by_their_bounds() {
        let timings = Timings::new(&[0.5, 1.0]);
        let mut out = String::new();
        timings.write(&mut out, "x", "");
        assert_eq!(out, "");
        [500, 501, 2_000]
            .into_iter()
            .for_each(|millis| timings.observe(Duration::from_millis(millis)));
        timings.write(&mut out, "x", "");
        assert_eq!(timings.count(), 3);
        assert_eq!(
            out,
            "x_bucket{le=\"0.5\"} 1\nx_bucket{le=\"1\"} 2\nx_bucket{le=\"+Inf\"} 3\nx_sum 3.001\nx_count 3\n"
        );
    }
}
