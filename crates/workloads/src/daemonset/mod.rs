//! The DaemonSet controller: one pod on every eligible node.
//!
//! `placement` decides which nodes are eligible, `plan` which pods are created and deleted,
//! `rolling_update` which are updated.

mod backoff;
mod history_events;
mod placement;
mod plan;
mod pod;
mod revisions;
mod rolling_update;
mod status;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use k8s_openapi::jiff::Timestamp;
use mizzen_object::select::LabelSelector;
use mizzen_sdk::cache::Entry;
use mizzen_sdk::controller::{
    Action, Context, Controller, ControllerRefManager, Error, LastWrites, Predicate, Reconcile,
    controlled_by, decode_entries, dynamic, index_controllers, slow_start_batch,
};
use mizzen_sdk::event::Note;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::{CONTROLLER_REVISIONS, DAEMON_SETS, NODES, PODS};
use mizzen_sdk::write::is_namespace_terminating;
use mizzen_sdk::{Key, Object};
use tokio::time::sleep;

use crate::common::pod_control::PodControl;
use crate::controller_history::ControllerHistory;
use crate::pod_index;
use backoff::FailedPodsBackoff;
use history_events::daemon_sets_for_event;
use plan::{DaemonSetPlan, DaemonSetView};
use revisions::DaemonSetRevisions;
use status::DaemonSetCounts;

/// Upstream's default of `--concurrent-daemonset-syncs`.
const N_WORKERS: usize = 2;
/// How many pods a sync creates, and how many it deletes, at most.
const BURST: usize = 250;
/// How often expired back-off entries are removed.
const FORGET: Duration = Duration::from_secs(60);

struct DaemonSets {
    context: Context,
    sets: Informer<Object>,
    pods: Informer<Object>,
    nodes: Informer<Object>,
    history: ControllerHistory,
    written: LastWrites,
    failures: FailedPodsBackoff,
}

/// Creates the DaemonSet controller.
pub fn start(context: &Context) -> Controller {
    let context = context
        .named("daemon-set-controller")
        .with_event_source("daemonset-controller");
    let (sets, pods) = (context.informer(&DAEMON_SETS), context.informer(&PODS));
    index_controllers(&pods);
    pod_index::add_node_index(&pods);
    let (owners, history) = (sets.store().clone(), ControllerHistory::new(&context));
    let daemon_sets = Arc::new(DaemonSets {
        context: context.clone(),
        sets,
        pods,
        nodes: context.informer(&NODES),
        history,
        written: LastWrites::default(),
        failures: FailedPodsBackoff::default(),
    });
    let (of_nodes, cleaned) = (Arc::downgrade(&daemon_sets), daemon_sets.clone());
    Controller::for_kind(&context, &DAEMON_SETS)
        .owns_selected(&PODS, selector)
        .watches_events(&CONTROLLER_REVISIONS, move |event, queue| {
            let keys = daemon_sets_for_event(event, &owners);
            keys.into_iter().for_each(|key| queue.add(key));
        })
        .watches_events(
            dynamic(&NODES).filter(placement_changed()),
            move |event, queue| {
                let sets = of_nodes.upgrade();
                let keys = sets.map(|sets| sets.daemon_sets_for_node(event.object()));
                keys.into_iter().flatten().for_each(|key| queue.add(key));
            },
        )
        .queue_name("daemonset")
        .workers(N_WORKERS)
        .reconcile(daemon_sets)
        .with_task(async move {
            loop {
                sleep(FORGET).await;
                let now = cleaned.context.monotonic_now();
                cleaned.failures.collect_garbage(now);
            }
        })
}

/// Accepts new nodes and those whose labels or taints changed. Heartbeats update nodes every few
/// seconds and change nothing that placement depends on. Kubernetes: for a deleted node a set is
/// enqueued when the pod garbage collector deletes the pods.
fn placement_changed() -> Predicate<Object> {
    let added = Predicate::new(|event: &Event<Object>| !matches!(event, Event::Deleted { .. }));
    added.and(Predicate::updates(
        |old: &Entry<Object>, new: &Entry<Object>| {
            let (Ok(old), Ok(new)) = (old.object(), new.object()) else {
                return true;
            };
            old["metadata"]["labels"] != new["metadata"]["labels"]
                || old["spec"]["taints"] != new["spec"]["taints"]
        },
    ))
}

/// An empty selector would claim all pods; validation rejects it.
fn selector(set: &Object) -> Option<LabelSelector> {
    LabelSelector::from_value(&set["spec"]["selector"]).filter(|selector| !selector.is_empty())
}

impl Reconcile for DaemonSets {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        let Some(entry) = self.sets.store().get(key) else {
            self.written.forget(key);
            return Ok(Action::done());
        };
        if !self.written.is_seen(&entry) {
            return Ok(Action::done());
        }
        let set = entry.object()?;
        let selector = LabelSelector::from_value(&set["spec"]["selector"]).unwrap_or_default();
        if selector.is_empty() {
            let message =
                "This daemon set is selecting all pods. A non-empty selector is required.";
            self.context.record_event(
                &DAEMON_SETS,
                &set,
                Note::warning("SelectingAll", "", message),
            );
            return Ok(Action::done());
        }
        if set.is_terminating() {
            return Ok(Action::done());
        }
        let revisions = self.revisions(&set).await?;
        let pods = self.claim_pods(&set, &selector).await?;
        let outcome = self.manage(&set, &pods, &revisions).await;
        let counts = self.update_status(&set, &revisions.hash).await;
        let (again, counts) = (outcome?, counts?);
        let min_ready = pod::min_ready(&set);
        let until_available = (min_ready > 0 && counts.ready != counts.available)
            .then(|| Duration::from_secs(min_ready.unsigned_abs()));
        let delay = until_available.into_iter().chain(again).min();
        Ok(delay.map_or(Action::done(), Action::requeue_after))
    }
}

impl DaemonSets {
    /// Claims the set's pods: adopts those that match its selector, releases those that do not.
    async fn claim_pods(
        &self,
        set: &Object,
        selector: &LabelSelector,
    ) -> Result<Vec<Arc<Object>>, Error> {
        let matches = |pod: &Object| selector.matches(|label| pod.label(label));
        ControllerRefManager::new(&self.context.api, (set, &DAEMON_SETS), &PODS)
            .claim_candidates(&self.pods, matches)
            .await
    }

    /// The pods that the set controls, from the cache.
    fn pods_of(&self, set: &Object) -> Result<Vec<Arc<Object>>, Error> {
        Ok(decode_entries(controlled_by(&self.pods, set.uid()))?)
    }

    fn nodes(&self) -> Result<Vec<Arc<Object>>, Error> {
        let mut nodes = self.nodes.lister().list()?;
        nodes.sort_by(|one, other| one.name().cmp(other.name()));
        Ok(nodes)
    }

    /// Creates and deletes pods. Returns the requeue delay if a failed pod is in back-off.
    async fn manage(
        &self,
        set: &Object,
        pods: &[Arc<Object>],
        revisions: &DaemonSetRevisions,
    ) -> Result<Option<Duration>, Error> {
        let (nodes, pods) = (self.nodes()?, pod::by_node(pods));
        let view = DaemonSetView {
            set,
            hash: &revisions.hash,
            nodes: &nodes,
            pods: &pods,
            now: self.context.now(),
        };
        let now = self.context.monotonic_now();
        let plan = plan::plan(&view, |node| {
            self.failures
                .remaining(&failed_pods_backoff_key(set, node), now)
        });
        self.record_ended_pods(set, &plan, now);
        self.sync_nodes(&view, &plan.create, &plan.delete).await?;
        if plan.create.is_empty()
            && plan.delete.is_empty()
            && set.at("spec.updateStrategy.type").str() == "RollingUpdate"
        {
            let rollout = rolling_update::rolling_update(&view);
            self.sync_nodes(&view, &rollout.create, &rollout.delete)
                .await?;
        }
        self.cleanup_history(set, &revisions.old).await?;
        Ok(plan.requeue_after)
    }

    fn record_ended_pods(&self, set: &Object, plan: &DaemonSetPlan, now: Timestamp) {
        for (node, pod) in &plan.ended {
            let key = pod.key();
            let note = if pod.at("status.phase").str() == "Failed" {
                self.failures
                    .record_failure(&failed_pods_backoff_key(set, node), now);
                let message =
                    format!("Found failed daemon pod {key} on node {node}, will try to kill it");
                Note::warning("FailedDaemonPod", "", message)
            } else {
                let message = format!(
                    "Found succeeded daemon pod {key} on node {node}, will try to delete it"
                );
                Note::normal("SucceededDaemonPod", "", message)
            };
            self.context.record_event(&DAEMON_SETS, set, note);
        }
    }

    async fn sync_nodes(
        &self,
        view: &DaemonSetView<'_>,
        create: &[String],
        delete: &[Arc<Object>],
    ) -> Result<(), Error> {
        let owner = PodControl {
            context: &self.context,
            owner: view.set,
            owner_kind: &DAEMON_SETS,
        };
        let mut nodes = create
            .iter()
            .take(BURST)
            .map(|node| pod::new_pod(view.set, node, view.hash));
        let made = slow_start_batch(create.len().min(BURST), || {
            let pod = nodes.next();
            async {
                if let Some(pod) = pod {
                    self.create_pod(&owner, pod).await
                } else {
                    Ok(())
                }
            }
        });
        let made = made.await.1;
        let gone = join_all(
            delete
                .iter()
                .take(BURST)
                .map(|pod| self.delete_pod(&owner, pod)),
        )
        .await;
        gone.into_iter().fold(made, Result::and)
    }

    /// Failures because of a terminating namespace are ignored.
    async fn create_pod(&self, owner: &PodControl<'_>, pod: Object) -> Result<(), Error> {
        match owner.create(&pod).await {
            Err(error) if is_namespace_terminating(&error) => Ok(()),
            outcome => {
                self.pods.wait_for_write(&outcome?).await;
                Ok(())
            }
        }
    }

    async fn delete_pod(&self, owner: &PodControl<'_>, pod: &Object) -> Result<(), Error> {
        owner.delete(&pod.key()).await?;
        self.pods.wait_for_deletion(pod).await;
        Ok(())
    }

    async fn update_status(&self, set: &Object, hash: &str) -> Result<DaemonSetCounts, Error> {
        let (nodes, pods) = (self.nodes()?, pod::by_node(&self.pods_of(set)?));
        let counts = status::count(&DaemonSetView {
            set,
            hash,
            nodes: &nodes,
            pods: &pods,
            now: self.context.now(),
        });
        if let Some(status) = status::status(set, counts) {
            let mut set = set.clone();
            set.set("status", status);
            self.written
                .record(&self.context.api.update_status(&DAEMON_SETS, &set).await?);
        }
        Ok(counts)
    }

    fn daemon_sets_for_node(&self, node: &Entry<Object>) -> Vec<Key> {
        let (Ok(node), Ok(sets)) = (node.object(), self.sets.lister().list()) else {
            return Vec::new();
        };
        let pods = pod_index::pods_on_node(&self.pods, node.name()).unwrap_or_default();
        let owners: HashSet<&str> = pods
            .iter()
            .filter_map(|pod| Some(pod.controller()?["uid"].str()))
            .collect();
        let is_concerned =
            |set: &&Arc<Object>| plan::is_affected_by_node(set, &node, owners.contains(set.uid()));
        sets.iter()
            .filter(is_concerned)
            .map(|set| set.key())
            .collect()
    }
}

/// The generation is part of the key: a changed set starts without back-off.
fn failed_pods_backoff_key(set: &Object, node: &str) -> String {
    format!(
        "{}/{}/{node}",
        set.uid(),
        set.at("status.observedGeneration").int()
    )
}
