//! The TTL-after-finished controller: deletes finished jobs after `ttlSecondsAfterFinished`.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use mizzen_sdk::controller::{Action, Context, Controller, Error, Reconcile};
use mizzen_sdk::dynamic::DeleteOptions;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::resource::JOBS;
use mizzen_sdk::{Key, Object};
use mizzen_value::time::to_unix;

use crate::job::facts;

const N_WORKERS: usize = 5;

struct TtlAfterFinished {
    context: Context,
    jobs: Informer<Object>,
}

/// Creates the controller that deletes finished Jobs after their TTL.
pub fn start(context: &Context) -> Controller {
    let context = context.named("ttl-after-finished-controller");
    let jobs = context.informer(&JOBS);
    Controller::for_kind(&context, &JOBS)
        .queue_name("ttl_jobs_to_delete")
        .workers(N_WORKERS)
        .reconcile(TtlAfterFinished { context, jobs })
}

impl Reconcile for TtlAfterFinished {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        let Some(job) = self.jobs.lister().by_key(key)? else {
            return Ok(Action::done());
        };
        match time_left(&job, self.context.now()) {
            None => Ok(Action::done()),
            Some(left) if left.is_zero() => self.delete(key).await,
            Some(left) => Ok(Action::requeue_after(left)),
        }
    }
}

impl TtlAfterFinished {
    /// Deletes a job with its pods, if the TTL on the server has passed too.
    async fn delete(&self, key: &Key) -> Result<Action, Error> {
        let Some(job) = self.context.api.find(&JOBS, key).await? else {
            return Ok(Action::done());
        };
        match time_left(&job, self.context.now()) {
            None => return Ok(Action::done()),
            Some(left) if left.is_zero() => {}
            Some(left) => return Ok(Action::requeue_after(left)),
        }
        let options = DeleteOptions {
            uid: Some(job.uid()),
            propagation: Some("Foreground"),
            ..DeleteOptions::default()
        };
        self.context.api.delete(&JOBS, key, &options).await?;
        Ok(Action::done())
    }
}

/// The time until a finished job is deleted; none if it is not finished, has no TTL, or is being
/// deleted.
fn time_left(job: &Object, now: Timestamp) -> Option<Duration> {
    let seconds = job["spec"]["ttlSecondsAfterFinished"]
        .as_int()
        .filter(|_| !job.is_terminating())?;
    let end = facts::true_condition(job, facts::finished_condition(job)?)?;
    let due = to_unix(end["lastTransitionTime"].str())?.saturating_add(seconds);
    let left = i128::from(due) * 1_000_000_000 - now.as_nanosecond();
    Some(Duration::from_nanos(
        left.max(0).try_into().unwrap_or(u64::MAX),
    ))
}

#[cfg(test)]
mod tests {
    use mizzen_value::{Value, value};

    use super::*;

    /// The seconds that a job is kept, at second 100.
    #[track_caller]
    fn check(condition: Value, seconds: Value, expect: Option<u64>) {
        let job = value!({"spec": {"ttlSecondsAfterFinished": seconds}, "status": {"conditions": [condition]}});
        let left = time_left(&Object(job), Timestamp::from_second(100).unwrap());
        assert_eq!(left, expect.map(Duration::from_secs));
    }

    fn ended(kind: &str) -> Value {
        value!({"type": kind, "status": "True", "lastTransitionTime": "1970-01-01T00:01:30Z"})
    }

    #[test]
    fn the_ttl_counts_from_the_finish_time() {
        check(ended("Complete"), value!(30), Some(20));
        check(ended("Failed"), value!(10), Some(0));
        check(ended("Failed"), value!(0), Some(0));
    }

    #[test]
    fn an_unfinished_job_or_one_without_ttl_is_kept() {
        check(ended("Complete"), Value::Null, None);
        check(ended("SuccessCriteriaMet"), value!(0), None);
    }
}
