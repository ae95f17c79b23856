//! What does a set's status say?

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use mizzen_object::condition;
use mizzen_sdk::Object;
use mizzen_value::{Value, time, value};

use super::facts::Facts;
use crate::common::pod::has_been_ready;

/// The condition that pods could not be made or deleted.
const REPLICA_FAILURE: &str = "ReplicaFailure";

/// What was seen of a set's pods.
pub(super) struct Seen<'a> {
    /// Those that count.
    pub active: &'a [Arc<Facts>],
    /// How many are on their way out; none if the kind does not say.
    pub n_terminating: Option<usize>,
    /// What went wrong when pods were made or deleted.
    pub failure: Option<String>,
    /// When.
    pub now: Timestamp,
}

/// The status of a set.
pub(super) fn of(set: &Object, seen: &Seen) -> Value {
    let count =
        |holds: &dyn Fn(&Facts) -> bool| seen.active.iter().filter(|pod| holds(pod)).count() as i64;
    let n_wanted_seconds = set["spec"]["minReadySeconds"].int();
    let labels = &set["spec"]["template"]["metadata"]["labels"];
    let is_available = |pod: &Facts| is_available(pod, n_wanted_seconds, seen.now);
    let mut status = set["status"].clone();
    status.set("replicas", seen.active.len() as i64);
    put(
        &mut status,
        "fullyLabeledReplicas",
        count(&|pod| has_labels(pod, labels)),
    );
    put(
        &mut status,
        "readyReplicas",
        count(&|pod| pod.standing.is_ready),
    );
    put(&mut status, "availableReplicas", count(&is_available));
    if let Some(n_terminating) = seen.n_terminating {
        status.set("terminatingReplicas", n_terminating as i64);
    }
    put(
        &mut status,
        "observedGeneration",
        set["metadata"]["generation"].int(),
    );
    set_failure(&mut status, seen, set["spec"]["replicas"].int());
    status
}

/// Kubernetes: while a failure lasts its condition stays as it was first reported (replica_set_utils.go).
fn set_failure(status: &mut Value, seen: &Seen, n_wanted: i64) {
    let known = condition::find(&status["conditions"], REPLICA_FAILURE).is_some();
    match &seen.failure {
        Some(message) if !known => {
            let condition = failure(seen, n_wanted, message);
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

fn failure(seen: &Seen, n_wanted: i64, message: &str) -> Value {
    let reason = if (seen.active.len() as i64) < n_wanted {
        "FailedCreate"
    } else {
        "FailedDelete"
    };
    let now = time::from_unix(seen.now.as_second());
    value!({
        "type": REPLICA_FAILURE,
        "status": "True",
        "lastTransitionTime": now,
        "reason": reason,
        "message": message
    })
}

fn has_labels(pod: &Facts, labels: &Value) -> bool {
    labels
        .entries()
        .all(|(name, value)| pod.label(name) == value.as_str())
}

fn is_available(pod: &Facts, min_ready_seconds: i64, now: Timestamp) -> bool {
    let standing = &pod.standing;
    standing.is_ready
        && (min_ready_seconds == 0 || has_been_ready(standing.ready_since, min_ready_seconds, now))
}

/// Sets a number as Go writes it: nothing is left out.
fn put(status: &mut Value, field: &str, number: i64) {
    match number {
        0 => drop(status.remove(field)),
        number => status.set(field, number),
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::json;

    use super::*;

    fn pod(labels: &str, ready_since: Option<i64>) -> Arc<Facts> {
        let ready = match ready_since.map(time::from_unix) {
            Some(time) => value!([{"type": "Ready", "status": "True", "lastTransitionTime": time}]),
            None => value!([]),
        };
        let labels = json::parse(labels.as_bytes()).expect("JSON");
        Arc::new(Facts::of(&Object(
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

    fn check(before: &str, active: &[Arc<Facts>], failure: Option<&str>, expect: &str) {
        let now = Timestamp::from_second(100).expect("a time");
        let seen = Seen {
            active,
            n_terminating: Some(0),
            failure: failure.map(String::from),
            now,
        };
        assert_eq!(
            of(&set(before), &seen),
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
    fn a_failure_is_a_condition_until_it_is_over() {
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
