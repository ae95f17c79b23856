//! How are the parts doing? In Prometheus' text form, under the names that client-go uses.
//!
//! ```
//! use mizzen_sdk::metrics;
//! use mizzen_sdk::queue::Queue;
//!
//! let (pods, nodes) = (Queue::<String>::new("pods"), Queue::<String>::new("nodes"));
//! pods.add("default/web".into());
//! let text = metrics::join([pods.metrics().to_text(), nodes.metrics().to_text()]);
//! assert!(text.contains("workqueue_depth{name=\"pods\"} 1\nworkqueue_depth{name=\"nodes\"} 0\n"));
//! ```

use std::fmt::{Display, Write};
use std::time::Duration;

/// Joins the texts of several parts, so that each metric is declared once and all its values follow.
pub fn join(texts: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let mut families: Vec<(String, String)> = Vec::new();
    for text in texts {
        let mut family = 0;
        for line in text.as_ref().lines() {
            if line.starts_with("# TYPE ") {
                family = families
                    .iter()
                    .position(|(known, _)| known == line)
                    .unwrap_or(families.len());
            }
            match families.get_mut(family) {
                None => families.push((line.into(), String::new())),
                Some((known, _)) if known == line => {}
                Some((_, values)) => values.extend([line, "\n"]),
            }
        }
    }
    families
        .into_iter()
        .map(|(family, values)| format!("{family}\n{values}"))
        .collect()
}

/// How many there were, and what they come to together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Summary {
    /// How many.
    pub count: u64,
    /// Together.
    pub sum: f64,
}

impl Summary {
    pub(crate) fn observe(&mut self, value: f64) {
        self.count += 1;
        self.sum += value;
    }
}

/// How many took how long: each bucket up to ten times the one before, from 10 ns to 1,000 s.
#[derive(Debug, Clone, Default)]
pub struct Histogram {
    buckets: [u64; 12],
    count: u64,
    sum: Duration,
}

impl Histogram {
    pub(crate) fn observe(&mut self, time: Duration) {
        let bucket = (time.as_nanos().saturating_sub(1) / 10)
            .checked_ilog10()
            .map_or(0, |log| log as usize + 1);
        if let Some(bucket) = self.buckets.get_mut(bucket) {
            *bucket += 1;
        }
        self.count += 1;
        self.sum = self.sum.saturating_add(time);
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How long they took together.
    pub fn sum(&self) -> Duration {
        self.sum
    }
}

/// The metrics of one thing as they are written: all have its name as a label.
pub(crate) struct Lines {
    text: String,
    name: String,
}

impl Lines {
    pub(crate) fn new(name: &str) -> Lines {
        let name = name
            .replace('\\', r"\\")
            .replace('"', r#"\""#)
            .replace('\n', r"\n");
        Lines {
            text: String::new(),
            name,
        }
    }

    pub(crate) fn gauge(&mut self, metric: &str, value: impl Display) {
        self.declare(metric, "gauge");
        self.value(metric, "", value);
    }

    pub(crate) fn counter(&mut self, metric: &str, value: u64) {
        self.declare(metric, "counter");
        self.value(metric, "", value);
    }

    pub(crate) fn summary(&mut self, metric: &str, summary: Summary) {
        self.declare(metric, "summary");
        self.value(&format!("{metric}_sum"), "", summary.sum);
        self.value(&format!("{metric}_count"), "", summary.count);
    }

    pub(crate) fn histogram(&mut self, metric: &str, histogram: &Histogram) {
        self.declare(metric, "histogram");
        let bucket = format!("{metric}_bucket");
        let mut below = 0;
        for (power, count) in histogram.buckets.iter().enumerate() {
            below += count;
            let limit = 10f64.powi(power as i32 - 8);
            self.value(&bucket, &format!(",le=\"{limit}\""), below);
        }
        self.value(&bucket, ",le=\"+Inf\"", histogram.count);
        self.value(&format!("{metric}_sum"), "", histogram.sum.as_secs_f64());
        self.value(&format!("{metric}_count"), "", histogram.count);
    }

    fn declare(&mut self, metric: &str, kind: &str) {
        let _ = writeln!(self.text, "# TYPE {metric} {kind}");
    }

    fn value(&mut self, metric: &str, labels: &str, value: impl Display) {
        let _ = writeln!(
            self.text,
            "{metric}{{name=\"{}\"{labels}}} {value}",
            self.name
        );
    }

    pub(crate) fn finish(self) -> String {
        self.text
    }
}
