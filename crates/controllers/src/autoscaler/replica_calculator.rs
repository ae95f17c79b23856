//! The replica calculator: how many replicas bring a metric to its target.
//!
//! Kubernetes: replica_calculator.go.

use std::collections::BTreeMap;

use mizzen_value::Value;
use mizzen_value::quantity::Quantity;

use super::group_pods::{NO_PODS, PodGroups, group_pods, pod_request};
use super::pod_metrics::{PodMetric, PodMetrics};

/// The default tolerance.
const TOLERANCE: f64 = 0.1;
const MAX_REPLICAS: f64 = i32::MAX as f64;

/// The tolerated deviation from the target ratio, for each direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Tolerances {
    up: f64,
    down: f64,
}

impl Tolerances {
    /// The tolerances of an autoscaler.
    pub(super) fn from_autoscaler(autoscaler: &Value) -> Tolerances {
        let behaviour = &autoscaler["spec"]["behavior"];
        let specified = |direction: &str| match &behaviour[direction]["tolerance"] {
            Value::String(text) => Quantity::parse_or_zero(text).as_f64(),
            number => number.as_f64().unwrap_or(TOLERANCE),
        };
        Tolerances {
            up: specified("scaleUp"),
            down: specified("scaleDown"),
        }
    }

    fn covers(self, ratio: f64) -> bool {
        1.0 - self.down <= ratio && ratio <= 1.0 + self.up
    }
}

/// The target of a metric that is measured for each pod.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MetricTarget<'a> {
    /// A percentage of the requests of all containers, or of one.
    Utilization { percent: i64, container: &'a str },
    /// An average value in milli-units.
    Usage(i64),
}

/// Pods and their metrics.
pub(crate) struct MeasuredPods<'a> {
    pub pods: &'a [&'a Value],
    pub samples: PodMetrics,
    /// The resource; empty for custom metrics.
    pub resource: &'a str,
    /// `spec.replicas` of the scale.
    pub current: i64,
    pub tolerances: Tolerances,
    /// The wall clock, in seconds since 1970.
    pub now: i64,
}

/// The calculated replicas and the usage that they follow from.
#[derive(Debug, PartialEq)]
pub(crate) struct CalculatedReplicas {
    pub replicas: i64,
    /// The average usage of a pod, in milli-units.
    pub usage: i64,
    /// The average usage as a percentage of the requests.
    pub utilization: Option<i64>,
}

/// The ratio of usage to target.
struct UsageRatio {
    ratio: f64,
    usage: i64,
    utilization: Option<i64>,
}

impl MeasuredPods<'_> {
    /// Calculates the replicas that bring the pods to `target`.
    pub(super) fn replicas(mut self, target: MetricTarget) -> Result<CalculatedReplicas, String> {
        if self.pods.is_empty() {
            return Err(NO_PODS.into());
        }
        let groups = group_pods(self.pods, &self.samples, self.resource == "cpu", self.now);
        self.samples.retain(|name, _| {
            !groups.ignored.contains(name.as_str()) && !groups.unready.contains(name.as_str())
        });
        if self.samples.is_empty() {
            return Err("did not receive metrics for targeted pods (pods might be unready)".into());
        }
        let requests = self.requests(target)?;
        let first = usage_ratio(&self.samples, target, &requests)?;
        let replicas = self.decide(target, &requests, &groups, first.ratio)?;
        Ok(CalculatedReplicas {
            replicas,
            usage: first.usage,
            utilization: first.utilization,
        })
    }

    fn requests(&self, target: MetricTarget) -> Result<BTreeMap<String, i64>, String> {
        let MetricTarget::Utilization { container, .. } = target else {
            return Ok(BTreeMap::new());
        };
        let of = |pod: &&Value| {
            Ok((
                pod["metadata"]["name"].str().into(),
                pod_request(pod, container, self.resource)?,
            ))
        };
        self.pods.iter().map(of).collect()
    }

    fn decide(
        &mut self,
        target: MetricTarget,
        requests: &BTreeMap<String, i64>,
        groups: &PodGroups,
        ratio: f64,
    ) -> Result<i64, String> {
        let grows_with_unready = !groups.unready.is_empty() && ratio > 1.0;
        if !grows_with_unready && groups.missing.is_empty() {
            return Ok(match self.tolerances.covers(ratio) {
                true => self.current,
                false => ceil(ratio * groups.n_ready as f64),
            });
        }
        self.assume_missing_metrics(target, requests, groups, ratio);
        let new = usage_ratio(&self.samples, target, requests)?.ratio;
        let turned = (ratio < 1.0 && new > 1.0) || (ratio > 1.0 && new < 1.0);
        if self.tolerances.covers(new) || turned {
            return Ok(self.current);
        }
        let replicas = ceil(new * self.samples.len() as f64);
        let against =
            (new < 1.0 && replicas > self.current) || (new > 1.0 && replicas < self.current);
        Ok(if against { self.current } else { replicas })
    }

    /// Fills in missing metrics conservatively: pods without metrics are assumed not to need the
    /// change that the measured pods ask for.
    fn assume_missing_metrics(
        &mut self,
        target: MetricTarget,
        requests: &BTreeMap<String, i64>,
        groups: &PodGroups,
        ratio: f64,
    ) {
        let full = |name: &str| match target {
            MetricTarget::Usage(usage) => usage,
            MetricTarget::Utilization { percent, .. } => {
                requests.get(name).copied().unwrap_or_default() * percent.max(100) / 100
            }
        };
        let mut assumed = |name: &str, value: i64| {
            self.samples.insert(
                name.into(),
                PodMetric {
                    value,
                    ..PodMetric::default()
                },
            );
        };
        for name in &groups.missing {
            if ratio < 1.0 {
                assumed(name, full(name));
            } else if ratio > 1.0 {
                assumed(name, 0);
            }
        }
        if ratio > 1.0 {
            groups.unready.iter().for_each(|name| assumed(name, 0));
        }
    }
}

fn usage_ratio(
    samples: &PodMetrics,
    target: MetricTarget,
    requests: &BTreeMap<String, i64>,
) -> Result<UsageRatio, String> {
    match target {
        MetricTarget::Usage(target) => {
            let total: i64 = samples.values().map(|sample| sample.value).sum();
            let usage = total / samples.len() as i64;
            Ok(UsageRatio {
                ratio: usage as f64 / target as f64,
                usage,
                utilization: None,
            })
        }
        MetricTarget::Utilization { percent, .. } => {
            let matched: Vec<(i64, i64)> = samples
                .iter()
                .filter_map(|(name, sample)| Some((sample.value, *requests.get(name)?)))
                .collect();
            let used: i64 = matched.iter().map(|(used, _)| used).sum();
            let requested: i64 = matched.iter().map(|(_, requested)| requested).sum();
            if requested == 0 {
                return Err("no metrics returned matched known pods".into());
            }
            let utilization = used * 100 / requested;
            let ratio = utilization as f64 / percent as f64;
            Ok(UsageRatio {
                ratio,
                usage: used / matched.len() as i64,
                utilization: Some(utilization),
            })
        }
    }
}

/// The replicas that bring one value to its target. `n_working` is the number of ready pods.
pub(crate) fn replicas_for_value(
    current: i64,
    ratio: f64,
    tolerances: Tolerances,
    n_working: impl FnOnce() -> Result<i64, String>,
) -> Result<i64, String> {
    if current == 0 {
        return Ok(ceil(ratio));
    }
    if tolerances.covers(ratio) {
        return Ok(current);
    }
    let working =
        n_working().map_err(|error| format!("unable to calculate ready pods: {error}"))?;
    Ok(ceil(ratio * working as f64))
}

/// The replicas that bring the average of one value to its target, and the current average.
pub(crate) fn replicas_for_average(
    current: i64,
    usage: i64,
    target: i64,
    tolerances: Tolerances,
) -> (i64, i64) {
    let ratio = usage as f64 / (target as f64 * current as f64);
    let replicas = if tolerances.covers(ratio) {
        current
    } else {
        ceil(usage as f64 / target as f64)
    };
    let average = if usage == i64::MAX {
        usage
    } else {
        (usage as f64 / current as f64).ceil() as i64
    };
    (replicas, average)
}

fn ceil(replicas: f64) -> i64 {
    replicas.ceil().min(MAX_REPLICAS) as i64
}

#[cfg(test)]
mod tests {
    use mizzen_value::{time, value};

    use super::*;

    const NOW: i64 = 1_704_067_500;

    fn pod(name: &str, phase: &str) -> Value {
        let (long_ago, before) = (time::from_unix(NOW - 10_000), time::from_unix(NOW - 9_000));
        value!({
            "metadata": {"name": (name)},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
            "status": {
                "phase": (phase), "startTime": (long_ago),
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": (before)}]
            }
        })
    }

    /// Pods as letters: a digit is a running pod that uses so many hundred milli-units, `-` one
    /// without metrics, `p` a pending one.
    #[track_caller]
    fn check(pods: &str, percent: i64, expect: Result<i64, &str>) {
        let mut samples = PodMetrics::new();
        let mut all = Vec::new();
        for (at, letter) in pods.chars().enumerate() {
            let name = format!("p{at}");
            all.push(pod(
                &name,
                if letter == 'p' { "Pending" } else { "Running" },
            ));
            if let Some(digit) = letter.to_digit(10) {
                samples.insert(
                    name,
                    PodMetric {
                        value: i64::from(digit) * 100,
                        at: NOW,
                        window: 30,
                    },
                );
            }
        }
        let pods: Vec<&Value> = all.iter().collect();
        let tolerances = Tolerances::from_autoscaler(&Value::Null);
        let current = pods.len() as i64;
        let measured = MeasuredPods {
            pods: &pods,
            samples,
            resource: "cpu",
            current,
            tolerances,
            now: NOW,
        };
        let answer = measured.replicas(MetricTarget::Utilization {
            percent,
            container: "",
        });
        assert_eq!(
            answer.map(|answer| answer.replicas),
            expect.map_err(String::from)
        );
    }

    #[test]
    fn replicas_follow_utilization() {
        check("555", 50, Ok(3));
        check("999", 50, Ok(6));
        check("222", 50, Ok(2));
        check("545", 45, Ok(3)); // within the tolerance
    }

    #[test]
    fn missing_metrics_are_filled_in_conservatively() {
        check("99-", 50, Ok(4)); // 60 per cent of three: 1.2 times
        check("11-", 50, Ok(3)); // with the missing pod at 100 per cent the average is 40, not within the tolerance
        check("77-", 50, Ok(3)); // would change direction, or is within the tolerance
    }

    #[test]
    fn starting_pods_count_as_unused_when_scaling_up() {
        check("99p", 50, Ok(4));
        check("22p", 50, Ok(1));
    }

    #[test]
    fn without_pods_or_metrics_there_is_an_error() {
        check("", 50, Err(NO_PODS));
        check(
            "pp",
            50,
            Err("did not receive metrics for targeted pods (pods might be unready)"),
        );
        check(
            "--",
            50,
            Err("did not receive metrics for targeted pods (pods might be unready)"),
        );
    }

    #[test]
    fn a_value_is_divided_by_the_ready_pods() {
        let tolerances = Tolerances::from_autoscaler(&Value::Null);
        let check = |current, ratio, expect| {
            assert_eq!(
                replicas_for_value(current, ratio, tolerances, || Ok(2)),
                Ok(expect)
            )
        };
        check(3, 1.05, 3);
        check(3, 2.0, 4);
        check(0, 2.5, 3);
        check(3, 1e12, i64::from(i32::MAX));
        let none = replicas_for_value(3, 2.0, tolerances, || Err(NO_PODS.into()));
        assert_eq!(
            none,
            Err(format!("unable to calculate ready pods: {NO_PODS}"))
        );
    }

    #[test]
    fn an_average_is_brought_to_its_target() {
        let tolerances = Tolerances::from_autoscaler(&Value::Null);
        assert_eq!(
            replicas_for_average(2, 10_000, 2_000, tolerances),
            (5, 5_000)
        );
        assert_eq!(
            replicas_for_average(5, 10_100, 2_000, tolerances),
            (5, 2_020)
        );
        assert_eq!(
            replicas_for_average(2, i64::MAX, 1, tolerances),
            (i64::from(i32::MAX), i64::MAX)
        );
    }

    #[test]
    fn each_direction_may_have_its_tolerance() {
        let hpa = value!({"spec": {"behavior": {"scaleUp": {"tolerance": "50m"}, "scaleDown": {"tolerance": "0.2"}}}});
        let tolerances = Tolerances::from_autoscaler(&hpa);
        assert!(!tolerances.covers(1.06) && tolerances.covers(1.04));
        assert!(tolerances.covers(0.81) && !tolerances.covers(0.79));
    }
}
