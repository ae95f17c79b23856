//! What does a job say of itself, and what is a pod to it?

use mizzen_kinds::pod_state::is_sidecar;
use mizzen_sdk::Object;
use mizzen_value::Value;
use mizzen_value::time::to_unix;

use crate::common::pod::condition;

/// The finalizer of a pod that is not counted yet. Invariant: a pod that ran for a job keeps it until the job's status
/// has the pod's uid or index, so that no end of a pod is lost and none is counted twice.
pub(crate) const TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// The annotation and label with a pod's completion index.
pub(crate) const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// How often the pods of an index failed before this one.
pub(crate) const FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-failure-count";

/// How often they failed without that being counted.
pub(crate) const IGNORED_FAILURE_COUNT: &str =
    "batch.kubernetes.io/job-index-ignored-failure-count";

/// How a job ended: `Complete` or `Failed`.
pub(crate) fn finished(job: &Value) -> Option<&str> {
    let is_end = |kind: &&str| matches!(*kind, "Complete" | "Failed");
    true_conditions(job)
        .map(|condition| condition["type"].str())
        .find(is_end)
}

/// The condition of a type, if it is true.
pub(crate) fn true_condition<'a>(job: &'a Value, kind: &str) -> Option<&'a Value> {
    true_conditions(job).find(|condition| condition["type"].str() == kind)
}

fn true_conditions(job: &Value) -> impl Iterator<Item = &Value> {
    job["status"]["conditions"]
        .list()
        .iter()
        .filter(|condition| condition["status"].str() == "True")
}

/// Whether another controller takes care of a job.
pub(crate) fn is_managed_elsewhere(job: &Value) -> bool {
    job["spec"]["managedBy"]
        .as_str()
        .is_some_and(|name| name != "kubernetes.io/job-controller")
}

/// Whether each pod of a job has its index.
pub(crate) fn is_indexed(job: &Value) -> bool {
    job["spec"]["completionMode"].str() == "Indexed"
}

/// Whether a job is to have no pods for now.
pub(crate) fn is_suspended(job: &Value) -> bool {
    job["spec"]["suspend"].bool()
}

/// Whether each index fails for itself.
pub(crate) fn has_limit_per_index(job: &Value) -> bool {
    !job["spec"]["backoffLimitPerIndex"].is_null()
}

/// Whether a pod is replaced only when it has ended, not when it begins to.
pub(crate) fn only_replaces_failed(job: &Value) -> bool {
    job["spec"]["podReplacementPolicy"].str() == "Failed"
        || !job["spec"]["podFailurePolicy"].is_null()
}

/// The completion index of a pod, if it has one.
pub(crate) fn index_of(pod: &Object) -> Option<i64> {
    pod.annotation(INDEX)?
        .parse()
        .ok()
        .filter(|index| *index >= 0)
}

/// The completion index of a pod, if it is one of the job's.
pub(crate) fn valid_index_of(job: &Value, pod: &Object) -> Option<i64> {
    index_of(pod).filter(|index| *index < job["spec"]["completions"].int())
}

/// Whether a pod is not counted yet.
pub(crate) fn is_tracked(pod: &Object) -> bool {
    pod.has_finalizer(TRACKING)
}

/// Whether a pod has succeeded.
pub(crate) fn has_succeeded(pod: &Object) -> bool {
    pod["status"]["phase"].str() == "Succeeded"
}

/// Whether a pod counts as failed.
///
/// A pod that is being deleted may never come to its end, if its node is gone; so it counts unless the job waits for
/// such ends.
pub(crate) fn has_failed(job: &Value, pod: &Object) -> bool {
    match pod["status"]["phase"].str() {
        "Failed" => true,
        "Succeeded" => false,
        _ => pod.is_going() && !only_replaces_failed(job),
    }
}

/// How often the pods of a pod's index failed before it.
pub(crate) fn failure_count(pod: &Object) -> i64 {
    count(pod.annotation(FAILURE_COUNT))
}

/// How often they failed without that being counted.
pub(crate) fn ignored_failure_count(pod: &Object) -> i64 {
    count(pod.annotation(IGNORED_FAILURE_COUNT))
}

/// Anybody may write annotations: what is no count is none.
fn count(text: Option<&str>) -> i64 {
    text.and_then(|text| text.parse::<i32>().ok())
        .filter(|count| *count >= 0)
        .unwrap_or_default()
        .into()
}

/// When a pod ended, in seconds since 1970: when its last container did; if that is not known when it stopped being
/// ready; when it was deleted; when it was made.
pub(crate) fn finish_time(pod: &Object) -> i64 {
    containers_finish_time(pod)
        .or_else(|| ready_false_time(pod))
        .or_else(|| deletion_time(pod))
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

/// The last end of some containers: `None` if one of them has not ended, `Some(None)` if there are none.
fn latest_finish<'a>(statuses: impl Iterator<Item = &'a Value>) -> Option<Option<i64>> {
    let times = statuses.map(|status| to_unix(status.at("state.terminated.finishedAt").str()));
    times
        .collect::<Option<Vec<i64>>>()
        .map(|times| times.into_iter().max())
}

fn ready_false_time(pod: &Object) -> Option<i64> {
    let ready = condition(pod, "Ready")?;
    let time = to_unix(ready["lastTransitionTime"].str());
    time.filter(|_| ready["status"].str() == "False")
}

fn deletion_time(pod: &Object) -> Option<i64> {
    let end = to_unix(pod["metadata"]["deletionTimestamp"].str())?;
    Some(end - pod["metadata"]["deletionGracePeriodSeconds"].int())
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
        let (early, late) = (
            ended("a", "1970-01-01T00:00:10Z"),
            ended("side", "1970-01-01T00:00:30Z"),
        );
        check(value!({"containerStatuses": [early]}), value!({}), 10);
        let early = ended("a", "1970-01-01T00:00:10Z");
        check(
            value!({"containerStatuses": [early], "initContainerStatuses": [late]}),
            value!({}),
            30,
        );
    }

    #[test]
    fn an_end_that_nobody_saw_is_guessed() {
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
