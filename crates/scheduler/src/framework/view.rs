//! Pods, nodes and events, as plugins see them.

use std::sync::Arc;

use mizzen_sdk::Object;
use mizzen_sdk::cache::DecodeError;

use crate::cache::NodeInfo;
use crate::cluster_event;
use crate::cluster_state::ClusterState;
use crate::model::PodInfo;

/// A pod.
///
/// ```
/// use mizzen_scheduler::framework::{CycleState, Filter, Node, Plugin, Pod, Registry, Rejection};
///
/// /// Large pods of the default namespace go to one node.
/// struct Large;
///
/// fn is_large(pod: Pod) -> bool {
///     pod.requests("cpu") >= 2000 && pod.requests("memory") >= 1 << 30 || pod.priority() > 1_000_000
/// }
///
/// impl Filter for Large {
///     fn filter(&self, _: &CycleState, pod: Pod, node: Node) -> Result<(), Rejection> {
///         match is_large(pod) && pod.namespace() == "default" && node.name() != "node-1" {
///             true => Err(Rejection::unresolvable(format!("node(s) were too small for {}", pod.name()))),
///             false => Ok(()),
///         }
///     }
/// }
///
/// let registry = Registry::new().with("Large", |_| Ok(Plugin::new(Large).filter().build()))?;
/// # const PROFILE: &[u8] = b"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{plugins: {multiPoint: {enabled: [{name: Large}]}}}]";
/// # let configuration = std::sync::Arc::new(mizzen_scheduler::Configuration::parse_with(PROFILE, &registry)?);
/// # let builder = mizzen_testing::Cluster::builder().nodes(3).tune_scheduler(move |options| options.configuration = configuration.clone());
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async move {
/// # let cluster = builder.start().await;
/// # cluster.apply("{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: c, image: i, resources: {requests: {cpu: '2', memory: 1Gi}}}]}}").await;
/// # cluster.settle().await;
/// # let pod: k8s_openapi::api::core::v1::Pod = cluster.get("web").await;
/// # assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some("node-1"));
/// # });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
///
/// ```
/// use mizzen_scheduler::framework::{CycleState, Filter, Node, Plugin, Pod, Registry, Rejection};
///
/// /// Nodes keep a half of their CPU free, but for one.
/// struct Headroom;
///
/// fn has_room(pod: Pod, node: Node) -> bool {
///     let is_exempt = node.annotation("example.com/full") == Some("true") || node.label("full").is_some();
///     let requested = node.requested("cpu") + pod.requests("cpu");
///     is_exempt || !node.is_unschedulable() && requested <= node.allocatable("cpu") / 2
/// }
///
/// impl Filter for Headroom {
///     fn filter(&self, _: &CycleState, pod: Pod, node: Node) -> Result<(), Rejection> {
///         let others = node.pods().filter(|other| other.node_name() == node.name()).count();
///         match has_room(pod, node) {
///             true => Ok(()),
///             false => Err(Rejection::unschedulable(format!("node(s) were half full with {others} pods"))),
///         }
///     }
/// }
///
/// let registry = Registry::new().with("Headroom", |_| Ok(Plugin::new(Headroom).filter().build()))?;
/// # const PROFILE: &[u8] = b"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{plugins: {multiPoint: {enabled: [{name: Headroom}]}}}]";
/// # let configuration = std::sync::Arc::new(mizzen_scheduler::Configuration::parse_with(PROFILE, &registry)?);
/// # let builder = mizzen_testing::Cluster::builder().nodes(1).tune_scheduler(move |options| options.configuration = configuration.clone());
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async move {
/// # let cluster = builder.start().await;
/// # cluster.apply("{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: c, image: i}]}}").await;
/// # cluster.settle().await;
/// # let pod: k8s_openapi::api::core::v1::Pod = cluster.get("web").await;
/// # assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some("node-0"));
/// # });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
///
/// ```
/// use mizzen_scheduler::framework::{
///     CycleState, Nodes, Plugin, Pod, PreFilter, PreFilterResult, Registry, Rejection,
/// };
///
/// /// Pods go to nodes that are empty, or to the one that their label names.
/// struct Empty;
///
/// impl PreFilter for Empty {
///     fn pre_filter(&self, _: &mut CycleState, pod: Pod, nodes: Nodes) -> Result<PreFilterResult, Rejection> {
///         if let Some(node) = pod.label("node").and_then(|name| nodes.get(name)) {
///             return Ok(PreFilterResult::Nodes(vec![node.name().into()]));
///         }
///         let empty = nodes.iter().filter(|node| node.pods().next().is_none());
///         Ok(PreFilterResult::Nodes(empty.map(|node| node.name().into()).collect()))
///     }
/// }
///
/// let registry = Registry::new().with("Empty", |_| Ok(Plugin::new(Empty).pre_filter().build()))?;
/// # const PROFILE: &[u8] = b"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{plugins: {multiPoint: {enabled: [{name: Empty}]}}}]";
/// # let configuration = std::sync::Arc::new(mizzen_scheduler::Configuration::parse_with(PROFILE, &registry)?);
/// # let builder = mizzen_testing::Cluster::builder().nodes(2).tune_scheduler(move |options| options.configuration = configuration.clone());
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async move {
/// # let cluster = builder.start().await;
/// # for (name, node) in [("web", "node-1"), ("next", "none")] {
/// #     cluster.apply(&format!("{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{node: {node}}}}}, spec: {{containers: [{{name: c, image: i}}]}}}}")).await;
/// #     cluster.settle().await;
/// # }
/// # let pod: k8s_openapi::api::core::v1::Pod = cluster.get("next").await;
/// # assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some("node-0"));
/// # let pod: k8s_openapi::api::core::v1::Pod = cluster.get("web").await;
/// # assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some("node-1"));
/// # });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
///
/// ```
/// use mizzen_scheduler::framework::EventResource;
///
/// /// Whether a change of the resource can add capacity.
/// fn adds_capacity(resource: EventResource) -> bool {
///     matches!(resource, EventResource::Node | EventResource::Pod | EventResource::ResourceSlice)
/// }
///
/// assert!(adds_capacity(EventResource::Node) && !adds_capacity(EventResource::StorageClass));
/// ```
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
///
/// ```
/// use mizzen_scheduler::framework::{
///     ClusterEvent, CycleState, EventResource, Filter, Node, Plugin, Pod, Registry, Rejection,
/// };
///
/// /// One pod of each colour at a time.
/// struct Colours;
///
/// impl Filter for Colours {
///     fn filter(&self, _: &CycleState, pod: Pod, node: Node) -> Result<(), Rejection> {
///         match node.pods().any(|other| other.label("colour") == pod.label("colour")) {
///             true => Err(Rejection::unresolvable("node(s) had a pod of the colour")),
///             false => Ok(()),
///         }
///     }
///
///     // A pod of the colour was deleted, or a node is new.
///     fn queueing_hint(&self, pod: Pod, event: ClusterEvent) -> bool {
///         match event.resource() {
///             EventResource::Node => event.node_name().is_some(),
///             EventResource::Pod => match event.pods() {
///                 (Some(old), None) => old.label("colour") == pod.label("colour"),
///                 _ => false,
///             },
///             _ => false,
///         }
///     }
/// }
///
/// let registry = Registry::new().with("Colours", |_| Ok(Plugin::new(Colours).filter().build()))?;
/// # const PROFILE: &[u8] = b"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{plugins: {multiPoint: {enabled: [{name: Colours}]}}}]";
/// # let configuration = std::sync::Arc::new(mizzen_scheduler::Configuration::parse_with(PROFILE, &registry)?);
/// # let builder = mizzen_testing::Cluster::builder().nodes(1).tune_scheduler(move |options| options.configuration = configuration.clone());
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async move {
/// # let cluster = builder.start().await;
/// # cluster.apply("{apiVersion: v1, kind: Pod, metadata: {name: web, labels: {colour: red}}, spec: {containers: [{name: c, image: i}]}}").await;
/// # cluster.settle().await;
/// # cluster.apply("{apiVersion: v1, kind: Pod, metadata: {name: next, labels: {colour: red}}, spec: {containers: [{name: c, image: i}]}}").await;
/// # cluster.settle().await;
/// # let next: k8s_openapi::api::core::v1::Pod = cluster.get("next").await;
/// # assert_eq!(next.spec.unwrap().node_name, None);
/// # cluster.delete(&mizzen_sdk::resource::PODS, "default/web").await;
/// # cluster.advance(std::time::Duration::from_secs(60)).await;
/// # let next: k8s_openapi::api::core::v1::Pod = cluster.get("next").await;
/// # assert_eq!(next.spec.unwrap().node_name.as_deref(), Some("node-0"));
/// # });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
