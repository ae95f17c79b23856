//! How many observations were not larger than each of some bounds?

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Observations by upper bound.
#[derive(Debug, Clone, PartialEq)]
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

    /// Counts an observation.
    pub fn observe(&mut self, value: f64) {
        self.observe_times(value, 1);
    }

    /// Counts the same observation several times.
    pub fn observe_times(&mut self, value: f64, times: u64) {
        self.count += times;
        self.sum += value * times as f64;
        if let Some(bucket) = self.bounds.iter().position(|bound| value <= *bound) {
            self.buckets[bucket] += times;
        }
    }

    /// How many observations there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The sum of all observations.
    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// Whether there was none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Each bound, and how many observations were not larger.
    pub(crate) fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let counts = self.buckets.iter().scan(0, |below, count| {
            *below += count;
            Some(*below)
        });
        self.bounds.iter().copied().zip(counts)
    }

    /// Adds the observations of another histogram, if its bounds are the same.
    pub(crate) fn merge(&mut self, other: &Histogram) {
        if self.bounds == other.bounds {
            let pairs = self.buckets.iter_mut().zip(&other.buckets);
            pairs.for_each(|(bucket, more)| *bucket += more);
            self.count += other.count;
            self.sum += other.sum;
        }
    }
}

/// Durations in seconds by upper bound, counted by many threads at a time.
///
/// Invariant: observing takes no lock and allocates nothing.
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

    /// Counts a duration.
    pub fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = self.bounds.iter().position(|bound| seconds <= *bound);
        self.buckets[bucket.unwrap_or(self.bounds.len())].fetch_add(1, Relaxed);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Relaxed);
    }

    /// How many durations there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Relaxed)).sum()
    }

    /// What was counted so far.
    pub fn histogram(&self) -> Histogram {
        let mut buckets: Vec<u64> = self
            .buckets
            .iter()
            .map(|count| count.load(Relaxed))
            .collect();
        let count = buckets.iter().sum();
        buckets.pop();
        Histogram {
            bounds: self.bounds,
            buckets,
            count,
            sum: self.nanos.load(Relaxed) as f64 / 1e9,
        }
    }
}

/// How many observations there were, and their sum: a summary without quantiles.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Summary {
    /// How many observations.
    pub count: u64,
    /// Their sum.
    pub sum: f64,
}

impl Summary {
    /// Counts an observation.
    pub fn observe(&mut self, value: f64) {
        self.count += 1;
        self.sum += value;
    }
}
