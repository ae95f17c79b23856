//! The status of a StatefulSet: counts of pods and revisions.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use mizzen_sdk::Object;
use mizzen_value::{Value, value};

use super::pod::{self, SetRevision};
use crate::common::pod as any;

/// Counts of pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct StatefulSetCounts {
    /// Pods on the server.
    pub replicas: i64,
    /// Running and ready pods.
    pub ready: i64,
    pub available: i64,
    /// Of the current revision and not being deleted.
    pub current: i64,
    /// Of the update revision and not being deleted.
    pub updated: i64,
}

pub(super) fn count<'a>(
    set: &Object,
    pods: impl IntoIterator<Item = &'a Arc<Object>>,
    current: &SetRevision,
    update: &SetRevision,
    now: Timestamp,
) -> StatefulSetCounts {
    let min_ready = set["spec"]["minReadySeconds"].int();
    let mut counts = StatefulSetCounts::default();
    for pod in pods {
        let stays = pod::is_made(pod) && !pod.is_terminating();
        counts.replicas += i64::from(pod::is_made(pod));
        counts.ready += i64::from(pod::is_ready(pod));
        counts.available += i64::from(pod::is_ready(pod) && any::is_available(pod, min_ready, now));
        counts.current += i64::from(stays && pod::revision(pod) == current.name);
        counts.updated += i64::from(stays && pod::revision(pod) == update.name);
    }
    counts
}

/// The status to write; none if it did not change.
pub(super) fn status(
    set: &Object,
    mut counts: StatefulSetCounts,
    current: &SetRevision,
    update: &SetRevision,
    n_collisions: i64,
) -> Option<Value> {
    let mut current = current;
    if counts.is_rolled_out(set) {
        (current, counts.current) = (update, counts.updated);
    }
    let status = value!({
        "observedGeneration": (set.at("metadata.generation").int()),
        "replicas": (counts.replicas),
        "readyReplicas": (counts.ready),
        "currentReplicas": (counts.current),
        "updatedReplicas": (counts.updated),
        "currentRevision": (&current.name),
        "updateRevision": (&update.name),
        "collisionCount": n_collisions,
        "availableReplicas": (counts.available),
    });
    // Kubernetes: a new collision count alone causes no write (stateful_set_utils.go,
    // inconsistentStatus).
    let old = &set["status"];
    let is_changed = status.entries().any(|(field, value)| match field {
        "observedGeneration" => value.int() > old[field].int(),
        "collisionCount" => false,
        "currentRevision" | "updateRevision" => value.str() != old[field].str(),
        _ => value.int() != old[field].int(),
    });
    is_changed.then_some(status)
}

impl StatefulSetCounts {
    /// Whether the rolling update is complete; the update revision then becomes the current one.
    fn is_rolled_out(self, set: &Object) -> bool {
        let wanted = set["spec"]["replicas"].as_int().unwrap_or(1);
        set.at("spec.updateStrategy.type").str() == "RollingUpdate"
            && [self.updated, self.ready, self.replicas]
                .iter()
                .all(|count| *count == wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(name: &str) -> SetRevision {
        SetRevision {
            name: name.into(),
            template: Value::Null,
        }
    }

    fn set(kind: &str, status: Value) -> Object {
        Object(value!({
            "metadata": {"generation": 2},
            "spec": {"replicas": 2, "minReadySeconds": 10, "updateStrategy": {"type": kind}},
            "status": status,
        }))
    }

    /// A pod by its phase, revision, since when it is ready (0: not), and whether it is being
    /// deleted.
    fn pod(phase: &str, revision: &str, ready: i64, going: bool) -> Arc<Object> {
        let mut pod = Object(value!({
            "metadata": {"labels": {"controller-revision-hash": revision}},
            "status": {"phase": phase},
        }));
        if ready > 0 {
            let since = mizzen_value::time::from_unix(ready);
            let condition =
                value!({"type": "Ready", "status": "True", "lastTransitionTime": since});
            pod.entry("status").set("conditions", vec![condition]);
        }
        if going {
            pod.entry("metadata")
                .set("deletionTimestamp", "2024-01-01T00:00:00Z");
        }
        Arc::new(pod)
    }

    #[track_caller]
    fn check(pods: &[Arc<Object>], expect: (i64, i64, i64, i64, i64)) {
        let set = set("RollingUpdate", Value::Null);
        let StatefulSetCounts {
            replicas,
            ready,
            available,
            current,
            updated,
        } = count(
            &set,
            pods,
            &revision("old"),
            &revision("new"),
            Timestamp::from_second(100).expect("a time"),
        );
        assert_eq!((replicas, ready, available, current, updated), expect);
    }

    #[test]
    fn a_pod_that_the_server_does_not_have_yet_counts_nowhere() {
        check(&[pod("", "new", 0, false)], (0, 0, 0, 0, 0));
    }

    #[test]
    fn a_pod_is_available_once_it_has_been_ready_for_long_enough() {
        check(&[pod("Running", "new", 90, false)], (1, 1, 1, 0, 1));
        check(&[pod("Running", "new", 91, false)], (1, 1, 0, 0, 1));
    }

    #[test]
    fn a_pod_that_goes_is_there_but_of_no_revision() {
        check(&[pod("Running", "old", 1, true)], (1, 1, 1, 0, 0));
    }

    #[test]
    fn a_pod_that_is_ready_but_does_not_run_is_not_ready() {
        check(&[pod("Pending", "old", 1, false)], (1, 0, 0, 1, 0));
    }

    const DONE: StatefulSetCounts = StatefulSetCounts {
        replicas: 2,
        ready: 2,
        available: 0,
        current: 0,
        updated: 2,
    };

    #[track_caller]
    fn check_current(kind: &str, counts: StatefulSetCounts, expect: (&str, i64)) {
        let status = status(
            &set(kind, Value::Null),
            counts,
            &revision("old"),
            &revision("new"),
            0,
        )
        .expect("news");
        assert_eq!(
            (
                status["currentRevision"].str(),
                status["currentReplicas"].int()
            ),
            expect
        );
    }

    #[test]
    fn an_update_is_complete_when_all_pods_are_ready_and_new() {
        check_current("RollingUpdate", DONE, ("new", 2));
        check_current(
            "RollingUpdate",
            StatefulSetCounts { ready: 1, ..DONE },
            ("old", 0),
        );
        check_current(
            "RollingUpdate",
            StatefulSetCounts {
                replicas: 3,
                ..DONE
            },
            ("old", 0),
        );
    }

    #[test]
    fn an_update_on_delete_is_never_complete() {
        check_current("OnDelete", DONE, ("old", 0));
    }

    #[test]
    fn an_unchanged_status_is_not_written() {
        let written = status(
            &set("OnDelete", Value::Null),
            DONE,
            &revision("a"),
            &revision("b"),
            1,
        )
        .expect("news");
        let news = |status_now: Value, n_collisions| {
            status(
                &set("OnDelete", status_now),
                DONE,
                &revision("a"),
                &revision("b"),
                n_collisions,
            )
            .is_some()
        };
        assert!(!news(written.clone(), 1) && !news(written.clone(), 2));
        let mut later = written;
        later.set("observedGeneration", 1i64);
        assert!(news(later, 1));
    }
}
