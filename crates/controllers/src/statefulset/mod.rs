//! A set of pods, each of whom keeps its name and its storage, that come, change and go in order.
//!
//! `plan` decides what is to be done; the other files each answer a question on its way.
//!
//! Invariant: of an ordinal there is never more than one pod: a pod comes back only when it is gone.

mod act;
mod identity;
mod pace;
mod plan;
mod pod;
mod retention;
mod revisions;
mod status;
mod storage;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mizzen_object::select::LabelSelector;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::{PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS};
use mizzen_sdk::{Key, Object};

use crate::common::claim::Claim;
use crate::common::fresh::Written;
use crate::common::{owned, pod as any, wake};
use crate::history::{History, limit, revision};
use crate::{After, Context, Error, Reconcile, Work};
use act::Actor;
use pace::Pace;
use plan::View;
use pod::Revision;
use revisions::Choice;
use status::Counts;

/// How many sets are worked on at a time.
const N_WORKERS: usize = 5;

struct StatefulSets {
    context: Context,
    sets: Informer<Object>,
    pods: Informer<Object>,
    claims: Informer<Object>,
    history: History,
    written: Written,
    pace: Pace,
}

/// Sets up the loop.
pub(crate) fn start(context: &Context) -> Work {
    let context = context.named("statefulset-controller");
    let queue = context.queue("statefulset");
    let (sets, pods) = (context.follow(&STATEFUL_SETS), context.follow(&PODS));
    let (claims, history) = (
        context.follow(&PERSISTENT_VOLUME_CLAIMS),
        History::new(&context),
    );
    owned::index(&pods);
    let todo = queue.clone();
    sets.add_handler(move |event: Event<Object>| todo.add(event.key().clone()));
    let todo = queue.clone();
    claims.add_handler(move |event: Event<Object>| {
        if let (Event::Deleted { .. }, Ok(claim)) = (&event, event.object().object()) {
            retention::waiting(&claim)
                .into_iter()
                .for_each(|key| todo.add(key));
        }
    });
    // Kubernetes: nobody looks at a set because of its revisions.
    wake::owners(&pods, &sets, &STATEFUL_SETS, &queue);
    let sets = StatefulSets {
        context,
        sets,
        pods,
        claims,
        history,
        written: Written::default(),
        pace: Pace::default(),
    };
    Work::new(queue, N_WORKERS, Arc::new(sets))
}

impl Reconcile for StatefulSets {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        let Some(entry) = self.sets.store().get(key) else {
            self.written.forget(key);
            self.pace.forget(key);
            return Ok(After::Done);
        };
        if !self.written.is_seen(&entry) {
            return Ok(After::Done);
        }
        let set = entry.object()?;
        let Some(selector) = LabelSelector::of(&set["spec"]["selector"]) else {
            return Ok(After::Done);
        };
        let revisions = self.history.claim(&set, &STATEFUL_SETS).await?;
        let pods = self.claim_pods(&set, &selector).await?;
        let target = self.target(&set, &revisions).await?;
        self.approach(&set, &pods, &revisions, &target).await
    }
}

/// The revisions that a set is between.
struct Target {
    current: Revision,
    update: Revision,
    n_collisions: i64,
}

impl StatefulSets {
    async fn claim_pods(
        &self,
        set: &Object,
        selector: &LabelSelector,
    ) -> Result<Vec<Arc<Object>>, Error> {
        let found = owned::read(owned::candidates(&self.pods, set))?;
        let claim = Claim {
            context: &self.context,
            owner: set,
            owner_kind: &STATEFUL_SETS,
            kind: &PODS,
            finalizers: &[],
        };
        let matches = |pod: &Arc<Object>| {
            selector.matches(|label| pod.label(label)) && identity::is_member(set, pod)
        };
        claim.claim(found, matches).await
    }

    /// The claim of a name in the set's namespace.
    fn claim(&self, set: &Object, name: &str) -> Option<Arc<Object>> {
        self.claims
            .lister()
            .namespaced(set.namespace())
            .get(name)
            .ok()
            .flatten()
    }

    /// Finds the revisions of a set, and makes what is missing.
    ///
    /// Kubernetes: even for a set that is going, whose revisions the garbage collector takes away. What its pods are
    /// doing is counted by them.
    async fn target(&self, set: &Object, revisions: &[Arc<Object>]) -> Result<Target, Error> {
        let mut n_collisions = set.at("status.collisionCount").int();
        let name = match revisions::choose(set, revisions) {
            Choice::Keep(latest) => latest.name().to_string(),
            Choice::Renumber(old, number) => {
                self.history.renumber(&old, number).await?.name().into()
            }
            Choice::Create(number) => {
                let (made, count) = self
                    .history
                    .create(set, &STATEFUL_SETS, number, n_collisions)
                    .await?;
                n_collisions = count;
                made.name().into()
            }
        };
        let update = Revision {
            name,
            template: set.at("spec.template").clone(),
        };
        let known = revisions
            .iter()
            .find(|known| known.name() == set.at("status.currentRevision").str());
        let restored = |known: &Arc<Object>| Revision {
            name: known.name().into(),
            template: revision::template(known),
        };
        let current = known.map_or_else(|| update.clone(), restored);
        Ok(Target {
            current,
            update,
            n_collisions,
        })
    }

    /// Does what is to be done now, and says how far it came, even if something failed.
    async fn approach(
        &self,
        set: &Object,
        pods: &[Arc<Object>],
        revisions: &[Arc<Object>],
        target: &Target,
    ) -> Result<After, Error> {
        let (
            now,
            Target {
                current, update, ..
            },
        ) = (self.context.now(), target);
        let plan = plan::plan(&View {
            set,
            current,
            update,
            pods,
            claims: |name: &str| self.claim(set, name),
            now,
        });
        let actor = Actor {
            by: self,
            set,
            n_replaced: Default::default(),
        };
        let outcome = actor.carry_out(&plan).await;

        let mut counts = status::count(set, &plan.pods, current, update, now);
        counts.current -= actor.n_replaced.load(Ordering::Relaxed);
        let told = self.tell(set, counts, target).await;
        let forgotten = self.forget(set, pods, revisions, target).await;
        outcome?;
        forgotten?;
        let waits = told?
            .into_iter()
            .chain(self.until_available(set, pods, counts));
        Ok(waits.min().map_or(After::Done, After::Again))
    }

    /// Writes the status, unless it has to wait; then returns how long.
    async fn tell(
        &self,
        set: &Object,
        counts: Counts,
        target: &Target,
    ) -> Result<Option<Duration>, Error> {
        let Target {
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
            .note(&self.context.api.update_status(&STATEFUL_SETS, &set).await?);
        self.pace.note(set.key());
        Ok(None)
    }

    /// Forgets revisions beyond the set's limit. Those that pods are of stay.
    async fn forget(
        &self,
        set: &Object,
        pods: &[Arc<Object>],
        revisions: &[Arc<Object>],
        target: &Target,
    ) -> Result<(), Error> {
        let mut live: HashSet<&str> = pods.iter().map(|pod| pod::revision(pod)).collect();
        live.extend([target.current.name.as_str(), target.update.name.as_str()]);
        let limit = set["spec"]["revisionHistoryLimit"].as_int().unwrap_or(10);
        self.history
            .forget(&limit::beyond_unused(revisions, &live, limit))
            .await
    }

    /// Pods become available by time alone: how long until the next one does, if one waits for that.
    fn until_available(
        &self,
        set: &Object,
        pods: &[Arc<Object>],
        counts: Counts,
    ) -> Option<Duration> {
        let (min_ready, now) = (set["spec"]["minReadySeconds"].int(), self.context.now());
        if min_ready <= 0 || counts.ready == counts.available {
            return None;
        }
        let waits = pods
            .iter()
            .filter_map(|pod| any::until_available(any::ready_since(pod), min_ready, now));
        Some(
            waits
                .min()
                .unwrap_or(Duration::from_secs(min_ready.unsigned_abs())),
        )
    }
}
