//! The state of each node: resources in use, and pod IPs.

use std::collections::HashMap;
use std::sync::Arc;

use mizzen_sdk::informer::Informer;
use mizzen_sdk::{Key, Object};
use mizzen_value::Str;

use crate::address::AddressPool;
use crate::admit::{NodeAllocation, PodAllocation};
use crate::nodes;
use crate::settings::NodeSettings;

/// The nodes of this process.
pub(super) struct NodeTable {
    settings: Arc<NodeSettings>,
    nodes: Informer<Object>,
    nodes_here: HashMap<Str, NodeRecord>,
    /// Addresses for pods whose node has no podCIDR.
    own: AddressPool,
}

#[derive(Default)]
struct NodeRecord {
    used: NodeAllocation,
    pool: Option<AddressPool>,
}

/// A node, and what is in use on it.
pub(super) struct NodeView<'a> {
    pub object: Arc<Object>,
    pub used: &'a NodeAllocation,
}

impl NodeTable {
    pub(super) fn new(settings: &Arc<NodeSettings>, nodes: Informer<Object>) -> NodeTable {
        let nodes_here = settings
            .names()
            .map(|name| (name, NodeRecord::default()))
            .collect();
        NodeTable {
            settings: settings.clone(),
            nodes,
            nodes_here,
            own: AddressPool::own(&settings.prefix),
        }
    }

    pub(super) fn has(&self, node: &str) -> bool {
        self.nodes_here.contains_key(node)
    }

    /// A node of this process; as it was registered, if the informer does not have it yet.
    pub(super) fn node(&self, name: &str) -> NodeView<'_> {
        let object = self
            .object(name)
            .unwrap_or_else(|| Arc::new(Object(nodes::node_object(&self.settings, name))));
        NodeView {
            object,
            used: &self.nodes_here[name].used,
        }
    }

    fn object(&self, name: &str) -> Option<Arc<Object>> {
        self.nodes
            .lister()
            .by_key(&Key::cluster(name))
            .ok()
            .flatten()
    }

    /// Adds a pod's share.
    pub(super) fn take(&mut self, node: &str, share: &PodAllocation) {
        if let Some(place) = self.nodes_here.get_mut(node) {
            place.used.add(share);
        }
    }

    /// Removes a pod's share.
    pub(super) fn release(&mut self, node: &str, share: &PodAllocation) {
        if let Some(place) = self.nodes_here.get_mut(node) {
            place.used.remove(share);
        }
    }

    /// The address that a pod has or gets; empty for a pod on the host network.
    pub(super) fn address(&mut self, pod: &Object, known: &str) -> Str {
        if pod["spec"]["hostNetwork"].bool() {
            return Str::default();
        }
        let name = pod["spec"]["nodeName"].str();
        let range = self
            .object(name)
            .map(|node| node["spec"]["podCIDR"].str().to_string());
        let Some(place) = self.nodes_here.get_mut(name) else {
            return Str::default();
        };
        if place.pool.is_none() {
            place.pool = range.and_then(|range| AddressPool::of_range(&range));
        }
        let pool = place.pool.as_mut().unwrap_or(&mut self.own);
        if known.is_empty() {
            return pool.take().unwrap_or_default();
        }
        if !pool.keep(known) {
            self.own.keep(known);
        }
        known.into()
    }

    /// Releases a pod's address.
    pub(super) fn free(&mut self, node: &str, address: &str) {
        if let Some(pool) = self
            .nodes_here
            .get_mut(node)
            .and_then(|place| place.pool.as_mut())
        {
            pool.free(address);
        }
        self.own.free(address);
    }
}
