//! The CronJob controller: creates a Job for every scheduled time.
//!
//! The name of a Job contains its scheduled minute, so a controller that crashed between the create
//! and the status update finds the Job again.

mod plan;
#[cfg(test)]
mod tests;
mod times;

use std::sync::Arc;

use mizzen_sdk::controller::{
    Action, Context, Controller, Error, Reconcile, controlled_by, decode_entries, dynamic,
    index_controllers,
};
use mizzen_sdk::dynamic::DeleteOptions;
use mizzen_sdk::event::Note;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::metrics::{HistogramVec, exponential};
use mizzen_sdk::queue::Queue;
use mizzen_sdk::resource::{CRON_JOBS, JOBS};
use mizzen_sdk::write::{is_already_exists, is_namespace_terminating, message};
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;
use mizzen_value::time::to_unix;

use crate::common::template::object_reference;
use crate::job::facts;
use plan::{CronJobPlan, decide, job_from_template, jobs_over_history_limit};
use times::until_next;

const N_WORKERS: usize = 5;
/// Upper bounds of the time between schedule and creation, in seconds.
const SKEW_BOUNDS: [f64; 10] = exponential(1.0, 2.0);

struct CronJobs {
    context: Context,
    cron_jobs: Informer<Object>,
    jobs: Informer<Object>,
    creation_skew: Arc<HistogramVec<0>>,
}

/// Creates the CronJob controller.
pub fn start(context: &Context) -> Controller {
    let context = context.named("cronjob-controller");
    let (cron_jobs, jobs) = (context.informer(&CRON_JOBS), context.informer(&JOBS));
    index_controllers(&jobs);
    let clock = context.clone();
    let on_cron_job = move |event: &_, queue: &_| on_cron_job_event(queue, &clock, event);
    let creation_skew = Arc::new(HistogramVec::new(
        "cronjob_controller_job_creation_skew_duration_seconds",
        "The time from the scheduled time of a Job to its creation.",
        [],
        &SKEW_BOUNDS,
    ));
    Controller::for_kind(&context, dynamic(&CRON_JOBS).handler(on_cron_job))
        .owns(&JOBS)
        .queue_name("cronjob")
        .workers(N_WORKERS)
        .reconcile(CronJobs {
            context,
            cron_jobs,
            jobs,
            creation_skew: creation_skew.clone(),
        })
        .with_metrics(creation_skew)
}

/// Kubernetes: a changed schedule counts from its next time; earlier times are not made up for
/// (cronjob_controllerv2.go, updateCronJob).
fn on_cron_job_event(todo: &Queue<Key>, context: &Context, event: &Event<Object>) {
    let key = event.key().clone();
    let Event::Updated { old, new } = event else {
        return todo.add(key);
    };
    let (Ok(old), Ok(new)) = (old.object(), new.object()) else {
        return;
    };
    let when =
        |cron_job: &Object| ["schedule", "timeZone"].map(|field| cron_job["spec"][field].clone());
    if when(&old) == when(&new) {
        return todo.add(key);
    }
    match plan::parse(&new) {
        Ok(schedule) => {
            if let Some(wait) = until_next(&new, &schedule, context.now()) {
                todo.add_after(key, wait);
            }
        }
        Err(_) => {
            let text = new["spec"]["schedule"].str();
            let message = format!("unparseable schedule for cronjob: {text}");
            context.record_event(
                &CRON_JOBS,
                &new,
                Note::warning("UnParseableCronJobSchedule", "", message),
            );
        }
    }
}

impl Reconcile for CronJobs {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        let Some(known) = self.cron_jobs.lister().by_key(key)? else {
            return Ok(Action::done());
        };
        let jobs = decode_entries(controlled_by(&self.jobs, known.uid()))?;
        let mut cron_job = Object::clone(&known);
        self.cleanup_finished_jobs(&mut cron_job, &jobs).await;
        let outcome = self.sync_cron_job(&mut cron_job, &jobs).await;
        if cron_job["status"] != known["status"] {
            self.context
                .api
                .update_status(&CRON_JOBS, &cron_job)
                .await?;
        }
        outcome
    }
}

impl CronJobs {
    /// Deletes finished jobs beyond the history limits.
    async fn cleanup_finished_jobs(&self, cron_job: &mut Object, jobs: &[Arc<Object>]) {
        for job in jobs_over_history_limit(cron_job, jobs) {
            self.delete_job(cron_job, &job).await;
        }
    }

    /// Updates the list of active jobs, and starts a job if one is due.
    async fn sync_cron_job(
        &self,
        cron_job: &mut Object,
        jobs: &[Arc<Object>],
    ) -> Result<Action, Error> {
        for job in jobs {
            self.sync_job_status(cron_job, job).await?;
        }
        self.remove_missing_jobs(cron_job, jobs).await?;
        let now = self.context.now();
        let decision = decide(cron_job, now);
        decision
            .events
            .into_iter()
            .for_each(|note| self.record_event(cron_job, note));
        let Some(schedule) = decision.schedule else {
            return Ok(Action::done());
        };
        match decision.plan {
            CronJobPlan::Idle => return Ok(Action::done()),
            CronJobPlan::Wait => {}
            CronJobPlan::Start(time) => self.start_job(cron_job, time).await?,
        }
        Ok(until_next(cron_job, &schedule, now).map_or(Action::done(), Action::requeue_after))
    }

    /// Updates the status for one job.
    async fn sync_job_status(&self, cron_job: &mut Object, job: &Object) -> Result<(), Error> {
        let is_known = is_active(cron_job, job.uid());
        match facts::finished_condition(job) {
            None if is_known => {}
            None => return self.report_unexpected_job(cron_job, job).await,
            Some(end) => {
                if is_known {
                    remove_active(cron_job, job.uid());
                    let message = format!("Saw completed job: {}, condition: {end}", job.name());
                    self.record_event(cron_job, Note::normal("SawCompletedJob", "", message));
                }
                let (status, time) = (cron_job.entry("status"), &job["status"]["completionTime"]);
                if end == "Complete"
                    && to_unix(time.str()) > to_unix(status["lastSuccessfulTime"].str())
                {
                    status.set("lastSuccessfulTime", time.clone());
                }
            }
        }
        Ok(())
    }

    /// An active job that is not in the status: the cache may be stale, or another client created
    /// it.
    async fn report_unexpected_job(
        &self,
        cron_job: &mut Object,
        job: &Object,
    ) -> Result<(), Error> {
        let fresh = self.context.api.get(&CRON_JOBS, &cron_job.key()).await?;
        if is_active(&fresh, job.uid()) {
            *cron_job = fresh;
            return Ok(());
        }
        let message = format!(
            "Saw a job that the controller did not create or forgot: {}",
            job.name()
        );
        self.record_event(cron_job, Note::warning("UnexpectedJob", "", message));
        Ok(())
    }

    /// Removes jobs that do not exist any more from the status.
    async fn remove_missing_jobs(
        &self,
        cron_job: &mut Object,
        jobs: &[Arc<Object>],
    ) -> Result<(), Error> {
        for job in cron_job["status"]["active"].list().to_vec() {
            let is_there = jobs.iter().any(|known| known.uid() == job["uid"].str());
            if is_there
                || self
                    .context
                    .api
                    .find(&JOBS, &job_key(&job))
                    .await?
                    .is_some()
            {
                continue;
            }
            let message = format!("Active job went missing: {}", job["name"].str());
            self.record_event(cron_job, Note::normal("MissingJob", "", message));
            remove_active(cron_job, job["uid"].str());
        }
        Ok(())
    }

    /// Creates the job of a scheduled time.
    async fn start_job(&self, cron_job: &mut Object, time: i64) -> Result<(), Error> {
        if cron_job["spec"]["concurrencyPolicy"].str() == "Replace" {
            self.delete_active_jobs(cron_job).await?;
        }
        let draft = job_from_template(cron_job, time);
        let job = match self.context.api.create(&JOBS, &draft).await {
            Ok(job) => {
                let created = to_unix(job["metadata"]["creationTimestamp"].str());
                if let Some(created) = created {
                    self.creation_skew.observe([], (created - time) as f64);
                }
                let message = format!("Created job {}", job.name());
                self.record_event(cron_job, Note::normal("SuccessfulCreate", "", message));
                job
            }
            // It may have been created before a crash.
            Err(error) if is_already_exists(&error) => {
                let api = &self.context.api;
                let job = api.get(&JOBS, &job_key(&draft["metadata"])).await?;
                if !job.is_controlled_by(cron_job.uid()) || is_active(cron_job, job.uid()) {
                    return Ok(());
                }
                job
            }
            Err(error) => {
                if !is_namespace_terminating(&error) {
                    let message = format!("Error creating job: {}", message(&error));
                    self.record_event(cron_job, Note::warning("FailedCreate", "", message));
                }
                return Err(error.into());
            }
        };
        let status = cron_job.entry("status");
        let reference = object_reference(&job, &JOBS);
        status.entry("active").make_list().push(reference);
        status.set("lastScheduleTime", mizzen_value::time::from_unix(time));
        Ok(())
    }

    /// Deletes the active jobs (concurrencyPolicy Replace).
    async fn delete_active_jobs(&self, cron_job: &mut Object) -> Result<(), Error> {
        for active in cron_job["status"]["active"].list().to_vec() {
            let job = match self.context.api.get(&JOBS, &job_key(&active)).await {
                Ok(job) => job,
                Err(error) => {
                    let message = format!("Get job: {}", message(&error));
                    self.record_event(cron_job, Note::warning("FailedGet", "", message));
                    return Err(error.into());
                }
            };
            if !self.delete_job(cron_job, &job).await {
                return Err(Error::other(format!("could not replace job {}", job.key())));
            }
        }
        Ok(())
    }

    /// Deletes a job with its pods; whether that succeeded.
    async fn delete_job(&self, cron_job: &mut Object, job: &Object) -> bool {
        let options = DeleteOptions {
            propagation: Some("Background"),
            ..DeleteOptions::default()
        };
        if let Err(error) = self.context.api.delete(&JOBS, &job.key(), &options).await {
            let message = format!("Deleted job: {}", message(&error));
            self.record_event(cron_job, Note::warning("FailedDelete", "", message));
            return false;
        }
        remove_active(cron_job, job.uid());
        self.record_event(
            cron_job,
            Note::normal(
                "SuccessfulDelete",
                "",
                format!("Deleted job {}", job.name()),
            ),
        );
        true
    }

    fn record_event(&self, cron_job: &Object, note: Note) {
        self.context.record_event(&CRON_JOBS, cron_job, note);
    }
}

fn job_key(reference: &Value) -> Key {
    Key::new(reference["namespace"].str(), reference["name"].str())
}

fn is_active(cron_job: &Object, uid: &str) -> bool {
    cron_job["status"]["active"]
        .list()
        .iter()
        .any(|job| job["uid"].str() == uid)
}

fn remove_active(cron_job: &mut Object, uid: &str) {
    let status = cron_job.entry("status");
    let active = status["active"]
        .list()
        .iter()
        .filter(|job| job["uid"].str() != uid);
    let active: Vec<Value> = active.cloned().collect();
    match active.is_empty() {
        true => drop(status.remove("active")),
        false => status.set("active", active),
    }
}
