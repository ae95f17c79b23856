//! Counts finished pods.
//!
//! A pod is counted in three steps, of which any may be the last before a crash:
//! 1. the status gets the pod's uid, or its index,
//! 2. the pod loses its finalizer,
//! 3. the uid becomes a count.
//!
//! Invariant: a uid is in the status before its pod loses the finalizer, and stays until the cache
//! shows that.

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use mizzen_object::condition;
use mizzen_sdk::Object;
use mizzen_value::time::from_unix;
use mizzen_value::{Value, value};

use super::facts::{self, has_failed, has_succeeded, is_tracked, valid_completion_index};
use super::failure::{match_pod_failure_policy, matched_failure_action};
use super::finish::Finish;
use super::progress::JobProgress;

/// How many uids a status has at most, so that it stays below about 20 KB.
const MAX_UNCOUNTED: usize = 500;

/// The pods of a sync that are counted.
#[derive(Debug)]
pub(super) struct TrackedPods {
    /// Pods that lose their finalizer.
    pub released: Vec<Arc<Object>>,
    /// The uids of all pods that have the finalizer.
    pub held: HashSet<String>,
    /// Whether some pods have to wait for the next sync.
    pub is_full: bool,
    /// The actions of the rules of the pod failure policy that matched failed pods.
    pub failure_actions: Vec<&'static str>,
}

/// The first step: puts finished pods into the status, and selects those that lose their finalizer.
pub(super) fn track_pods(
    job: &mut Object,
    progress: &JobProgress,
    finish: Option<&Finish>,
    now: Timestamp,
) -> TrackedPods {
    let tracked = || progress.pods.iter().filter(|pod| is_tracked(pod));
    let held = tracked().map(|pod| pod.uid().to_string()).collect();
    count_released(job.entry("status"), &held);
    let mut tracked_pods = TrackedPods {
        released: Vec::new(),
        held,
        is_full: false,
        failure_actions: Vec::new(),
    };
    let mut n_indexes = 0;
    for pod in tracked()
        .filter(|pod| progress.can_remove_finalizer(job, finish, pod))
        .collect::<Vec<_>>()
    {
        tracked_pods.released.push(pod.clone());
        if has_failed(job, pod) && !progress.uncounted.failed.contains(pod.uid()) {
            tracked_pods
                .failure_actions
                .extend(matched_failure_action(job, pod));
        }
        n_indexes += usize::from(progress.count_finished_pod(job, finish, pod));
        if n_indexes + n_uncounted(&job["status"]) >= MAX_UNCOUNTED {
            tracked_pods.is_full = true;
            break;
        }
    }
    progress.set_indexes(job.entry("status"));
    if let Some(finish) = finish.filter(|finish| !finish.is_announced) {
        let condition = condition(
            finish.interim_condition(),
            "True",
            &finish.reason,
            &finish.message,
            now,
        );
        set_condition(job.entry("status"), condition);
    }
    tracked_pods
}

/// The third step: turns the uids of pods without a finalizer into counts. `held` are those that
/// have one.
pub(super) fn count_released(status: &mut Value, held: &HashSet<String>) {
    for field in ["succeeded", "failed"] {
        let uids = status["uncountedTerminatedPods"][field].list();
        let left: Vec<Value> = uids
            .iter()
            .filter(|uid| held.contains(uid.str()))
            .cloned()
            .collect();
        let n_released = uids.len() - left.len();
        if n_released > 0 {
            let count = status[field].int() + n_released as i64;
            set_unless_empty(status, field, count);
            set_unless_empty(status.entry("uncountedTerminatedPods"), field, left);
        }
    }
}

/// Sets the final condition if all pods are counted; whether it did.
pub(super) fn set_finished(status: &mut Value, finish: &Finish, now: Timestamp) -> bool {
    if n_uncounted(status) > 0 {
        return false;
    }
    set_condition(
        status,
        condition(
            finish.final_condition(),
            "True",
            &finish.reason,
            &finish.message,
            now,
        ),
    );
    if finish.succeeded {
        status.set("completionTime", from_unix(now.as_second()));
    }
    true
}

/// Sets the Suspended condition; whether it changed. A job that never was suspended has none.
pub(super) fn set_suspended(job: &mut Object, now: Timestamp) -> bool {
    let is_suspended = facts::is_suspended(job);
    let (truth, reason, message) = match is_suspended {
        true => ("True", "JobSuspended", "Job suspended"),
        false => ("False", "JobResumed", "Job resumed"),
    };
    let known = condition::find(&job["status"]["conditions"], "Suspended");
    let is_changed = known.map_or(is_suspended, |known| known["status"].str() != truth);
    if is_changed {
        let status = job.entry("status");
        set_condition(status, condition("Suspended", truth, reason, message, now));
        // activeDeadlineSeconds starts anew when a job is resumed.
        match is_suspended {
            true => drop(status.remove("startTime")),
            false => status.set("startTime", from_unix(now.as_second())),
        }
    }
    is_changed
}

/// Sets a field, or removes it where Go's omitempty would.
pub(super) fn set_unless_empty(status: &mut Value, field: &str, value: impl Into<Value>) {
    let value = value.into();
    match value.is_empty() {
        true => drop(status.remove(field)),
        false => status.set(field, value),
    }
}

impl JobProgress {
    /// Whether a pod may lose its finalizer.
    fn can_remove_finalizer(&self, job: &Object, finish: Option<&Finish>, pod: &Object) -> bool {
        if job.is_terminating() || finish.is_some() || has_succeeded(pod) {
            return true;
        }
        let is_waited_for = |index| {
            let last_failed = self
                .indexes
                .as_ref()
                .and_then(|indexes| indexes.last_failed.get(&index));
            last_failed.is_some_and(|last| last.uid() == pod.uid())
        };
        has_failed(job, pod) && !facts::completion_index(pod).is_some_and(is_waited_for)
    }

    /// Counts a finished pod in the status. Returns whether it was the success of an index; those need
    /// no uid, because an index cannot be counted twice.
    fn count_finished_pod(&self, job: &mut Object, finish: Option<&Finish>, pod: &Object) -> bool {
        let (indexes, index) = (self.indexes.as_ref(), valid_completion_index(job, pod));
        let is_noted = |field: &str| match field {
            "succeeded" => self.uncounted.succeeded.contains(pod.uid()),
            _ => self.uncounted.failed.contains(pod.uid()),
        };
        if has_succeeded(pod) && !is_noted("failed") {
            if let Some(indexes) = indexes {
                return index.is_some_and(|index| !indexes.known.has(index));
            }
            if !is_noted("succeeded") {
                push_uncounted(job, "succeeded", pod);
            }
            return false;
        }
        // Pods that are active when the job fails count as failed.
        let is_failure = has_failed(job, pod) || finish.is_some_and(|finish| !finish.succeeded);
        let has_place = indexes.is_none() || index.is_some();
        if is_failure
            && has_place
            && !is_noted("failed")
            && match_pod_failure_policy(job, pod).is_counted()
        {
            push_uncounted(job, "failed", pod);
        }
        false
    }

    fn set_indexes(&self, status: &mut Value) {
        let Some(indexes) = &self.indexes else {
            return;
        };
        set_unless_empty(status, "succeeded", indexes.succeeded.len());
        set_unless_empty(status, "completedIndexes", indexes.succeeded.to_string());
        match &indexes.failed {
            // An empty failedIndexes is written too.
            Some(failed) => status.set("failedIndexes", failed.to_string()),
            None => drop(status.remove("failedIndexes")),
        }
    }
}

fn push_uncounted(job: &mut Object, field: &str, pod: &Object) {
    let uncounted = job.entry("status").entry("uncountedTerminatedPods");
    uncounted.entry(field).make_list().push(pod.uid().into());
}

fn n_uncounted(status: &Value) -> usize {
    let uncounted = &status["uncountedTerminatedPods"];
    uncounted["succeeded"].list().len() + uncounted["failed"].list().len()
}

fn condition(kind: &str, truth: &str, reason: &str, message: &str, now: Timestamp) -> Value {
    let now = from_unix(now.as_second());
    value!({
        "type": kind,
        "status": truth,
        "lastProbeTime": (now.as_str()),
        "lastTransitionTime": (now.as_str()),
        "reason": reason,
        "message": message,
    })
}

fn set_condition(status: &mut Value, new: Value) {
    condition::set(status.entry("conditions").make_list(), new);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::backoff::JobBackoff;
    use crate::job::sample::{indexed_pod, job, pod};

    fn finish(succeeded: bool) -> Finish {
        Finish {
            succeeded,
            reason: "R".into(),
            message: "m".into(),
            is_announced: false,
        }
    }

    fn now() -> Timestamp {
        Timestamp::from_second(100).unwrap()
    }

    /// Tracks pods; the names of those that lose the finalizer, and the status as JSON.
    #[track_caller]
    fn check(
        job: &mut Object,
        pods: Vec<Object>,
        finish: Option<&Finish>,
        released: &str,
        status: Value,
    ) -> TrackedPods {
        let progress = JobProgress::from_pods(
            job,
            pods.into_iter().map(Arc::new).collect(),
            JobBackoff::default(),
        );
        let tracked_pods = track_pods(job, &progress, finish, now());
        let names: Vec<&str> = tracked_pods.released.iter().map(|pod| pod.name()).collect();
        assert_eq!(names.join(" "), released);
        assert_eq!(job["status"], status);
        tracked_pods
    }

    #[test]
    fn a_uid_is_noted_before_its_finalizer_goes_and_counted_afterwards() {
        let mut job = job(value!({"completions": 3}));
        let pods = vec![
            pod("a", "Succeeded"),
            pod("b", "Failed"),
            pod("c", "Running"),
        ];
        let noted = value!({"uncountedTerminatedPods": {"succeeded": ["a"], "failed": ["b"]}});
        let mut tracked_pods = check(&mut job, pods, None, "a b", noted);
        // One finalizer could not be removed.
        tracked_pods.held.remove("a");
        count_released(job.entry("status"), &tracked_pods.held);
        assert_eq!(
            job["status"],
            value!({"succeeded": 1, "uncountedTerminatedPods": {"failed": ["b"]}})
        );
    }

    #[test]
    fn a_uid_from_before_a_crash_is_counted_once() {
        let noted = value!({"failed": 1, "uncountedTerminatedPods": {"succeeded": ["a", "gone"]}});
        let mut job = job(value!({"completions": 3}));
        job.set("status", noted);
        let after =
            value!({"succeeded": 1, "failed": 1, "uncountedTerminatedPods": {"succeeded": ["a"]}});
        check(&mut job, vec![pod("a", "Succeeded")], None, "a", after);
    }

    #[test]
    fn an_index_needs_no_uid() {
        let mut job = job(value!({"completionMode": "Indexed", "completions": 3}));
        let pods = vec![
            indexed_pod("a", "Succeeded", 2),
            indexed_pod("b", "Failed", 0),
        ];
        let status = value!({"succeeded": 1, "completedIndexes": "2", "uncountedTerminatedPods": {"failed": ["b"]}});
        check(&mut job, pods, None, "a b", status);
    }

    #[test]
    fn the_last_failure_of_an_index_stays_until_it_is_replaced() {
        let spec =
            value!({"completionMode": "Indexed", "completions": 3, "backoffLimitPerIndex": 2});
        let mut job = job(spec);
        check(
            &mut job,
            vec![indexed_pod("a", "Failed", 0)],
            None,
            "",
            value!({"failedIndexes": ""}),
        );
        let pods = vec![
            indexed_pod("a", "Failed", 0),
            indexed_pod("b", "Running", 0),
        ];
        let status = value!({"failedIndexes": "", "uncountedTerminatedPods": {"failed": ["a"]}});
        check(&mut job, pods, None, "a", status);
    }

    #[test]
    fn active_pods_of_a_failed_job_count_as_failed() {
        let announced = condition("FailureTarget", "True", "R", "m", now());
        let status =
            value!({"uncountedTerminatedPods": {"failed": ["a"]}, "conditions": [announced]});
        check(
            &mut job(value!({})),
            vec![pod("a", "Running")],
            Some(&finish(false)),
            "a",
            status,
        );
        let announced = condition("SuccessCriteriaMet", "True", "R", "m", now());
        check(
            &mut job(value!({})),
            vec![pod("a", "Running")],
            Some(&finish(true)),
            "a",
            value!({"conditions": [announced]}),
        );
    }

    #[test]
    fn a_status_has_a_limited_number_of_uids() {
        let pods: Vec<_> = (0..600)
            .map(|n| Arc::new(pod(&n.to_string(), "Succeeded")))
            .collect();
        let mut job = job(value!({"completions": 600}));
        let progress = JobProgress::from_pods(&job, pods, JobBackoff::default());
        let tracked_pods = track_pods(&mut job, &progress, None, now());
        assert!(
            tracked_pods.is_full
                && tracked_pods.released.len() == MAX_UNCOUNTED
                && n_uncounted(&job["status"]) == MAX_UNCOUNTED
        );
    }

    #[test]
    fn a_job_is_finished_when_all_pods_are_counted() {
        let mut status = value!({"uncountedTerminatedPods": {"failed": ["a"]}});
        assert!(!set_finished(&mut status, &finish(true), now()));
        let mut status = value!({});
        assert!(set_finished(&mut status, &finish(true), now()));
        assert_eq!(status["completionTime"].str(), "1970-01-01T00:01:40Z");
        assert_eq!(status["conditions"][0]["type"].str(), "Complete");
        let mut status = value!({});
        assert!(set_finished(&mut status, &finish(false), now()));
        assert!(status["completionTime"].is_null());
    }

    #[test]
    fn the_suspended_condition_changes_with_the_spec() {
        let mut job = job(value!({}));
        assert!(!set_suspended(&mut job, now()) && job["status"].is_null());
        job.entry("spec").set("suspend", true);
        job.entry("status").set("startTime", "1970-01-01T00:00:01Z");
        assert!(set_suspended(&mut job, now()) && !set_suspended(&mut job, now()));
        assert!(job["status"]["startTime"].is_null());
        job.entry("spec").set("suspend", false);
        assert!(set_suspended(&mut job, now()) && !set_suspended(&mut job, now()));
        assert_eq!(job["status"]["startTime"].str(), "1970-01-01T00:01:40Z");
        let resumed = &job["status"]["conditions"][0];
        assert_eq!(
            (resumed["status"].str(), resumed["reason"].str()),
            ("False", "JobResumed")
        );
    }
}
