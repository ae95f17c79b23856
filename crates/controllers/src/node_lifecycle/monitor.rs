//! Looks at all nodes again and again: who came, who left, who fell silent, and whose pods have to go.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use futures_util::future::join_all;
use k8s_openapi::jiff::Timestamp;
use mizzen_sdk::cache::Entry;
use mizzen_sdk::event::Note;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::resource::NODES;
use mizzen_sdk::write::is_conflict;
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::health::{Health, Look, Now, look};
use super::zones::{Turn, Zones, zone_of};
use super::{pods, taints};
use crate::common::pod::condition;
use crate::{Context, Error, pod_index, taint};

/// How often nodes that wait for their taint are let through.
const PASS: Duration = Duration::from_millis(100);
/// How many nodes are written at a time.
const AT_ONCE: usize = 8;
/// How often a status that others write, too, is tried.
const TRIES: usize = 5;
/// A node with this label does not count when it is asked how bad things are.
const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption";
/// Where leases of nodes are.
const LEASES: &str = "kube-node-lease";

pub(super) struct Monitor {
    pub context: Context,
    pub nodes: Informer<Object>,
    pub pods: Informer<Object>,
    pub leases: Informer<Object>,
    known: HashMap<String, Known>,
    zones: Zones,
}

/// What is known of a node.
struct Known {
    /// It is read while it is looked at: as a text, which the cache has anyway, it costs nothing.
    node: Entry<Object>,
    health: Option<Health>,
    /// Not all of its pods could be told.
    again: bool,
}

impl Monitor {
    pub(super) fn new(
        context: Context,
        nodes: Informer<Object>,
        pods: Informer<Object>,
        leases: Informer<Object>,
    ) -> Monitor {
        Monitor {
            context,
            nodes,
            pods,
            leases,
            known: HashMap::new(),
            zones: Zones::default(),
        }
    }

    /// Looks for ever.
    pub(super) async fn run(mut self) {
        let mut looks = interval(self.context.options.node_monitor.period);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = looks.tick() => self.look().await,
                () = sleep(PASS), if !self.zones.are_quiet() => self.pass().await,
            }
        }
    }

    async fn look(&mut self) {
        let nodes = self.nodes.store().list();
        self.notice(&nodes).await;
        let mut ready: BTreeMap<String, Vec<bool>> = BTreeMap::new();
        for some in nodes.chunks(AT_ONCE) {
            let looks = join_all(some.iter().map(|node| self.judge(node))).await;
            for (node, look) in looks.into_iter().flatten() {
                if node.label(EXCLUDED).is_none() {
                    ready
                        .entry(zone_of(&node))
                        .or_default()
                        .push(look.ready.as_deref() == Some("True"));
                }
                self.follow(&node, look).await;
            }
        }
        match self.zones.learn(&ready, self.context.monotonic_now()) {
            Turn::None => (),
            Turn::Blind => self.take_back(&nodes).await,
            Turn::Seeing => self.begin_again(),
        }
    }

    /// Learns who came and who left.
    async fn notice(&mut self, nodes: &[Entry<Object>]) {
        for entry in nodes {
            if let Some(known) = self.known.get_mut(entry.key().name()) {
                known.node = entry.clone();
                continue;
            }
            let Some(node) = read(entry) else { continue };
            self.tell(
                &node,
                "RegisteredNode",
                format!("Registered Node {0} in Controller", node.name()),
            );
            self.known.insert(
                node.name().into(),
                Known {
                    node: entry.clone(),
                    health: None,
                    again: false,
                },
            );
            // Whoever set these before us may have been wrong; we look for ourselves.
            self.release(&node).await;
        }
        let is_gone = |name: &str| self.nodes.store().get(&Key::cluster(name)).is_none();
        let gone: Vec<Known> = self
            .known
            .extract_if(|name, _| is_gone(name))
            .map(|(_, known)| known)
            .collect();
        for node in gone.iter().filter_map(|known| read(&known.node)) {
            self.tell(
                &node,
                "RemovingNode",
                format!("Removing Node {} from Controller", node.name()),
            );
            self.zones
                .waiting(&zone_of(&node), self.context.monotonic_now())
                .remove(node.name());
        }
    }

    fn tell(&self, node: &Object, reason: &str, what: String) {
        let message = format!("Node {} event: {what}", node.name());
        self.context
            .record(&NODES, node, Note::normal(reason, "", message));
    }

    /// Looks at a node, and writes what it finds: the node as it is then. None if that failed.
    async fn judge(&self, entry: &Entry<Object>) -> Option<(Object, Look)> {
        let mut node = read(entry)?;
        let known = self
            .known
            .get(node.name())
            .and_then(|known| known.health.as_ref());
        let lease = self.leases.store().get(&Key::new(LEASES, node.name()));
        let renewed = lease
            .and_then(|lease| lease.text_at(&["spec", "renewTime"]))
            .unwrap_or_default();
        for _ in 0..TRIES {
            let now = Now {
                monotonic: self.context.monotonic_now(),
                wall: self.context.now(),
            };
            let look = look(
                known,
                &node,
                &renewed,
                now,
                self.context.options.node_monitor,
            );
            let Some(conditions) = &look.conditions else {
                return Some((node, look));
            };
            let mut after = node.clone();
            after
                .entry("status")
                .set("conditions", Value::List(conditions.clone()));
            match self.context.api.update_status(&NODES, &after).await {
                Ok(after) => return Some((after, look)),
                Err(error) if is_conflict(&error) => {
                    node = self
                        .context
                        .api
                        .find(&NODES, &node.key())
                        .await
                        .ok()
                        .flatten()?;
                }
                Err(error) => {
                    tracing::debug!(node = node.name(), %error, "cannot write what was found");
                    return None;
                }
            }
        }
        None
    }

    /// Does what follows for a node's taints and pods.
    async fn follow(&mut self, node: &Object, look: Look) {
        match look.ready.as_deref() {
            Some("True") => self.release(node).await,
            Some("False") => self.drive(node, taint::NOT_READY, taint::UNREACHABLE).await,
            Some(_) => self.drive(node, taint::UNREACHABLE, taint::NOT_READY).await,
            None => (),
        }
        if look.lost {
            let message = format!("Node {} status is now: NodeNotReady", node.name());
            self.context
                .record(&NODES, node, Note::normal("NodeNotReady", "", message));
        }
        let Some(known) = self.known.get_mut(node.name()) else {
            return;
        };
        known.health = Some(look.health);
        let is_ready = look.ready.as_deref() == Some("True");
        if look.lost || (known.again && !is_ready) {
            let failed = mark_all(&self.context, &self.pods, node.name())
                .await
                .is_err();
            self.known
                .entry(node.name().into())
                .and_modify(|known| known.again = failed);
        }
    }

    /// Lets a node wait for a taint; at once if it only replaces its opposite.
    async fn drive(&mut self, node: &Object, key: &str, opposite: &str) {
        if taint::has(node, opposite, "NoExecute") {
            self.swap(node.name(), key, opposite).await;
        } else if !taint::has(node, key, "NoExecute") {
            self.zones
                .waiting(&zone_of(node), self.context.monotonic_now())
                .add(node.name());
        }
    }

    async fn swap(&mut self, node: &str, key: &str, opposite: &str) -> bool {
        let now = self.context.now_text();
        let (add, remove) = (
            [taint::new(key, "NoExecute", &now)],
            [taint::new(opposite, "NoExecute", &now)],
        );
        let change = |node: &Object| taint::change(node["spec"]["taints"].list(), &add, &remove);
        taints::change(&self.context, node, change).await.is_ok()
    }

    /// Takes the taints off a node that drive its pods away.
    async fn release(&mut self, node: &Object) {
        let now = self.context.monotonic_now();
        self.zones.waiting(&zone_of(node), now).remove(node.name());
        let keys = [taint::NOT_READY, taint::UNREACHABLE];
        if !keys.iter().any(|key| taint::has(node, key, "NoExecute")) {
            return;
        }
        let ours = keys.map(|key| taint::new(key, "NoExecute", ""));
        let change = |node: &Object| taint::change(node["spec"]["taints"].list(), &[], &ours);
        if let Err(error) = taints::change(&self.context, node.name(), change).await {
            tracing::debug!(node = node.name(), %error, "cannot take taints off");
        }
    }

    async fn take_back(&mut self, nodes: &[Entry<Object>]) {
        for node in nodes.iter().filter_map(read) {
            self.release(&node).await;
        }
    }

    fn begin_again(&mut self) {
        let now: Timestamp = self.context.monotonic_now();
        for health in self
            .known
            .values_mut()
            .filter_map(|known| known.health.as_mut())
        {
            health.seen = now;
        }
    }

    /// Taints those nodes whose turn it is.
    async fn pass(&mut self) {
        for name in self.zones.next(self.context.monotonic_now()) {
            let Ok(Some(node)) = self.nodes.lister().get(&name) else {
                continue;
            };
            let ready = condition(&node, "Ready");
            let is_done = match ready.map_or("", |ready| ready["status"].str()) {
                "False" => self.swap(&name, taint::NOT_READY, taint::UNREACHABLE).await,
                "Unknown" => self.swap(&name, taint::UNREACHABLE, taint::NOT_READY).await,
                _ => true,
            };
            if !is_done {
                self.zones
                    .waiting(&zone_of(&node), self.context.monotonic_now())
                    .add(&name);
            }
        }
    }
}

/// A node to be looked at. All of them are, every few seconds, and none is kept.
fn read(entry: &Entry<Object>) -> Option<Object> {
    entry
        .read()
        .inspect_err(|error| tracing::warn!(%error, "cannot read a node"))
        .ok()
}

async fn mark_all(context: &Context, all: &Informer<Object>, node: &str) -> Result<(), Error> {
    let mut outcome = Ok(());
    for pod in pod_index::on_node(all, node)? {
        outcome = outcome.and(pods::mark(context, &pod).await);
    }
    outcome
}
