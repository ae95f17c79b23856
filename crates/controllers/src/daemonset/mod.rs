//! One pod on every node that is asked for, whatever nodes come and go.
//!
//! `plan` decides what nodes need, `rollout` which pods are replaced next, `placement` which nodes are asked for.

mod backoff;
mod history_events;
mod placement;
mod plan;
mod pod;
mod revisions;
mod rollout;
mod status;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use k8s_openapi::jiff::Timestamp;
use mizzen_object::select::LabelSelector;
use mizzen_sdk::cache::Entry;
use mizzen_sdk::event::Note;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::queue::Queue;
use mizzen_sdk::resource::{DAEMON_SETS, NODES, PODS};
use mizzen_sdk::{Key, Object};
use tokio::time::sleep;

use crate::common::batch::slow_start;
use crate::common::claim::Claim;
use crate::common::failure::is_namespace_going;
use crate::common::fresh::Written;
use crate::common::pods::Owner;
use crate::common::{owned, seen, wake};
use crate::history::History;
use crate::{After, Context, Error, Reconcile, Work, pod_index};
use backoff::Backoff;
use plan::{Plan, View};
use revisions::Revisions;
use status::Counts;

/// How many sets are worked on at a time.
const N_WORKERS: usize = 2;
/// How many pods are made, and how many deleted, in one go.
const BURST: usize = 250;
/// How often failures that are long past are forgotten.
const FORGET: Duration = Duration::from_secs(60);

struct DaemonSets {
    context: Context,
    sets: Informer<Object>,
    pods: Informer<Object>,
    nodes: Informer<Object>,
    history: History,
    written: Written,
    failures: Backoff,
}

/// Sets up the loop.
pub(crate) fn start(context: &Context) -> Work {
    let context = context
        .named("daemon-set-controller")
        .recording_as("daemonset-controller");
    let queue = context.queue("daemonset");
    let (sets, pods, nodes) = (
        context.follow(&DAEMON_SETS),
        context.follow(&PODS),
        context.follow(&NODES),
    );
    let history = History::new(&context);
    owned::index(&pods);
    pod_index::add_node(&pods);
    let todo = queue.clone();
    sets.add_handler(move |event: Event<Object>| todo.add(event.key().clone()));
    wake::owners(&pods, &sets, &DAEMON_SETS, &queue);
    history_events::handle(&history.revisions, &sets, &queue);
    let (written, failures) = (Written::default(), Backoff::default());
    let daemon_sets = Arc::new(DaemonSets {
        context,
        sets,
        pods,
        nodes,
        history,
        written,
        failures,
    });
    daemon_sets.listen_to_nodes(&queue);
    Work::new(queue, N_WORKERS, daemon_sets.clone()).and(async move {
        loop {
            sleep(FORGET).await;
            daemon_sets
                .failures
                .forget_past(daemon_sets.context.monotonic_now());
        }
    })
}

impl Reconcile for DaemonSets {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        let Some(entry) = self.sets.store().get(key) else {
            self.written.forget(key);
            return Ok(After::Done);
        };
        if !self.written.is_seen(&entry) {
            return Ok(After::Done);
        }
        let set = entry.object()?;
        let selector = LabelSelector::of(&set["spec"]["selector"]).unwrap_or_default();
        if selector.is_empty() {
            let message =
                "This daemon set is selecting all pods. A non-empty selector is required.";
            self.context.record(
                &DAEMON_SETS,
                &set,
                Note::warning("SelectingAll", "", message),
            );
            return Ok(After::Done);
        }
        if set.is_going() {
            return Ok(After::Done);
        }
        let revisions = self.revisions(&set).await?;
        let pods = self.claim_pods(&set, &selector).await?;
        let outcome = self.act(&set, &pods, &revisions).await;
        let counts = self.tell(&set, &revisions.hash).await;
        let (again, counts) = (outcome?, counts?);
        Ok(next_look(&set, counts, again))
    }
}

impl DaemonSets {
    /// The pods of the set. Those that match its selector are adopted, those that do not are let go.
    async fn claim_pods(
        &self,
        set: &Object,
        selector: &LabelSelector,
    ) -> Result<Vec<Arc<Object>>, Error> {
        let found = owned::read(owned::candidates(&self.pods, set))?;
        let claim = Claim {
            context: &self.context,
            owner: set,
            owner_kind: &DAEMON_SETS,
            kind: &PODS,
            finalizers: &[],
        };
        claim
            .claim(found, |pod| selector.matches(|label| pod.label(label)))
            .await
    }

    /// The pods that the set controls, as the cache has them now.
    fn pods_of(&self, set: &Object) -> Result<Vec<Arc<Object>>, Error> {
        Ok(owned::read(owned::of(&self.pods, set.uid()))?)
    }

    fn nodes(&self) -> Result<Vec<Arc<Object>>, Error> {
        let mut nodes = self.nodes.lister().list()?;
        nodes.sort_by(|one, other| one.name().cmp(other.name()));
        Ok(nodes)
    }

    /// Makes and deletes pods. Returns when to look again, if a failed pod has to wait.
    async fn act(
        &self,
        set: &Object,
        pods: &[Arc<Object>],
        revisions: &Revisions,
    ) -> Result<Option<Duration>, Error> {
        let (nodes, pods) = (self.nodes()?, pod::by_node(pods));
        let view = View {
            set,
            hash: &revisions.hash,
            nodes: &nodes,
            pods: &pods,
            now: self.context.now(),
        };
        let now = self.context.monotonic_now();
        let plan = plan::plan(&view, |node| {
            self.failures.wait(&failure_key(set, node), now)
        });
        self.tell_of_ended(set, &plan, now);
        self.change(&view, &plan.create, &plan.delete).await?;
        if plan.create.is_empty()
            && plan.delete.is_empty()
            && set.at("spec.updateStrategy.type").str() == "RollingUpdate"
        {
            let rollout = rollout::rollout(&view);
            self.change(&view, &rollout.create, &rollout.delete).await?;
        }
        self.forget(set, &revisions.old).await?;
        Ok(plan.again)
    }

    fn tell_of_ended(&self, set: &Object, plan: &Plan, now: Timestamp) {
        for (node, pod) in &plan.ended {
            let key = pod.key();
            let note = if pod.at("status.phase").str() == "Failed" {
                self.failures.note(&failure_key(set, node), now);
                let message =
                    format!("Found failed daemon pod {key} on node {node}, will try to kill it");
                Note::warning("FailedDaemonPod", "", message)
            } else {
                let message = format!(
                    "Found succeeded daemon pod {key} on node {node}, will try to delete it"
                );
                Note::normal("SucceededDaemonPod", "", message)
            };
            self.context.record(&DAEMON_SETS, set, note);
        }
    }

    async fn change(
        &self,
        view: &View<'_>,
        create: &[String],
        delete: &[Arc<Object>],
    ) -> Result<(), Error> {
        let owner = Owner {
            context: &self.context,
            object: view.set,
            kind: &DAEMON_SETS,
        };
        let mut nodes = create
            .iter()
            .take(BURST)
            .map(|node| pod::new(view.set, node, view.hash));
        let made = slow_start(create.len().min(BURST), || {
            let pod = nodes.next();
            async {
                if let Some(pod) = pod {
                    self.create(&owner, pod).await
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
                .map(|pod| self.delete(&owner, pod)),
        )
        .await;
        gone.into_iter().fold(made, Result::and)
    }

    /// Where the whole namespace goes, nothing can be made, and nothing needs to.
    async fn create(&self, owner: &Owner<'_>, pod: Object) -> Result<(), Error> {
        match owner.create(&pod).await {
            Err(error) if is_namespace_going(&error) => Ok(()),
            outcome => {
                seen::written(&self.pods, &outcome?).await;
                Ok(())
            }
        }
    }

    async fn delete(&self, owner: &Owner<'_>, pod: &Object) -> Result<(), Error> {
        owner.delete(&pod.key()).await?;
        seen::deleted(&self.pods, pod).await;
        Ok(())
    }

    async fn tell(&self, set: &Object, hash: &str) -> Result<Counts, Error> {
        let (nodes, pods) = (self.nodes()?, pod::by_node(&self.pods_of(set)?));
        let counts = status::count(&View {
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
                .note(&self.context.api.update_status(&DAEMON_SETS, &set).await?);
        }
        Ok(counts)
    }

    /// Wakes the sets that a change of a node concerns.
    fn listen_to_nodes(self: &Arc<Self>, queue: &Queue<Key>) {
        let (daemon_sets, todo) = (Arc::downgrade(self), queue.clone());
        self.nodes.add_handler(move |event: Event<Object>| {
            let Some(daemon_sets) = daemon_sets.upgrade() else {
                return;
            };
            let keys = match &event {
                Event::Updated { old, new } if is_same_to_daemons(old, new) => Vec::new(),
                // Kubernetes: a set hears of it when the pods there are collected.
                Event::Deleted { .. } => Vec::new(),
                event => daemon_sets.concerned(event.object()),
            };
            keys.into_iter().for_each(|key| todo.add(key));
        });
    }

    fn concerned(&self, node: &Entry<Object>) -> Vec<Key> {
        let (Ok(node), Ok(sets)) = (node.object(), self.sets.lister().list()) else {
            return Vec::new();
        };
        let pods = pod_index::on_node(&self.pods, node.name()).unwrap_or_default();
        let owners: HashSet<&str> = pods
            .iter()
            .filter_map(|pod| Some(pod.controller()?["uid"].str()))
            .collect();
        let is_concerned =
            |set: &&Arc<Object>| plan::is_concerned(set, &node, owners.contains(set.uid()));
        sets.iter()
            .filter(is_concerned)
            .map(|set| set.key())
            .collect()
    }
}

/// Whether nothing changed by which a node is chosen. A node says every few seconds that it is alive.
fn is_same_to_daemons(old: &Entry<Object>, new: &Entry<Object>) -> bool {
    let (Ok(old), Ok(new)) = (old.object(), new.object()) else {
        return false;
    };
    old["metadata"]["labels"] == new["metadata"]["labels"]
        && old["spec"]["taints"] == new["spec"]["taints"]
}

/// A new generation of the set is a new chance.
fn failure_key(set: &Object, node: &str) -> String {
    format!(
        "{}/{}/{node}",
        set.uid(),
        set.at("status.observedGeneration").int()
    )
}

/// Pods become available by time alone, and failed ones wait.
fn next_look(set: &Object, counts: Counts, again: Option<Duration>) -> After {
    let min_ready = pod::min_ready(set);
    let available = (min_ready > 0 && counts.ready != counts.available)
        .then(|| Duration::from_secs(min_ready.unsigned_abs()));
    available
        .into_iter()
        .chain(again)
        .min()
        .map_or(After::Done, After::Again)
}
