//! The traits of the extension points, in the order in which a pod meets them.

use std::borrow::Cow;
use std::time::Duration;

use super::{BoxError, ClusterEvent, CycleState, Node, Nodes, Pod};

/// Why a plugin rejects a node, all nodes, or a pod.
///
/// ```
/// use mizzen_scheduler::framework::Rejection;
///
/// // Without other pods the node could run this one: they may be preempted.
/// let full = Rejection::unschedulable("node(s) had too few licences");
/// // No preemption changes the node's label.
/// let elsewhere = Rejection::unresolvable(format!("node(s) were not in tier {}", "gold"));
/// let failed = Rejection::error("the licence server did not answer");
/// assert!(full != elsewhere && elsewhere != failed);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    pub(crate) reason: Cow<'static, str>,
    pub(crate) kind: RejectionKind,
}

/// What follows a rejection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RejectionKind {
    Unschedulable,
    Unresolvable,
    Error,
}

impl Rejection {
    /// Preemption of other pods could help (upstream: Unschedulable).
    pub fn unschedulable(reason: impl Into<Cow<'static, str>>) -> Rejection {
        Rejection {
            reason: reason.into(),
            kind: RejectionKind::Unschedulable,
        }
    }

    /// Preemption cannot help (upstream: UnschedulableAndUnresolvable).
    pub fn unresolvable(reason: impl Into<Cow<'static, str>>) -> Rejection {
        Rejection {
            reason: reason.into(),
            kind: RejectionKind::Unresolvable,
        }
    }

    /// The plugin failed; the pod is retried with back-off.
    pub fn error(error: impl Into<Cow<'static, str>>) -> Rejection {
        Rejection {
            reason: error.into(),
            kind: RejectionKind::Error,
        }
    }
}

/// Which nodes are worth filtering.
///
/// ```
/// use mizzen_scheduler::framework::PreFilterResult;
///
/// /// The nodes that a comma-separated annotation names.
/// fn named(annotation: Option<&str>) -> PreFilterResult {
///     match annotation {
///         None => PreFilterResult::Skip,
///         Some("*") => PreFilterResult::AllNodes,
///         Some(names) => PreFilterResult::Nodes(names.split(',').map(Into::into).collect()),
///     }
/// }
///
/// assert_eq!(named(Some("a,b")), PreFilterResult::Nodes(vec!["a".into(), "b".into()]));
/// assert_eq!(named(None), PreFilterResult::Skip);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PreFilterResult {
    /// All nodes.
    AllNodes,
    /// The nodes with these names; no other node is filtered.
    Nodes(Vec<String>),
    /// The plugin's Filter is not called for this pod.
    Skip,
}

/// PreFilter: runs once per pod, before nodes are filtered.
///
/// ```
/// use mizzen_scheduler::framework::{
///     CycleState, Nodes, Plugin, Pod, PreFilter, PreFilterResult, Registry, Rejection,
/// };
///
/// /// Pods go to the last node.
/// struct Last;
///
/// impl PreFilter for Last {
///     fn pre_filter(&self, _: &mut CycleState, _: Pod, nodes: Nodes) -> Result<PreFilterResult, Rejection> {
///         let names = nodes.iter().map(|node| node.name().to_owned());
///         match names.max() {
///             Some(last) => Ok(PreFilterResult::Nodes(vec![last])),
///             None => Err(Rejection::unresolvable("there are no nodes")),
///         }
///     }
/// }
///
/// let registry = Registry::new().with("Last", |_| Ok(Plugin::new(Last).pre_filter().build()))?;
/// # const PROFILE: &[u8] = b"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{plugins: {multiPoint: {enabled: [{name: Last}]}}}]";
/// # let configuration = std::sync::Arc::new(mizzen_scheduler::Configuration::parse_with(PROFILE, &registry)?);
/// # let builder = mizzen_testing::Cluster::builder().nodes(3).tune_scheduler(move |options| options.configuration = configuration.clone());
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async move {
/// # let cluster = builder.start().await;
/// # cluster.apply("{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: c, image: i}]}}").await;
/// # cluster.settle().await;
/// # let pod: k8s_openapi::api::core::v1::Pod = cluster.get("web").await;
/// # assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some("node-2"));
/// # });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait PreFilter: Send + Sync + 'static {
    /// Looks at the pod, and keeps in `state` what Filter needs.
    fn pre_filter(
        &self,
        state: &mut CycleState,
        pod: Pod<'_>,
        nodes: Nodes<'_>,
    ) -> Result<PreFilterResult, Rejection>;

    /// Updates `state` as if `added` were on `node`. Called while preemption is simulated.
    fn add_pod(&self, _state: &mut CycleState, _pod: Pod<'_>, _added: Pod<'_>, _node: Node<'_>) {}

    /// Updates `state` as if `removed` were not on `node`.
    fn remove_pod(
        &self,
        _state: &mut CycleState,
        _pod: Pod<'_>,
        _removed: Pod<'_>,
        _node: Node<'_>,
    ) {
    }
}

/// Filter: whether a node can run the pod.
///
/// ```
/// use mizzen_scheduler::framework::{
///     ClusterEvent, CycleState, EventResource, Filter, Node, Plugin, Pod, Registry, Rejection,
/// };
///
/// /// Pods go to a node whose name has the number of their label.
/// struct Numbered;
///
/// impl Filter for Numbered {
///     fn filter(&self, _: &CycleState, pod: Pod, node: Node) -> Result<(), Rejection> {
///         match pod.label("number") {
///             Some(number) if !node.name().ends_with(number) => {
///                 Err(Rejection::unresolvable("node(s) had another number"))
///             }
///             _ => Ok(()),
///         }
///     }
///
///     // Only a new node can help.
///     fn queueing_hint(&self, _: Pod, event: ClusterEvent) -> bool {
///         event.resource() == EventResource::Node
///     }
/// }
///
/// let registry = Registry::new().with("Numbered", |_| Ok(Plugin::new(Numbered).filter().build()))?;
/// # const PROFILE: &[u8] = b"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{plugins: {multiPoint: {enabled: [{name: Numbered}]}}}]";
/// # let configuration = std::sync::Arc::new(mizzen_scheduler::Configuration::parse_with(PROFILE, &registry)?);
/// # let builder = mizzen_testing::Cluster::builder().nodes(3).tune_scheduler(move |options| options.configuration = configuration.clone());
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async move {
/// # let cluster = builder.start().await;
/// # cluster.apply("{apiVersion: v1, kind: Pod, metadata: {name: web, labels: {number: '1'}}, spec: {containers: [{name: c, image: i}]}}").await;
/// # cluster.settle().await;
/// # let pod: k8s_openapi::api::core::v1::Pod = cluster.get("web").await;
/// # assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some("node-1"));
/// # });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Filter: Send + Sync + 'static {
    /// Rejects the node, or accepts it.
    fn filter(&self, state: &CycleState, pod: Pod<'_>, node: Node<'_>) -> Result<(), Rejection>;

    /// Whether an event is worth a new attempt for a pod that this plugin rejected (upstream:
    /// QueueingHint). Every event is, by default.
    fn queueing_hint(&self, _pod: Pod<'_>, _event: ClusterEvent<'_>) -> bool {
        true
    }
}

/// PostFilter: runs when no node fits.
///
/// ```
/// use mizzen_scheduler::framework::{
///     CycleState, Filter, Node, Nodes, Plugin, Pod, PostFilter, Registry, Rejection,
/// };
/// use std::sync::atomic::{AtomicBool, Ordering};
///
/// /// Nodes are asleep until a pod needs one.
/// #[derive(Default)]
/// struct Sleepers {
///     is_awake: AtomicBool,
/// }
///
/// impl Filter for Sleepers {
///     fn filter(&self, _: &CycleState, _: Pod, node: Node) -> Result<(), Rejection> {
///         match self.is_awake.load(Ordering::Relaxed) && node.name() == "node-1" {
///             true => Ok(()),
///             false => Err(Rejection::unschedulable("node(s) were asleep")),
///         }
///     }
/// }
///
/// impl PostFilter for Sleepers {
///     // The pod is tried again, and the node is kept for it.
///     fn post_filter(&self, _: &CycleState, _: Pod, nodes: Nodes) -> Result<String, Rejection> {
///         let node = nodes.get("node-1").ok_or_else(|| Rejection::unresolvable("no node can be woken"))?;
///         self.is_awake.store(true, Ordering::Relaxed);
///         Ok(node.name().to_owned())
///     }
/// }
///
/// let registry = Registry::new().with("Sleepers", |_| {
///     Ok(Plugin::new(Sleepers::default()).filter().post_filter().build())
/// })?;
/// # const PROFILE: &[u8] = b"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{plugins: {multiPoint: {enabled: [{name: Sleepers}]}}}]";
/// # let configuration = std::sync::Arc::new(mizzen_scheduler::Configuration::parse_with(PROFILE, &registry)?);
/// # let builder = mizzen_testing::Cluster::builder().nodes(3).tune_scheduler(move |options| options.configuration = configuration.clone());
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async move {
/// # let cluster = builder.start().await;
/// # cluster.apply("{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: c, image: i}]}}").await;
/// # cluster.settle().await;
/// # let pod: k8s_openapi::api::core::v1::Pod = cluster.get("web").await;
/// # assert_eq!(pod.status.unwrap().nominated_node_name.as_deref(), Some("node-1"));
/// # cluster.advance(std::time::Duration::from_secs(600)).await;
/// # let pod: k8s_openapi::api::core::v1::Pod = cluster.get("web").await;
/// # assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some("node-1"));
/// # });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait PostFilter: Send + Sync + 'static {
    /// Makes the pod schedulable on a node, and returns the node's name, which is nominated for the
    /// pod. A rejection lets the next plugin try; its reason is part of the pod's message.
    fn post_filter(
        &self,
        state: &CycleState,
        pod: Pod<'_>,
        nodes: Nodes<'_>,
    ) -> Result<String, Rejection>;
}

/// The score of one node.
///
/// ```
/// use mizzen_scheduler::framework::NodeScore;
///
/// /// Turns distances into scores: the nearest node gets 100.
/// fn invert(scores: &mut [NodeScore]) {
///     let farthest = scores.iter().map(|node| node.score).max().unwrap_or(0).max(1);
///     for node in scores {
///         node.score = 100 - node.score * 100 / farthest;
///     }
/// }
///
/// let mut scores = [NodeScore { node: "near", score: 5 }, NodeScore { node: "far", score: 20 }];
/// invert(&mut scores);
/// assert_eq!(scores.map(|node| node.score), [75, 0]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeScore<'a> {
    /// The name of the node.
    pub node: &'a str,
    /// Its score.
    pub score: i64,
}

/// Score: how good a node is.
///
/// ```
/// use mizzen_scheduler::framework::{CycleState, Node, NodeScore, Plugin, Pod, Registry, Score};
///
/// /// Prefers the node with the highest number.
/// struct Highest;
///
/// impl Score for Highest {
///     fn score(&self, _: &CycleState, _: Pod, node: Node) -> i64 {
///         node.name().trim_start_matches("node-").parse().unwrap_or(0)
///     }
///
///     fn normalize(&self, _: &CycleState, _: Pod, scores: &mut [NodeScore]) {
///         let max = scores.iter().map(|node| node.score).max().unwrap_or(0).max(1);
///         for node in scores {
///             node.score = node.score * 100 / max;
///         }
///     }
/// }
///
/// let registry = Registry::new().with("Highest", |_| Ok(Plugin::new(Highest).score().build()))?;
/// # const PROFILE: &[u8] = b"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{plugins: {multiPoint: {enabled: [{name: Highest, weight: 100}]}}}]";
/// # let configuration = std::sync::Arc::new(mizzen_scheduler::Configuration::parse_with(PROFILE, &registry)?);
/// # let builder = mizzen_testing::Cluster::builder().nodes(3).tune_scheduler(move |options| options.configuration = configuration.clone());
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async move {
/// # let cluster = builder.start().await;
/// # cluster.apply("{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: c, image: i}]}}").await;
/// # cluster.settle().await;
/// # let pod: k8s_openapi::api::core::v1::Pod = cluster.get("web").await;
/// # assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some("node-2"));
/// # });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Score: Send + Sync + 'static {
    /// The score of a node that fits. After [`normalize`](Score::normalize) it must be between 0 and
    /// 100; other values are clamped.
    fn score(&self, state: &CycleState, pod: Pod<'_>, node: Node<'_>) -> i64;

    /// Brings the scores of all nodes into the range from 0 to 100.
    fn normalize(&self, _state: &CycleState, _pod: Pod<'_>, _scores: &mut [NodeScore<'_>]) {}
}

/// Reserve: takes what the pod needs on the selected node, until it is bound.
///
/// ```
/// use std::collections::BTreeSet;
/// use std::sync::{Arc, Mutex};
///
/// use mizzen_scheduler::framework::{CycleState, Plugin, Pod, Registry, Rejection, Reserve};
///
/// /// A licence for each pod.
/// #[derive(Clone, Default)]
/// struct Licences(Arc<Mutex<BTreeSet<String>>>);
///
/// impl Reserve for Licences {
///     fn reserve(&self, _: &CycleState, pod: Pod, _node: &str) -> Result<(), Rejection> {
///         let mut taken = self.0.lock().unwrap();
///         if taken.len() >= 3 {
///             return Err(Rejection::unschedulable("all licences are taken"));
///         }
///         taken.insert(pod.uid().to_owned());
///         Ok(())
///     }
///
///     fn unreserve(&self, _: &CycleState, pod: Pod, _node: &str) {
///         self.0.lock().unwrap().remove(pod.uid());
///     }
/// }
///
/// let licences = Licences::default();
/// let plugin = licences.clone();
/// let registry = Registry::new().with("Licences", move |_| Ok(Plugin::new(plugin.clone()).reserve().build()))?;
/// # const PROFILE: &[u8] = b"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{plugins: {multiPoint: {enabled: [{name: Licences}]}}}]";
/// # let configuration = std::sync::Arc::new(mizzen_scheduler::Configuration::parse_with(PROFILE, &registry)?);
/// # let builder = mizzen_testing::Cluster::builder().nodes(3).tune_scheduler(move |options| options.configuration = configuration.clone());
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async move {
/// # let cluster = builder.start().await;
/// # cluster.apply("{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: c, image: i}]}}").await;
/// # cluster.settle().await;
/// # assert_eq!(licences.0.lock().unwrap().len(), 1);
/// # });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Reserve: Send + Sync + 'static {
    /// Reserves for the pod.
    fn reserve(&self, state: &CycleState, pod: Pod<'_>, node: &str) -> Result<(), Rejection>;

    /// Gives back what was reserved, because a later step failed. Must be idempotent: it is also
    /// called if [`reserve`](Reserve::reserve) itself failed.
    fn unreserve(&self, state: &CycleState, pod: Pod<'_>, node: &str);
}

/// The decision of a [`Permit`] plugin.
///
/// ```
/// use std::time::Duration;
/// use mizzen_scheduler::framework::{Permission, Rejection};
///
/// /// A group of pods is bound when all of them have a node.
/// fn decide(n_reserved: usize, size: usize) -> Permission {
///     match size {
///         0 => Permission::Reject(Rejection::unresolvable("the group is empty")),
///         _ if n_reserved == size => Permission::Allow,
///         _ => Permission::Wait(Duration::from_secs(60)),
///     }
/// }
///
/// assert_eq!(decide(3, 3), Permission::Allow);
/// assert_eq!(decide(1, 3), Permission::Wait(Duration::from_secs(60)));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Permission {
    /// The pod may be bound.
    Allow,
    /// The pod waits until [`WaitingPod::allow`](super::WaitingPod::allow), at most for this time (and
    /// at most 15 minutes); then it is rejected.
    Wait(Duration),
    /// The pod is not bound.
    Reject(Rejection),
}

/// Permit: allows, rejects or delays the binding of a pod.
///
/// ```
/// use std::time::Duration;
///
/// use mizzen_scheduler::framework::{CycleState, Permission, Permit, Plugin, Pod, Registry, WaitingPods};
///
/// /// Pods of a pair are bound together.
/// struct Pairs(WaitingPods);
///
/// impl Permit for Pairs {
///     fn permit(&self, _: &CycleState, pod: Pod, _node: &str) -> Permission {
///         let Some(pair) = pod.label("pair") else {
///             return Permission::Allow;
///         };
///         let waiting = self.0.list().into_iter().find(|other| other.pod().label("pair") == Some(pair));
///         match waiting {
///             Some(other) => {
///                 other.allow("Pairs");
///                 Permission::Allow
///             }
///             None => Permission::Wait(Duration::from_secs(60)),
///         }
///     }
/// }
///
/// let registry = Registry::new();
/// let waiting_pods = registry.waiting_pods();
/// let registry = registry.with("Pairs", move |_| Ok(Plugin::new(Pairs(waiting_pods.clone())).permit().build()))?;
/// # const PROFILE: &[u8] = b"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{plugins: {multiPoint: {enabled: [{name: Pairs}]}}}]";
/// # let configuration = std::sync::Arc::new(mizzen_scheduler::Configuration::parse_with(PROFILE, &registry)?);
/// # let builder = mizzen_testing::Cluster::builder().nodes(3).tune_scheduler(move |options| options.configuration = configuration.clone());
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async move {
/// # let cluster = builder.start().await;
/// # cluster.apply("{apiVersion: v1, kind: Pod, metadata: {name: web, labels: {pair: a}}, spec: {containers: [{name: c, image: i}]}}").await;
/// # cluster.settle().await;
/// # let pod: k8s_openapi::api::core::v1::Pod = cluster.get("web").await;
/// # assert_eq!(pod.spec.unwrap().node_name, None);
/// # cluster.apply("{apiVersion: v1, kind: Pod, metadata: {name: other, labels: {pair: a}}, spec: {containers: [{name: c, image: i}]}}").await;
/// # cluster.settle().await;
/// # let pod: k8s_openapi::api::core::v1::Pod = cluster.get("web").await;
/// # assert!(pod.spec.unwrap().node_name.is_some());
/// # });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Permit: Send + Sync + 'static {
    /// Decides about the pod, for which everything is reserved on the node.
    fn permit(&self, state: &CycleState, pod: Pod<'_>, node: &str) -> Permission;
}

/// PreBind: prepares the node before the pod is bound.
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use mizzen_scheduler::framework::{BoxError, CycleState, Plugin, PreBind, Pod, Registry};
///
/// /// Loads the image of a pod before it is bound.
/// #[derive(Clone, Default)]
/// struct Preload(Arc<Mutex<Vec<String>>>);
///
/// impl PreBind for Preload {
///     async fn pre_bind(&self, _: &CycleState, pod: Pod<'_>, node: &str) -> Result<(), BoxError> {
///         let object = pod.object()?;
///         let image = object["spec"]["containers"].list()[0]["image"].str();
///         self.0.lock().unwrap().push(format!("{image} to {node}")); // a request to the node
///         Ok(())
///     }
/// }
///
/// let preload = Preload::default();
/// let plugin = preload.clone();
/// let registry = Registry::new().with("Preload", move |_| Ok(Plugin::new(plugin.clone()).pre_bind().build()))?;
/// # const PROFILE: &[u8] = b"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{plugins: {multiPoint: {enabled: [{name: Preload}]}}}]";
/// # let configuration = std::sync::Arc::new(mizzen_scheduler::Configuration::parse_with(PROFILE, &registry)?);
/// # let builder = mizzen_testing::Cluster::builder().nodes(1).tune_scheduler(move |options| options.configuration = configuration.clone());
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async move {
/// # let cluster = builder.start().await;
/// # cluster.apply("{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: c, image: i}]}}").await;
/// # cluster.settle().await;
/// # assert_eq!(*preload.0.lock().unwrap(), ["i to node-0"]);
/// # });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait PreBind: Send + Sync + 'static {
    /// Runs in the binding cycle of the pod, beside the scheduling loop. An error gives back what was
    /// reserved, and the pod is retried with back-off.
    fn pre_bind(
        &self,
        state: &CycleState,
        pod: Pod<'_>,
        node: &str,
    ) -> impl Future<Output = Result<(), BoxError>> + Send;
}
