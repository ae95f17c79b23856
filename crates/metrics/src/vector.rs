//! Families with labels, counted by many tasks. Go: `CounterVec`, `GaugeVec`, `HistogramVec`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::{Collector, Families, Histogram, MetricFamily};

/// The values of a series' labels.
type Values<const N: usize> = [Cow<'static, str>; N];

/// The name, help text and labels of a family.
#[derive(Debug, Clone, Copy)]
struct Description<const N: usize> {
    name: &'static str,
    help: &'static str,
    labels: [&'static str; N],
}

impl<const N: usize> Description<N> {
    fn pairs<'a>(&self, values: &'a Values<N>) -> [(&'static str, &'a str); N] {
        std::array::from_fn(|at| (self.labels[at], &*values[at]))
    }
}

/// A counter, with a series per combination of label values.
///
/// ```
/// use mizzen_metrics::{CounterVec, Families};
///
/// let finished = CounterVec::new("job_controller_jobs_finished_total", "Jobs.", ["result"]);
/// finished.add(["succeeded".into()], 2);
/// assert!(Families::of(&[&finished]).to_string().ends_with("{result=\"succeeded\"} 2\n"));
/// ```
#[derive(Debug)]
pub struct CounterVec<const N: usize> {
    description: Description<N>,
    series: Mutex<BTreeMap<Values<N>, u64>>,
}

impl<const N: usize> CounterVec<N> {
    /// A counter with these labels and without series.
    pub const fn new(name: &'static str, help: &'static str, labels: [&'static str; N]) -> Self {
        CounterVec {
            description: Description { name, help, labels },
            series: Mutex::new(BTreeMap::new()),
        }
    }

    /// Adds to the series with these label values.
    pub fn add(&self, values: [Cow<'static, str>; N], n: u64) {
        *self.series.lock().entry(values).or_default() += n;
    }
}

impl<const N: usize> Collector for CounterVec<N> {
    fn collect(&self, families: &mut Families) {
        let family = families.counter(self.description.name, self.description.help);
        for (values, n) in &*self.series.lock() {
            family.add(&self.description.pairs(values), *n);
        }
    }
}

/// A gauge, with a series per combination of label values.
#[derive(Debug)]
pub struct GaugeVec<const N: usize> {
    description: Description<N>,
    series: Mutex<BTreeMap<Values<N>, f64>>,
}

impl<const N: usize> GaugeVec<N> {
    /// A gauge with these labels and without series.
    pub const fn new(name: &'static str, help: &'static str, labels: [&'static str; N]) -> Self {
        GaugeVec {
            description: Description { name, help, labels },
            series: Mutex::new(BTreeMap::new()),
        }
    }

    /// Sets the series with these label values.
    pub fn set(&self, values: [Cow<'static, str>; N], value: f64) {
        self.series.lock().insert(values, value);
    }

    /// The label values of all series.
    pub fn values(&self) -> Vec<[Cow<'static, str>; N]> {
        self.series.lock().keys().cloned().collect()
    }

    /// Removes the series with these label values.
    pub fn remove(&self, values: &[Cow<'static, str>; N]) {
        self.series.lock().remove(values);
    }
}

impl<const N: usize> Collector for GaugeVec<N> {
    fn collect(&self, families: &mut Families) {
        let family = families.gauge(self.description.name, self.description.help);
        for (values, value) in &*self.series.lock() {
            family.add(&self.description.pairs(values), *value);
        }
    }
}

/// A histogram, with a series per combination of label values.
#[derive(Debug)]
pub struct HistogramVec<const N: usize> {
    description: Description<N>,
    bounds: &'static [f64],
    series: Mutex<BTreeMap<Values<N>, Histogram>>,
}

impl<const N: usize> HistogramVec<N> {
    /// A histogram with these labels and upper bounds, and without series.
    pub const fn new(
        name: &'static str,
        help: &'static str,
        labels: [&'static str; N],
        bounds: &'static [f64],
    ) -> Self {
        HistogramVec {
            description: Description { name, help, labels },
            bounds,
            series: Mutex::new(BTreeMap::new()),
        }
    }

    /// Counts an observation in the series with these label values.
    pub fn observe(&self, values: [Cow<'static, str>; N], value: f64) {
        let mut series = self.series.lock();
        let histogram = series.entry(values);
        histogram
            .or_insert_with(|| Histogram::new(self.bounds))
            .observe(value);
    }

    /// Adds a counter of this name that has each series' number of observations.
    pub fn collect_counts(&self, name: &'static str, help: &'static str, families: &mut Families) {
        let family: &mut MetricFamily = families.counter(name, help);
        for (values, histogram) in &*self.series.lock() {
            family.add(&self.description.pairs(values), histogram.count());
        }
    }
}

impl<const N: usize> Collector for HistogramVec<N> {
    fn collect(&self, families: &mut Families) {
        let family = families.histogram(self.description.name, self.description.help);
        for (values, histogram) in &*self.series.lock() {
            family.add_histogram(&self.description.pairs(values), histogram);
        }
    }
}
