//! Decides whether a job is finished.
//!
//! A job finishes in two steps: an interim condition (`SuccessCriteriaMet` or `FailureTarget`)
//! first, then its pods are deleted, and when the last one is counted the final condition
//! (`Complete` or `Failed`).

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use mizzen_value::Value;
use mizzen_value::time::to_unix;

use super::facts::{self, has_failed, true_condition};
use super::failure::{FailurePolicyAction, match_pod_failure_policy};
use super::progress::JobProgress;
use super::success::met_rule;

/// How a job finishes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finish {
    pub succeeded: bool,
    pub reason: String,
    pub message: String,
    /// Whether the status has the interim condition.
    pub is_announced: bool,
}

impl Finish {
    fn new(succeeded: bool, reason: &str, message: impl Into<String>) -> Finish {
        Finish {
            succeeded,
            reason: reason.into(),
            message: message.into(),
            is_announced: false,
        }
    }

    fn failed(reason: &str, message: impl Into<String>) -> Option<Finish> {
        Some(Finish::new(false, reason, message))
    }

    fn from_condition(condition: &Value, succeeded: bool) -> Finish {
        let (reason, message) = (condition["reason"].str(), condition["message"].str());
        Finish {
            is_announced: true,
            ..Finish::new(succeeded, reason, message)
        }
    }

    /// The interim condition.
    pub(super) fn interim_condition(&self) -> &'static str {
        if self.succeeded {
            "SuccessCriteriaMet"
        } else {
            "FailureTarget"
        }
    }

    /// The final condition.
    pub(super) fn final_condition(&self) -> &'static str {
        if self.succeeded { "Complete" } else { "Failed" }
    }
}

/// How a job finishes before its completions are reached. Failure is checked before success.
pub(super) fn finish(job: &Value, progress: &JobProgress, now: Timestamp) -> Option<Finish> {
    // The interim condition of an earlier sync is final.
    let announced = |kind: &str, succeeded: bool| {
        true_condition(job, kind).map(|condition| Finish::from_condition(condition, succeeded))
    };
    announced("SuccessCriteriaMet", true)
        .or_else(|| announced("FailureTarget", false))
        .or_else(|| progress.failed_by_policy(job))
        .or_else(|| progress.out_of_patience(job, now))
        .or_else(|| progress.failed_by_indexes(job))
        .or_else(|| progress.succeeded_by_policy(job))
}

/// Whether the completions are reached and no pod is active.
pub(super) fn completions_reached(
    job: &Value,
    progress: &JobProgress,
    n_active: i64,
) -> Option<Finish> {
    // Without `completions` one success is enough, but active pods may finish.
    let n_wanted = job["spec"]["completions"].as_int().unwrap_or(1);
    let is_complete = progress.n_succeeded >= n_wanted && n_active == 0;
    is_complete.then(|| {
        Finish::new(
            true,
            "CompletionsReached",
            "Reached expected number of succeeded pods",
        )
    })
}

/// The time until activeDeadlineSeconds.
pub(super) fn time_to_deadline(job: &Value, now: Timestamp) -> Option<Duration> {
    let seconds = job["spec"]["activeDeadlineSeconds"].as_int()?;
    let start = &job["status"]["startTime"];
    let start = to_unix(start.str()).filter(|_| !facts::is_suspended(job))?;
    let left = i128::from(start.saturating_add(seconds)) * 1_000_000_000 - now.as_nanosecond();
    Some(Duration::from_nanos(
        left.max(0).try_into().unwrap_or(u64::MAX),
    ))
}

impl JobProgress {
    fn failed_by_policy(&self, job: &Value) -> Option<Finish> {
        let failed = self.pods.iter().filter(|pod| has_failed(job, pod));
        let message = |action| match action {
            FailurePolicyAction::FailJob(message) => Some(message),
            _ => None,
        };
        let message = failed
            .filter_map(|pod| message(match_pod_failure_policy(job, pod)))
            .next()?;
        Finish::failed("PodFailurePolicy", message)
    }

    fn out_of_patience(&self, job: &Value, now: Timestamp) -> Option<Finish> {
        if self.n_failed > job["spec"]["backoffLimit"].int() || self.restarts_reach_limit(job) {
            return Finish::failed(
                "BackoffLimitExceeded",
                "Job has reached the specified backoff limit",
            );
        }
        if time_to_deadline(job, now).is_some_and(|left| left.is_zero()) {
            return Finish::failed(
                "DeadlineExceeded",
                "Job was active longer than specified deadline",
            );
        }
        None
    }

    /// Whether the restarts of containers (restartPolicy OnFailure) reach backoffLimit.
    fn restarts_reach_limit(&self, job: &Value) -> bool {
        if job.at("spec.template.spec.restartPolicy").str() != "OnFailure" {
            return false;
        }
        let alive = self
            .pods
            .iter()
            .filter(|pod| matches!(pod["status"]["phase"].str(), "Running" | "Pending"));
        let restarts = alive.flat_map(|pod| {
            let kinds = ["initContainerStatuses", "containerStatuses"];
            kinds
                .into_iter()
                .flat_map(|kind| pod["status"][kind].list())
                .map(|status| status["restartCount"].int())
        });
        restarts.sum::<i64>() >= job["spec"]["backoffLimit"].int().max(1)
    }

    fn failed_by_indexes(&self, job: &Value) -> Option<Finish> {
        let indexes = self.indexes.as_ref()?;
        let n_failed = indexes.failed.as_ref()?.len();
        if job["spec"]["maxFailedIndexes"]
            .as_int()
            .is_some_and(|limit| n_failed > limit)
        {
            let message = "Job has exceeded the specified maximal number of failed indexes";
            return Finish::failed("MaxFailedIndexesExceeded", message);
        }
        if n_failed > 0 && n_failed + indexes.succeeded.len() >= job["spec"]["completions"].int() {
            return Finish::failed("FailedIndexes", "Job has failed indexes");
        }
        None
    }

    fn succeeded_by_policy(&self, job: &Value) -> Option<Finish> {
        let message = met_rule(job, &self.indexes.as_ref()?.succeeded)?;
        Some(Finish::new(true, "SuccessPolicy", message))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mizzen_sdk::Object;
    use mizzen_value::value;

    use super::*;
    use crate::job::backoff::JobBackoff;
    use crate::job::sample::{indexed_pod, job, pod};

    /// The reason for which a job is finished at second 100.
    #[track_caller]
    fn check(job: &Object, pods: Vec<Object>, expect: Option<&str>) {
        let progress = JobProgress::from_pods(
            job,
            pods.into_iter().map(Arc::new).collect(),
            JobBackoff::default(),
        );
        let finish = finish(job, &progress, Timestamp::from_second(100).unwrap());
        assert_eq!(finish.as_ref().map(|finish| finish.reason.as_str()), expect);
    }

    #[test]
    fn failures_count_up_to_the_limit() {
        let job = job(value!({"backoffLimit": 1}));
        check(&job, vec![pod("a", "Failed")], None);
        check(
            &job,
            vec![pod("a", "Failed"), pod("b", "Failed")],
            Some("BackoffLimitExceeded"),
        );
    }

    #[test]
    fn restarts_count_up_to_the_limit() {
        let template = value!({"spec": {"restartPolicy": "OnFailure"}});
        let mut job = job(value!({"backoffLimit": 2, "template": template}));
        let restarted = |n: i64| {
            let mut pod = pod("a", "Running");
            pod.entry("status")
                .set("containerStatuses", value!([{"restartCount": n}]));
            vec![pod]
        };
        check(&job, restarted(1), None);
        check(&job, restarted(2), Some("BackoffLimitExceeded"));
        job.entry("spec").set("backoffLimit", 0);
        check(&job, restarted(0), None);
        check(&job, restarted(1), Some("BackoffLimitExceeded"));
    }

    #[test]
    fn a_deadline_runs_from_the_start_unless_suspended() {
        let mut job = job(value!({"activeDeadlineSeconds": 30}));
        let now = Timestamp::from_second(100).unwrap();
        check(&job, vec![], None);
        job.entry("status").set("startTime", "1970-01-01T00:01:11Z");
        check(&job, vec![], None);
        assert_eq!(time_to_deadline(&job, now), Some(Duration::from_secs(1)));
        job.entry("status").set("startTime", "1970-01-01T00:01:10Z");
        check(&job, vec![], Some("DeadlineExceeded"));
        job.entry("spec").set("suspend", true);
        check(&job, vec![], None);
    }

    #[test]
    fn failed_indexes_end_a_job_when_all_are_settled_or_too_many() {
        let spec = value!({"completionMode": "Indexed", "completions": 3, "backoffLimitPerIndex": 0, "maxFailedIndexes": 1});
        let job = job(spec);
        let failed = |index: i64| indexed_pod(&format!("f{index}"), "Failed", index);
        let fine = |index: i64| indexed_pod(&format!("s{index}"), "Succeeded", index);
        check(&job, vec![failed(0), fine(1)], None);
        check(
            &job,
            vec![failed(0), fine(1), fine(2)],
            Some("FailedIndexes"),
        );
        check(
            &job,
            vec![failed(0), failed(1)],
            Some("MaxFailedIndexesExceeded"),
        );
    }

    #[test]
    fn a_success_policy_ends_a_job_early() {
        let rules = value!([{"succeededIndexes": "1"}]);
        let spec = value!({"completionMode": "Indexed", "completions": 3, "successPolicy": {"rules": rules}});
        check(
            &job(spec),
            vec![indexed_pod("a", "Succeeded", 1)],
            Some("SuccessPolicy"),
        );
    }

    #[test]
    fn an_interim_condition_is_final() {
        let mut job = job(value!({"backoffLimit": 0}));
        let met =
            value!({"type": "SuccessCriteriaMet", "status": "True", "reason": "SuccessPolicy"});
        job.entry("status").set("conditions", value!([met]));
        check(&job, vec![pod("a", "Failed")], Some("SuccessPolicy"));
    }

    #[test]
    fn completions_are_reached_when_nothing_runs() {
        let reached = |spec: Value, n_active: i64| {
            let job = job(spec);
            let pods = vec![Arc::new(pod("a", "Succeeded"))];
            completions_reached(
                &job,
                &JobProgress::from_pods(&job, pods, JobBackoff::default()),
                n_active,
            )
            .is_some()
        };
        assert!(reached(value!({"completions": 1}), 0));
        assert!(!reached(value!({"completions": 1}), 1));
        assert!(!reached(value!({"completions": 2}), 0));
        assert!(reached(value!({"completions": 0}), 0));
        assert!(reached(value!({}), 0));
    }
}
