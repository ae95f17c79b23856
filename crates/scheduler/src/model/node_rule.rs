//! Required node affinity: node selector and node affinity of a pod, or the node selector of a
//! volume or device.

use mizzen_component_helpers::node_affinity::{RequiredNodeAffinity, required};
use mizzen_value::{Str, Value, json};

use super::labels::Labels;

/// The nodes that a pod, a volume or a device requires.
#[derive(Debug, Clone)]
pub(crate) struct NodeRule {
    /// Identifies the rule, for the cache.
    pub text: Str,
    affinity: RequiredNodeAffinity,
}

impl NodeRule {
    /// The rule of a pod; `None` if it allows every node.
    pub(crate) fn from_pod_spec(spec: &Value) -> Option<NodeRule> {
        NodeRule::new(&spec["nodeSelector"], required(spec))
    }

    /// A rule of exact labels and a node selector; `None` if both are unset.
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

    /// The only nodes that can match, if every term selects by name.
    pub(crate) fn node_names(&self) -> Option<Vec<Str>> {
        self.affinity.node_names()
    }
}
