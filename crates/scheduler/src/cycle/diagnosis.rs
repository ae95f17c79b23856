//! Why is there no node for a pod?

use std::collections::BTreeMap;

use crate::cache::Slot;
use crate::plugin::{Names, Refusal, Text};

/// What spoke against which node.
#[derive(Debug, Default)]
pub(crate) struct Diagnosis {
    pub refusals: Vec<(Slot, Refusal)>,
    /// What speaks against all nodes that nobody looked at.
    pub elsewhere: Option<Refusal>,
    /// What speaks against every node, found before any was looked at.
    pub before: String,
    /// What came of making room.
    pub after: String,
    /// Who is to be asked whether something can help.
    pub rejectors: Names,
}

impl Diagnosis {
    pub(crate) fn refuse(&mut self, slot: Slot, refusal: Refusal) {
        self.rejectors.insert(refusal.plugin);
        self.refusals.push((slot, refusal));
    }

    /// Nodes on which there would be room if other pods went.
    pub(crate) fn resolvable(&self, nodes: &[Slot]) -> Vec<Slot> {
        let refused: crate::HashMap<Slot, bool> = self
            .refusals
            .iter()
            .map(|(slot, refusal)| (*slot, refusal.resolvable))
            .collect();
        let elsewhere = self
            .elsewhere
            .as_ref()
            .is_some_and(|refusal| refusal.resolvable);
        nodes
            .iter()
            .copied()
            .filter(|slot| refused.get(slot).copied().unwrap_or(elsewhere))
            .collect()
    }

    /// What speaks against one node.
    pub(crate) fn refusal(&self, slot: Slot) -> Option<&Refusal> {
        self.refusals
            .iter()
            .find(|(known, _)| *known == slot)
            .map(|(_, refusal)| refusal)
            .or(self.elsewhere.as_ref())
    }

    /// All of it for people, `n_nodes` in all.
    pub(crate) fn text(&self, n_nodes: usize) -> String {
        let mut text = no_node(n_nodes);
        if !self.before.is_empty() {
            text += &format!(" {}.", self.before);
        } else if let Some(reasons) = self.histogram(n_nodes) {
            text += &format!(" {reasons}.");
        }
        if !self.after.is_empty() {
            text += &format!(" {}", self.after);
        }
        text
    }

    /// How many nodes each reason speaks against, in the order of their texts.
    fn histogram(&self, n_nodes: usize) -> Option<String> {
        let mut counts: BTreeMap<&Text, usize> = BTreeMap::new();
        for reason in self
            .refusals
            .iter()
            .flat_map(|(_, refusal)| refusal.reasons.iter())
        {
            *counts.entry(reason).or_default() += 1;
        }
        let rest = n_nodes.saturating_sub(self.refusals.len());
        for reason in self
            .elsewhere
            .iter()
            .filter(|_| rest > 0)
            .flat_map(|refusal| refusal.reasons.iter())
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

/// The beginning of every message about a pod without a node.
fn no_node(n_nodes: usize) -> String {
    format!("0/{n_nodes} nodes are available:")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::{Name, Reasons};

    #[test]
    fn reasons_are_counted_and_sorted_as_text() {
        let mut diagnosis = Diagnosis::default();
        let several = Reasons::Several(vec!["Too many pods".into(), "Insufficient cpu".into()]);
        let fit = Refusal {
            plugin: Name::NodeResourcesFit,
            reasons: several,
            resolvable: true,
        };
        diagnosis.refuse(0, fit);
        diagnosis.refuse(
            1,
            Refusal::for_now(Name::NodeResourcesFit, "Insufficient cpu"),
        );
        diagnosis.elsewhere = Some(Refusal::for_good(
            Name::NodeAffinity,
            "node(s) didn't satisfy plugin(s) [NodeAffinity]",
        ));
        diagnosis.after = "preemption: nothing.".into();
        assert_eq!(
            diagnosis.text(12),
            "0/12 nodes are available: 1 Too many pods, 10 node(s) didn't satisfy plugin(s) [NodeAffinity], \
             2 Insufficient cpu. preemption: nothing."
        );
    }

    #[test]
    fn what_speaks_against_every_node_is_said_once() {
        let diagnosis = Diagnosis {
            before: "pod has unbound immediate PersistentVolumeClaims".into(),
            ..Default::default()
        };
        assert_eq!(
            diagnosis.text(3),
            "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims."
        );
    }
}
