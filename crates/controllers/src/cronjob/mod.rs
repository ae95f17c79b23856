//! A CronJob starts a job whenever it is due.
//!
//! The name of a job says for which minute it is: a loop that crashed between making a job and saying so finds it again.

mod plan;
#[cfg(test)]
mod tests;
mod times;

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use mizzen_kinds::Schedule;
use mizzen_sdk::api::DeleteOptions;
use mizzen_sdk::event::Note;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::queue::Queue;
use mizzen_sdk::resource::{CRON_JOBS, JOBS};
use mizzen_sdk::write::is_already_exists;
use mizzen_sdk::{Key, Object};
use mizzen_value::time::to_unix;
use mizzen_value::{Value, value};

use crate::common::failure::{is_namespace_going, message};
use crate::common::owned;
use crate::job::facts;
use crate::{After, Context, Error, Reconcile, Work};
use plan::{Plan, decide, draft, forgotten};
use times::until_next;

const N_WORKERS: usize = 5;

struct CronJobs {
    context: Context,
    cron_jobs: Informer<Object>,
    jobs: Informer<Object>,
}

/// Sets up the loop.
pub(crate) fn start(context: &Context) -> Work {
    let context = context.named("cronjob-controller");
    let (cron_jobs, jobs) = (context.follow(&CRON_JOBS), context.follow(&JOBS));
    owned::index(&jobs);
    let queue = context.queue("cronjob");
    let (todo, clock) = (queue.clone(), context.clone());
    cron_jobs.add_handler(move |event: Event<Object>| wake(&todo, &clock, &event));
    let todo = queue.clone();
    jobs.add_handler(move |event: Event<Object>| wake_owners(&todo, &event));
    Work::new(
        queue,
        N_WORKERS,
        Arc::new(CronJobs {
            context,
            cron_jobs,
            jobs,
        }),
    )
}

/// Kubernetes: a new schedule counts from its next time on; a time that it would have had before now is not made up for
/// (cronjob_controllerv2.go, updateCronJob).
fn wake(todo: &Queue<Key>, context: &Context, event: &Event<Object>) {
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
            context.record(
                &CRON_JOBS,
                &new,
                Note::warning("UnParseableCronJobSchedule", "", message),
            );
        }
    }
}

fn wake_owners(todo: &Queue<Key>, event: &Event<Object>) {
    let before = match event {
        Event::Updated { old, .. } => Some(old),
        _ => None,
    };
    for job in before
        .into_iter()
        .chain([event.object()])
        .filter_map(|entry| entry.object().ok())
    {
        let is_cron_job = |owner: &&Value| owner["kind"].str() == "CronJob";
        if let Some(owner) = job.controller().filter(is_cron_job) {
            todo.add(Key::new(job.namespace(), owner["name"].str()));
        }
    }
}

impl Reconcile for CronJobs {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        let Some(known) = self.cron_jobs.lister().by_key(key)? else {
            return Ok(After::Done);
        };
        let jobs = owned::read(owned::of(&self.jobs, known.uid()))?;
        let mut cron_job = Object::clone(&known);
        self.clean_up(&mut cron_job, &jobs).await;
        let outcome = self.act(&mut cron_job, &jobs).await;
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
    /// Deletes jobs that have ended and are too many.
    async fn clean_up(&self, cron_job: &mut Object, jobs: &[Arc<Object>]) {
        for job in forgotten(cron_job, jobs) {
            self.delete(cron_job, &job).await;
        }
    }

    /// Looks how its jobs are doing, and starts one if it is time.
    async fn act(&self, cron_job: &mut Object, jobs: &[Arc<Object>]) -> Result<After, Error> {
        for job in jobs {
            self.observe(cron_job, job).await?;
        }
        self.drop_missing(cron_job, jobs).await?;
        let now = self.context.now();
        let decision = decide(cron_job, now);
        decision
            .notes
            .into_iter()
            .for_each(|note| self.tell(cron_job, note));
        let Some(schedule) = decision.schedule else {
            return Ok(After::Done);
        };
        match decision.plan {
            Plan::Rest => return Ok(After::Done),
            Plan::Wait => {}
            Plan::Start(time) => self.start(cron_job, time).await?,
        }
        Ok(next(cron_job, &schedule, now))
    }

    /// Notes what became of a job.
    async fn observe(&self, cron_job: &mut Object, job: &Object) -> Result<(), Error> {
        let is_known = is_active(cron_job, job.uid());
        match facts::finished(job) {
            None if is_known => {}
            None => return self.meet(cron_job, job).await,
            Some(end) => {
                if is_known {
                    remove_active(cron_job, job.uid());
                    let message = format!("Saw completed job: {}, condition: {end}", job.name());
                    self.tell(cron_job, Note::normal("SawCompletedJob", "", message));
                }
                if end == "Complete" {
                    note_success(cron_job.entry("status"), job);
                }
            }
        }
        Ok(())
    }

    /// A job that runs and is not known: the cache may be behind, or somebody else made it.
    async fn meet(&self, cron_job: &mut Object, job: &Object) -> Result<(), Error> {
        let fresh = self.context.api.get(&CRON_JOBS, &cron_job.key()).await?;
        if is_active(&fresh, job.uid()) {
            *cron_job = fresh;
            return Ok(());
        }
        let message = format!(
            "Saw a job that the controller did not create or forgot: {}",
            job.name()
        );
        self.tell(cron_job, Note::warning("UnexpectedJob", "", message));
        Ok(())
    }

    /// Forgets jobs that are gone.
    async fn drop_missing(&self, cron_job: &mut Object, jobs: &[Arc<Object>]) -> Result<(), Error> {
        for job in cron_job["status"]["active"].list().to_vec() {
            let is_there = jobs.iter().any(|known| known.uid() == job["uid"].str());
            if is_there || self.context.api.find(&JOBS, &key_of(&job)).await?.is_some() {
                continue;
            }
            let message = format!("Active job went missing: {}", job["name"].str());
            self.tell(cron_job, Note::normal("MissingJob", "", message));
            remove_active(cron_job, job["uid"].str());
        }
        Ok(())
    }

    /// Starts the job for a time.
    async fn start(&self, cron_job: &mut Object, time: i64) -> Result<(), Error> {
        if cron_job["spec"]["concurrencyPolicy"].str() == "Replace" {
            self.stop_active(cron_job).await?;
        }
        let draft = draft(cron_job, time);
        let job = match self.context.api.create(&JOBS, &draft).await {
            Ok(job) => {
                let message = format!("Created job {}", job.name());
                self.tell(cron_job, Note::normal("SuccessfulCreate", "", message));
                job
            }
            // It may have been made before a crash.
            Err(error) if is_already_exists(&error) => {
                let job = self
                    .context
                    .api
                    .get(&JOBS, &key_of(&draft["metadata"]))
                    .await?;
                if !job.is_controlled_by(cron_job.uid()) || is_active(cron_job, job.uid()) {
                    return Ok(());
                }
                job
            }
            Err(error) => {
                if !is_namespace_going(&error) {
                    let message = format!("Error creating job: {}", message(&error));
                    self.tell(cron_job, Note::warning("FailedCreate", "", message));
                }
                return Err(error.into());
            }
        };
        let status = cron_job.entry("status");
        status.entry("active").make_list().push(reference(&job));
        status.set("lastScheduleTime", mizzen_value::time::from_unix(time));
        Ok(())
    }

    /// Deletes the jobs that run, to make room for the next.
    async fn stop_active(&self, cron_job: &mut Object) -> Result<(), Error> {
        for active in cron_job["status"]["active"].list().to_vec() {
            let job = match self.context.api.get(&JOBS, &key_of(&active)).await {
                Ok(job) => job,
                Err(error) => {
                    let message = format!("Get job: {}", message(&error));
                    self.tell(cron_job, Note::warning("FailedGet", "", message));
                    return Err(error.into());
                }
            };
            if !self.delete(cron_job, &job).await {
                return Err(Error::Other(format!("could not replace job {}", job.key())));
            }
        }
        Ok(())
    }

    /// Deletes a job with its pods; whether that went well.
    async fn delete(&self, cron_job: &mut Object, job: &Object) -> bool {
        let options = DeleteOptions {
            propagation: Some("Background"),
            ..DeleteOptions::default()
        };
        if let Err(error) = self.context.api.delete(&JOBS, &job.key(), &options).await {
            let message = format!("Deleted job: {}", message(&error));
            self.tell(cron_job, Note::warning("FailedDelete", "", message));
            return false;
        }
        remove_active(cron_job, job.uid());
        self.tell(
            cron_job,
            Note::normal(
                "SuccessfulDelete",
                "",
                format!("Deleted job {}", job.name()),
            ),
        );
        true
    }

    fn tell(&self, cron_job: &Object, note: Note) {
        self.context.record(&CRON_JOBS, cron_job, note);
    }
}

fn next(cron_job: &Object, schedule: &Schedule, now: Timestamp) -> After {
    until_next(cron_job, schedule, now).map_or(After::Done, After::Again)
}

fn key_of(reference: &Value) -> Key {
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

fn note_success(status: &mut Value, job: &Object) {
    let time = &job["status"]["completionTime"];
    if to_unix(time.str()) > to_unix(status["lastSuccessfulTime"].str()) {
        status.set("lastSuccessfulTime", time.clone());
    }
}

fn reference(job: &Object) -> Value {
    value!({
        "kind": (&*JOBS.kind),
        "namespace": (job.namespace()),
        "name": (job.name()),
        "uid": (job.uid()),
        "apiVersion": (JOBS.api_version()),
        "resourceVersion": (job.version()),
    })
}
