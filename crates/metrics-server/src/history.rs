//! How much is used? CPU between the last two reports of a kubelet, memory as of the last one.
//!
//! Kubernetes: metrics-server's pkg/storage/node.go, pod.go and types.go.

use std::collections::HashMap;
use std::time::Duration;

use crate::decode::{KubeletReport, MetricsPoint, PodName, PodPoints};

/// Kubernetes: a container that has started so long ago, and less than [`RESOLUTION`], is measured from its start.
const FRESH_CONTAINER: Duration = Duration::from_secs(10);
/// Kubernetes: how often metrics-server scrapes.
const RESOLUTION: Duration = Duration::from_secs(15);

/// The last two reports of a node's kubelet.
#[derive(Default)]
pub(crate) struct UsageHistory {
    last: KubeletReport,
    /// The points before those of `last`, of which each is still the same life of the same container.
    previous: KubeletReport,
}

/// What is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MeasuredUsage {
    pub nanocores: u64,
    pub memory_bytes: u64,
    /// The time of the measurement, in nanoseconds since 1970.
    pub at: i64,
    /// Over how many nanoseconds CPU was measured.
    pub window: i64,
}

/// What a pod uses.
pub(crate) struct PodMetricsUsage {
    pub containers: Vec<(String, MeasuredUsage)>,
    pub at: i64,
    pub window: i64,
}

impl UsageHistory {
    /// Adds a report.
    pub(crate) fn add(&mut self, new: KubeletReport) {
        let node = new.node.and_then(|point| {
            let (last, previous) = (self.last.node, self.previous.node);
            before(&point, last.as_ref(), previous.as_ref())
        });
        let mut pods: HashMap<PodName, PodPoints> = HashMap::new();
        for (name, containers) in &new.pods {
            let (last, previous) = (self.last.pods.get(name), self.previous.pods.get(name));
            let before = containers.iter().filter_map(|(container, point)| {
                let last = find(last, container).filter(|last| point.started < last.at);
                let before = match from_start(point) {
                    Some(start) => Some(start),
                    None => before(point, last, find(previous, container)),
                };
                Some((container.clone(), before?))
            });
            let before: PodPoints = before.collect();
            if !before.is_empty() {
                pods.insert(name.clone(), before);
            }
        }
        self.previous = KubeletReport { node, pods };
        self.last = new;
    }

    /// What the node uses, if two reports say so.
    pub(crate) fn node(&self) -> Option<MeasuredUsage> {
        usage(self.last.node.as_ref()?, self.previous.node.as_ref()?)
    }

    /// What a pod uses, if two reports have all its containers.
    pub(crate) fn pod(&self, name: &PodName) -> Option<PodMetricsUsage> {
        let last = self.last.pods.get(name)?;
        let previous = self.previous.pods.get(name);
        let mut containers = Vec::new();
        for (container, point) in last {
            let before = find(previous, container)?;
            if let Some(usage) = usage(point, before) {
                containers.push((container.clone(), usage));
            }
        }
        let earliest = containers.iter().map(|(_, usage)| usage);
        let earliest = *earliest.min_by_key(|usage| usage.at)?;
        Some(PodMetricsUsage {
            containers,
            at: earliest.at,
            window: earliest.window,
        })
    }
}

fn find<'a>(points: Option<&'a PodPoints>, container: &str) -> Option<&'a MetricsPoint> {
    let mut points = points?.iter();
    points
        .find(|(name, _)| name == container)
        .map(|(_, point)| point)
}

/// The start of a container as a point, if the container is fresh.
fn from_start(point: &MetricsPoint) -> Option<MetricsPoint> {
    let age = Duration::from_nanos(u64::try_from(point.at - point.started).ok()?);
    (FRESH_CONTAINER..RESOLUTION)
        .contains(&age)
        .then_some(MetricsPoint {
            at: point.started,
            cpu_nanos: 0,
            ..*point
        })
}

/// The point from which a new one is measured: the last one, or the one before if the new one is the last one again.
fn before(
    new: &MetricsPoint,
    last: Option<&MetricsPoint>,
    previous: Option<&MetricsPoint>,
) -> Option<MetricsPoint> {
    let last = last?;
    if new.at > last.at {
        return Some(*last);
    }
    previous.filter(|previous| previous.at < new.at).copied()
}

/// What was used between two points; none if a counter fell.
fn usage(last: &MetricsPoint, previous: &MetricsPoint) -> Option<MeasuredUsage> {
    if last.started < previous.started {
        return None;
    }
    let used = last.cpu_nanos.checked_sub(previous.cpu_nanos)?;
    let window = last.at - previous.at;
    Some(MeasuredUsage {
        nanocores: (used as f64 / (window as f64 / 1e9)) as u64,
        memory_bytes: last.memory_bytes,
        at: last.at,
        window,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn point(started: i64, at: i64, cpu_millis: u64) -> MetricsPoint {
        MetricsPoint {
            started: started * SECOND,
            at: at * SECOND,
            cpu_nanos: cpu_millis * 1_000_000,
            memory_bytes: 4096,
        }
    }

    fn name() -> PodName {
        ("default".into(), "web".into())
    }

    fn batch(containers: &[(&str, MetricsPoint)]) -> KubeletReport {
        let containers = containers.iter();
        let containers = containers.map(|(name, point)| ((*name).to_owned(), *point));
        KubeletReport {
            node: None,
            pods: HashMap::from([(name(), containers.collect())]),
        }
    }

    /// Millicores and the seconds of the window, by container, after reports.
    #[track_caller]
    fn check(reports: &[&[(&str, MetricsPoint)]], expected: Option<&[(&str, u64, i64)]>) {
        let mut history = UsageHistory::default();
        for report in reports {
            history.add(batch(report));
        }
        let found = history.pod(&name()).map(|pod| pod.containers);
        let found: Option<Vec<(&str, u64, i64)>> = found.as_ref().map(|found| {
            let row = |(name, usage): &'_ (String, MeasuredUsage)| {
                let name: &str = if name == "a" { "a" } else { "b" };
                (name, usage.nanocores / 1_000_000, usage.window / SECOND)
            };
            found.iter().map(row).collect()
        });
        assert_eq!(found.as_deref(), expected);
    }

    #[test]
    fn usage_is_what_two_reports_differ_by() {
        let (one, two) = (point(1, 100, 5000), point(1, 120, 10_000));
        check(&[&[("a", one)]], None);
        check(&[&[("a", one)], &[("a", two)]], Some(&[("a", 250, 20)]));
        // The same report again changes nothing.
        check(
            &[&[("a", one)], &[("a", two)], &[("a", two)]],
            Some(&[("a", 250, 20)]),
        );
        check(&[&[("a", one)], &[]], None);
    }

    #[test]
    fn a_fresh_container_is_measured_from_its_start() {
        check(&[&[("a", point(100, 112, 1200))]], Some(&[("a", 100, 12)]));
        check(&[&[("a", point(100, 109, 900))]], None);
        check(&[&[("a", point(100, 115, 1500))]], None);
    }

    #[test]
    fn a_container_that_was_restarted_is_measured_anew() {
        let (one, restarted) = (point(1, 100, 5000), point(101, 120, 500));
        check(&[&[("a", one)], &[("a", restarted)]], None);
        check(
            &[
                &[("a", one)],
                &[("a", restarted)],
                &[("a", point(101, 130, 1500))],
            ],
            Some(&[("a", 100, 10)]),
        );
    }

    #[test]
    fn a_pod_has_metrics_once_all_its_containers_have() {
        let (one, two) = (point(1, 100, 1000), point(1, 110, 2000));
        check(&[&[("a", one)], &[("a", two), ("b", two)]], None);
        check(
            &[&[("a", one), ("b", one)], &[("a", two), ("b", two)]],
            Some(&[("a", 100, 10), ("b", 100, 10)]),
        );
    }

    #[test]
    fn a_counter_that_fell_says_nothing() {
        let (one, fallen) = (point(1, 100, 5000), point(1, 110, 4000));
        check(&[&[("a", one)], &[("a", fallen)]], None);
        let mut history = UsageHistory::default();
        for node in [one, fallen] {
            history.add(KubeletReport {
                node: Some(node),
                ..KubeletReport::default()
            });
        }
        assert_eq!(history.node(), None);
    }
}
