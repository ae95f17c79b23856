//! The traits of the extension points, in the order in which a pod meets them.

use std::borrow::Cow;
use std::time::Duration;

use super::{BoxError, ClusterEvent, CycleState, Node, Nodes, Pod};

/// Why a plugin rejects a node, all nodes, or a pod.
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeScore<'a> {
    /// The name of the node.
    pub node: &'a str,
    /// Its score.
    pub score: i64,
}

/// Score: how good a node is.
pub trait Score: Send + Sync + 'static {
    /// The score of a node that fits. After [`normalize`](Score::normalize) it must be between 0 and
    /// 100; other values are clamped.
    fn score(&self, state: &CycleState, pod: Pod<'_>, node: Node<'_>) -> i64;

    /// Brings the scores of all nodes into the range from 0 to 100.
    fn normalize(&self, _state: &CycleState, _pod: Pod<'_>, _scores: &mut [NodeScore<'_>]) {}
}

/// Reserve: takes what the pod needs on the selected node, until it is bound.
pub trait Reserve: Send + Sync + 'static {
    /// Reserves for the pod.
    fn reserve(&self, state: &CycleState, pod: Pod<'_>, node: &str) -> Result<(), Rejection>;

    /// Gives back what was reserved, because a later step failed. Must be idempotent: it is also
    /// called if [`reserve`](Reserve::reserve) itself failed.
    fn unreserve(&self, state: &CycleState, pod: Pod<'_>, node: &str);
}

/// The decision of a [`Permit`] plugin.
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
pub trait Permit: Send + Sync + 'static {
    /// Decides about the pod, for which everything is reserved on the node.
    fn permit(&self, state: &CycleState, pod: Pod<'_>, node: &str) -> Permission;
}

/// PreBind: prepares the node before the pod is bound.
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
