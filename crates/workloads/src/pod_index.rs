//! The index of pods by node, which several controllers share.

use std::sync::Arc;

use mizzen_sdk::Object;
use mizzen_sdk::cache::{DecodeError, by_field};
use mizzen_sdk::informer::Informer;

const NODE: &str = "spec.nodeName";

/// Indexes pods by node.
pub fn add_node_index(pods: &Informer<Object>) {
    pods.add_index(NODE, by_field(NODE));
}

/// The pods on a node.
pub fn pods_on_node(pods: &Informer<Object>, node: &str) -> Result<Vec<Arc<Object>>, DecodeError> {
    pods.lister().by_index(NODE, node).unwrap_or(Ok(Vec::new()))
}

/// The node names of all pods.
pub fn indexed_nodes(pods: &Informer<Object>) -> Vec<String> {
    let snapshot = pods.store().snapshot();
    let nodes = snapshot.index_values(NODE).into_iter().flatten();
    nodes
        .filter(|node| !node.is_empty())
        .map(String::from)
        .collect()
}
