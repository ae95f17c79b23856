//! How long a pod tolerates the taints of its node, and when it is evicted.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use mizzen_component_helpers::tolerations::tolerates;
use mizzen_object::condition::updated;
use mizzen_value::{Value, value};

/// How long a pod tolerates the taints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TolerationTime {
    Forever,
    For(Duration),
    None,
}

/// What is kept of a pod between two syncs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EvictionRecord {
    /// The eviction time, on the monotonic clock.
    Until(Timestamp),
    /// The pod of this uid was evicted.
    Evicted(String),
}

/// What to do with a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EvictionPlan {
    Forget,
    /// Cancel a planned eviction.
    Cancel,
    /// Sync again at this time.
    Wait(Timestamp),
    Evict {
        /// Whether a planned eviction is cancelled first.
        was_planned: bool,
    },
    /// It was evicted already.
    Nothing,
}

/// How long the tolerations tolerate the taints.
pub(super) fn toleration_time(tolerations: &[Value], taints: &[Value]) -> TolerationTime {
    let mut shortest = None::<i64>;
    for taint in taints {
        let Some(used) = tolerations
            .iter()
            .find(|toleration| tolerates(toleration, taint))
        else {
            return TolerationTime::None;
        };
        if let Some(seconds) = used["tolerationSeconds"].as_int() {
            shortest = Some(shortest.map_or(seconds, |shortest| shortest.min(seconds)));
        }
    }
    match shortest {
        None => TolerationTime::Forever,
        Some(seconds) if seconds <= 0 => TolerationTime::None,
        Some(seconds) => TolerationTime::For(Duration::from_secs(seconds.unsigned_abs())),
    }
}

/// Plans a pod.
///
/// Kubernetes: once the time is set, a change of tolerationSeconds does not change it
/// (taint_eviction.go).
pub(super) fn plan(
    known: Option<&EvictionRecord>,
    uid: &str,
    tolerated: TolerationTime,
    now: Timestamp,
) -> EvictionPlan {
    match (known, tolerated) {
        (Some(EvictionRecord::Evicted(evicted)), _) if evicted == uid => EvictionPlan::Nothing,
        (Some(EvictionRecord::Until(_)), TolerationTime::Forever) => EvictionPlan::Cancel,
        (_, TolerationTime::Forever) => EvictionPlan::Forget,
        (Some(EvictionRecord::Until(at)), TolerationTime::For(_)) if *at > now => {
            EvictionPlan::Wait(*at)
        }
        (Some(EvictionRecord::Until(at)), TolerationTime::None) => EvictionPlan::Evict {
            was_planned: *at > now,
        },
        (Some(EvictionRecord::Until(_)), TolerationTime::For(_)) | (_, TolerationTime::None) => {
            EvictionPlan::Evict { was_planned: false }
        }
        (_, TolerationTime::For(time)) => {
            EvictionPlan::Wait(now.checked_add(time).unwrap_or(Timestamp::MAX))
        }
    }
}

/// The DisruptionTarget condition; none if the pod has it.
pub(super) fn condition(pod: &Value, now: &str) -> Option<Value> {
    let condition = value!({
        "type": "DisruptionTarget",
        "observedGeneration": (pod["metadata"]["generation"].clone()),
        "status": "True",
        "lastProbeTime": null,
        "lastTransitionTime": now,
        "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint",
    });
    updated(&pod["status"]["conditions"], condition)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taints(keys: &[&str]) -> Vec<Value> {
        keys.iter()
            .map(|key| value!({"key": (*key), "effect": "NoExecute"}))
            .collect()
    }

    fn toleration(key: &str, seconds: Option<i64>) -> Value {
        value!({"key": key, "operator": "Exists", "tolerationSeconds": seconds})
    }

    #[track_caller]
    fn check(tolerations: &[(&str, Option<i64>)], keys: &[&str], wanted: TolerationTime) {
        let tolerations: Vec<_> = tolerations
            .iter()
            .map(|(key, seconds)| toleration(key, *seconds))
            .collect();
        assert_eq!(toleration_time(&tolerations, &taints(keys)), wanted);
    }

    #[test]
    fn the_shortest_used_toleration_counts() {
        let seconds = |seconds| TolerationTime::For(Duration::from_secs(seconds));
        check(&[], &[], TolerationTime::Forever);
        check(&[], &["a"], TolerationTime::None);
        check(&[("a", None)], &["a"], TolerationTime::Forever);
        check(&[("a", None)], &["a", "b"], TolerationTime::None);
        check(
            &[("a", Some(9)), ("b", Some(5)), ("c", Some(1))],
            &["a", "b"],
            seconds(5),
        );
        check(&[("a", Some(9)), ("b", None)], &["a", "b"], seconds(9));
        check(&[("a", Some(9)), ("a", Some(1))], &["a"], seconds(9));
        check(&[("a", Some(0))], &["a"], TolerationTime::None);
        check(&[("a", Some(-1))], &["a"], TolerationTime::None);
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[track_caller]
    fn check_plan(known: Option<EvictionRecord>, tolerated: TolerationTime, wanted: EvictionPlan) {
        assert_eq!(plan(known.as_ref(), "uid", tolerated, at(100)), wanted);
    }

    #[test]
    fn a_planned_eviction_time_stays_until_it_is_cancelled() {
        let some_time = TolerationTime::For(Duration::from_secs(10));
        check_plan(None, some_time, EvictionPlan::Wait(at(110)));
        check_plan(
            Some(EvictionRecord::Until(at(103))),
            some_time,
            EvictionPlan::Wait(at(103)),
        );
        check_plan(
            Some(EvictionRecord::Until(at(100))),
            some_time,
            EvictionPlan::Evict { was_planned: false },
        );
        check_plan(
            Some(EvictionRecord::Until(at(103))),
            TolerationTime::Forever,
            EvictionPlan::Cancel,
        );
        check_plan(
            Some(EvictionRecord::Until(at(103))),
            TolerationTime::None,
            EvictionPlan::Evict { was_planned: true },
        );
        check_plan(None, TolerationTime::Forever, EvictionPlan::Forget);
    }

    #[test]
    fn a_pod_is_evicted_once() {
        check_plan(
            Some(EvictionRecord::Evicted("uid".into())),
            TolerationTime::None,
            EvictionPlan::Nothing,
        );
        check_plan(
            Some(EvictionRecord::Evicted("of its namesake".into())),
            TolerationTime::None,
            EvictionPlan::Evict { was_planned: false },
        );
    }

    #[test]
    fn the_condition_is_set_once() {
        let pod = value!({"metadata": {"generation": 1}});
        let condition = condition(&pod, "now").unwrap();
        assert_eq!(condition["observedGeneration"].int(), 1);
        let pod = value!({"status": {"conditions": [(condition)]}});
        assert_eq!(super::condition(&pod, "later"), None);
    }
}
