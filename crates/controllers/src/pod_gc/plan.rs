//! Decides which pods are collected. Pure.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mizzen_component_helpers::pod_state::is_terminal;
use mizzen_object::condition::{is_true, updated};
use mizzen_sdk::{Object, condition};
use mizzen_value::{Value, value};
use tokio::time::Instant;

/// How long a node must be missing before its pods are deleted: the cache may be stale.
const QUARANTINE: Duration = Duration::from_secs(40);
/// The out-of-service taint: an administrator declares a node as shut down.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Whether a phase counts as terminated.
pub(super) fn is_end(phase: &str) -> bool {
    !matches!(phase, "Pending" | "Running" | "Unknown")
}

/// Terminated pods beyond `threshold`: evicted ones first, then the oldest.
pub(super) fn over_threshold(mut ended: Vec<Arc<Object>>, threshold: usize) -> Vec<Arc<Object>> {
    let n_gone = ended.len().saturating_sub(threshold);
    if n_gone > 0 {
        ended.sort_by_cached_key(|pod| {
            let status = &pod["status"];
            let is_evicted =
                status["phase"].str() == "Failed" && status["reason"].str() == "Evicted";
            (!is_evicted, pod.created(), pod.name().to_string())
        });
    }
    ended.truncate(n_gone);
    ended
}

/// Whether a terminating pod has no kubelet: it has no node, or its node is out of service.
pub(super) fn is_stuck(pod: &Object, node: Option<&Object>) -> bool {
    let is_out_of_service = |node: &Object| {
        let mut taints = node["spec"]["taints"].list().iter();
        !is_true(&node["status"]["conditions"], "Ready")
            && taints.any(|taint| taint["key"].str() == OUT_OF_SERVICE)
    };
    pod["spec"]["nodeName"].str().is_empty() || node.is_some_and(is_out_of_service)
}

/// Missing nodes that pods refer to, and since when.
#[derive(Default)]
pub(super) struct Quarantine(HashMap<String, Instant>);

impl Quarantine {
    /// Updates the missing nodes. Returns those that have been missing for long enough; their time
    /// starts anew.
    pub(super) fn update<'a>(
        &mut self,
        missing: impl Iterator<Item = &'a str>,
        now: Instant,
    ) -> Vec<String> {
        let known = std::mem::take(&mut self.0);
        let since = |node: &str| known.get(node).copied().unwrap_or(now);
        let (due, waiting): (Vec<_>, Vec<_>) = missing
            .map(|node| (node.to_string(), since(node)))
            .partition(|(_, since)| now - *since >= QUARANTINE);
        self.0 = waiting.into_iter().collect();
        due.into_iter().map(|(node, _)| node).collect()
    }
}

/// The status patch that sets the phase to Failed; none if the pod has finished. An orphan also
/// gets the DisruptionTarget condition.
pub(super) fn failed_status(pod: &Object, is_orphan: bool, now: &str) -> Option<Value> {
    if is_terminal(pod) {
        return None;
    }
    let generation = pod.at("metadata.generation").int();
    let disruption = is_orphan
        .then(|| disruption(pod, generation, now))
        .flatten();
    let mut status = match disruption {
        Some(condition) => condition::added(pod, condition),
        None => value!({}),
    };
    status.set("phase", "Failed");
    status.set("observedGeneration", generation);
    Some(value!({"metadata": {"uid": (pod.uid())}, "status": status}))
}

fn disruption(pod: &Object, generation: i64, now: &str) -> Option<Value> {
    let condition = value!({
        "type": "DisruptionTarget",
        "observedGeneration": generation,
        "status": "True",
        "reason": "DeletionByPodGC",
        "message": "PodGC: node no longer exists",
        "lastTransitionTime": now,
    });
    updated(&pod["status"]["conditions"], condition)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, created: i64, reason: &str) -> Arc<Object> {
        let created = mizzen_value::time::from_unix(created);
        Arc::new(Object(value!({
            "metadata": {"name": name, "creationTimestamp": created, "uid": "u", "generation": 2i64},
            "status": {"phase": "Failed", "reason": reason},
        })))
    }

    #[track_caller]
    fn check_beyond(threshold: usize, expect: &[&str]) {
        let pods = vec![
            pod("c", 5, ""),
            pod("b", 5, ""),
            pod("a", 9, ""),
            pod("d", 10, "Evicted"),
        ];
        let gone = over_threshold(pods, threshold);
        assert_eq!(
            gone.iter().map(|pod| pod.name()).collect::<Vec<_>>(),
            expect
        );
    }

    #[test]
    fn evicted_pods_are_collected_first_and_then_the_oldest() {
        check_beyond(4, &[]);
        check_beyond(3, &["d"]);
        check_beyond(1, &["d", "b", "c"]);
    }

    fn node(ready: &str, taint: &str) -> Object {
        Object(value!({
            "spec": {"taints": [{"key": taint}]},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }))
    }

    #[test]
    fn a_terminating_pod_is_stuck_without_a_node_or_out_of_service() {
        let on = |node: &str| Object(value!({"spec": {"nodeName": node}}));
        assert!(is_stuck(&on(""), None) && !is_stuck(&on("n"), None));
        assert!(is_stuck(&on("n"), Some(&node("Unknown", OUT_OF_SERVICE))));
        assert!(!is_stuck(&on("n"), Some(&node("True", OUT_OF_SERVICE))));
        assert!(!is_stuck(&on("n"), Some(&node("Unknown", "other"))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_must_be_missing_for_the_quarantine() {
        let (mut quarantine, begin) = (Quarantine::default(), Instant::now());
        let mut pass = |missing: &str, seconds| {
            quarantine
                .update(
                    missing.split_whitespace(),
                    begin + Duration::from_secs(seconds),
                )
                .join(" ")
        };
        assert_eq!(pass("a b", 0), "");
        assert_eq!(pass("a", 39), "");
        assert_eq!(pass("a b", 40), "a");
        assert_eq!(pass("a b", 79), "");
        assert_eq!(pass("b", 80), "b");
    }

    #[test]
    fn a_pod_that_has_not_finished_is_failed_before_its_deletion() {
        let mut running = (*pod("a", 0, "")).clone();
        running.entry("status").set("phase", "Running");
        let plain = value!({"metadata": {"uid": "u"}, "status": {"phase": "Failed", "observedGeneration": 2i64}});
        assert_eq!(failed_status(&running, false, "now"), Some(plain));
        assert_eq!(failed_status(&pod("a", 0, ""), true, "now"), None);
        let orphan = failed_status(&running, true, "now").expect("a change");
        let condition = &orphan["status"]["conditions"][0];
        assert_eq!(
            (
                condition["reason"].str(),
                condition["lastTransitionTime"].str()
            ),
            ("DeletionByPodGC", "now")
        );
    }

    #[test]
    fn unknown_phases_count_as_terminated() {
        assert_eq!(
            ["Pending", "Running", "Unknown", "Succeeded", "Failed"].map(is_end),
            [false, false, false, true, true]
        );
    }
}
