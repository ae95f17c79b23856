//! On which nodes may a pod be, by their labels and names?

use mizzen_kinds::node_affinity::{RequiredNodeAffinity, required};
use mizzen_value::{Str, Value, json};

use super::labels::Labels;

/// What a pod, a volume or a device requires of its node.
#[derive(Debug, Clone)]
pub(crate) struct NodeRule {
    /// What tells it from other rules.
    pub text: Str,
    affinity: RequiredNodeAffinity,
}

impl NodeRule {
    /// The rule of a pod; none if it goes anywhere.
    pub(crate) fn of(spec: &Value) -> Option<NodeRule> {
        NodeRule::new(&spec["nodeSelector"], required(spec))
    }

    /// A rule of exact labels and a node selector; none if there is neither.
    pub(crate) fn new(labels: &Value, required: &Value) -> Option<NodeRule> {
        if labels.is_null() && required.is_null() {
            return None;
        }
        let text = format!("{}{}", json::to_string(labels), json::to_string(required));
        Some(NodeRule {
            text: text.into(),
            affinity: RequiredNodeAffinity::from_parts(labels, required),
        })
    }

    pub(crate) fn allows(&self, name: &str, labels: &Labels) -> bool {
        self.affinity.matches(name, |key| labels.get(key))
    }

    /// The only nodes that it can allow, if every term names some.
    pub(crate) fn named(&self) -> Option<Vec<Str>> {
        self.affinity.node_names()
    }
}
