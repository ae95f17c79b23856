//! Required node affinity, evaluated once per rule and node, and again when the node's labels
//! change.

use mizzen_value::Str;

use super::store::Slot;
use crate::HashMap;
use crate::model::{NodeFacts, NodeRule};

/// The most rules that are cached at a time.
const MAX_RULES: usize = 1024;

/// The results of the rules that pods have.
#[derive(Debug, Default)]
pub(super) struct NodeRuleCache {
    known: HashMap<Str, NodeRuleMatches>,
    asked: u64,
}

#[derive(Debug)]
struct NodeRuleMatches {
    rule: NodeRule,
    /// By node slot.
    by_slot: Vec<bool>,
    used: u64,
}

impl NodeRuleCache {
    /// Evaluates a rule on `nodes` if it is new.
    pub(super) fn evaluate<'a>(
        &mut self,
        rule: &NodeRule,
        nodes: impl Iterator<Item = (Slot, &'a NodeFacts)>,
    ) {
        self.asked += 1;
        if let Some(answers) = self.known.get_mut(&rule.text) {
            answers.used = self.asked;
            return;
        }
        if self.known.len() >= MAX_RULES {
            self.evict_half();
        }
        let mut answers = NodeRuleMatches {
            rule: rule.clone(),
            by_slot: Vec::new(),
            used: self.asked,
        };
        nodes.for_each(|(slot, facts)| answers.set(slot, Some(facts)));
        self.known.insert(rule.text.clone(), answers);
    }

    fn evict_half(&mut self) {
        let mut used: Vec<u64> = self.known.values().map(|answers| answers.used).collect();
        used.sort_unstable();
        let oldest = used[used.len() / 2];
        self.known.retain(|_, answers| answers.used > oldest);
    }

    /// Whether each node matches the rule, by slot. The rule must have been evaluated.
    pub(super) fn matches(&self, rule: &NodeRule) -> Option<&[bool]> {
        self.known
            .get(&rule.text)
            .map(|answers| answers.by_slot.as_slice())
    }

    /// Follows a change of a node.
    pub(super) fn set(&mut self, slot: Slot, facts: Option<&NodeFacts>) {
        self.known
            .values_mut()
            .for_each(|answers| answers.set(slot, facts));
    }
}

impl NodeRuleMatches {
    fn set(&mut self, slot: Slot, facts: Option<&NodeFacts>) {
        let at = slot as usize;
        if at >= self.by_slot.len() {
            self.by_slot.resize(at + 1, false);
        }
        self.by_slot[at] = facts.is_some_and(|facts| self.rule.allows(&facts.name, &facts.labels));
    }
}
