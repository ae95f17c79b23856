//! Metrics in the text format of Prometheus, byte for byte as Go's client writes it.
//!
//! | part | the question it answers |
//! |---|---|
//! | [`Registry`] | Which components of this process have metrics? |
//! | [`Families`] | What does one scrape show? |
//! | [`Histogram`], [`Timings`], [`Summary`] | How are observations counted? |
//! | [`Reloads`] | Which configuration file is in effect, and how often was it reloaded? |
//! | [`CounterVec`], [`GaugeVec`], [`HistogramVec`] | How are they counted by label? |
//!
//! A component implements [`Collector`]: it counts in a way of its own and adds its series to the [`Families`] of a scrape.
//! Nothing is written before a scrape, so counting costs what the component's own counters cost.
//!
//! ```
//! use mizzen_metrics::Families;
//!
//! let mut families = Families::default();
//! let depth = families.gauge("workqueue_depth", "Keys that wait.");
//! depth.add(&[("name", "pods")], 1);
//! depth.add(&[("name", "nodes")], 0);
//! assert_eq!(
//!     families.to_string(),
//!     "# HELP workqueue_depth Keys that wait.\n# TYPE workqueue_depth gauge\n\
//!      workqueue_depth{name=\"nodes\"} 0\nworkqueue_depth{name=\"pods\"} 1\n"
//! );
//! ```
//!
//! Why not the crate `prometheus-client`: it writes OpenMetrics. Each counter gets the suffix `_total`, which many of
//! Kubernetes' counters do not have (`authentication_attempts`), its declaration never has it, and numbers are not written as
//! Go writes them. A dashboard would not find the series under its declared type.

mod families;
mod histogram;
mod identity;
mod number;
mod registry;
mod reloads;
mod vector;

pub use families::{Families, MetricFamily};
pub use histogram::{Histogram, Summary, Timings};
pub use identity::{api_server_id_hash, set_api_server_id};
pub use number::Number;
pub use registry::{Collector, Registry};
pub use reloads::{Reloads, hash};
pub use vector::{CounterVec, GaugeVec, HistogramVec};

/// The upper bounds that Go's client uses where a metric has none of its own, in seconds. Go: `prometheus.DefBuckets`.
pub const DEFAULT_BOUNDS: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// Bounds from `first` on, each `factor` times the one before. Go: `prometheus.ExponentialBuckets`.
pub const fn exponential<const N: usize>(first: f64, factor: f64) -> [f64; N] {
    let mut bounds = [first; N];
    let mut at = 1;
    while at < N {
        bounds[at] = bounds[at - 1] * factor;
        at += 1;
    }
    bounds
}
