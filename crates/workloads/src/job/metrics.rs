//! Metrics of the Job controller, under upstream's names (pkg/controller/job/metrics).

use std::time::Duration;

use mizzen_sdk::metrics::{Collector, CounterVec, Families, HistogramVec, exponential};
use mizzen_value::Value;

use super::facts;

/// Upper bounds of a sync, in seconds.
const SYNC_BOUNDS: [f64; 15] = exponential(0.004, 2.0);

#[derive(Debug)]
pub(super) struct JobMetrics {
    syncs: HistogramVec<3>,
    finished: CounterVec<3>,
    pods_finished: CounterVec<2>,
    failure_policy: CounterVec<1>,
    tracking_finalizer: CounterVec<1>,
}

/// What a sync did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SyncAction {
    /// It did not come to creating or deleting pods.
    Reconciling,
    /// No pods had to be created or deleted.
    Tracking,
    PodsCreated,
    PodsDeleted,
}

impl SyncAction {
    fn as_str(self) -> &'static str {
        match self {
            SyncAction::Reconciling => "reconciling",
            SyncAction::Tracking => "tracking",
            SyncAction::PodsCreated => "pods_created",
            SyncAction::PodsDeleted => "pods_deleted",
        }
    }
}

impl Default for JobMetrics {
    fn default() -> JobMetrics {
        JobMetrics {
            syncs: HistogramVec::new(
                "job_controller_job_sync_duration_seconds",
                "How long syncs of Jobs took.",
                ["completion_mode", "result", "action"],
                &SYNC_BOUNDS,
            ),
            finished: CounterVec::new(
                "job_controller_jobs_finished_total",
                "Jobs that finished.",
                ["completion_mode", "result", "reason"],
            ),
            pods_finished: CounterVec::new(
                "job_controller_job_pods_finished_total",
                "Finished pods that Jobs have counted.",
                ["completion_mode", "result"],
            ),
            failure_policy: CounterVec::new(
                "job_controller_pod_failures_handled_by_failure_policy_total",
                "Failed pods that a rule of the pod failure policy matched.",
                ["action"],
            ),
            tracking_finalizer: CounterVec::new(
                "job_controller_terminated_pods_tracking_finalizer_total",
                "Terminated pods that got or lost the tracking finalizer.",
                ["event"],
            ),
        }
    }
}

impl JobMetrics {
    pub(super) fn observe_sync(
        &self,
        job: &Value,
        action: SyncAction,
        is_done: bool,
        took: Duration,
    ) {
        let result = if is_done { "success" } else { "error" };
        let labels = [mode(job).into(), result.into(), action.as_str().into()];
        self.syncs.observe(labels, took.as_secs_f64());
    }

    pub(super) fn count_finished(&self, job: &Value, succeeded: bool, reason: &str) {
        let reason = reason.to_owned().into();
        let labels = [mode(job).into(), result(succeeded).into(), reason];
        self.finished.add(labels, 1);
    }

    /// Counts the pods that `job` has counted and its status `before` had not.
    pub(super) fn count_pods(&self, job: &Value, before: &Value) {
        for (field, succeeded) in [("succeeded", true), ("failed", false)] {
            let n_new = job["status"][field].int() - before[field].int();
            if let Ok(n_new @ 1..) = u64::try_from(n_new) {
                let labels = [mode(job).into(), result(succeeded).into()];
                self.pods_finished.add(labels, n_new);
            }
        }
    }

    /// Counts a failed pod that a rule with this action matched.
    pub(super) fn count_failure_policy(&self, action: &'static str) {
        self.failure_policy.add([action.into()], 1);
    }

    /// Counts a terminated pod that got the tracking finalizer, or lost it.
    pub(super) fn count_tracking_finalizer(&self, is_added: bool) {
        let event = if is_added { "add" } else { "delete" };
        self.tracking_finalizer.add([event.into()], 1);
    }
}

impl Collector for JobMetrics {
    fn collect(&self, families: &mut Families) {
        self.syncs.collect(families);
        self.syncs
            .collect_counts("job_controller_job_syncs_total", "Syncs of Jobs.", families);
        self.finished.collect(families);
        self.pods_finished.collect(families);
        self.failure_policy.collect(families);
        self.tracking_finalizer.collect(families);
    }
}

fn mode(job: &Value) -> &'static str {
    if facts::is_indexed(job) {
        "Indexed"
    } else {
        "NonIndexed"
    }
}

fn result(succeeded: bool) -> &'static str {
    if succeeded { "succeeded" } else { "failed" }
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;
    use crate::job::sample::job;

    #[test]
    fn pods_are_counted_by_the_difference_of_two_statuses() {
        let metrics = JobMetrics::default();
        let mut job = job(value!({"completionMode": "Indexed"}));
        job.0.set("status", value!({"succeeded": 3, "failed": 1}));
        metrics.count_pods(&job, &value!({"succeeded": 1}));
        metrics.count_pods(&job, &job["status"].clone());
        metrics.observe_sync(&job, SyncAction::Tracking, false, Duration::from_secs(1));
        metrics.count_finished(&job, false, "BackoffLimitExceeded");
        let text = Families::of(&[&metrics]).to_string();
        for line in [
            r#"job_controller_job_pods_finished_total{completion_mode="Indexed",result="succeeded"} 2"#,
            r#"job_controller_job_pods_finished_total{completion_mode="Indexed",result="failed"} 1"#,
            r#"job_controller_job_syncs_total{action="tracking",completion_mode="Indexed",result="error"} 1"#,
            r#"job_controller_jobs_finished_total{completion_mode="Indexed",reason="BackoffLimitExceeded",result="failed"} 1"#,
        ] {
            assert!(text.lines().any(|known| known == line), "{line}\n{text}");
        }
    }
}
