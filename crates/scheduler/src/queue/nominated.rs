//! Which pods will perhaps be on a node, because others go for them?

use std::sync::Arc;

use mizzen_value::Str;

use crate::HashMap;
use crate::model::Pod;

/// Pods with a node that is not theirs yet.
#[derive(Debug, Default)]
pub(crate) struct Nominated {
    by_node: HashMap<Str, Vec<Arc<Pod>>>,
    node_of: HashMap<Str, Str>,
}

impl Nominated {
    /// Nominates a node for a pod: `node`, or the one in its status. An empty name takes the nomination away.
    pub(crate) fn add(&mut self, pod: &Arc<Pod>, node: Option<&Str>) {
        self.remove(&pod.uid);
        let node = node.unwrap_or(&pod.nominated);
        if node.is_empty() || pod.is_placed() {
            return;
        }
        self.node_of.insert(pod.uid.clone(), node.clone());
        self.by_node
            .entry(node.clone())
            .or_default()
            .push(pod.clone());
    }

    /// Follows a change of a pod. What only we know stays: the API may not have heard of it yet.
    pub(crate) fn update(&mut self, old: &Pod, new: &Arc<Pod>) {
        let own = (old.nominated.is_empty() && new.nominated.is_empty())
            .then(|| self.node_of.get(&old.uid).cloned())
            .flatten();
        self.add(new, own.as_ref());
    }

    pub(crate) fn remove(&mut self, uid: &str) {
        let Some(node) = self.node_of.remove(uid) else {
            return;
        };
        if let Some(pods) = self.by_node.get_mut(&node) {
            pods.retain(|pod| pod.uid != uid);
            if pods.is_empty() {
                self.by_node.remove(&node);
            }
        }
    }

    /// The pods for which a node is nominated.
    pub(crate) fn on(&self, node: &str) -> &[Arc<Pod>] {
        if self.by_node.is_empty() {
            return &[];
        }
        self.by_node.get(node).map_or(&[], Vec::as_slice)
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.by_node.is_empty()
    }
}
