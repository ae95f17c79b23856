//! Which nodes does a rule allow? Asked once for each rule and node, and again when a node's labels change.

use mizzen_value::Str;

use super::store::Slot;
use crate::HashMap;
use crate::model::{NodeFacts, NodeRule};

/// How many rules are remembered at a time.
const MOST: usize = 1024;

/// The answers of rules that pods have.
#[derive(Debug, Default)]
pub(super) struct Rules {
    known: HashMap<Str, Answers>,
    asked: u64,
}

#[derive(Debug)]
struct Answers {
    rule: NodeRule,
    /// By node.
    allows: Vec<bool>,
    used: u64,
}

impl Rules {
    /// Remembers a rule; `nodes` are asked when it is new.
    pub(super) fn learn<'a>(
        &mut self,
        rule: &NodeRule,
        nodes: impl Iterator<Item = (Slot, &'a NodeFacts)>,
    ) {
        self.asked += 1;
        if let Some(answers) = self.known.get_mut(&rule.text) {
            answers.used = self.asked;
            return;
        }
        if self.known.len() >= MOST {
            self.forget_half();
        }
        let mut answers = Answers {
            rule: rule.clone(),
            allows: Vec::new(),
            used: self.asked,
        };
        nodes.for_each(|(slot, facts)| answers.set(slot, Some(facts)));
        self.known.insert(rule.text.clone(), answers);
    }

    fn forget_half(&mut self) {
        let mut used: Vec<u64> = self.known.values().map(|answers| answers.used).collect();
        used.sort_unstable();
        let oldest = used[used.len() / 2];
        self.known.retain(|_, answers| answers.used > oldest);
    }

    /// What a rule says of each node. It was learnt before.
    pub(super) fn answers(&self, rule: &NodeRule) -> Option<&[bool]> {
        self.known
            .get(&rule.text)
            .map(|answers| answers.allows.as_slice())
    }

    /// Follows a change of a node.
    pub(super) fn set(&mut self, slot: Slot, facts: Option<&NodeFacts>) {
        self.known
            .values_mut()
            .for_each(|answers| answers.set(slot, facts));
    }
}

impl Answers {
    fn set(&mut self, slot: Slot, facts: Option<&NodeFacts>) {
        let at = slot as usize;
        if at >= self.allows.len() {
            self.allows.resize(at + 1, false);
        }
        self.allows[at] = facts.is_some_and(|facts| self.rule.allows(&facts.name, &facts.labels));
    }
}
