//! Which pods end when, and how long they get. Pure.
//!
//! Kubernetes: pkg/kubelet/nodeshutdown/nodeshutdown_manager.go.

use std::time::Duration;

use mizzen_sdk::{Key, Object};
use mizzen_value::{Str, Value};

use crate::moment::seconds;

/// Kubernetes: the priority from which pods are critical (`SystemCriticalPriority`).
const CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// How long the pods of a priority get to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShutdownGracePeriod {
    /// Pods of this priority and of those up to the next period.
    pub priority: i32,
    /// The grace period, in seconds.
    pub seconds: u32,
}

/// The pods that end together.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ShutdownGroup {
    pub priority: i32,
    /// How long their end is awaited.
    pub period: Duration,
    pub pods: Vec<PodShutdown>,
}

/// A pod that ends because the node shuts down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodShutdown {
    pub key: Key,
    pub uid: Str,
    pub grace: Duration,
}

/// The grace periods of `total` for all pods, of which the last `critical` is for critical pods; or
/// those `by_priority`. Sorted; none if the node does not wait for its pods.
pub fn shutdown_grace_periods(
    total: Duration,
    critical: Duration,
    by_priority: Vec<ShutdownGracePeriod>,
) -> Result<Vec<ShutdownGracePeriod>, String> {
    if critical > total {
        return Err(format!(
            "the grace period of critical pods, {critical:?}, must be at most that of all pods, {total:?}"
        ));
    }
    for period in [total, critical] {
        if !period.is_zero() && period < Duration::from_secs(1) {
            return Err(format!(
                "a grace period must be 0s or at least 1s, and not {period:?}"
            ));
        }
    }
    if !by_priority.is_empty() {
        return match total.is_zero() {
            true => sorted(by_priority),
            false => Err("grace periods by priority exclude one of all pods".into()),
        };
    }
    if total.is_zero() {
        return Ok(Vec::new());
    }
    let period = |priority: i32, period: Duration| ShutdownGracePeriod {
        priority,
        seconds: u32::try_from(period.as_secs()).unwrap_or(u32::MAX),
    };
    Ok(vec![
        period(0, total - critical),
        period(CRITICAL_PRIORITY, critical),
    ])
}

fn sorted(mut periods: Vec<ShutdownGracePeriod>) -> Result<Vec<ShutdownGracePeriod>, String> {
    periods.sort_by_key(|period| period.priority);
    let mut pairs = periods.windows(2);
    match pairs.find(|pair| pair[0].priority == pair[1].priority) {
        Some(pair) => Err(format!(
            "the priority {} has two grace periods",
            pair[0].priority
        )),
        None => Ok(periods),
    }
}

/// Parses `0:60,1000:30`: grace periods in seconds by priority.
pub fn parse_shutdown_grace_periods(text: &str) -> Result<Vec<ShutdownGracePeriod>, String> {
    let parts = text.split(',').filter(|part| !part.is_empty());
    let parse = |part: &str| {
        let (priority, seconds) = part.split_once(':')?;
        Some(ShutdownGracePeriod {
            priority: priority.parse().ok()?,
            seconds: seconds.parse().ok()?,
        })
    };
    parts
        .map(|part| parse(part).ok_or_else(|| format!("{part:?} is not PRIORITY:SECONDS")))
        .collect()
}

/// How long a shutdown has to be delayed for these periods.
pub(super) fn delay(periods: &[ShutdownGracePeriod]) -> Duration {
    periods
        .iter()
        .map(|period| Duration::from_secs(period.seconds.into()))
        .sum()
}

/// The pods by the period of their priority, in the order in which they end: low priorities first.
/// `periods` are sorted.
pub(super) fn groups(periods: &[ShutdownGracePeriod], pods: &[Object]) -> Vec<ShutdownGroup> {
    let mut groups: Vec<ShutdownGroup> = periods
        .iter()
        .map(|period| ShutdownGroup {
            priority: period.priority,
            period: Duration::from_secs(period.seconds.into()),
            pods: Vec::new(),
        })
        .collect();
    for pod in pods {
        let priority = pod["spec"]["priority"].int();
        // A priority between two periods belongs to the lower one, one below all to the lowest.
        let n_at_most = periods.partition_point(|period| i64::from(period.priority) <= priority);
        if let Some(group) = groups.get_mut(n_at_most.saturating_sub(1)) {
            group.pods.push(PodShutdown {
                key: Key::new(pod.namespace(), pod.name()),
                uid: pod.uid().into(),
                grace: grace(pod, group.period),
            });
        }
    }
    groups.retain(|group| !group.pods.is_empty());
    groups
}

/// The grace period of a pod: its own one, within that of its group.
fn grace(pod: &Value, period: Duration) -> Duration {
    match &pod["spec"]["terminationGracePeriodSeconds"] {
        Value::Null => period,
        own => seconds(own).min(period),
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::json;

    use super::*;

    /// The pods of each group: its priority, its period, and the pods with their grace periods.
    #[track_caller]
    fn check(periods: &str, pods: &[(&str, Option<i64>, Option<i64>)], expected: &[&str]) {
        let periods = parse_shutdown_grace_periods(periods).unwrap();
        let periods = shutdown_grace_periods(Duration::ZERO, Duration::ZERO, periods).unwrap();
        let pods: Vec<Object> = pods
            .iter()
            .map(|(name, priority, grace)| {
                let or_null = |n: &Option<i64>| n.map_or("null".into(), |n| n.to_string());
                let text = format!(
                    r#"{{"metadata":{{"name":"{name}","namespace":"x","uid":"{name}"}},
                        "spec":{{"priority":{},"terminationGracePeriodSeconds":{}}}}}"#,
                    or_null(priority),
                    or_null(grace)
                );
                Object(json::parse(text.as_bytes()).unwrap())
            })
            .collect();
        let shown: Vec<String> = groups(&periods, &pods)
            .iter()
            .map(|group| {
                let pods = group.pods.iter();
                let pods = pods.map(|pod| format!(" {}={:?}", pod.uid, pod.grace));
                let pods: String = pods.collect();
                format!("{} {:?}:{pods}", group.priority, group.period)
            })
            .collect();
        assert_eq!(shown, expected, "{periods:?}");
    }

    #[test]
    fn pods_end_by_priority_within_their_own_and_their_group_s_grace_period() {
        let pods = [
            ("critical", Some(2_000_001_000), Some(30)),
            ("usual", None, Some(30)),
            ("short", Some(0), Some(5)),
            ("endless", Some(0), None),
            ("batch", Some(-10), Some(0)),
            ("between", Some(1999), Some(100)),
            ("exact", Some(1000), Some(100)),
        ];
        check(
            "1000:40,2000000000:10,0:20",
            &pods,
            &[
                "0 20s: usual=20s short=5s endless=20s batch=0ns",
                "1000 40s: between=40s exact=40s",
                "2000000000 10s: critical=10s",
            ],
        );
    }

    #[test]
    fn a_group_without_pods_is_left_out() {
        check(
            "0:20,1000:40",
            &[("a", Some(1000), Some(1))],
            &["1000 40s: a=1s"],
        );
        check(
            "0:20,1000:40",
            &[("a", Some(999), Some(1))],
            &["0 20s: a=1s"],
        );
        check(
            "10:20,1000:40",
            &[("a", Some(1), Some(1))],
            &["10 20s: a=1s"],
        );
        check("0:20", &[], &[]);
        check("", &[("a", None, None)], &[]);
    }

    #[track_caller]
    fn check_periods(total: u64, critical: u64, by_priority: &str, expected: &str) {
        let by_priority = parse_shutdown_grace_periods(by_priority).unwrap();
        let millis = Duration::from_millis;
        let shown = match shutdown_grace_periods(millis(total), millis(critical), by_priority) {
            Ok(periods) => {
                let shown = periods.iter();
                let shown = shown.map(|period| format!("{}:{}", period.priority, period.seconds));
                let shown: Vec<String> = shown.collect();
                format!("{} in {:?}", shown.join(","), delay(&periods))
            }
            Err(error) => error,
        };
        assert!(shown.contains(expected), "{shown}");
    }

    #[test]
    fn a_grace_period_of_critical_pods_is_the_end_of_that_of_all_pods() {
        check_periods(30_000, 10_000, "", "0:20,2000000000:10 in 30s");
        check_periods(30_000, 0, "", "0:30,2000000000:0 in 30s");
        check_periods(10_000, 10_000, "", "0:0,2000000000:10 in 10s");
        check_periods(0, 0, "", " in 0ns");
        check_periods(0, 0, "5:7,-3:1", "-3:1,5:7 in 8s");
    }

    #[test]
    fn grace_periods_that_cannot_be_are_refused() {
        check_periods(
            10_000,
            30_000,
            "",
            "30s, must be at most that of all pods, 10s",
        );
        check_periods(500, 0, "", "0s or at least 1s, and not 500ms");
        check_periods(5_000, 500, "", "0s or at least 1s, and not 500ms");
        check_periods(5_000, 0, "0:5", "exclude one of all pods");
        check_periods(0, 0, "1:5,1:6", "the priority 1 has two grace periods");
        for text in ["5", "a:5", "5:-1", "5:1s", "99999999999:1"] {
            let error = parse_shutdown_grace_periods(text).unwrap_err();
            assert!(error.contains("is not PRIORITY:SECONDS"), "{error}");
        }
    }
}
