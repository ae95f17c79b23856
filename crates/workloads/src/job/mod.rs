//! The Job controller: runs pods until enough of them have succeeded.
//!
//! A sync counts the pods (`progress`), decides whether the job is finished (`finish`), creates
//! or deletes pods (`plan`), and counts finished pods in the status (`track`), in an order in which
//! a crash loses nothing.

mod backoff;
mod event_handlers;
pub(crate) mod facts;
mod failure;
mod finish;
mod indexes;
mod metrics;
mod orphan;
mod plan;
mod pod;
mod pod_control;
mod progress;
#[cfg(test)]
mod sample;
mod success;
mod track;
mod writes;

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use k8s_openapi::jiff::Timestamp;
use mizzen_object::select::LabelSelector;
use mizzen_sdk::controller::{
    Action, Context, Controller, ControllerRefManager, Error, Reconcile, controlled_by, dynamic,
    index_controllers,
};
use mizzen_sdk::dynamic::PatchType;
use mizzen_sdk::event::Note;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::queue::{Exponential, Options, Queue};
use mizzen_sdk::resource::{JOBS, PODS};
use mizzen_sdk::write::is_not_found;
use mizzen_sdk::{Key, Object};
use mizzen_value::time::from_unix;
use mizzen_value::{Value, value};
use tokio::time::Instant;

use backoff::JobBackoff;
use event_handlers::JobEventHandlers;
use facts::TRACKING_FINALIZER;
use finish::{Finish, completions_reached, finish, time_to_deadline};
use metrics::{JobMetrics, SyncAction};
use orphan::OrphanPods;
use plan::plan;
use pod_control::{JobPodControl, ManagedPods};
use progress::JobProgress;
use track::{TrackedPods, count_released, set_finished, set_suspended, track_pods};
use writes::JobWrites;

use crate::common::pod_control::PodControl;

/// How long pod events are batched before a job is synced: a thousand pods that finish together
/// then cause a few syncs.
const SYNC_BATCH_PERIOD: Duration = Duration::from_secs(1);

const N_WORKERS: usize = 5;

struct Jobs {
    context: Context,
    jobs: Informer<Object>,
    pods: Informer<Object>,
    /// The back-off of each job; after a restart the next pod may be created too early.
    backoffs: Mutex<HashMap<Key, JobBackoff>>,
    writes: JobWrites,
    metrics: Arc<JobMetrics>,
    /// Pods whose job does not exist or is finished.
    orphans: Queue<Key>,
}

/// Creates the Job controller.
pub fn start(context: &Context) -> Controller {
    let context = context.named("job-controller");
    let (jobs, pods) = (context.informer(&JOBS), context.informer(&PODS));
    index_controllers(&pods);
    let orphans = queue("job_orphan_pod");
    let metrics = Arc::<JobMetrics>::default();
    let handlers = JobEventHandlers {
        jobs: jobs.clone(),
        pods: pods.clone(),
        orphans: orphans.clone(),
        metrics: metrics.clone(),
    };
    let of_pods = handlers.clone();
    let cleanup = Controller::for_keys(&context)
        .queue(orphans.clone())
        .workers(N_WORKERS)
        .reconcile(OrphanPods {
            context: context.clone(),
            jobs: jobs.clone(),
            pods: pods.clone(),
        });
    let on_job = move |event: &_, queue: &_| handlers.on_job_event(event, queue);
    Controller::for_kind(&context, dynamic(&JOBS).handler(on_job))
        .watches_events(&PODS, move |event, queue| {
            of_pods.on_pod_event(event, queue)
        })
        .queue(queue("job"))
        .workers(N_WORKERS)
        .reconcile(Jobs {
            context,
            jobs,
            pods,
            backoffs: Mutex::default(),
            writes: JobWrites::default(),
            metrics: metrics.clone(),
            orphans,
        })
        .merge(cleanup)
        .with_metrics(metrics)
}

fn queue(name: &str) -> Queue<Key> {
    let limiter = Box::new(Exponential::new(
        Duration::from_secs(1),
        Duration::from_secs(60),
    ));
    Queue::with(Options {
        limiter,
        ..Options::new(name)
    })
}

impl Reconcile for Jobs {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        self.writes.wait(key, &self.jobs, &self.pods).await?;
        let Some(job) = self.jobs.lister().by_key(key)? else {
            self.forget(key);
            return Ok(Action::done());
        };
        if facts::is_externally_managed(&job) {
            return Ok(Action::done());
        }
        if facts::finished_condition(&job).is_some() {
            self.forget(key);
            controlled_by(&self.pods, job.uid())
                .iter()
                .for_each(|pod| self.orphans.add(pod.key().clone()));
            return Ok(Action::done());
        }
        let (began, mut action) = (Instant::now(), SyncAction::Reconciling);
        let outcome = self.sync_job(key, &job, &mut action).await;
        self.metrics
            .observe_sync(&job, action, outcome.is_ok(), began.elapsed());
        outcome
    }
}

impl Jobs {
    async fn sync_job(
        &self,
        key: &Key,
        known: &Object,
        action: &mut SyncAction,
    ) -> Result<Action, Error> {
        let now = self.context.now();
        let pods = self.claim_pods(known).await?;
        let mut job = known.clone();
        set_initial_status(&mut job, now);
        let progress = JobProgress::from_pods(&job, pods, self.backoff(key));
        let decided = finish(&job, &progress, now);
        let managed = self.manage_pods(&job, &progress, decided.is_some()).await;
        *action = managed.action;
        let is_over = decided.is_some();
        let finish = match is_over {
            true => decided.filter(|_| managed.n_active == 0),
            false => completions_reached(&job, &progress, managed.n_active),
        };
        if !is_over && finish.is_none() && !job.is_terminating() && set_suspended(&mut job, now) {
            let note = match facts::is_suspended(&job) {
                true => Note::normal("Suspended", "", "Job suspended"),
                false => Note::normal("Resumed", "", "Job resumed"),
            };
            self.context.record_event(&JOBS, &job, note);
        }
        let deadline = if finish.is_none() {
            time_to_deadline(&job, now)
        } else {
            None
        };
        managed.set_counts(job.entry("status"));
        let tracked = track_pods(&mut job, &progress, finish.as_ref(), now);
        let job = self
            .write_uncounted(key, known, job, progress.backoff)
            .await?;
        let actions = tracked.failure_actions.iter();
        actions.for_each(|action| self.metrics.count_failure_policy(action));
        let finish = finish.as_ref().filter(|_| managed.n_terminating == 0);
        self.flush_uncounted_and_write(job, tracked, finish, now)
            .await?;
        managed.failure.map_or(Ok(()), Err)?;
        let next = managed
            .requeue_after
            .map(|wait| wait.max(SYNC_BATCH_PERIOD))
            .into_iter()
            .chain(deadline)
            .min();
        Ok(next.map_or(Action::done(), Action::requeue_after))
    }

    /// Claims the job's pods: adopts orphans that match, releases pods that do not.
    async fn claim_pods(&self, job: &Object) -> Result<Vec<Arc<Object>>, Error> {
        let Some(selector) = LabelSelector::from_value(&job["spec"]["selector"]) else {
            return Ok(Vec::new());
        };
        let matches = |pod: &Object| selector.matches(|label| pod.label(label));
        let pods = ControllerRefManager::new(&self.context.api, (job, &JOBS), &PODS)
            .with_finalizers(&[TRACKING_FINALIZER])
            .claim_candidates(&self.pods, matches)
            .await?;
        Ok(pods.into_iter().map(with_tracking_finalizer).collect())
    }

    /// Deletes all pods of a finished job, or creates and deletes as needed.
    async fn manage_pods(
        &self,
        job: &Object,
        progress: &JobProgress,
        is_over: bool,
    ) -> ManagedPods {
        let owner = PodControl {
            context: &self.context,
            owner: job,
            owner_kind: &JOBS,
        };
        let control = JobPodControl {
            owner,
            writes: &self.writes,
            progress,
        };
        match (is_over, job.is_terminating()) {
            (true, _) => control.delete_active_pods().await,
            (false, true) => ManagedPods::unchanged(progress),
            (false, false) => {
                let plan = plan(job, progress, &|second| self.context.elapsed_since(second));
                control.apply_plan(plan).await
            }
        }
    }

    /// Writes the status with the uncounted pods, if it changed.
    async fn write_uncounted(
        &self,
        key: &Key,
        known: &Object,
        job: Object,
        backoff: JobBackoff,
    ) -> Result<Object, Error> {
        if job["status"] == known["status"] {
            return Ok(job);
        }
        let job = self.write_status(key, &job, &known["status"]).await?;
        self.backoffs.lock().insert(key.clone(), backoff);
        Ok(job)
    }

    /// Removes finalizers, counts those pods, and writes the status, with the final condition if
    /// all are counted.
    async fn flush_uncounted_and_write(
        &self,
        mut job: Object,
        mut tracked: TrackedPods,
        finish: Option<&Finish>,
        now: Timestamp,
    ) -> Result<(), Error> {
        let (key, before) = (&job.key(), job["status"].clone());
        let released = self.remove_tracking_finalizers(key, &mut tracked).await;
        count_released(job.entry("status"), &tracked.held);
        let finish = finish.filter(|_| released.is_ok() && !tracked.is_full);
        let finish = finish.filter(|finish| set_finished(job.entry("status"), finish, now));
        if job["status"] != before {
            let job = self.write_status(key, &job, &before).await?;
            finish
                .into_iter()
                .for_each(|finish| self.record_finished(&job, finish));
        }
        released
    }

    /// Writes the status; `before` is the one that the API has.
    async fn write_status(&self, key: &Key, job: &Object, before: &Value) -> Result<Object, Error> {
        let job = self.context.api.update_status(&JOBS, job).await?;
        self.writes.note_job(key, &job);
        self.metrics.count_pods(&job, before);
        Ok(job)
    }

    /// Removes the finalizers; pods that lost them are removed from `held`.
    async fn remove_tracking_finalizers(
        &self,
        key: &Key,
        tracked: &mut TrackedPods,
    ) -> Result<(), Error> {
        let outcomes = join_all(
            tracked
                .released
                .iter()
                .map(|pod| remove_tracking_finalizer(&self.context, pod)),
        )
        .await;
        let mut failure = None;
        for (pod, outcome) in tracked.released.iter().zip(outcomes) {
            match outcome {
                Ok(pod) => pod.iter().for_each(|pod| self.writes.note_pod(key, pod)),
                Err(error) => {
                    failure = Some(error);
                    continue;
                }
            }
            tracked.held.remove(pod.uid());
        }
        failure.map_or(Ok(()), Err)
    }

    fn record_finished(&self, job: &Object, finish: &Finish) {
        self.metrics
            .count_finished(job, finish.succeeded, &finish.reason);
        let record = |note: Note| self.context.record_event(&JOBS, job, note);
        if !finish.succeeded {
            return record(Note::warning(&finish.reason, "", &finish.message));
        }
        let completions = job["spec"]["completions"].as_int();
        if completions.is_some_and(|completions| job["status"]["succeeded"].int() > completions) {
            let message = "Too many succeeded pods running after completion count reached";
            record(Note::warning("TooManySucceededPods", "", message));
        }
        record(Note::normal("Completed", "", "Job completed"));
    }

    fn backoff(&self, key: &Key) -> JobBackoff {
        self.backoffs.lock().get(key).copied().unwrap_or_default()
    }

    fn forget(&self, key: &Key) {
        self.backoffs.lock().remove(key);
        self.writes.forget(key);
    }
}

/// The fields that every status has from the first sync on.
fn set_initial_status(job: &mut Object, now: Timestamp) {
    let is_suspended = facts::is_suspended(job);
    let status = job.entry("status");
    status.set_default("uncountedTerminatedPods", Value::object());
    if !is_suspended {
        status.set_default("startTime", from_unix(now.as_second()));
    }
}

/// The pod after its adoption, which the cache does not have yet.
fn with_tracking_finalizer(pod: Arc<Object>) -> Arc<Object> {
    if pod.controller().is_some() || facts::is_tracked(&pod) {
        return pod;
    }
    let mut adopted = Object::clone(&pod);
    adopted
        .entry("metadata")
        .entry("finalizers")
        .make_list()
        .push(TRACKING_FINALIZER.into());
    Arc::new(adopted)
}

/// Removes the tracking finalizer; the pod afterwards, if it exists.
async fn remove_tracking_finalizer(
    context: &Context,
    pod: &Object,
) -> Result<Option<Object>, Error> {
    let change =
        value!({"metadata": {"$deleteFromPrimitiveList/finalizers": [TRACKING_FINALIZER]}});
    match context
        .api
        .patch(&PODS, &pod.key(), "", PatchType::Strategic, &change)
        .await
    {
        Ok(pod) => Ok(Some(pod)),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
