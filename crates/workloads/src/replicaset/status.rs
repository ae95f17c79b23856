//! The status of a ReplicaSet.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use mizzen_object::condition;
use mizzen_sdk::{Accessor, Object};
use mizzen_value::{Value, time, value};

use super::facts::PodFacts;
use crate::common::pod::has_been_ready;

const REPLICA_FAILURE: &str = "ReplicaFailure";

/// The observed pods of a set.
pub(super) struct ObservedPods<'a> {
    pub active: &'a [Arc<PodFacts>],
    /// None if the kind has no `terminatingReplicas`.
    pub n_terminating: Option<usize>,
    /// The error of creates or deletes.
    pub failure: Option<String>,
    pub now: Timestamp,
}

/// Calculates the status of a set.
pub(super) fn calculate_status(set: &Object, observed: &ObservedPods) -> Value {
    let count = |holds: &dyn Fn(&PodFacts) -> bool| {
        observed.active.iter().filter(|pod| holds(pod)).count() as i64
    };
    let n_wanted_seconds = set["spec"]["minReadySeconds"].int();
    let labels = &set["spec"]["template"]["metadata"]["labels"];
    let is_available = |pod: &PodFacts| is_available(pod, n_wanted_seconds, observed.now);
    let mut status = set["status"].clone();
    status.set("replicas", observed.active.len() as i64);
    set_count(
        &mut status,
        "fullyLabeledReplicas",
        count(&|pod| {
            let mut labels = labels.entries();
            labels.all(|(name, value)| pod.label(name) == value.as_str())
        }),
    );
    set_count(
        &mut status,
        "readyReplicas",
        count(&|pod| pod.rank.is_ready),
    );
    set_count(&mut status, "availableReplicas", count(&is_available));
    if let Some(n_terminating) = observed.n_terminating {
        status.set("terminatingReplicas", n_terminating as i64);
    }
    set_count(
        &mut status,
        "observedGeneration",
        set["metadata"]["generation"].int(),
    );
    set_failure(&mut status, observed, set["spec"]["replicas"].int());
    status
}

/// Kubernetes: while a failure lasts its condition is not updated (replica_set_utils.go).
fn set_failure(status: &mut Value, observed: &ObservedPods, n_wanted: i64) {
    let known = condition::find(&status["conditions"], REPLICA_FAILURE).is_some();
    match &observed.failure {
        Some(message) if !known => {
            let condition = failure(observed, n_wanted, message);
            status.entry("conditions").make_list().push(condition);
        }
        None if known => {
            let conditions = status.entry("conditions").make_list();
            condition::remove(conditions, REPLICA_FAILURE);
            if conditions.is_empty() {
                status.remove("conditions");
            }
        }
        _ => {}
    }
}

fn failure(observed: &ObservedPods, n_wanted: i64, message: &str) -> Value {
    let reason = if (observed.active.len() as i64) < n_wanted {
        "FailedCreate"
    } else {
        "FailedDelete"
    };
    let now = time::from_unix(observed.now.as_second());
    value!({
        "type": REPLICA_FAILURE,
        "status": "True",
        "lastTransitionTime": now,
        "reason": reason,
        "message": message
    })
}

fn is_available(pod: &PodFacts, min_ready_seconds: i64, now: Timestamp) -> bool {
    let rank = &pod.rank;
    rank.is_ready
        && (min_ready_seconds == 0 || has_been_ready(rank.ready_since, min_ready_seconds, now))
}

/// Sets a count; 0 is written too.
fn set_count(status: &mut Value, field: &str, number: i64) {
    match number {
        0 => drop(status.remove(field)),
        number => status.set(field, number),
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::json;

    use super::*;

    fn pod(labels: &str, ready_since: Option<i64>) -> Arc<PodFacts> {
        let ready = match ready_since.map(time::from_unix) {
            Some(time) => value!([{"type": "Ready", "status": "True", "lastTransitionTime": time}]),
            None => value!([]),
        };
        let labels = json::parse(labels.as_bytes()).expect("JSON");
        Arc::new(PodFacts::from_pod(&Object(
            value!({"metadata": {"labels": labels}, "status": {"conditions": ready}}),
        )))
    }

    fn set(status: &str) -> Object {
        let status = json::parse(status.as_bytes()).expect("JSON");
        Object(value!({
            "metadata": {"generation": 2},
            "spec": {"replicas": 3, "minReadySeconds": 10, "template": {"metadata": {"labels": {"a": "1"}}}},
            "status": status
        }))
    }

    fn check(before: &str, active: &[Arc<PodFacts>], failure: Option<&str>, expect: &str) {
        let now = Timestamp::from_second(100).expect("a time");
        let observed = ObservedPods {
            active,
            n_terminating: Some(0),
            failure: failure.map(String::from),
            now,
        };
        assert_eq!(
            calculate_status(&set(before), &observed),
            json::parse(expect.as_bytes()).expect("JSON")
        );
    }

    #[test]
    fn pods_are_counted_by_what_they_are() {
        let active = [
            pod(r#"{"a": "1", "b": "2"}"#, Some(90)),
            pod(r#"{"a": "1"}"#, Some(91)),
            pod(r#"{"a": "2"}"#, None),
        ];
        check(
            r#"{"replicas": 0}"#,
            &active,
            None,
            r#"{"replicas": 3, "fullyLabeledReplicas": 2, "readyReplicas": 2, "availableReplicas": 1,
                "terminatingReplicas": 0, "observedGeneration": 2}"#,
        );
    }

    const FAILURE: &str = r#"{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate",
        "lastTransitionTime": "1970-01-01T00:01:40Z", "message": "no room"}"#;

    #[test]
    fn a_failure_is_a_condition_while_it_lasts() {
        let with = |conditions: &str| {
            format!(
                r#"{{"replicas": 0, "terminatingReplicas": 0, "observedGeneration": 2{conditions}}}"#
            )
        };
        let failed = with(&format!(r#", "conditions": [{FAILURE}]"#));
        check("{}", &[], Some("no room"), &failed);
        check(&failed, &[], Some("still no room"), &failed);
        check(&failed, &[], None, &with(""));
    }
}
