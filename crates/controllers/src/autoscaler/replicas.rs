//! How many replicas would bring what is measured to its target?

use std::collections::BTreeMap;

use mizzen_value::Value;
use mizzen_value::quantity::Quantity;

use super::census::{Census, NO_PODS, census, request};
use super::sample::{Sample, Samples};

/// How far from the target is near enough, where nobody says otherwise.
const TOLERANCE: f64 = 0.1;
const MAX_REPLICAS: f64 = i32::MAX as f64;

/// How far from its target something may be, up and down.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Tolerances {
    up: f64,
    down: f64,
}

impl Tolerances {
    /// What an autoscaler tolerates.
    pub(super) fn of(autoscaler: &Value) -> Tolerances {
        let behaviour = &autoscaler["spec"]["behavior"];
        let said = |direction: &str| match &behaviour[direction]["tolerance"] {
            Value::String(text) => Quantity::of(text).as_f64(),
            number => number.as_f64().unwrap_or(TOLERANCE),
        };
        Tolerances {
            up: said("scaleUp"),
            down: said("scaleDown"),
        }
    }

    fn covers(self, ratio: f64) -> bool {
        1.0 - self.down <= ratio && ratio <= 1.0 + self.up
    }
}

/// What pods are measured by.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target<'a> {
    /// So many per cent of what they ask for; of one container, or of all.
    Utilization { percent: i64, container: &'a str },
    /// So many thousandths each.
    Usage(i64),
}

/// What is known of pods that are measured.
pub(crate) struct Measured<'a> {
    /// The pods.
    pub pods: &'a [&'a Value],
    /// Their measurements.
    pub samples: Samples,
    /// Of which resource; empty for metrics of other kinds.
    pub resource: &'a str,
    /// How many replicas there should be now.
    pub current: i64,
    /// How far from the target is near enough.
    pub tolerances: Tolerances,
    /// The time of day in seconds since 1970.
    pub now: i64,
}

/// How many replicas there should be, and why.
#[derive(Debug, PartialEq)]
pub(crate) struct Answer {
    /// How many.
    pub replicas: i64,
    /// How much a pod uses, in thousandths.
    pub usage: i64,
    /// How many per cent that is of what it asks for.
    pub utilization: Option<i64>,
}

/// How near pods are to their target.
struct Nearness {
    ratio: f64,
    usage: i64,
    utilization: Option<i64>,
}

impl Measured<'_> {
    /// How many replicas would bring pods to their target.
    pub(super) fn replicas(mut self, target: Target) -> Result<Answer, String> {
        if self.pods.is_empty() {
            return Err(NO_PODS.into());
        }
        let census = census(self.pods, &self.samples, self.resource == "cpu", self.now);
        self.samples.retain(|name, _| {
            !census.ignored.contains(name.as_str()) && !census.unready.contains(name.as_str())
        });
        if self.samples.is_empty() {
            return Err("did not receive metrics for targeted pods (pods might be unready)".into());
        }
        let requests = self.requests(target)?;
        let first = nearness(&self.samples, target, &requests)?;
        let replicas = self.decide(target, &requests, &census, first.ratio)?;
        Ok(Answer {
            replicas,
            usage: first.usage,
            utilization: first.utilization,
        })
    }

    fn requests(&self, target: Target) -> Result<BTreeMap<String, i64>, String> {
        let Target::Utilization { container, .. } = target else {
            return Ok(BTreeMap::new());
        };
        let of = |pod: &&Value| {
            Ok((
                pod["metadata"]["name"].str().into(),
                request(pod, container, self.resource)?,
            ))
        };
        self.pods.iter().map(of).collect()
    }

    fn decide(
        &mut self,
        target: Target,
        requests: &BTreeMap<String, i64>,
        census: &Census,
        ratio: f64,
    ) -> Result<i64, String> {
        let grows_with_unready = !census.unready.is_empty() && ratio > 1.0;
        if !grows_with_unready && census.missing.is_empty() {
            return Ok(match self.tolerances.covers(ratio) {
                true => self.current,
                false => ceil(ratio * census.n_ready as f64),
            });
        }
        self.assume(target, requests, census, ratio);
        let new = nearness(&self.samples, target, requests)?.ratio;
        let turned = (ratio < 1.0 && new > 1.0) || (ratio > 1.0 && new < 1.0);
        if self.tolerances.covers(new) || turned {
            return Ok(self.current);
        }
        let replicas = ceil(new * self.samples.len() as f64);
        let against =
            (new < 1.0 && replicas > self.current) || (new > 1.0 && replicas < self.current);
        Ok(if against { self.current } else { replicas })
    }

    /// Assumes the best of pods of which nothing is known: that they need no change in the direction in which the others
    /// lead.
    fn assume(
        &mut self,
        target: Target,
        requests: &BTreeMap<String, i64>,
        census: &Census,
        ratio: f64,
    ) {
        let full = |name: &str| match target {
            Target::Usage(usage) => usage,
            Target::Utilization { percent, .. } => {
                requests.get(name).copied().unwrap_or_default() * percent.max(100) / 100
            }
        };
        let mut assumed = |name: &str, value: i64| {
            self.samples.insert(
                name.into(),
                Sample {
                    value,
                    ..Sample::default()
                },
            );
        };
        for name in &census.missing {
            if ratio < 1.0 {
                assumed(name, full(name));
            } else if ratio > 1.0 {
                assumed(name, 0);
            }
        }
        if ratio > 1.0 {
            census.unready.iter().for_each(|name| assumed(name, 0));
        }
    }
}

fn nearness(
    samples: &Samples,
    target: Target,
    requests: &BTreeMap<String, i64>,
) -> Result<Nearness, String> {
    match target {
        Target::Usage(target) => {
            let total: i64 = samples.values().map(|sample| sample.value).sum();
            let usage = total / samples.len() as i64;
            Ok(Nearness {
                ratio: usage as f64 / target as f64,
                usage,
                utilization: None,
            })
        }
        Target::Utilization { percent, .. } => {
            let known: Vec<(i64, i64)> = samples
                .iter()
                .filter_map(|(name, sample)| Some((sample.value, *requests.get(name)?)))
                .collect();
            let used: i64 = known.iter().map(|(used, _)| used).sum();
            let asked: i64 = known.iter().map(|(_, asked)| asked).sum();
            if asked == 0 {
                return Err("no metrics returned matched known pods".into());
            }
            let utilization = used * 100 / asked;
            let ratio = utilization as f64 / percent as f64;
            Ok(Nearness {
                ratio,
                usage: used / known.len() as i64,
                utilization: Some(utilization),
            })
        }
    }
}

/// How many replicas would bring one value to its target. `n_working` says how many pods work.
pub(crate) fn by_value(
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

/// How many replicas would bring the average of one value to its target, and what the average is now.
pub(crate) fn by_average(
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

    /// Pods as letters: a digit is a running pod that uses so many hundred thousandths, `-` one that nobody measured,
    /// `p` one that is pending.
    #[track_caller]
    fn check(pods: &str, percent: i64, expect: Result<i64, &str>) {
        let mut samples = Samples::new();
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
                    Sample {
                        value: i64::from(digit) * 100,
                        at: NOW,
                        window: 30,
                    },
                );
            }
        }
        let pods: Vec<&Value> = all.iter().collect();
        let tolerances = Tolerances::of(&Value::Null);
        let current = pods.len() as i64;
        let measured = Measured {
            pods: &pods,
            samples,
            resource: "cpu",
            current,
            tolerances,
            now: NOW,
        };
        let answer = measured.replicas(Target::Utilization {
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
        check("545", 45, Ok(3)); // near enough
    }

    #[test]
    fn of_pods_that_nobody_measured_the_best_is_assumed() {
        check("99-", 50, Ok(4)); // 60 per cent of three: 1.2 times
        check("11-", 50, Ok(3)); // with the missing one at full use it is 40 per cent, near enough it is not
        check("77-", 50, Ok(3)); // would turn, or is near enough
    }

    #[test]
    fn pods_that_start_do_not_slow_down_but_do_not_speed_up() {
        check("99p", 50, Ok(4));
        check("22p", 50, Ok(1));
    }

    #[test]
    fn without_pods_or_measurements_nothing_is_known() {
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
    fn a_value_is_shared_by_those_who_work() {
        let tolerances = Tolerances::of(&Value::Null);
        let check = |current, ratio, expect| {
            assert_eq!(by_value(current, ratio, tolerances, || Ok(2)), Ok(expect))
        };
        check(3, 1.05, 3);
        check(3, 2.0, 4);
        check(0, 2.5, 3);
        check(3, 1e12, i64::from(i32::MAX));
        let none = by_value(3, 2.0, tolerances, || Err(NO_PODS.into()));
        assert_eq!(
            none,
            Err(format!("unable to calculate ready pods: {NO_PODS}"))
        );
    }

    #[test]
    fn an_average_is_brought_to_its_target() {
        let tolerances = Tolerances::of(&Value::Null);
        assert_eq!(by_average(2, 10_000, 2_000, tolerances), (5, 5_000));
        assert_eq!(by_average(5, 10_100, 2_000, tolerances), (5, 2_020));
        assert_eq!(
            by_average(2, i64::MAX, 1, tolerances),
            (i64::from(i32::MAX), i64::MAX)
        );
    }

    #[test]
    fn each_direction_may_have_its_tolerance() {
        let hpa = value!({"spec": {"behavior": {"scaleUp": {"tolerance": "50m"}, "scaleDown": {"tolerance": "0.2"}}}});
        let tolerances = Tolerances::of(&hpa);
        assert!(!tolerances.covers(1.06) && tolerances.covers(1.04));
        assert!(tolerances.covers(0.81) && !tolerances.covers(0.79));
    }
}
