//! The status of a deployment and its Progressing condition.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use mizzen_sdk::Object;
use mizzen_value::{Value, time};

use super::condition::{self, AVAILABLE, PROGRESSING, REPLICA_FAILURE};
use super::replica_sets::{ReplicaSets, Set, max_unavailable, replicas};

/// The counts and the Available condition.
pub(super) fn calculate_status(deployment: &Object, sets: &ReplicaSets, now: Timestamp) -> Value {
    let n_available = sets.sum("availableReplicas");
    let mut status = Value::object();
    let mut put = |field: &str, number: i64| {
        if number > 0 {
            status.set(field, number);
        }
    };
    put(
        "observedGeneration",
        deployment["metadata"]["generation"].int(),
    );
    put("replicas", sets.sum("replicas"));
    put(
        "updatedReplicas",
        sets.new
            .as_ref()
            .map_or(0, |set| set["status"]["replicas"].int()),
    );
    put("readyReplicas", sets.sum("readyReplicas"));
    put("availableReplicas", n_available);
    put("unavailableReplicas", sets.n_replicas() - n_available);
    if let Some(n_terminating) = n_terminating(sets) {
        status.set("terminatingReplicas", n_terminating);
    }
    for field in ["collisionCount", "conditions"] {
        if !deployment["status"][field].is_null() {
            status.set(field, deployment["status"][field].clone());
        }
    }
    let (value, reason, message) =
        match n_available >= replicas(deployment) - max_unavailable(deployment) {
            true => (
                "True",
                "MinimumReplicasAvailable",
                "Deployment has minimum availability.",
            ),
            false => (
                "False",
                "MinimumReplicasUnavailable",
                "Deployment does not have minimum availability.",
            ),
        };
    let available = condition::new(AVAILABLE, value, reason, message, &text(now));
    condition::set(&mut status, available);
    status
}

/// None while a set whose status is current has no count.
fn n_terminating(sets: &ReplicaSets) -> Option<i64> {
    let terminating = |set: &Set| set["status"]["terminatingReplicas"].as_int();
    let has_no_count =
        |set: &&Set| terminating(set).is_none() && set["status"]["observedGeneration"].int() != 0;
    match sets.all().find(has_no_count) {
        Some(_) => None,
        None => Some(sets.all().filter_map(terminating).sum()),
    }
}

/// The status during a rollout: with the Progressing and ReplicaFailure conditions.
pub(super) fn rollout_status(deployment: &Object, sets: &ReplicaSets, now: Timestamp) -> Value {
    let mut status = calculate_status(deployment, sets, now);
    // If the last rollout is complete and no other has started, progress is not checked.
    let progressing = condition::find(&deployment["status"], PROGRESSING);
    let has_ended = progressing.is_some_and(|it| it["reason"].str() == "NewReplicaSetAvailable");
    let is_resync = has_ended && status["replicas"].int() == status["updatedReplicas"].int();
    if deadline(deployment).is_none() {
        condition::remove(&mut status, PROGRESSING);
    } else if !is_resync {
        sync_progress_condition(deployment, sets, &mut status, now);
    }
    let mut failures = sets.new.iter().chain(&sets.old);
    match failures.find_map(|set| condition::find(&set["status"], REPLICA_FAILURE)) {
        Some(failure) => {
            let mut failure = failure.clone();
            failure.set("lastUpdateTime", failure["lastTransitionTime"].clone());
            condition::set(&mut status, failure);
        }
        None => condition::remove(&mut status, REPLICA_FAILURE),
    }
    status
}

/// progressDeadlineSeconds; none if it is unlimited.
pub(super) fn deadline(deployment: &Object) -> Option<Duration> {
    let seconds = deployment["spec"]["progressDeadlineSeconds"].as_int()?;
    u64::try_from(seconds)
        .ok()
        .filter(|_| seconds != i64::from(i32::MAX))
        .map(Duration::from_secs)
}

fn sync_progress_condition(
    deployment: &Object,
    sets: &ReplicaSets,
    status: &mut Value,
    now: Timestamp,
) {
    let who = match &sets.new {
        Some(set) => format!("ReplicaSet \"{}\"", set.name()),
        None => format!("Deployment \"{}\"", deployment.name()),
    };
    let note = |value: &str, reason: &str, what: &str| {
        condition::new(
            PROGRESSING,
            value,
            reason,
            &format!("{who} {what}"),
            &text(now),
        )
    };
    let has_timed_out = |progressing: &Value| match progressing["reason"].str() {
        "NewReplicaSetAvailable" => false,
        "ProgressDeadlineExceeded" => true,
        _ => due(deployment, progressing).is_some_and(|due| due < now),
    };
    if is_complete(deployment, status) {
        condition::set(
            status,
            note(
                "True",
                "NewReplicaSetAvailable",
                "has successfully progressed.",
            ),
        );
    } else if is_progressing(&deployment["status"], status) {
        renew_progressing(status, note("True", "ReplicaSetUpdated", "is progressing."));
    } else if condition::find(status, PROGRESSING).is_some_and(has_timed_out) {
        condition::set(
            status,
            note(
                "False",
                "ProgressDeadlineExceeded",
                "has timed out progressing.",
            ),
        );
    }
}

/// Whether all replicas are updated and available.
pub(super) fn is_complete(deployment: &Object, status: &Value) -> bool {
    let n_wanted = replicas(deployment);
    let has_all = |field: &str| status[field].int() == n_wanted;
    has_all("updatedReplicas")
        && has_all("replicas")
        && has_all("availableReplicas")
        && status["observedGeneration"].int() >= deployment["metadata"]["generation"].int()
}

fn is_progressing(before: &Value, after: &Value) -> bool {
    let n_old = |status: &Value| status["replicas"].int() - status["updatedReplicas"].int();
    let rises = |field: &str| after[field].int() > before[field].int();
    rises("updatedReplicas")
        || n_old(after) < n_old(before)
        || rises("readyReplicas")
        || rises("availableReplicas")
}

/// Progress updates lastUpdateTime even if the reason is the same: the deadline counts from it.
fn renew_progressing(status: &mut Value, mut condition: Value) {
    if let Some(known) =
        condition::find(status, PROGRESSING).filter(|known| known["status"].str() == "True")
    {
        condition.set("lastTransitionTime", known["lastTransitionTime"].clone());
    }
    condition::remove(status, PROGRESSING);
    condition::set(status, condition);
}

fn due(deployment: &Object, progressing: &Value) -> Option<Timestamp> {
    let updated = time::to_unix(progressing["lastUpdateTime"].str()).unwrap_or_default();
    Timestamp::from_second(updated.checked_add(deadline(deployment)?.as_secs().try_into().ok()?)?)
        .ok()
}

/// How long until a rollout without progress must be checked: a second after its deadline.
pub(super) fn until_deadline(
    deployment: &Object,
    status: &Value,
    now: Timestamp,
) -> Option<Duration> {
    let progressing = condition::find(&deployment["status"], PROGRESSING)?;
    if is_complete(deployment, status) || progressing["reason"].str() == "ProgressDeadlineExceeded"
    {
        return None;
    }
    let left = due(deployment, progressing)?.duration_since(now);
    Some(Duration::try_from(left).unwrap_or_default() + Duration::from_secs(1))
}

/// The condition for a paused or resumed rollout; none if nothing changed.
pub(super) fn paused_condition(deployment: &Object, now: Timestamp) -> Option<Value> {
    deadline(deployment)?;
    let reason = condition::find(&deployment["status"], PROGRESSING).map(|it| it["reason"].str());
    let (reason, message) = match (deployment["spec"]["paused"].bool(), reason) {
        (_, Some("ProgressDeadlineExceeded")) => return None,
        (true, reason) if reason != Some("DeploymentPaused") => {
            ("DeploymentPaused", "Deployment is paused")
        }
        (false, Some("DeploymentPaused")) => ("DeploymentResumed", "Deployment is resumed"),
        _ => return None,
    };
    Some(condition::new(
        PROGRESSING,
        "Unknown",
        reason,
        message,
        &text(now),
    ))
}

fn text(now: Timestamp) -> String {
    time::from_unix(now.as_second())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mizzen_value::{json, value};

    use super::super::replica_sets::tests::{deployment, set};
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("a time")
    }

    /// A deployment of four with a deadline of ten seconds, and its previous status.
    fn rollout(status: Value) -> Object {
        let mut deployment = deployment(4, "1", "1");
        deployment.entry("spec").set("progressDeadlineSeconds", 10);
        deployment.set("status", status);
        deployment
    }

    fn progressing(status: &str, reason: &str, since: i64) -> Value {
        condition::new(PROGRESSING, status, reason, "", &time::from_unix(since))
    }

    #[track_caller]
    fn check(before: Value, sets: ReplicaSets, now: i64, expect: (&str, &str, &str)) {
        let status = rollout_status(&rollout(before), &sets, at(now));
        let condition = condition::find(&status, PROGRESSING).expect("there is a deadline");
        let found = (
            condition["status"].str(),
            condition["reason"].str(),
            condition["message"].str(),
        );
        assert_eq!(found, expect);
    }

    fn sets(old: i64, new: i64, available: i64) -> ReplicaSets {
        ReplicaSets {
            new: Some(set("new", 2, new, available)),
            old: vec![set("old", 1, old, old)],
        }
    }

    #[test]
    fn pods_are_counted_over_all_sets() {
        let mut new = Object::clone(&set("new", 2, 2, 1));
        new.entry("status").set("terminatingReplicas", 1);
        new.entry("status").set("readyReplicas", 2);
        let sets = ReplicaSets {
            new: Some(Arc::new(new)),
            old: vec![set("old", 1, 3, 3)],
        };
        let mut status = calculate_status(&rollout(value!({"collisionCount": 1})), &sets, at(0));
        let conditions = status.remove("conditions").expect("availability");
        assert_eq!(conditions[0]["reason"].str(), "MinimumReplicasAvailable");
        let expect = r#"{"observedGeneration": 1, "replicas": 5, "updatedReplicas": 2, "readyReplicas": 2,
            "availableReplicas": 4, "unavailableReplicas": 1, "terminatingReplicas": 1, "collisionCount": 1}"#;
        assert_eq!(status, json::parse(expect.as_bytes()).expect("JSON"));
    }

    #[test]
    fn too_few_pods_make_a_deployment_unavailable() {
        let status = calculate_status(&rollout(Value::Null), &sets(0, 4, 2), at(0));
        assert_eq!(
            status["conditions"][0]["reason"].str(),
            "MinimumReplicasUnavailable"
        );
    }

    #[test]
    fn terminating_replicas_are_unknown_while_a_set_has_no_count() {
        let mut old = Object::clone(&set("old", 1, 1, 1));
        old.entry("status").set("observedGeneration", 1);
        let has_no_count = ReplicaSets {
            new: None,
            old: vec![Arc::new(old)],
        };
        assert_eq!(
            (n_terminating(&has_no_count), n_terminating(&sets(1, 1, 1))),
            (None, Some(0))
        );
    }

    #[test]
    fn a_rollout_that_is_complete_says_so() {
        let before = value!({"conditions": [(progressing("True", "ReplicaSetUpdated", 0))]});
        let message = "ReplicaSet \"new\" has successfully progressed.";
        check(
            before,
            sets(0, 4, 4),
            5,
            ("True", "NewReplicaSetAvailable", message),
        );
    }

    #[test]
    fn any_pod_that_comes_up_is_progress() {
        let before = value!({"replicas": 4, "updatedReplicas": 1, "conditions": [(progressing("True", "ReplicaSetUpdated", 0))]});
        let message = "ReplicaSet \"new\" is progressing.";
        check(
            before,
            sets(3, 2, 0),
            100,
            ("True", "ReplicaSetUpdated", message),
        );
    }

    #[test]
    fn progress_moves_the_time_but_not_the_transition() {
        let before = value!({"conditions": [(progressing("True", "ReplicaSetUpdated", 0))]});
        let status = rollout_status(&rollout(before), &sets(3, 2, 0), at(7));
        let condition = condition::find(&status, PROGRESSING).expect("there is a deadline");
        let times = (
            condition["lastUpdateTime"].str(),
            condition["lastTransitionTime"].str(),
        );
        assert_eq!(times, ("1970-01-01T00:00:07Z", "1970-01-01T00:00:00Z"));
    }

    fn stuck(reason: &str) -> Value {
        value!({"replicas": 5, "updatedReplicas": 2, "availableReplicas": 3, "conditions": [(progressing("True", reason, 100))]})
    }

    #[test]
    fn a_rollout_without_progress_times_out() {
        check(
            stuck("ReplicaSetUpdated"),
            sets(3, 2, 0),
            110,
            ("True", "ReplicaSetUpdated", ""),
        );
        let message = "ReplicaSet \"new\" has timed out progressing.";
        check(
            stuck("ReplicaSetUpdated"),
            sets(3, 2, 0),
            111,
            ("False", "ProgressDeadlineExceeded", message),
        );
        check(
            stuck("NewReplicaSetAvailable"),
            sets(3, 2, 0),
            111,
            ("True", "NewReplicaSetAvailable", ""),
        );
    }

    #[test]
    fn without_a_deadline_there_is_no_progressing_condition() {
        let mut forever = rollout(stuck("ReplicaSetUpdated"));
        forever
            .entry("spec")
            .set("progressDeadlineSeconds", i64::from(i32::MAX));
        assert_eq!(
            condition::find(
                &rollout_status(&forever, &sets(3, 2, 0), at(999)),
                PROGRESSING
            ),
            None
        );
    }

    #[test]
    fn a_rollout_without_progress_is_requeued_after_its_deadline() {
        let left = |reason: &str, now| {
            let deployment = rollout(stuck(reason));
            until_deadline(&deployment, &deployment["status"], at(now)).map(|left| left.as_secs())
        };
        assert_eq!(left("ReplicaSetUpdated", 103), Some(8));
        assert_eq!(left("ReplicaSetUpdated", 120), Some(1));
        assert_eq!(left("ProgressDeadlineExceeded", 103), None);
    }

    #[test]
    fn replica_failure_is_copied_from_the_sets() {
        let mut new = Object::clone(&set("new", 2, 2, 0));
        let failure = value!({"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "lastTransitionTime": "t"});
        new.entry("status").set("conditions", vec![failure]);
        let sets = ReplicaSets {
            new: Some(Arc::new(new)),
            old: vec![],
        };
        let status = rollout_status(&rollout(Value::Null), &sets, at(0));
        let failure = condition::find(&status, REPLICA_FAILURE).expect("it is passed on");
        assert_eq!(
            (failure["reason"].str(), failure["lastUpdateTime"].str()),
            ("FailedCreate", "t")
        );
    }

    #[test]
    fn pausing_and_resuming_stop_the_clock() {
        let check = |paused: bool, reason: &str, expect: Option<&str>| {
            let mut deployment = rollout(stuck(reason));
            deployment.entry("spec").set("paused", paused);
            let condition = paused_condition(&deployment, at(0));
            assert_eq!(
                condition.as_ref().map(|it| it["reason"].str()),
                expect,
                "{paused} {reason}"
            );
        };
        check(true, "ReplicaSetUpdated", Some("DeploymentPaused"));
        check(true, "DeploymentPaused", None);
        check(false, "DeploymentPaused", Some("DeploymentResumed"));
        check(false, "ReplicaSetUpdated", None);
        check(true, "ProgressDeadlineExceeded", None);
    }
}
