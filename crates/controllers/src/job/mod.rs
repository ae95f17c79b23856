//! A job has run when enough of its pods have ended well.
//!
//! A round counts what the pods did ([`progress`]), asks whether the job is over (`verdict`), makes or deletes pods
//! (`plan`), and writes down who ended (`track`), in an order in which a crash loses nothing.

mod act;
mod backoff;
pub(crate) mod facts;
mod failure;
mod indexes;
mod orphan;
mod plan;
mod pod;
mod progress;
#[cfg(test)]
mod sample;
mod success;
mod track;
mod verdict;
mod wake;
mod writes;

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use k8s_openapi::jiff::Timestamp;
use mizzen_object::select::LabelSelector;
use mizzen_sdk::api::Patch;
use mizzen_sdk::event::Note;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::queue::{Exponential, Options, Queue};
use mizzen_sdk::resource::{JOBS, PODS};
use mizzen_sdk::write::is_not_found;
use mizzen_sdk::{Key, Object};
use mizzen_value::time::from_unix;
use mizzen_value::{Value, value};

use act::{Acted, Actor};
use backoff::Backoff;
use facts::TRACKING;
use orphan::Orphans;
use plan::plan;
use progress::Progress;
use track::{Round, conclude, count_released, note_suspension, set_unless_empty, track};
use verdict::{Finish, completions_reached, time_to_deadline, verdict};
use writes::Writes;

use crate::common::claim::Claim;
use crate::common::owned;
use crate::common::pods::Owner;
use crate::{After, Context, Error, Reconcile, Work};

/// How long changes of pods are gathered before a job is looked at: a thousand pods that end at the same time are then
/// a few rounds.
const GATHER: Duration = Duration::from_secs(1);

const N_WORKERS: usize = 5;

struct Jobs {
    context: Context,
    jobs: Informer<Object>,
    pods: Informer<Object>,
    /// What is known of failures; it may be lost, then the next pod comes too early.
    backoffs: Mutex<HashMap<Key, Backoff>>,
    writes: Writes,
    /// Pods that nobody counts any more.
    orphans: Queue<Key>,
}

/// Sets up the loop.
pub(crate) fn start(context: &Context) -> Work {
    let context = context.named("job-controller");
    let (jobs, pods) = (context.follow(&JOBS), context.follow(&PODS));
    owned::index(&pods);
    let (todo, orphans) = (queue("job"), queue("job_orphan_pod"));
    wake::listen(&jobs, &pods, &todo, &orphans);
    let cleanup = Orphans {
        context: context.clone(),
        jobs: jobs.clone(),
        pods: pods.clone(),
    };
    let (backoffs, writes) = (Mutex::default(), Writes::default());
    let jobs = Jobs {
        context,
        jobs,
        pods,
        backoffs,
        writes,
        orphans: orphans.clone(),
    };
    Work::new(todo, N_WORKERS, Arc::new(jobs)).with(Work::new(
        orphans,
        N_WORKERS,
        Arc::new(cleanup),
    ))
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
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        self.writes.wait(key, &self.jobs, &self.pods).await?;
        let Some(job) = self.jobs.lister().by_key(key)? else {
            self.forget(key);
            return Ok(After::Done);
        };
        if facts::is_managed_elsewhere(&job) {
            return Ok(After::Done);
        }
        if facts::finished(&job).is_some() {
            self.forget(key);
            owned::of(&self.pods, job.uid())
                .iter()
                .for_each(|pod| self.orphans.add(pod.key().clone()));
            return Ok(After::Done);
        }
        self.round(key, &job).await
    }
}

impl Jobs {
    async fn round(&self, key: &Key, known: &Object) -> Result<After, Error> {
        let now = self.context.now();
        let pods = self.pods_of(known).await?;
        let mut job = known.clone();
        begin(&mut job, now);
        let progress = Progress::of(&job, pods, self.backoff(key));
        let verdict = verdict(&job, &progress, now);
        let acted = self.act(&job, &progress, verdict.is_some()).await;
        let finish = self.settle(&mut job, &progress, verdict, &acted, now);
        let deadline = if finish.is_none() {
            time_to_deadline(&job, now)
        } else {
            None
        };
        note_counts(job.entry("status"), &acted);
        let round = track(&mut job, &progress, finish.as_ref(), now);
        let job = self.announce(key, known, job, progress.backoff).await?;
        self.conclude(
            key,
            job,
            round,
            finish.as_ref().filter(|_| acted.n_terminating == 0),
            now,
        )
        .await?;
        acted.failure.map_or(Ok(()), Err)?;
        let next = acted
            .wait
            .map(|wait| wait.max(GATHER))
            .into_iter()
            .chain(deadline)
            .min();
        Ok(next.map_or(After::Done, After::Again))
    }

    /// The pods of a job, after orphans that match were adopted and others let go.
    async fn pods_of(&self, job: &Object) -> Result<Vec<Arc<Object>>, Error> {
        let Some(selector) = LabelSelector::of(&job["spec"]["selector"]) else {
            return Ok(Vec::new());
        };
        let candidates = owned::read(owned::candidates(&self.pods, job))?;
        let context = &self.context;
        let claim = Claim {
            context,
            owner: job,
            owner_kind: &JOBS,
            kind: &PODS,
            finalizers: &[TRACKING],
        };
        let pods = claim
            .claim(candidates, |pod| selector.matches(|label| pod.label(label)))
            .await?;
        Ok(pods.into_iter().map(as_adopted).collect())
    }

    /// Deletes all pods of a job that is over, or makes and deletes as many as it needs.
    async fn act(&self, job: &Object, progress: &Progress, is_over: bool) -> Acted {
        let owner = Owner {
            context: &self.context,
            object: job,
            kind: &JOBS,
        };
        let actor = Actor {
            owner,
            writes: &self.writes,
            progress,
        };
        match (is_over, job.is_going()) {
            (true, _) => actor.stop().await,
            (false, true) => Acted::nothing(progress),
            (false, false) => {
                let plan = plan(job, progress, &|second| self.context.elapsed_since(second));
                actor.carry_out(plan).await
            }
        }
    }

    /// How the job ends, after its pods were looked after. A job that is over ends only when all its pods go.
    fn settle(
        &self,
        job: &mut Object,
        progress: &Progress,
        verdict: Option<Finish>,
        acted: &Acted,
        now: Timestamp,
    ) -> Option<Finish> {
        if verdict.is_some() {
            return verdict.filter(|_| acted.n_active == 0);
        }
        let finish = completions_reached(job, progress, acted.n_active);
        if finish.is_none() && !job.is_going() && note_suspension(job, now) {
            let note = match facts::is_suspended(job) {
                true => Note::normal("Suspended", "", "Job suspended"),
                false => Note::normal("Resumed", "", "Job resumed"),
            };
            self.context.record(&JOBS, job, note);
        }
        finish
    }

    /// Writes the status with what is to be counted, if there is any news.
    async fn announce(
        &self,
        key: &Key,
        known: &Object,
        job: Object,
        backoff: Backoff,
    ) -> Result<Object, Error> {
        if job["status"] == known["status"] {
            return Ok(job);
        }
        let job = self.write(key, &job).await?;
        self.lock().insert(key.clone(), backoff);
        Ok(job)
    }

    /// Lets pods go, and writes the status again with what was counted, and with the end if it has come.
    async fn conclude(
        &self,
        key: &Key,
        mut job: Object,
        mut round: Round,
        finish: Option<&Finish>,
        now: Timestamp,
    ) -> Result<(), Error> {
        let before = job["status"].clone();
        let released = self.release(key, &mut round).await;
        count_released(job.entry("status"), &round.held);
        let finish = finish.filter(|_| released.is_ok() && !round.is_full);
        let finish = finish.filter(|finish| conclude(job.entry("status"), finish, now));
        if job["status"] != before {
            let job = self.write(key, &job).await?;
            finish
                .into_iter()
                .for_each(|finish| self.tell_end(&job, finish));
        }
        released
    }

    async fn write(&self, key: &Key, job: &Object) -> Result<Object, Error> {
        let job = self.context.api.update_status(&JOBS, job).await?;
        self.writes.note_job(key, &job);
        Ok(job)
    }

    /// Takes the finalizer from pods; those that lost it are no longer held.
    async fn release(&self, key: &Key, round: &mut Round) -> Result<(), Error> {
        let outcomes = join_all(round.released.iter().map(|pod| release(&self.context, pod))).await;
        let mut failure = None;
        for (pod, outcome) in round.released.iter().zip(outcomes) {
            match outcome {
                Ok(pod) => pod.iter().for_each(|pod| self.writes.note_pod(key, pod)),
                Err(error) => {
                    failure = Some(error);
                    continue;
                }
            }
            round.held.remove(pod.uid());
        }
        failure.map_or(Ok(()), Err)
    }

    fn tell_end(&self, job: &Object, finish: &Finish) {
        let tell = |note: Note| self.context.record(&JOBS, job, note);
        if !finish.succeeded {
            return tell(Note::warning(&finish.reason, "", &finish.message));
        }
        let completions = job["spec"]["completions"].as_int();
        if completions.is_some_and(|completions| job["status"]["succeeded"].int() > completions) {
            let message = "Too many succeeded pods running after completion count reached";
            tell(Note::warning("TooManySucceededPods", "", message));
        }
        tell(Note::normal("Completed", "", "Job completed"));
    }

    fn backoff(&self, key: &Key) -> Backoff {
        self.lock().get(key).copied().unwrap_or_default()
    }

    fn forget(&self, key: &Key) {
        self.lock().remove(key);
        self.writes.forget(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Backoff>> {
        self.backoffs.lock()
    }
}

/// What every status has, from the first round on.
fn begin(job: &mut Object, now: Timestamp) {
    let is_suspended = facts::is_suspended(job);
    let status = job.entry("status");
    status.set_default("uncountedTerminatedPods", Value::object());
    if !is_suspended {
        status.set_default("startTime", from_unix(now.as_second()));
    }
}

fn note_counts(status: &mut Value, acted: &Acted) {
    set_unless_empty(status, "active", acted.n_active);
    status.set("ready", acted.n_ready);
    status.set("terminating", acted.n_terminating);
}

/// A pod as it is after its adoption, which the cache has yet to see.
fn as_adopted(pod: Arc<Object>) -> Arc<Object> {
    if pod.controller().is_some() || facts::is_tracked(&pod) {
        return pod;
    }
    let mut adopted = Object::clone(&pod);
    adopted
        .entry("metadata")
        .entry("finalizers")
        .make_list()
        .push(TRACKING.into());
    Arc::new(adopted)
}

/// Takes the finalizer from a pod; the pod as it is then, if it is there.
async fn release(context: &Context, pod: &Object) -> Result<Option<Object>, Error> {
    let change = value!({"metadata": {"$deleteFromPrimitiveList/finalizers": [TRACKING]}});
    match context
        .api
        .patch(&PODS, &pod.key(), "", Patch::Strategic, &change)
        .await
    {
        Ok(pod) => Ok(Some(pod)),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
