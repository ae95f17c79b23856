//! Nodes and pods as they come, change, and go.

use std::sync::Arc;

use mizzen_kinds::tolerations::Taint;
use mizzen_sdk::{Key, Object};
use mizzen_value::Str;

use super::carried::{Carried, Terms};
use super::counted::{Counted, Counts, Matcher};
use super::domain::{Domains, Topologies};
use super::image::{ImageState, Images};
use super::node::Node;
use super::order::Order;
use super::owners::Owners;
use super::rules::Rules;
use super::taints::TaintLists;
use crate::model::{Labels, Namespaces, NodeFacts, NodeRule, Pod, Term};
use crate::{HashMap, HashSet};

/// The place of a node.
pub(crate) type Slot = u32;

/// A pod that is somewhere.
#[derive(Debug)]
struct Placed {
    pod: Arc<Pod>,
    slot: Slot,
    /// Whether only we know.
    assumed: bool,
}

/// What is where.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    nodes: Vec<Node>,
    slots: HashMap<Str, Slot>,
    free: Vec<Slot>,
    pods: HashMap<Str, Placed>,
    by_namespace: HashMap<Str, HashSet<Str>>,
    namespaces: HashMap<Str, Labels>,
    order: Order,
    topologies: Topologies,
    counts: Counts,
    terms: Terms,
    rules: Rules,
    taints: TaintLists,
    images: Images,
    pub owners: Owners,
    /// How many pods use a claim, by namespace and name.
    claims: HashMap<(Str, Str), u32>,
    no_labels: Labels,
}

/// Reading.
impl Cache {
    pub(crate) fn node(&self, slot: Slot) -> &Node {
        &self.nodes[slot as usize]
    }

    /// The node of a name, if the API has it.
    pub(crate) fn find(&self, name: &str) -> Option<&Node> {
        self.slots
            .get(name)
            .map(|slot| self.node(*slot))
            .filter(|node| node.exists)
    }

    /// Nodes in the order in which they are looked at.
    pub(crate) fn order(&self) -> &[Slot] {
        self.order.list()
    }

    pub(crate) fn is_assumed(&self, uid: &str) -> bool {
        self.pods.get(uid).is_some_and(|placed| placed.assumed)
    }

    /// A pod that is somewhere.
    pub(crate) fn pod(&self, uid: &str) -> Option<&Arc<Pod>> {
        self.pods.get(uid).map(|placed| &placed.pod)
    }

    /// All pods that are somewhere.
    #[cfg(test)]
    pub(crate) fn pods(&self) -> impl Iterator<Item = (&Arc<Pod>, Slot)> {
        self.pods.values().map(|placed| (&placed.pod, placed.slot))
    }

    pub(crate) fn n_pods(&self) -> usize {
        self.pods.len()
    }

    pub(crate) fn domains(&self, topology: usize) -> &Domains {
        self.topologies.at(topology)
    }

    pub(crate) fn counted(&self, place: usize) -> &Counted {
        self.counts.at(place)
    }

    /// The terms of others that mean a pod.
    pub(crate) fn terms_meaning<'a>(&'a self, pod: &'a Pod) -> impl Iterator<Item = &'a Carried> {
        self.terms
            .meaning(pod, self.namespace_labels(&pod.namespace))
    }

    pub(crate) fn namespace_labels(&self, namespace: &str) -> &Labels {
        self.namespaces.get(namespace).unwrap_or(&self.no_labels)
    }

    /// The namespaces in which a term looks.
    pub(crate) fn resolve(&self, term: &Term) -> Namespaces {
        term.resolve(self.namespaces.iter())
    }

    /// All lists of taints by their numbers.
    pub(crate) fn taint_lists(&self) -> &[Box<[Taint]>] {
        self.taints.lists()
    }

    /// How many pods that are somewhere use a claim.
    pub(crate) fn n_users(&self, namespace: &Str, claim: &Str) -> u32 {
        self.claims
            .get(&(namespace.clone(), claim.clone()))
            .copied()
            .unwrap_or_default()
    }

    pub(crate) fn image(&self, name: &str) -> Option<&ImageState> {
        self.images.get(name)
    }

    /// What a rule says of each node; it was learnt before.
    pub(crate) fn answers(&self, rule: &NodeRule) -> &[bool] {
        self.rules.answers(rule).unwrap_or_default()
    }
}

/// What is counted from now on.
impl Cache {
    /// Readies the order of nodes.
    pub(crate) fn refresh(&mut self) {
        self.order.refresh();
    }

    /// The place of a label among topologies.
    pub(crate) fn topology(&mut self, label: &Str) -> usize {
        let existing = self.nodes.iter().filter(|node| node.exists);
        self.topologies
            .place(label, existing.map(|node| (node.slot, &node.facts.labels)))
    }

    /// The place of what is counted.
    pub(crate) fn count(&mut self, matcher: &Matcher) -> usize {
        let (pods, by_namespace) = (&self.pods, &self.by_namespace);
        self.counts.place(matcher, |namespace| match namespace {
            None => pods
                .values()
                .map(|placed| (&*placed.pod, placed.slot))
                .collect(),
            Some(namespace) => {
                let uids = by_namespace.get(namespace).into_iter().flatten();
                uids.filter_map(|uid| pods.get(uid))
                    .map(|placed| (&*placed.pod, placed.slot))
                    .collect()
            }
        })
    }

    /// Learns what a rule says of each node.
    pub(crate) fn learn(&mut self, rule: &NodeRule) {
        let existing = self.nodes.iter().filter(|node| node.exists);
        self.rules
            .learn(rule, existing.map(|node| (node.slot, &*node.facts)));
    }
}

/// Nodes and namespaces.
impl Cache {
    /// Takes in a node as it is. What it was before, if it was there.
    pub(crate) fn set_node(&mut self, facts: NodeFacts) -> Option<Arc<NodeFacts>> {
        let (slot, facts) = (self.slot(&facts.name), Arc::new(facts));
        let old = self
            .node(slot)
            .exists
            .then(|| self.node(slot).facts.clone());
        let moves = old.as_ref().is_none_or(|old| old.labels != facts.labels);
        if moves {
            self.lift(slot);
            self.topologies.set(slot, Some(&facts.labels));
            self.rules.set(slot, Some(&facts));
        }
        self.images.change(slot, old.as_deref(), Some(&facts));
        let list = self.taints.join(&facts.taints);
        let left = std::mem::replace(&mut self.nodes[slot as usize].taints, list);
        if old.is_some() {
            self.taints.leave(left);
        }
        self.reorder(slot, old.as_deref(), Some(&facts));
        self.nodes[slot as usize].set_facts(facts);
        if moves {
            self.lower(slot);
        }
        old
    }

    /// Forgets a node. What it was, if it was there.
    pub(crate) fn remove_node(&mut self, name: &str) -> Option<Arc<NodeFacts>> {
        let slot = *self.slots.get(name)?;
        let old = self
            .node(slot)
            .exists
            .then(|| self.node(slot).facts.clone())?;
        self.lift(slot);
        self.topologies.set(slot, None);
        self.rules.set(slot, None);
        self.images.change(slot, Some(&old), None);
        self.taints.leave(self.node(slot).taints);
        self.reorder(slot, Some(&old), None);
        let node = &mut self.nodes[slot as usize];
        node.exists = false;
        node.facts = Arc::new(NodeFacts {
            name: old.name.clone(),
            ..NodeFacts::default()
        });
        self.lower(slot);
        self.free_if_empty(slot);
        Some(old)
    }

    pub(crate) fn set_namespace(&mut self, key: &Key, namespace: Option<&Object>) {
        match namespace {
            Some(namespace) => self.namespaces.insert(
                key.name().into(),
                Labels::of(&namespace["metadata"]["labels"]),
            ),
            None => self.namespaces.remove(key.name()),
        };
    }

    fn reorder(&mut self, slot: Slot, old: Option<&NodeFacts>, new: Option<&NodeFacts>) {
        let (old, new) = (old.map(NodeFacts::zone), new.map(NodeFacts::zone));
        if old != new {
            old.iter().for_each(|zone| self.order.remove(zone, slot));
            new.iter().for_each(|zone| self.order.add(zone, slot));
        }
    }

    fn slot(&mut self, name: &Str) -> Slot {
        if let Some(slot) = self.slots.get(name) {
            return *slot;
        }
        let slot = self.free.pop().unwrap_or(self.nodes.len() as Slot);
        let node = Node::new(slot, name.clone());
        match self.nodes.get_mut(slot as usize) {
            Some(place) => *place = node,
            None => self.nodes.push(node),
        }
        self.slots.insert(name.clone(), slot);
        slot
    }

    fn free_if_empty(&mut self, slot: Slot) {
        let node = self.node(slot);
        if !node.exists && node.pods.is_empty() {
            let name = node.name().clone();
            self.slots.remove(&name);
            self.free.push(slot);
        }
    }

    /// Takes the terms of a node's pods out of the sums while its labels change.
    fn lift(&mut self, slot: Slot) {
        for pod in self.node(slot).pods.clone() {
            self.carry(&pod, slot, -1);
        }
    }

    fn lower(&mut self, slot: Slot) {
        for pod in self.node(slot).pods.clone() {
            self.carry(&pod, slot, 1);
        }
    }

    fn carry(&mut self, pod: &Pod, slot: Slot, by: i32) {
        if !pod.affinity.stated {
            return;
        }
        let Cache {
            terms,
            topologies,
            nodes,
            ..
        } = self;
        terms.change(pod, by, |label| {
            let existing = nodes.iter().filter(|node| node.exists);
            let place =
                topologies.place(label, existing.map(|node| (node.slot, &node.facts.labels)));
            (place, topologies.at(place).of(slot))
        });
    }
}

/// Pods.
impl Cache {
    /// Takes in a pod that the API says is somewhere.
    pub(crate) fn set_pod(&mut self, pod: Arc<Pod>) {
        self.remove_pod(&pod.uid);
        let slot = self.slot(&pod.node);
        self.place(pod, slot, false);
    }

    /// Assumes that a pod is on a node from now on.
    pub(crate) fn assume(&mut self, pod: Arc<Pod>, slot: Slot) {
        self.remove_pod(&pod.uid);
        self.place(pod, slot, true);
    }

    /// Forgets a pod, if it was only assumed.
    pub(crate) fn forget(&mut self, uid: &str) -> Option<Arc<Pod>> {
        if self.is_assumed(uid) {
            self.remove_pod(uid)
        } else {
            None
        }
    }

    /// Forgets a pod.
    pub(crate) fn remove_pod(&mut self, uid: &str) -> Option<Arc<Pod>> {
        let Placed { pod, slot, .. } = self.pods.remove(uid)?;
        if let Some(uids) = self.by_namespace.get_mut(&pod.namespace) {
            uids.remove(uid);
            if uids.is_empty() {
                self.by_namespace.remove(&pod.namespace);
            }
        }
        self.nodes[slot as usize].remove(uid);
        self.use_claims(&pod, -1);
        self.counts.change(&pod, slot, -1);
        self.carry(&pod, slot, -1);
        self.free_if_empty(slot);
        Some(pod)
    }

    fn use_claims(&mut self, pod: &Pod, by: i32) {
        for claim in &pod.volumes.claims {
            let key = (pod.namespace.clone(), claim.name.clone());
            let count = self.claims.entry(key.clone()).or_default();
            *count = count.saturating_add_signed(by);
            if *count == 0 {
                self.claims.remove(&key);
            }
        }
    }

    fn place(&mut self, pod: Arc<Pod>, slot: Slot, assumed: bool) {
        self.nodes[slot as usize].add(pod.clone());
        self.use_claims(&pod, 1);
        self.counts.change(&pod, slot, 1);
        self.carry(&pod, slot, 1);
        self.by_namespace
            .entry(pod.namespace.clone())
            .or_default()
            .insert(pod.uid.clone());
        self.pods
            .insert(pod.uid.clone(), Placed { pod, slot, assumed });
    }
}
