//! Predicates on jobs and their pods.

use mizzen_component_helpers::pod_state::is_sidecar;
use mizzen_sdk::Object;
use mizzen_value::Value;
use mizzen_value::time::to_unix;

use crate::common::pod::condition;

/// The finalizer of pods that are not counted yet. Invariant: a pod of a job keeps it until the
/// job's status has the pod's uid or index, so that no finished pod is lost and none is counted
/// twice.
pub(crate) const TRACKING_FINALIZER: &str = "batch.kubernetes.io/job-tracking";

/// The annotation and label with the completion index.
pub(crate) const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// The annotation with the failures of the same index before this pod.
pub(crate) const FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-failure-count";

/// The annotation with the ignored failures of the same index.
pub(crate) const IGNORED_FAILURE_COUNT: &str =
    "batch.kubernetes.io/job-index-ignored-failure-count";

/// `Complete` or `Failed`.
pub(crate) fn finished_condition(job: &Value) -> Option<&str> {
    let is_end = |kind: &&str| matches!(*kind, "Complete" | "Failed");
    true_conditions(job)
        .map(|condition| condition["type"].str())
        .find(is_end)
}

/// The condition of a type if it is True.
pub(crate) fn true_condition<'a>(job: &'a Value, kind: &str) -> Option<&'a Value> {
    true_conditions(job).find(|condition| condition["type"].str() == kind)
}

fn true_conditions(job: &Value) -> impl Iterator<Item = &Value> {
    job["status"]["conditions"]
        .list()
        .iter()
        .filter(|condition| condition["status"].str() == "True")
}

/// Whether `spec.managedBy` names another controller.
pub(crate) fn is_externally_managed(job: &Value) -> bool {
    job["spec"]["managedBy"]
        .as_str()
        .is_some_and(|name| name != "kubernetes.io/job-controller")
}

pub(crate) fn is_indexed(job: &Value) -> bool {
    job["spec"]["completionMode"].str() == "Indexed"
}

pub(crate) fn is_suspended(job: &Value) -> bool {
    job["spec"]["suspend"].bool()
}

pub(crate) fn has_limit_per_index(job: &Value) -> bool {
    !job["spec"]["backoffLimitPerIndex"].is_null()
}

/// Whether podReplacementPolicy is Failed.
pub(crate) fn only_replaces_failed(job: &Value) -> bool {
    job["spec"]["podReplacementPolicy"].str() == "Failed"
        || !job["spec"]["podFailurePolicy"].is_null()
}

pub(crate) fn completion_index(pod: &Object) -> Option<i64> {
    pod.annotation(COMPLETION_INDEX)?
        .parse()
        .ok()
        .filter(|index| *index >= 0)
}

/// The completion index of a pod if it is below `spec.completions`.
pub(crate) fn valid_completion_index(job: &Value, pod: &Object) -> Option<i64> {
    completion_index(pod).filter(|index| *index < job["spec"]["completions"].int())
}

/// Whether a pod has the tracking finalizer.
pub(crate) fn is_tracked(pod: &Object) -> bool {
    pod.has_finalizer(TRACKING_FINALIZER)
}

pub(crate) fn has_succeeded(pod: &Object) -> bool {
    pod["status"]["phase"].str() == "Succeeded"
}

/// Whether a pod counts as failed.
///
/// A pod that is being deleted may never finish if its node is gone, so it counts, unless
/// podReplacementPolicy is Failed.
pub(crate) fn has_failed(job: &Value, pod: &Object) -> bool {
    match pod["status"]["phase"].str() {
        "Failed" => true,
        "Succeeded" => false,
        _ => pod.is_terminating() && !only_replaces_failed(job),
    }
}

pub(crate) fn failure_count(pod: &Object) -> i64 {
    parse_count(pod.annotation(FAILURE_COUNT))
}

pub(crate) fn ignored_failure_count(pod: &Object) -> i64 {
    parse_count(pod.annotation(IGNORED_FAILURE_COUNT))
}

/// Users may write annotations: an invalid count is 0.
fn parse_count(text: Option<&str>) -> i64 {
    text.and_then(|text| text.parse::<i32>().ok())
        .filter(|count| *count >= 0)
        .unwrap_or_default()
        .into()
}

/// When a pod finished, in seconds since 1970: when its last container did; otherwise when it
/// stopped being ready, when it was deleted, or when it was created.
pub(crate) fn finish_time(pod: &Object) -> i64 {
    containers_finish_time(pod)
        .or_else(|| {
            let ready = condition(pod, "Ready")?;
            let time = to_unix(ready["lastTransitionTime"].str());
            time.filter(|_| ready["status"].str() == "False")
        })
        .or_else(|| {
            let deleted = to_unix(pod["metadata"]["deletionTimestamp"].str())?;
            Some(deleted - pod["metadata"]["deletionGracePeriodSeconds"].int())
        })
        .unwrap_or_else(|| pod.created())
}

fn containers_finish_time(pod: &Object) -> Option<i64> {
    let is_sidecar = |name: &str| {
        let mut containers = pod["spec"]["initContainers"].list().iter();
        containers.any(|it| it["name"].str() == name && is_sidecar(it))
    };
    let containers = latest_finish(pod["status"]["containerStatuses"].list().iter()).flatten();
    let sidecars = pod["status"]["initContainerStatuses"].list().iter();
    let sidecars = latest_finish(sidecars.filter(|status| is_sidecar(status["name"].str())))?;
    containers.max(sidecars)
}

/// The latest finish of containers: `None` if one has not finished, `Some(None)` if there are none.
fn latest_finish<'a>(statuses: impl Iterator<Item = &'a Value>) -> Option<Option<i64>> {
    let times = statuses.map(|status| to_unix(status.at("state.terminated.finishedAt").str()));
    times
        .collect::<Option<Vec<i64>>>()
        .map(|times| times.into_iter().max())
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    #[track_caller]
    fn check(status: Value, metadata: Value, expect: i64) {
        let containers = value!({"initContainers": [{"name": "side", "restartPolicy": "Always"}, {"name": "init"}]});
        let pod =
            Object::from(value!({"metadata": metadata, "spec": containers, "status": status}));
        assert_eq!(finish_time(&pod), expect);
    }

    fn ended(name: &str, time: &str) -> Value {
        value!({"name": name, "state": {"terminated": {"finishedAt": time}}})
    }

    #[test]
    fn a_pod_ends_with_its_last_container() {
        let early = ended("a", "1970-01-01T00:00:10Z");
        let late = ended("side", "1970-01-01T00:00:30Z");
        check(value!({"containerStatuses": [early]}), value!({}), 10);
        let early = ended("a", "1970-01-01T00:00:10Z");
        check(
            value!({"containerStatuses": [early], "initContainerStatuses": [late]}),
            value!({}),
            30,
        );
    }

    #[test]
    fn a_missing_finish_time_is_estimated() {
        let made = value!({"creationTimestamp": "1970-01-01T00:00:05Z"});
        check(
            value!({"containerStatuses": [{"name": "a"}]}),
            made.clone(),
            5,
        );
        let not_ready = value!({"type": "Ready", "status": "False", "lastTransitionTime": "1970-01-01T00:00:07Z"});
        check(value!({"conditions": [not_ready]}), made, 7);
        let going =
            value!({"deletionTimestamp": "1970-01-01T00:01:00Z", "deletionGracePeriodSeconds": 30});
        check(value!({}), going, 30);
    }

    #[test]
    fn a_sidecar_that_runs_keeps_its_pod_from_ending() {
        let made = value!({"creationTimestamp": "1970-01-01T00:00:05Z"});
        let early = ended("a", "1970-01-01T00:00:10Z");
        check(
            value!({"containerStatuses": [early], "initContainerStatuses": [{"name": "side", "state": {}}]}),
            made,
            5,
        );
    }

    #[test]
    fn a_pod_that_is_deleted_counts_as_failed_unless_the_job_waits() {
        let going =
            Object::from(value!({"metadata": {"deletionTimestamp": "1970-01-01T00:01:00Z"}}));
        assert!(has_failed(&value!({}), &going));
        assert!(!has_failed(
            &value!({"spec": {"podReplacementPolicy": "Failed"}}),
            &going
        ));
        assert!(!has_failed(
            &value!({"spec": {"podFailurePolicy": {}}}),
            &going
        ));
    }
}
