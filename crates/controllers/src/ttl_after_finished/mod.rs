//! A job that has ended goes some time later, if it says how long it is to be kept.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use mizzen_sdk::api::DeleteOptions;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::JOBS;
use mizzen_sdk::{Key, Object};
use mizzen_value::time::to_unix;

use crate::job::facts;
use crate::{After, Context, Error, Reconcile, Work};

const N_WORKERS: usize = 5;

struct Ended {
    context: Context,
    jobs: Informer<Object>,
}

/// Sets up the loop.
pub(crate) fn start(context: &Context) -> Work {
    let context = context.named("ttl-after-finished-controller");
    let (queue, jobs) = (context.queue("ttl_jobs_to_delete"), context.follow(&JOBS));
    let todo = queue.clone();
    jobs.add_handler(move |event: Event<Object>| todo.add(event.key().clone()));
    Work::new(queue, N_WORKERS, Arc::new(Ended { context, jobs }))
}

impl Reconcile for Ended {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        let Some(job) = self.jobs.lister().by_key(key)? else {
            return Ok(After::Done);
        };
        match time_left(&job, self.context.now()) {
            None => Ok(After::Done),
            Some(left) if left.is_zero() => self.delete(key).await,
            Some(left) => Ok(After::Again(left)),
        }
    }
}

impl Ended {
    /// Deletes a job with its pods, unless it says by now that it is to be kept longer.
    async fn delete(&self, key: &Key) -> Result<After, Error> {
        let Some(job) = self.context.api.find(&JOBS, key).await? else {
            return Ok(After::Done);
        };
        match time_left(&job, self.context.now()) {
            None => return Ok(After::Done),
            Some(left) if left.is_zero() => {}
            Some(left) => return Ok(After::Again(left)),
        }
        let options = DeleteOptions {
            uid: Some(job.uid()),
            propagation: Some("Foreground"),
            ..DeleteOptions::default()
        };
        self.context.api.delete(&JOBS, key, &options).await?;
        Ok(After::Done)
    }
}

/// How long a job is to be kept; none if it has not ended, does not say, or goes already.
fn time_left(job: &Object, now: Timestamp) -> Option<Duration> {
    let seconds = job["spec"]["ttlSecondsAfterFinished"]
        .as_int()
        .filter(|_| !job.is_going())?;
    let end = facts::true_condition(job, facts::finished(job)?)?;
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
    fn time_runs_from_the_end() {
        check(ended("Complete"), value!(30), Some(20));
        check(ended("Failed"), value!(10), Some(0));
        check(ended("Failed"), value!(0), Some(0));
    }

    #[test]
    fn a_job_that_has_not_ended_or_does_not_say_is_kept() {
        check(ended("Complete"), Value::Null, None);
        check(ended("SuccessCriteriaMet"), value!(0), None);
    }
}
