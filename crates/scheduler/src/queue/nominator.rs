//! The nominator: pods that are nominated to a node but not yet assigned.

use std::sync::Arc;

use mizzen_value::Str;

use crate::HashMap;
use crate::model::PodInfo;

/// Nominated pods by node.
#[derive(Debug, Default)]
pub(crate) struct Nominator {
    by_node: HashMap<Str, Vec<Arc<PodInfo>>>,
    node_by_uid: HashMap<Str, Str>,
}

impl Nominator {
    /// Nominates a node for a pod: `node`, or the one in its status. An empty name clears the
    /// nomination.
    pub(crate) fn add(&mut self, pod: &Arc<PodInfo>, node: Option<&Str>) {
        self.remove(&pod.uid);
        let node = node.unwrap_or(&pod.nominated_node);
        if node.is_empty() || pod.is_assigned() {
            return;
        }
        self.node_by_uid.insert(pod.uid.clone(), node.clone());
        self.by_node
            .entry(node.clone())
            .or_default()
            .push(pod.clone());
    }

    /// Follows an update of a pod. A nomination that is not in the API yet stays.
    pub(crate) fn update(&mut self, old: &PodInfo, new: &Arc<PodInfo>) {
        let own = (old.nominated_node.is_empty() && new.nominated_node.is_empty())
            .then(|| self.node_by_uid.get(&old.uid).cloned())
            .flatten();
        self.add(new, own.as_ref());
    }

    pub(crate) fn remove(&mut self, uid: &str) {
        let Some(node) = self.node_by_uid.remove(uid) else {
            return;
        };
        if let Some(pods) = self.by_node.get_mut(&node) {
            pods.retain(|pod| pod.uid != uid);
            if pods.is_empty() {
                self.by_node.remove(&node);
            }
        }
    }

    /// The pods that are nominated to a node.
    pub(crate) fn pods_for_node(&self, node: &str) -> &[Arc<PodInfo>] {
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
