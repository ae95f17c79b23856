//! The diagnosis of a pod that fits no node, and its message.

use std::collections::BTreeMap;

use crate::cache::Slot;
use crate::plugin::{PluginNames, Rejection, Text};

/// Why each node was rejected.
#[derive(Debug, Default)]
pub(crate) struct Diagnosis {
    pub rejections: Vec<(Slot, Rejection)>,
    /// The rejection of all nodes that were not tried.
    pub untried: Option<Rejection>,
    /// The PreFilter message that rejects every node.
    pub pre_filter_message: String,
    /// The message of the PostFilter plugins.
    pub post_filter_message: String,
    /// The plugins whose queueing hints can requeue the pod.
    pub unschedulable_plugins: PluginNames,
}

impl Diagnosis {
    pub(crate) fn reject(&mut self, slot: Slot, rejection: Rejection) {
        self.unschedulable_plugins.insert(rejection.plugin);
        self.rejections.push((slot, rejection));
    }

    /// Nodes on which preemption could help.
    pub(crate) fn resolvable(&self, nodes: &[Slot]) -> Vec<Slot> {
        let refused: crate::HashMap<Slot, bool> = self
            .rejections
            .iter()
            .map(|(slot, rejection)| (*slot, rejection.resolvable))
            .collect();
        let untried = self
            .untried
            .as_ref()
            .is_some_and(|rejection| rejection.resolvable);
        nodes
            .iter()
            .copied()
            .filter(|slot| refused.get(slot).copied().unwrap_or(untried))
            .collect()
    }

    /// The rejection of one node.
    pub(crate) fn rejection(&self, slot: Slot) -> Option<&Rejection> {
        self.rejections
            .iter()
            .find(|(known, _)| *known == slot)
            .map(|(_, rejection)| rejection)
            .or(self.untried.as_ref())
    }

    /// The message of the Event and the condition. `n_nodes` is the number of all nodes.
    pub(crate) fn message(&self, n_nodes: usize) -> String {
        let mut text = format!("0/{n_nodes} nodes are available:");
        if !self.pre_filter_message.is_empty() {
            text += &format!(" {}.", self.pre_filter_message);
        } else if let Some(reasons) = self.histogram(n_nodes) {
            text += &format!(" {reasons}.");
        }
        if !self.post_filter_message.is_empty() {
            text += &format!(" {}", self.post_filter_message);
        }
        text
    }

    /// The number of nodes per reason, sorted as text.
    fn histogram(&self, n_nodes: usize) -> Option<String> {
        let mut counts: BTreeMap<&Text, usize> = BTreeMap::new();
        for reason in self
            .rejections
            .iter()
            .flat_map(|(_, rejection)| rejection.reasons.iter())
        {
            *counts.entry(reason).or_default() += 1;
        }
        let rest = n_nodes.saturating_sub(self.rejections.len());
        for reason in self
            .untried
            .iter()
            .filter(|_| rest > 0)
            .flat_map(|rejection| rejection.reasons.iter())
        {
            *counts.entry(reason).or_default() += rest;
        }
        let mut lines: Vec<String> = counts
            .iter()
            .map(|(reason, count)| format!("{count} {reason}"))
            .collect();
        lines.sort_unstable();
        (!lines.is_empty()).then(|| lines.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::{Name, Reasons};

    #[test]
    fn reasons_are_counted_and_sorted_as_text() {
        let mut diagnosis = Diagnosis::default();
        let several = Reasons::Several(vec!["Too many pods".into(), "Insufficient cpu".into()]);
        let fit = Rejection {
            plugin: Name::NodeResourcesFit,
            reasons: several,
            resolvable: true,
        };
        diagnosis.reject(0, fit);
        diagnosis.reject(
            1,
            Rejection::unschedulable(Name::NodeResourcesFit, "Insufficient cpu"),
        );
        diagnosis.untried = Some(Rejection::unresolvable(
            Name::NodeAffinity,
            "node(s) didn't satisfy plugin(s) [NodeAffinity]",
        ));
        diagnosis.post_filter_message = "preemption: nothing.".into();
        assert_eq!(
            diagnosis.message(12),
            "0/12 nodes are available: 1 Too many pods, 10 node(s) didn't satisfy plugin(s) [NodeAffinity], \
             2 Insufficient cpu. preemption: nothing."
        );
    }

    #[test]
    fn a_pre_filter_rejection_replaces_the_histogram() {
        let diagnosis = Diagnosis {
            pre_filter_message: "pod has unbound immediate PersistentVolumeClaims".into(),
            ..Default::default()
        };
        assert_eq!(
            diagnosis.message(3),
            "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims."
        );
    }
}
