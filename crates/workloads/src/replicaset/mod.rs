//! The ReplicaSet controller, and the ReplicationController controller, which shares its code.

mod event_handlers;
mod facts;
mod plan;
mod status;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use mizzen_object::select::LabelSelector;
use mizzen_sdk::cache::Entry;
use mizzen_sdk::controller::{
    Action, Context, Controller, ControllerRefManager, Error, LastWrites, ReadSelector, Reconcile,
    candidates, controlled_by, dynamic, index_controllers, index_selectors, slow_start_batch,
};
use mizzen_sdk::expectations::Expectations;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::resource::{PODS, REPLICA_SETS, REPLICATION_CONTROLLERS};
use mizzen_sdk::write::is_namespace_terminating;
use mizzen_sdk::{Accessor, Key, Object, ResourceType};
use mizzen_value::{Value, value};

use crate::common::pod::time_until_available;
use crate::common::pod_control::PodControl;
use crate::common::template;
use event_handlers::{EXPECTATIONS_TIMEOUT, ReplicaSetEventHandlers};
use facts::PodFacts;
use plan::ReplicaPlan;
use status::ObservedPods;

/// The differences between the two kinds.
pub(crate) struct SetKind {
    /// The controller's name.
    name: &'static str,
    queue: &'static str,
    kind: ResourceType,
    /// Whether the status has `terminatingReplicas`.
    counts_terminating: bool,
    /// Reads the selector; none if it selects nothing.
    selector: ReadSelector<Object>,
}

static REPLICA_SET: SetKind = SetKind {
    name: "replicaset-controller",
    queue: "replicaset",
    kind: REPLICA_SETS,
    counts_terminating: true,
    selector: |set| selector(set["spec"]["selector"].clone()),
};

static REPLICATION_CONTROLLER: SetKind = SetKind {
    name: "replication-controller",
    queue: "replicationmanager",
    kind: REPLICATION_CONTROLLERS,
    counts_terminating: false,
    selector: |set| selector(value!({"matchLabels": (set["spec"]["selector"].clone())})),
};

/// Upstream's default of `--concurrent-replicaset-syncs`.
const WORKERS: usize = 5;

/// Creates the ReplicaSet controller.
pub fn start_replica_sets(context: &Context) -> Controller {
    start(context, &REPLICA_SET)
}

/// Creates the ReplicationController controller.
pub fn start_replication_controllers(context: &Context) -> Controller {
    start(context, &REPLICATION_CONTROLLER)
}

fn start(context: &Context, set_kind: &'static SetKind) -> Controller {
    let context = context.named(set_kind.name);
    let (sets, pods) = (context.informer(&set_kind.kind), context.informer(&PODS));
    index_controllers(&sets);
    index_selectors(sets.store(), set_kind.selector);
    index_controllers(&pods);
    let handlers = ReplicaSetEventHandlers {
        set_kind,
        sets,
        known: Arc::default(),
        expectations: Arc::new(Expectations::new(EXPECTATIONS_TIMEOUT)),
    };
    let (of_sets, of_pods) = (handlers.clone(), handlers.clone());
    let on_set = move |event: &_, queue: &_| of_sets.on_set(event, queue);
    // Events are not coalesced: a pod that was added and deleted must fulfil two expectations.
    let every_pod_event = dynamic(&PODS).merge_beyond(1_000_000);
    Controller::for_kind(&context, dynamic(&set_kind.kind).handler(on_set))
        .watches_events(every_pod_event, move |event, queue| {
            of_pods.on_pod(event, queue)
        })
        .queue_name(set_kind.queue)
        .workers(WORKERS)
        .reconcile(ReplicaSetController {
            context,
            handlers,
            pods,
            written: LastWrites::default(),
        })
}

/// An empty selector would claim all pods; validation rejects it.
fn selector(selector: Value) -> Option<LabelSelector> {
    LabelSelector::from_value(&selector).filter(|selector| !selector.is_empty())
}

struct ReplicaSetController {
    context: Context,
    handlers: ReplicaSetEventHandlers,
    pods: Informer<Object>,
    written: LastWrites,
}

/// The pods of a set.
struct ClaimedPods {
    active: Vec<Arc<PodFacts>>,
    n_terminating: usize,
}

impl Reconcile for ReplicaSetController {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        let Some(entry) = self.handlers.sets.store().get(key) else {
            self.handlers.expectations.forget(key);
            self.written.forget(key);
            return Ok(Action::done());
        };
        if !self.written.is_seen(&entry) {
            return Ok(Action::done());
        }
        let set = entry.object()?;
        let may_act = self.handlers.expectations.is_satisfied(key) && !set.is_terminating();
        let pods = self.claim_pods(&set).await?;
        let outcome = match may_act {
            true => self.manage_replicas(&set, self.plan(&set, &pods)?).await,
            false => Ok(()),
        };
        let now = self.context.now();
        let failure = outcome.as_ref().err().map(Error::to_string);
        let n_terminating = self
            .handlers
            .set_kind
            .counts_terminating
            .then_some(pods.n_terminating);
        let seen = ObservedPods {
            active: &pods.active,
            n_terminating,
            failure,
            now,
        };
        self.update_status(&set, status::calculate_status(&set, &seen))
            .await?;
        outcome?;
        Ok(self.requeue_action(&set, &pods, may_act))
    }
}

impl ReplicaSetController {
    /// Claims the set's pods; orphans that match are adopted.
    async fn claim_pods(&self, set: &Object) -> Result<ClaimedPods, Error> {
        let selector = (self.handlers.set_kind.selector)(set);
        let matches = |pod: &PodFacts| {
            selector
                .as_ref()
                .is_some_and(|selector| selector.matches(|name| pod.label(name)))
        };
        let candidates = self.facts(candidates(&self.pods, set))?;
        let is_controlled = |pod: &PodFacts| {
            pod.controller
                .as_ref()
                .is_some_and(|owner| owner.uid == set.uid())
                && matches(pod)
        };
        let n_terminating = candidates
            .iter()
            .filter(|pod| pod.counts_as_terminating && is_controlled(pod))
            .count();
        let active = candidates.into_iter().filter(|pod| pod.is_active).collect();
        let owner = (set, &self.handlers.set_kind.kind);
        let active = ControllerRefManager::new(&self.context.api, owner, &PODS)
            .claim(active, matches)
            .await?;
        Ok(ClaimedPods {
            active,
            n_terminating,
        })
    }

    fn facts(&self, entries: Vec<Entry<Object>>) -> Result<Vec<Arc<PodFacts>>, Error> {
        Ok(entries
            .iter()
            .map(|entry| self.handlers.known.get(entry))
            .collect::<Result<_, _>>()?)
    }

    fn plan(&self, set: &Object, pods: &ClaimedPods) -> Result<ReplicaPlan, Error> {
        let related = || {
            self.related_pods(set)
                .map(|related| plan::related_pods_per_node(&related))
                .unwrap_or_default()
        };
        Ok(plan::plan(
            set["spec"]["replicas"].int(),
            &pods.active,
            related,
            self.context.now(),
        ))
    }

    /// The pods of all sets with the same controller, including this set. A set without a
    /// controller has no related pods.
    fn related_pods(&self, set: &Object) -> Result<Vec<Arc<PodFacts>>, Error> {
        let Some(owner) = set.controller() else {
            return Ok(Vec::new());
        };
        let sets = controlled_by(&self.handlers.sets, owner["uid"].str());
        self.facts(
            sets.iter()
                .flat_map(|set| controlled_by(&self.pods, set.uid()))
                .collect(),
        )
    }

    async fn manage_replicas(&self, set: &Object, plan: ReplicaPlan) -> Result<(), Error> {
        match plan {
            ReplicaPlan::Keep => Ok(()),
            ReplicaPlan::Create(n) => self.create(set, n).await,
            ReplicaPlan::Delete(victims) => self.delete(set, victims).await,
        }
    }

    async fn create(&self, set: &Object, n: usize) -> Result<(), Error> {
        let (key, expectations) = (set.key(), &self.handlers.expectations);
        // Observed creations of earlier syncs must not count for the new expectations.
        expectations.forget(&key);
        expectations.expect_creations(&key, n);
        let owner = self.pod_control(set);
        let pod = template::pod_from_template(&set["spec"]["template"], set, owner.owner_kind);
        let (n_made, outcome) = slow_start_batch(n, || async {
            match owner.create(&pod).await {
                Err(error) if !is_namespace_terminating(&error) => Err(error),
                _ => Ok(()),
            }
        })
        .await;
        (n_made..n).for_each(|_| expectations.creation_observed(&key));
        Ok(outcome?)
    }

    async fn delete(&self, set: &Object, victims: Vec<Arc<PodFacts>>) -> Result<(), Error> {
        let (key, expectations) = (set.key(), &self.handlers.expectations);
        expectations.forget(&key);
        expectations.expect_deletions(&key, victims.iter().map(|pod| pod.key.to_string()));
        let owner = self.pod_control(set);
        let outcomes = join_all(victims.iter().map(|pod| async {
            let outcome = owner.delete(&pod.key).await;
            if !matches!(outcome, Ok(true)) {
                expectations.deletion_observed(&key, &pod.key.to_string());
            }
            outcome
        }))
        .await;
        outcomes
            .into_iter()
            .collect::<Result<Vec<bool>, Error>>()
            .map(drop)
    }

    fn pod_control<'a>(&'a self, set: &'a Object) -> PodControl<'a> {
        PodControl {
            context: &self.context,
            owner: set,
            owner_kind: &self.handlers.set_kind.kind,
        }
    }

    /// Writes the status if it changed; retries once on conflict.
    async fn update_status(&self, set: &Object, status: Value) -> Result<(), Error> {
        if set["status"] == status {
            return Ok(());
        }
        let (api, kind) = (&self.context.api, &self.handlers.set_kind.kind);
        let mut changed = set.clone();
        changed.set("status", status.clone());
        let written = match api.update_status(kind, &changed).await {
            Ok(written) => written,
            Err(_) => {
                let mut fresh = api.get(kind, &set.key()).await?;
                fresh.set("status", status);
                api.update_status(kind, &fresh).await?
            }
        };
        self.written.record(&written);
        Ok(())
    }

    /// Requeues for the next pod that becomes available, or for expired expectations.
    fn requeue_action(&self, set: &Object, pods: &ClaimedPods, may_act: bool) -> Action {
        let (min_ready, now) = (set["spec"]["minReadySeconds"].int(), self.context.now());
        let ready = pods.active.iter().filter(|pod| pod.rank.is_ready);
        let next = ready
            .filter_map(|pod| time_until_available(pod.rank.ready_since, min_ready, now))
            .min();
        let patience = (!may_act && !set.is_terminating())
            .then_some(EXPECTATIONS_TIMEOUT + Duration::from_secs(1));
        next.into_iter()
            .chain(patience)
            .min()
            .map_or(Action::done(), Action::requeue_after)
    }
}
