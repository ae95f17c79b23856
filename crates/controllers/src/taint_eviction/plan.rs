//! How long may a pod stay on a tainted node?

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use mizzen_kinds::tolerations::tolerates;
use mizzen_object::condition::updated;
use mizzen_value::{Value, value};

/// How long a pod may stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// As long as it likes.
    Stay,
    /// For some time from now.
    For(Duration),
    /// Not at all.
    Go,
}

/// What is remembered of a pod between two looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Known {
    /// It goes at this time of the monotonic clock.
    Until(Timestamp),
    /// The pod of this uid was told to go.
    Told(String),
}

/// What to do about a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Plan {
    /// Nothing, and nothing to remember.
    Forget,
    /// It was to go, and may stay.
    Cancel,
    /// Look again at this time.
    Wait(Timestamp),
    /// It goes now; `was_planned` if it was to go later.
    Evict {
        /// Whether an announcement of a later time is to be taken back first.
        was_planned: bool,
    },
    /// It was told already.
    Nothing,
}

/// Judges tolerations of a pod by the taints of its node that drive pods away.
pub(super) fn judge(tolerations: &[Value], taints: &[Value]) -> Verdict {
    let mut shortest = None::<i64>;
    for taint in taints {
        let Some(used) = tolerations
            .iter()
            .find(|toleration| tolerates(toleration, taint))
        else {
            return Verdict::Go;
        };
        if let Some(seconds) = used["tolerationSeconds"].as_int() {
            shortest = Some(shortest.map_or(seconds, |shortest| shortest.min(seconds)));
        }
    }
    match shortest {
        None => Verdict::Stay,
        Some(seconds) if seconds <= 0 => Verdict::Go,
        Some(seconds) => Verdict::For(Duration::from_secs(seconds.unsigned_abs())),
    }
}

/// Decides what to do, given what was decided before.
///
/// Kubernetes: once its time is set, another toleration that lets the pod stay for some time, longer or shorter, changes
/// nothing (taint_eviction.go).
pub(super) fn plan(known: Option<&Known>, uid: &str, verdict: Verdict, now: Timestamp) -> Plan {
    match (known, verdict) {
        (Some(Known::Told(told)), _) if told == uid => Plan::Nothing,
        (Some(Known::Until(_)), Verdict::Stay) => Plan::Cancel,
        (_, Verdict::Stay) => Plan::Forget,
        (Some(Known::Until(at)), Verdict::For(_)) if *at > now => Plan::Wait(*at),
        (Some(Known::Until(at)), Verdict::Go) => Plan::Evict {
            was_planned: *at > now,
        },
        (Some(Known::Until(_)), Verdict::For(_)) | (_, Verdict::Go) => {
            Plan::Evict { was_planned: false }
        }
        (_, Verdict::For(time)) => Plan::Wait(now.checked_add(time).unwrap_or(Timestamp::MAX)),
    }
}

/// The condition of a pod that has to go; none if it has it.
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
    fn check(tolerations: &[(&str, Option<i64>)], keys: &[&str], wanted: Verdict) {
        let tolerations: Vec<_> = tolerations
            .iter()
            .map(|(key, seconds)| toleration(key, *seconds))
            .collect();
        assert_eq!(judge(&tolerations, &taints(keys)), wanted);
    }

    #[test]
    fn the_shortest_used_toleration_counts() {
        let seconds = |seconds| Verdict::For(Duration::from_secs(seconds));
        check(&[], &[], Verdict::Stay);
        check(&[], &["a"], Verdict::Go);
        check(&[("a", None)], &["a"], Verdict::Stay);
        check(&[("a", None)], &["a", "b"], Verdict::Go);
        check(
            &[("a", Some(9)), ("b", Some(5)), ("c", Some(1))],
            &["a", "b"],
            seconds(5),
        );
        check(&[("a", Some(9)), ("b", None)], &["a", "b"], seconds(9));
        check(&[("a", Some(9)), ("a", Some(1))], &["a"], seconds(9));
        check(&[("a", Some(0))], &["a"], Verdict::Go);
        check(&[("a", Some(-1))], &["a"], Verdict::Go);
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[track_caller]
    fn check_plan(known: Option<Known>, verdict: Verdict, wanted: Plan) {
        assert_eq!(plan(known.as_ref(), "uid", verdict, at(100)), wanted);
    }

    #[test]
    fn a_time_once_set_stands_until_it_is_taken_back() {
        let some_time = Verdict::For(Duration::from_secs(10));
        check_plan(None, some_time, Plan::Wait(at(110)));
        check_plan(Some(Known::Until(at(103))), some_time, Plan::Wait(at(103)));
        check_plan(
            Some(Known::Until(at(100))),
            some_time,
            Plan::Evict { was_planned: false },
        );
        check_plan(Some(Known::Until(at(103))), Verdict::Stay, Plan::Cancel);
        check_plan(
            Some(Known::Until(at(103))),
            Verdict::Go,
            Plan::Evict { was_planned: true },
        );
        check_plan(None, Verdict::Stay, Plan::Forget);
    }

    #[test]
    fn a_pod_is_told_once() {
        check_plan(Some(Known::Told("uid".into())), Verdict::Go, Plan::Nothing);
        check_plan(
            Some(Known::Told("of its namesake".into())),
            Verdict::Go,
            Plan::Evict { was_planned: false },
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
