//! The StatefulSet controller: pods with stable names and storage, which are created, updated and
//! deleted in order.
//!
//! `plan` decides what to do; the other files each have one part of it.
//!
//! Invariant: there is never more than one pod of an ordinal: a pod is created only when its
//! predecessor is gone.

mod identity;
mod pace;
mod plan;
mod pod;
mod retention;
mod revisions;
mod stateful_pod_control;
mod status;
mod storage;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mizzen_object::select::LabelSelector;
use mizzen_sdk::controller::{
    Action, Context, Controller, ControllerRefManager, Error, LastWrites, Reconcile,
    index_controllers,
};
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::{PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS};
use mizzen_sdk::{Key, Object};

use crate::common::pod as any;
use crate::controller_history::{ControllerHistory, limit, revision};
use pace::StatusPace;
use plan::StatefulSetView;
use pod::SetRevision;
use revisions::RevisionChoice;
use stateful_pod_control::StatefulPodControl;
use status::StatefulSetCounts;

/// Upstream's default of `--concurrent-statefulset-syncs`.
const N_WORKERS: usize = 5;

struct StatefulSets {
    context: Context,
    sets: Informer<Object>,
    pods: Informer<Object>,
    claims: Informer<Object>,
    history: ControllerHistory,
    written: LastWrites,
    pace: StatusPace,
}

/// Creates the StatefulSet controller.
pub fn start(context: &Context) -> Controller {
    let context = context.named("statefulset-controller");
    let (sets, pods) = (context.informer(&STATEFUL_SETS), context.informer(&PODS));
    let claims = context.informer(&PERSISTENT_VOLUME_CLAIMS);
    index_controllers(&pods);
    // Kubernetes: events of revisions enqueue nothing.
    Controller::for_kind(&context, &STATEFUL_SETS)
        .owns_selected(&PODS, selector)
        .watches_events(&PERSISTENT_VOLUME_CLAIMS, |event, queue| {
            if let (Event::Deleted { .. }, Ok(claim)) = (event, event.object().object()) {
                let sets = retention::sets_waiting_for(&claim);
                sets.into_iter().for_each(|key| queue.add(key));
            }
        })
        .queue_name("statefulset")
        .workers(N_WORKERS)
        .reconcile(StatefulSets {
            history: ControllerHistory::new(&context),
            context,
            sets,
            pods,
            claims,
            written: LastWrites::default(),
            pace: StatusPace::default(),
        })
}

/// An empty selector would claim all pods; validation rejects it.
fn selector(set: &Object) -> Option<LabelSelector> {
    LabelSelector::from_value(&set["spec"]["selector"]).filter(|selector| !selector.is_empty())
}

impl Reconcile for StatefulSets {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        let Some(entry) = self.sets.store().get(key) else {
            self.written.forget(key);
            self.pace.forget(key);
            return Ok(Action::done());
        };
        if !self.written.is_seen(&entry) {
            return Ok(Action::done());
        }
        let set = entry.object()?;
        let Some(selector) = LabelSelector::from_value(&set["spec"]["selector"]) else {
            return Ok(Action::done());
        };
        let revisions = self.history.claim_revisions(&set, &STATEFUL_SETS).await?;
        let pods = self.claim_pods(&set, &selector).await?;
        let target = self.set_revisions(&set, &revisions).await?;
        self.update_stateful_set(&set, &pods, &revisions, &target)
            .await
    }
}

/// The current and the update revision of a set.
struct SetRevisions {
    current: SetRevision,
    update: SetRevision,
    n_collisions: i64,
}

impl StatefulSets {
    async fn claim_pods(
        &self,
        set: &Object,
        selector: &LabelSelector,
    ) -> Result<Vec<Arc<Object>>, Error> {
        let matches = |pod: &Object| {
            selector.matches(|label| pod.label(label)) && identity::is_member(set, pod)
        };
        ControllerRefManager::new(&self.context.api, (set, &STATEFUL_SETS), &PODS)
            .claim_candidates(&self.pods, matches)
            .await
    }

    /// A claim of the set's namespace, from the cache.
    fn claim(&self, set: &Object, name: &str) -> Option<Arc<Object>> {
        self.claims
            .lister()
            .namespaced(set.namespace())
            .get(name)
            .ok()
            .flatten()
    }

    /// Finds the revisions of a set, and creates or renumbers the update revision.
    ///
    /// Kubernetes: even for a set that is being deleted; the counts of its pods need them, and the
    /// garbage collector deletes them.
    async fn set_revisions(
        &self,
        set: &Object,
        revisions: &[Arc<Object>],
    ) -> Result<SetRevisions, Error> {
        let mut n_collisions = set.at("status.collisionCount").int();
        let name = match revisions::choose_revision(set, revisions) {
            RevisionChoice::Keep(latest) => latest.name().to_string(),
            RevisionChoice::Renumber(old, number) => self
                .history
                .update_revision_number(&old, number)
                .await?
                .name()
                .into(),
            RevisionChoice::Create(number) => {
                let (made, count) = self
                    .history
                    .create_revision(set, &STATEFUL_SETS, number, n_collisions)
                    .await?;
                n_collisions = count;
                made.name().into()
            }
        };
        let update = SetRevision {
            name,
            template: set.at("spec.template").clone(),
        };
        let known = revisions
            .iter()
            .find(|known| known.name() == set.at("status.currentRevision").str());
        let restored = |known: &Arc<Object>| SetRevision {
            name: known.name().into(),
            template: revision::template(known),
        };
        let current = known.map_or_else(|| update.clone(), restored);
        Ok(SetRevisions {
            current,
            update,
            n_collisions,
        })
    }

    /// Applies the plan and updates the status, even after a failure.
    async fn update_stateful_set(
        &self,
        set: &Object,
        pods: &[Arc<Object>],
        revisions: &[Arc<Object>],
        target: &SetRevisions,
    ) -> Result<Action, Error> {
        let (
            now,
            SetRevisions {
                current, update, ..
            },
        ) = (self.context.now(), target);
        let plan = plan::plan(&StatefulSetView {
            set,
            current,
            update,
            pods,
            claims: |name: &str| self.claim(set, name),
            now,
        });
        let control = StatefulPodControl {
            by: self,
            set,
            n_replaced: Default::default(),
        };
        let outcome = control.apply_plan(&plan).await;

        let mut counts = status::count(set, &plan.pods, current, update, now);
        counts.current -= control.n_replaced.load(Ordering::Relaxed);
        let updated = self.update_status(set, counts, target).await;
        let forgotten = self.truncate_history(set, pods, revisions, target).await;
        outcome?;
        forgotten?;
        let waits = updated?
            .into_iter()
            .chain(self.until_available(set, pods, counts));
        Ok(waits.min().map_or(Action::done(), Action::requeue_after))
    }

    /// Writes the status; the delay if it has to wait.
    async fn update_status(
        &self,
        set: &Object,
        counts: StatefulSetCounts,
        target: &SetRevisions,
    ) -> Result<Option<Duration>, Error> {
        let SetRevisions {
            current,
            update,
            n_collisions,
        } = target;
        let Some(status) = status::status(set, counts, current, update, *n_collisions) else {
            return Ok(None);
        };
        let is_answer =
            status["observedGeneration"].int() > set.at("status.observedGeneration").int();
        if let Some(wait) = self.pace.wait(&set.key()).filter(|_| !is_answer) {
            return Ok(Some(wait));
        }
        let mut set = set.clone();
        set.set("status", status);
        self.written
            .record(&self.context.api.update_status(&STATEFUL_SETS, &set).await?);
        self.pace.note(set.key());
        Ok(None)
    }

    /// Deletes revisions beyond revisionHistoryLimit that no pod has.
    async fn truncate_history(
        &self,
        set: &Object,
        pods: &[Arc<Object>],
        revisions: &[Arc<Object>],
        target: &SetRevisions,
    ) -> Result<(), Error> {
        let mut live: HashSet<&str> = pods.iter().map(|pod| pod::revision(pod)).collect();
        live.extend([target.current.name.as_str(), target.update.name.as_str()]);
        let limit = set["spec"]["revisionHistoryLimit"].as_int().unwrap_or(10);
        self.history
            .delete_revisions(&limit::unused_over_limit(revisions, &live, limit))
            .await
    }

    /// How long until the next pod is available by minReadySeconds.
    fn until_available(
        &self,
        set: &Object,
        pods: &[Arc<Object>],
        counts: StatefulSetCounts,
    ) -> Option<Duration> {
        let (min_ready, now) = (set["spec"]["minReadySeconds"].int(), self.context.now());
        if min_ready <= 0 || counts.ready == counts.available {
            return None;
        }
        let waits = pods
            .iter()
            .filter_map(|pod| any::time_until_available(any::ready_since(pod), min_ready, now));
        Some(
            waits
                .min()
                .unwrap_or(Duration::from_secs(min_ready.unsigned_abs())),
        )
    }
}
