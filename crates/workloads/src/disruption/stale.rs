//! Stale DisruptionTarget conditions: the pod was not deleted although the condition announced it.

use std::time::Duration;

use mizzen_value::{Value, time, value};

use crate::common::pod::{condition, is_terminal};

/// How long the condition may be there without a deletion, in seconds.
const TIMEOUT: i64 = 120;

/// How long the condition may still be there; none if there is none, or no limit.
pub(crate) fn remaining(pod: &Value, now: i64) -> Option<Duration> {
    let condition = condition(pod, "DisruptionTarget")?;
    let is_going = !pod["metadata"]["deletionTimestamp"].is_null();
    // A termination by the kubelet has no limit.
    let by_agent = condition["reason"].str() == "TerminationByKubelet";
    if is_going || is_terminal(pod) || by_agent || condition["status"].str() != "True" {
        return None;
    }
    let since = time::to_unix(condition["lastTransitionTime"].str()).unwrap_or_default();
    Some(Duration::from_secs((since + TIMEOUT - now).max(0) as u64))
}

/// The pod's status with the condition set to False.
pub(crate) fn without_disruption_target(pod: &Value, now: &str) -> Value {
    let mut status = pod["status"].clone();
    let conditions = status.entry("conditions").list_mut().iter_mut();
    for condition in conditions.filter(|condition| condition["type"].str() == "DisruptionTarget") {
        *condition = value!({
            "type": "DisruptionTarget",
            "status": "False",
            "lastProbeTime": null,
            "lastTransitionTime": (now)
        });
        let generation = &pod["metadata"]["generation"];
        if !generation.is_empty() {
            condition.set("observedGeneration", generation.clone());
        }
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_704_067_500;

    fn pod(change: fn(&mut Value)) -> Value {
        let mut pod = value!({
            "metadata": {"generation": 3},
            "status": {"phase": "Running", "conditions": [{
                "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
                "lastTransitionTime": (time::from_unix(NOW - 30))
            }]}
        });
        change(&mut pod);
        pod
    }

    #[track_caller]
    fn check(change: fn(&mut Value), expect: Option<u64>) {
        assert_eq!(
            remaining(&pod(change), NOW).map(|left| left.as_secs()),
            expect
        );
    }

    #[test]
    fn a_disruption_target_may_last_two_minutes() {
        check(|_| (), Some(90));
        check(
            |pod| {
                pod.entry("metadata")
                    .set("deletionTimestamp", "2024-01-01T00:00:00Z")
            },
            None,
        );
        check(|pod| pod.entry("status").set("phase", "Failed"), None);
        check(
            |pod| pod.entry("status").entry("conditions").list_mut()[0].set("status", "False"),
            None,
        );
        check(
            |pod| {
                pod.entry("status").entry("conditions").list_mut()[0]
                    .set("reason", "TerminationByKubelet")
            },
            None,
        );
        let old = |pod: &mut Value| {
            let old = time::from_unix(NOW - 500);
            pod.entry("status").entry("conditions").list_mut()[0].set("lastTransitionTime", old);
        };
        check(old, Some(0));
    }

    #[test]
    fn the_condition_becomes_false() {
        let status = without_disruption_target(&pod(|_| ()), "now");
        let expect = value!([{
            "type": "DisruptionTarget", "status": "False", "lastProbeTime": null, "lastTransitionTime": "now",
            "observedGeneration": 3
        }]);
        assert_eq!(status["conditions"], expect);
    }
}
