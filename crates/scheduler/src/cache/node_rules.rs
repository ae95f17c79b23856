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
    by_rule: HashMap<Str, NodeRuleMatches>,
    n_lookups: u64,
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
        self.n_lookups += 1;
        if let Some(matches) = self.by_rule.get_mut(&rule.text) {
            matches.used = self.n_lookups;
            return;
        }
        if self.by_rule.len() >= MAX_RULES {
            self.evict_half();
        }
        let mut matches = NodeRuleMatches {
            rule: rule.clone(),
            by_slot: Vec::new(),
            used: self.n_lookups,
        };
        nodes.for_each(|(slot, facts)| matches.set(slot, Some(facts)));
        self.by_rule.insert(rule.text.clone(), matches);
    }

    fn evict_half(&mut self) {
        let mut used: Vec<u64> = self.by_rule.values().map(|matches| matches.used).collect();
        used.sort_unstable();
        let oldest = used[used.len() / 2];
        self.by_rule.retain(|_, matches| matches.used > oldest);
    }

    /// Whether each node matches the rule, by slot. The rule must have been evaluated.
    pub(super) fn matches(&self, rule: &NodeRule) -> Option<&[bool]> {
        self.by_rule
            .get(&rule.text)
            .map(|matches| matches.by_slot.as_slice())
    }

    /// Follows a change of a node.
    pub(super) fn set(&mut self, slot: Slot, facts: Option<&NodeFacts>) {
        self.by_rule
            .values_mut()
            .for_each(|matches| matches.set(slot, facts));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::samples::{node, object};

    fn rule(n: usize) -> NodeRule {
        let labels = object(&format!("{{zone: z{n}}}"));
        NodeRule::new(&labels, &mizzen_value::Value::Null).expect("a rule")
    }

    #[test]
    fn a_rule_that_was_evicted_has_the_same_result_again() {
        let nodes = [
            node("a", "{metadata: {labels: {zone: z0}}}"),
            node("b", "{metadata: {labels: {zone: z1}}}"),
        ];
        let slots = || (0..).zip(&nodes);
        let mut cache = NodeRuleCache::default();
        for n in 0..3 * MAX_RULES {
            cache.evaluate(&rule(n), slots());
            assert!(cache.by_rule.len() <= MAX_RULES, "{}", cache.by_rule.len());
        }
        assert_eq!(cache.matches(&rule(0)), None, "evicted");
        cache.evaluate(&rule(0), slots());
        assert_eq!(cache.matches(&rule(0)), Some(&[true, false][..]));
    }

    #[test]
    fn a_rule_is_evaluated_once_per_node() {
        let mut cache = NodeRuleCache::default();
        let a = node("a", "{metadata: {labels: {zone: z0}}}");
        cache.evaluate(&rule(0), [(0, &a)].into_iter());
        cache.evaluate(
            &rule(0),
            std::iter::from_fn(|| panic!("the result is known")),
        );
        assert_eq!(cache.matches(&rule(0)), Some(&[true][..]));
    }
}
