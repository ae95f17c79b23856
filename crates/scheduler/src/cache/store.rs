//! The cache itself.

use std::sync::Arc;

use mizzen_component_helpers::tolerations::Taint;
use mizzen_sdk::{Key, Object};
use mizzen_value::Str;

use super::default_selectors::DefaultSelectors;
use super::existing_terms::{ExistingTerm, ExistingTerms};
use super::image::{ImageState, Images};
use super::node::NodeInfo;
use super::node_rules::NodeRuleCache;
use super::nodes_by_zone::NodesByZone;
use super::selector_counts::{PodCounts, PodMatcher, SelectorCounts};
use super::taints::TaintLists;
use super::topology::{Domains, Topologies};
use crate::model::{AffinityTerm, Labels, NodeFacts, NodeRule, PodInfo, TermNamespaces};
use crate::{HashMap, HashSet};

/// The index of a node.
pub(crate) type Slot = u32;

/// A pod that is assigned or assumed.
#[derive(Debug)]
struct CachedPod {
    pod: Arc<PodInfo>,
    slot: Slot,
    /// Whether it is assumed: the API does not have the binding yet.
    assumed: bool,
}

/// Nodes, and the pods on them.
#[derive(Debug, Default)]
pub(crate) struct SchedulerCache {
    nodes: Vec<NodeInfo>,
    slots: HashMap<Str, Slot>,
    free: Vec<Slot>,
    pods: HashMap<Str, CachedPod>,
    by_namespace: HashMap<Str, HashSet<Str>>,
    namespaces: HashMap<Str, Labels>,
    order: NodesByZone,
    topologies: Topologies,
    counts: SelectorCounts,
    terms: ExistingTerms,
    rules: NodeRuleCache,
    taints: TaintLists,
    images: Images,
    pub default_selectors: DefaultSelectors,
    /// The number of pods that use a PersistentVolumeClaim, by namespace and name.
    claims: HashMap<(Str, Str), u32>,
    no_labels: Labels,
}

/// Reading.
impl SchedulerCache {
    pub(crate) fn node(&self, slot: Slot) -> &NodeInfo {
        &self.nodes[slot as usize]
    }

    /// The node of a name, if the API has it.
    pub(crate) fn node_by_name(&self, name: &str) -> Option<&NodeInfo> {
        self.slots
            .get(name)
            .map(|slot| self.node(*slot))
            .filter(|node| node.exists)
    }

    /// Nodes in the order in which they are tried.
    pub(crate) fn node_order(&self) -> &[Slot] {
        self.order.list()
    }

    pub(crate) fn is_assumed(&self, uid: &str) -> bool {
        self.pods.get(uid).is_some_and(|placed| placed.assumed)
    }

    /// An assigned or assumed pod.
    pub(crate) fn pod(&self, uid: &str) -> Option<&Arc<PodInfo>> {
        self.pods.get(uid).map(|placed| &placed.pod)
    }

    /// All assigned and assumed pods.
    #[cfg(test)]
    pub(crate) fn pods(&self) -> impl Iterator<Item = (&Arc<PodInfo>, Slot)> {
        self.pods.values().map(|placed| (&placed.pod, placed.slot))
    }

    pub(crate) fn n_pods(&self) -> usize {
        self.pods.len()
    }

    pub(crate) fn domains(&self, topology: usize) -> &Domains {
        self.topologies.at(topology)
    }

    pub(crate) fn pod_counts(&self, place: usize) -> &PodCounts {
        self.counts.at(place)
    }

    /// The affinity terms of existing pods that match a pod.
    pub(crate) fn matching_terms<'a>(
        &'a self,
        pod: &'a PodInfo,
    ) -> impl Iterator<Item = &'a ExistingTerm> {
        self.terms
            .matching(pod, self.namespace_labels(&pod.namespace))
    }

    pub(crate) fn namespace_labels(&self, namespace: &str) -> &Labels {
        self.namespaces.get(namespace).unwrap_or(&self.no_labels)
    }

    /// The namespaces that a term selects.
    pub(crate) fn resolve_namespaces(&self, term: &AffinityTerm) -> TermNamespaces {
        term.resolve_namespaces(self.namespaces.iter())
    }

    /// All taint lists by number.
    pub(crate) fn taint_lists(&self) -> &[Box<[Taint]>] {
        self.taints.lists()
    }

    /// The number of assigned pods that use a claim.
    pub(crate) fn n_claim_users(&self, namespace: &Str, claim: &Str) -> u32 {
        self.claims
            .get(&(namespace.clone(), claim.clone()))
            .copied()
            .unwrap_or_default()
    }

    pub(crate) fn image(&self, name: &str) -> Option<&ImageState> {
        self.images.get(name)
    }

    /// Whether each node matches a rule, by slot. The rule must have been evaluated.
    pub(crate) fn rule_matches(&self, rule: &NodeRule) -> &[bool] {
        self.rules.matches(rule).unwrap_or_default()
    }
}

/// Sums that are kept from now on.
impl SchedulerCache {
    /// Rebuilds the node order.
    pub(crate) fn refresh_node_order(&mut self) {
        self.order.refresh();
    }

    /// The index of a topology key.
    pub(crate) fn topology_index(&mut self, label: &Str) -> usize {
        let existing = self.nodes.iter().filter(|node| node.exists);
        self.topologies
            .index_of(label, existing.map(|node| (node.slot, &node.facts.labels)))
    }

    /// The index of the counts of a selector.
    pub(crate) fn count_matching(&mut self, matcher: &PodMatcher) -> usize {
        let (pods, by_namespace) = (&self.pods, &self.by_namespace);
        self.counts.index_of(matcher, |namespace| match namespace {
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

    /// Evaluates a rule on all nodes.
    pub(crate) fn evaluate_rule(&mut self, rule: &NodeRule) {
        let existing = self.nodes.iter().filter(|node| node.exists);
        self.rules
            .evaluate(rule, existing.map(|node| (node.slot, &*node.facts)));
    }
}

/// Nodes and namespaces.
impl SchedulerCache {
    /// Adds or updates a node. Returns the old state, if there was one.
    pub(crate) fn set_node(&mut self, facts: NodeFacts) -> Option<Arc<NodeFacts>> {
        let (slot, facts) = (self.slot_for(&facts.name), Arc::new(facts));
        let old = self
            .node(slot)
            .exists
            .then(|| self.node(slot).facts.clone());
        let moves = old.as_ref().is_none_or(|old| old.labels != facts.labels);
        if moves {
            self.remove_terms(slot);
            self.topologies.set_labels(slot, Some(&facts.labels));
            self.rules.set(slot, Some(&facts));
        }
        self.images.change(slot, old.as_deref(), Some(&facts));
        let list = self.taints.acquire(&facts.taints);
        let left = std::mem::replace(&mut self.nodes[slot as usize].taints, list);
        if old.is_some() {
            self.taints.release(left);
        }
        self.reorder(slot, old.as_deref(), Some(&facts));
        self.nodes[slot as usize].set_facts(facts);
        if moves {
            self.add_terms(slot);
        }
        old
    }

    /// Removes a node. Returns the old state, if there was one.
    pub(crate) fn remove_node(&mut self, name: &str) -> Option<Arc<NodeFacts>> {
        let slot = *self.slots.get(name)?;
        let old = self
            .node(slot)
            .exists
            .then(|| self.node(slot).facts.clone())?;
        self.remove_terms(slot);
        self.topologies.set_labels(slot, None);
        self.rules.set(slot, None);
        self.images.change(slot, Some(&old), None);
        self.taints.release(self.node(slot).taints);
        self.reorder(slot, Some(&old), None);
        let node = &mut self.nodes[slot as usize];
        node.exists = false;
        node.facts = Arc::new(NodeFacts {
            name: old.name.clone(),
            ..NodeFacts::default()
        });
        self.add_terms(slot);
        self.free_if_empty(slot);
        Some(old)
    }

    pub(crate) fn set_namespace(&mut self, key: &Key, namespace: Option<&Object>) {
        match namespace {
            Some(namespace) => self.namespaces.insert(
                key.name().into(),
                Labels::from_value(&namespace["metadata"]["labels"]),
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

    fn slot_for(&mut self, name: &Str) -> Slot {
        if let Some(slot) = self.slots.get(name) {
            return *slot;
        }
        let slot = self.free.pop().unwrap_or(self.nodes.len() as Slot);
        let node = NodeInfo::new(slot, name.clone());
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

    /// Removes the affinity terms of a node's pods while its labels change.
    fn remove_terms(&mut self, slot: Slot) {
        for pod in self.node(slot).pods.clone() {
            self.count_terms(&pod, slot, -1);
        }
    }

    fn add_terms(&mut self, slot: Slot) {
        for pod in self.node(slot).pods.clone() {
            self.count_terms(&pod, slot, 1);
        }
    }

    fn count_terms(&mut self, pod: &PodInfo, slot: Slot, by: i32) {
        if !pod.affinity.stated {
            return;
        }
        let SchedulerCache {
            terms,
            topologies,
            nodes,
            ..
        } = self;
        terms.change(pod, by, |label| {
            let existing = nodes.iter().filter(|node| node.exists);
            let place =
                topologies.index_of(label, existing.map(|node| (node.slot, &node.facts.labels)));
            (place, topologies.at(place).domain_of(slot))
        });
    }
}

/// Pods.
impl SchedulerCache {
    /// Adds or updates an assigned pod.
    pub(crate) fn set_pod(&mut self, pod: Arc<PodInfo>) {
        self.remove_pod(&pod.uid);
        let slot = self.slot_for(&pod.node);
        self.insert_pod(pod, slot, false);
    }

    /// Assumes that a pod is on a node from now on.
    pub(crate) fn assume(&mut self, pod: Arc<PodInfo>, slot: Slot) {
        self.remove_pod(&pod.uid);
        self.insert_pod(pod, slot, true);
    }

    /// Removes a pod, if it was only assumed.
    pub(crate) fn forget_assumed(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        if self.is_assumed(uid) {
            self.remove_pod(uid)
        } else {
            None
        }
    }

    pub(crate) fn remove_pod(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let CachedPod { pod, slot, .. } = self.pods.remove(uid)?;
        if let Some(uids) = self.by_namespace.get_mut(&pod.namespace) {
            uids.remove(uid);
            if uids.is_empty() {
                self.by_namespace.remove(&pod.namespace);
            }
        }
        self.nodes[slot as usize].remove_pod(uid);
        self.count_claims(&pod, -1);
        self.counts.change(&pod, slot, -1);
        self.count_terms(&pod, slot, -1);
        self.free_if_empty(slot);
        Some(pod)
    }

    fn count_claims(&mut self, pod: &PodInfo, by: i32) {
        for claim in &pod.volumes.claims {
            let key = (pod.namespace.clone(), claim.name.clone());
            let count = self.claims.entry(key.clone()).or_default();
            *count = count.saturating_add_signed(by);
            if *count == 0 {
                self.claims.remove(&key);
            }
        }
    }

    fn insert_pod(&mut self, pod: Arc<PodInfo>, slot: Slot, assumed: bool) {
        self.nodes[slot as usize].add_pod(pod.clone());
        self.count_claims(&pod, 1);
        self.counts.change(&pod, slot, 1);
        self.count_terms(&pod, slot, 1);
        self.by_namespace
            .entry(pod.namespace.clone())
            .or_default()
            .insert(pod.uid.clone());
        self.pods
            .insert(pod.uid.clone(), CachedPod { pod, slot, assumed });
    }
}
