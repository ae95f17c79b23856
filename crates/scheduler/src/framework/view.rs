//! Pods, nodes and events, as plugins see them.

use std::sync::Arc;

use mizzen_sdk::Object;
use mizzen_sdk::cache::DecodeError;

use crate::cache::NodeInfo;
use crate::cluster_event;
use crate::cluster_state::ClusterState;
use crate::model::PodInfo;

/// A pod.
#[derive(Debug, Clone, Copy)]
pub struct Pod<'a>(pub(crate) &'a PodInfo);

impl<'a> Pod<'a> {
    /// Its namespace.
    pub fn namespace(&self) -> &'a str {
        &self.0.namespace
    }

    /// Its name.
    pub fn name(&self) -> &'a str {
        &self.0.name
    }

    /// Its UID.
    pub fn uid(&self) -> &'a str {
        &self.0.uid
    }

    /// Its priority.
    pub fn priority(&self) -> i32 {
        self.0.priority
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&'a str> {
        self.0.labels.get(key)
    }

    /// The name of its node; empty until it is assigned.
    pub fn node_name(&self) -> &'a str {
        &self.0.node
    }

    /// What it requests of a resource: millicores of `cpu`, bytes of `memory`.
    pub fn requests(&self, resource: &str) -> i64 {
        self.0.requests.stated.get(resource)
    }

    /// The whole object.
    pub fn object(&self) -> Result<Arc<Object>, DecodeError> {
        self.0.entry.object()
    }
}

/// A node with the pods on it, including those that are being bound.
#[derive(Debug, Clone, Copy)]
pub struct Node<'a>(pub(crate) &'a NodeInfo);

impl<'a> Node<'a> {
    /// Its name.
    pub fn name(&self) -> &'a str {
        self.0.name()
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&'a str> {
        self.0.facts.labels.get(key)
    }

    /// The value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&'a str> {
        self.0.facts.annotations.get(key)
    }

    /// Whether it is unschedulable (cordoned).
    pub fn is_unschedulable(&self) -> bool {
        self.0.facts.unschedulable
    }

    /// How much of a resource its pods may request together: millicores of `cpu`, bytes of `memory`.
    pub fn allocatable(&self, resource: &str) -> i64 {
        match resource {
            "pods" => self.0.max_pods,
            _ => self.0.allocatable.get(resource),
        }
    }

    /// How much of a resource its pods request.
    pub fn requested(&self, resource: &str) -> i64 {
        match resource {
            "pods" => self.0.pods.len() as i64,
            _ => self.0.requested.get(resource),
        }
    }

    /// Its pods.
    pub fn pods(&self) -> impl Iterator<Item = Pod<'a>> + use<'a> {
        self.0.pods.iter().map(|pod| Pod(pod))
    }
}

/// All nodes.
#[derive(Clone, Copy)]
pub struct Nodes<'a>(pub(crate) &'a ClusterState);

impl<'a> Nodes<'a> {
    /// The node with a name.
    pub fn get(&self, name: &str) -> Option<Node<'a>> {
        self.0.cache.node_by_name(name).map(Node)
    }

    /// All nodes, zone by zone in turn.
    pub fn iter(&self) -> impl Iterator<Item = Node<'a>> + use<'a> {
        let cache = &self.0.cache;
        cache
            .node_order()
            .iter()
            .map(|slot| Node(cache.node(*slot)))
    }
}

/// The resource of a [`ClusterEvent`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of the kinds")]
#[non_exhaustive]
pub enum EventResource {
    Pod,
    Node,
    PersistentVolumeClaim,
    PersistentVolume,
    StorageClass,
    CsiNode,
    CsiDriver,
    CsiStorageCapacity,
    VolumeAttachment,
    ResourceClaim,
    ResourceSlice,
    DeviceClass,
}

/// A change in the cluster that may make a rejected pod schedulable.
#[derive(Clone, Copy)]
pub struct ClusterEvent<'a>(pub(crate) &'a cluster_event::ClusterEvent<'a>);

impl<'a> ClusterEvent<'a> {
    /// The resource of the object that changed.
    pub fn resource(&self) -> EventResource {
        use cluster_event::ClusterEvent as Event;
        match self.0 {
            Event::Pod { .. } => EventResource::Pod,
            Event::Node { .. } => EventResource::Node,
            Event::PersistentVolumeClaim { .. } => EventResource::PersistentVolumeClaim,
            Event::PersistentVolume { .. } => EventResource::PersistentVolume,
            Event::StorageClass { .. } => EventResource::StorageClass,
            Event::CsiNode { .. } => EventResource::CsiNode,
            Event::CsiDriver { .. } => EventResource::CsiDriver,
            Event::CsiStorageCapacity { .. } => EventResource::CsiStorageCapacity,
            Event::VolumeAttachment { .. } => EventResource::VolumeAttachment,
            Event::ResourceClaim { .. } => EventResource::ResourceClaim,
            Event::ResourceSlice { .. } => EventResource::ResourceSlice,
            Event::DeviceClass { .. } => EventResource::DeviceClass,
        }
    }

    /// The pod before and after the change; neither for another resource.
    pub fn pods(&self) -> (Option<Pod<'a>>, Option<Pod<'a>>) {
        match self.0 {
            cluster_event::ClusterEvent::Pod { old, new, .. } => (old.map(Pod), new.map(Pod)),
            _ => (None, None),
        }
    }

    /// The name of the node that was added or updated.
    pub fn node_name(&self) -> Option<&'a str> {
        match self.0 {
            cluster_event::ClusterEvent::Node { new, .. } => new.map(|node| node.name.as_str()),
            _ => None,
        }
    }
}
