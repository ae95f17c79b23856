//! Cluster events: changes that may make an unschedulable pod schedulable (upstream:
//! fwk.ClusterEvent).

use mizzen_sdk::Object;

use crate::model::{NodeFacts, PodInfo};
use crate::plugin::{Name, PluginNames};

/// Which properties of a pod changed (upstream: ActionType).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PodAction(u8);

impl PodAction {
    pub(crate) const LABEL: PodAction = PodAction(1);
    pub(crate) const SCALE_DOWN: PodAction = PodAction(2);
    pub(crate) const GATES: PodAction = PodAction(4);
    pub(crate) const TOLERATION: PodAction = PodAction(8);
    pub(crate) const CLAIM: PodAction = PodAction(16);
    pub(crate) const ADD: PodAction = PodAction(32);
    pub(crate) const DELETE: PodAction = PodAction(64);

    /// Whether any of `other` changed.
    pub(crate) fn has(self, other: PodAction) -> bool {
        self.0 & other.0 != 0
    }

    /// The differences between two states of a pod.
    pub(crate) fn between(old: &PodInfo, new: &PodInfo) -> PodAction {
        let differs = [
            (old.labels != new.labels, PodAction::LABEL),
            (
                old.requests.stated.shrinks_to(&new.requests.stated),
                PodAction::SCALE_DOWN,
            ),
            (old.has_gates && !new.has_gates, PodAction::GATES),
            (
                old.tolerations.len() != new.tolerations.len(),
                PodAction::TOLERATION,
            ),
            (old.resource_claims != new.resource_claims, PodAction::CLAIM),
        ];
        PodAction(
            differs
                .into_iter()
                .filter(|(differs, _)| *differs)
                .map(|(_, change)| change.0)
                .sum(),
        )
    }
}

impl std::ops::BitOr for PodAction {
    type Output = PodAction;

    fn bitor(self, other: PodAction) -> PodAction {
        PodAction(self.0 | other.0)
    }
}

/// Which properties of a node changed (upstream: ActionType).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeAction(u8);

impl NodeAction {
    pub(crate) const NONE: NodeAction = NodeAction(0);
    pub(crate) const ADD: NodeAction = NodeAction(1);
    pub(crate) const DELETE: NodeAction = NodeAction(2);
    pub(crate) const ALLOCATABLE: NodeAction = NodeAction(4);
    pub(crate) const LABEL: NodeAction = NodeAction(8);
    pub(crate) const TAINT: NodeAction = NodeAction(16);
    pub(crate) const CONDITION: NodeAction = NodeAction(32);
    pub(crate) const ANNOTATION: NodeAction = NodeAction(64);
    pub(crate) const FEATURE: NodeAction = NodeAction(128);

    /// Whether any of `other` changed.
    pub(crate) fn has(self, other: NodeAction) -> bool {
        self.0 & other.0 != 0
    }

    /// The differences between two states of a node.
    pub(crate) fn between(old: &NodeFacts, new: &NodeFacts) -> NodeAction {
        let opened = old.unschedulable && !new.unschedulable;
        let differs = [
            (
                old.allocatable != new.allocatable || old.max_pods != new.max_pods,
                NodeAction::ALLOCATABLE,
            ),
            (old.labels != new.labels, NodeAction::LABEL),
            (old.taints != new.taints || opened, NodeAction::TAINT),
            (old.conditions != new.conditions, NodeAction::CONDITION),
            (old.annotations != new.annotations, NodeAction::ANNOTATION),
            (
                old.declared_features != new.declared_features,
                NodeAction::FEATURE,
            ),
        ];
        NodeAction(
            differs
                .into_iter()
                .filter(|(differs, _)| *differs)
                .map(|(_, change)| change.0)
                .sum(),
        )
    }
}

impl std::ops::BitOr for NodeAction {
    type Output = NodeAction;

    fn bitor(self, other: NodeAction) -> NodeAction {
        NodeAction(self.0 | other.0)
    }
}

/// Plugins that register for new nodes but not for taints.
///
/// Kubernetes: a change of taints requeues the pods that they rejected without a queueing hint, so
/// that the pods get a new diagnosis (scheduler.go, `buildQueueingHintMap`).
const QUEUED_BY_TAINT_CHANGES: [Name; 10] = [
    Name::NodeName,
    Name::NodeAffinity,
    Name::NodePorts,
    Name::NodeResourcesFit,
    Name::VolumeRestrictions,
    Name::VolumeBinding,
    Name::VolumeZone,
    Name::InterPodAffinity,
    Name::DynamicResources,
    Name::NodeDeclaredFeatures,
];

/// A change in the cluster. A deletion has no `new`, an addition no `old`.
pub(crate) enum ClusterEvent<'a> {
    Pod {
        old: Option<&'a PodInfo>,
        new: Option<&'a PodInfo>,
        change: PodAction,
    },
    Node {
        old: Option<&'a NodeFacts>,
        new: Option<&'a NodeFacts>,
        change: NodeAction,
    },
    PersistentVolumeClaim {
        old: Option<&'a Object>,
        new: Option<&'a Object>,
    },
    PersistentVolume {
        old: Option<&'a Object>,
        new: Option<&'a Object>,
    },
    StorageClass {
        old: Option<&'a Object>,
        new: Option<&'a Object>,
    },
    CsiNode {
        old: Option<&'a Object>,
        new: Option<&'a Object>,
    },
    CsiDriver {
        old: Option<&'a Object>,
        new: Option<&'a Object>,
    },
    CsiStorageCapacity {
        old: Option<&'a Object>,
        new: Option<&'a Object>,
    },
    VolumeAttachment {
        old: Option<&'a Object>,
        new: Option<&'a Object>,
    },
    ResourceClaim {
        old: Option<&'a Object>,
        new: Option<&'a Object>,
    },
    ResourceSlice {
        old: Option<&'a Object>,
        new: Option<&'a Object>,
    },
    DeviceClass {
        old: Option<&'a Object>,
        new: Option<&'a Object>,
    },
}

impl<'a> ClusterEvent<'a> {
    pub(crate) fn pod_added(pod: &'a PodInfo) -> Self {
        ClusterEvent::Pod {
            old: None,
            new: Some(pod),
            change: PodAction::ADD,
        }
    }

    pub(crate) fn pod_updated(old: &'a PodInfo, new: &'a PodInfo) -> Self {
        ClusterEvent::Pod {
            old: Some(old),
            new: Some(new),
            change: PodAction::between(old, new),
        }
    }

    pub(crate) fn pod_deleted(pod: &'a PodInfo) -> Self {
        ClusterEvent::Pod {
            old: Some(pod),
            new: None,
            change: PodAction::DELETE,
        }
    }

    /// Its label in metrics (upstream: ClusterEvent.Label). Of several changes it is the first.
    pub(crate) fn label(&self) -> &'static str {
        macro_rules! labels {
            ($resource:literal) => {
                [
                    concat!($resource, "Add"),
                    concat!($resource, "Update"),
                    concat!($resource, "Delete"),
                ]
            };
        }
        let (labels, is_added, is_deleted) = match self {
            ClusterEvent::Pod { old, new, change } => {
                return pod_label(new.or(*old).is_some_and(PodInfo::is_assigned), *change);
            }
            ClusterEvent::Node { change, .. } => return node_label(*change),
            ClusterEvent::PersistentVolumeClaim { old, new } => (
                labels!("PersistentVolumeClaim"),
                old.is_none(),
                new.is_none(),
            ),
            ClusterEvent::PersistentVolume { old, new } => {
                (labels!("PersistentVolume"), old.is_none(), new.is_none())
            }
            ClusterEvent::StorageClass { old, new } => (
                labels!("storage.k8s.io/StorageClass"),
                old.is_none(),
                new.is_none(),
            ),
            ClusterEvent::CsiNode { old, new } => (
                labels!("storage.k8s.io/CSINode"),
                old.is_none(),
                new.is_none(),
            ),
            ClusterEvent::CsiDriver { old, new } => (
                labels!("storage.k8s.io/CSIDriver"),
                old.is_none(),
                new.is_none(),
            ),
            ClusterEvent::CsiStorageCapacity { old, new } => (
                labels!("storage.k8s.io/CSIStorageCapacity"),
                old.is_none(),
                new.is_none(),
            ),
            ClusterEvent::VolumeAttachment { old, new } => (
                labels!("storage.k8s.io/VolumeAttachment"),
                old.is_none(),
                new.is_none(),
            ),
            ClusterEvent::ResourceClaim { old, new } => (
                labels!("resource.k8s.io/ResourceClaim"),
                old.is_none(),
                new.is_none(),
            ),
            ClusterEvent::ResourceSlice { old, new } => (
                labels!("resource.k8s.io/ResourceSlice"),
                old.is_none(),
                new.is_none(),
            ),
            ClusterEvent::DeviceClass { old, new } => (
                labels!("resource.k8s.io/DeviceClass"),
                old.is_none(),
                new.is_none(),
            ),
        };
        let [added, updated, deleted] = labels;
        match (is_added, is_deleted) {
            (_, true) => deleted,
            (true, _) => added,
            _ => updated,
        }
    }

    /// The plugins that register for this event: the inverse of upstream's EventsToRegister.
    /// Plugins that are not listed get no queueing hint call.
    pub(crate) fn registered_plugins(&self) -> PluginNames {
        let everything =
            || Name::all().filter(|name| matches!(name, Name::Custom(_) | Name::Extender));
        let some = |names: &[Name]| names.iter().copied().chain(everything()).collect();
        match self {
            ClusterEvent::Pod { old: None, .. } => {
                some(&[Name::PodTopologySpread, Name::InterPodAffinity])
            }
            ClusterEvent::Pod { new: None, .. } => some(&[
                Name::NodePorts,
                Name::NodeResourcesFit,
                Name::VolumeRestrictions,
                Name::NodeVolumeLimits,
                Name::PodTopologySpread,
                Name::InterPodAffinity,
            ]),
            _ => PluginNames::all(),
        }
    }

    /// Whether a pod was updated in nothing that plugins register for, such as its status.
    pub(crate) fn is_unregistered_update(&self) -> bool {
        matches!(self, ClusterEvent::Pod { change, .. } if *change == PodAction(0))
    }

    /// Whether the event requeues the pods that a plugin rejected without a call of its queueing
    /// hint.
    pub(crate) fn queues_without_hint(&self, rejector: Name) -> bool {
        let ClusterEvent::Node {
            old: Some(_),
            new: Some(_),
            change,
        } = self
        else {
            return false;
        };
        change.has(NodeAction::TAINT) && QUEUED_BY_TAINT_CHANGES.contains(&rejector)
    }
}

/// The label of a change of a pod.
fn pod_label(is_assigned: bool, change: PodAction) -> &'static str {
    macro_rules! labels {
        ($($action:ident $name:literal),*) => {
            [$((PodAction::$action, [concat!("AssignedPod", $name), concat!("UnschedulablePod", $name)]),)*]
        };
    }
    let labels = labels![
        ADD "Add", DELETE "Delete", LABEL "UpdatePodLabel", SCALE_DOWN "UpdatePodScaleDown",
        GATES "UpdatePodSchedulingGatesEliminated", TOLERATION "UpdatePodToleration",
        CLAIM "UpdatePodGeneratedResourceClaim"
    ];
    let update = ["AssignedPodUpdate", "UnschedulablePodUpdate"];
    let known = labels.into_iter().find(|(action, _)| change.has(*action));
    let [assigned, unscheduled] = known.map_or(update, |(_, labels)| labels);
    if is_assigned { assigned } else { unscheduled }
}

/// The label of a change of a node.
fn node_label(change: NodeAction) -> &'static str {
    let labels = [
        (NodeAction::ADD, "NodeAdd"),
        (NodeAction::DELETE, "NodeDelete"),
        (NodeAction::ALLOCATABLE, "NodeUpdateNodeAllocatable"),
        (NodeAction::LABEL, "NodeUpdateNodeLabel"),
        (NodeAction::TAINT, "NodeUpdateNodeTaint"),
        (NodeAction::CONDITION, "NodeUpdateNodeCondition"),
        (NodeAction::ANNOTATION, "NodeUpdateNodeAnnotation"),
        (NodeAction::FEATURE, "NodeUpdateNodeDeclaredFeature"),
    ];
    let known = labels.into_iter().find(|(action, _)| change.has(*action));
    known.map_or("NodeUpdate", |(_, label)| label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster_state::ClusterState;
    use crate::configuration::Configuration;
    use crate::model::samples::pod;

    #[test]
    fn every_plugin_whose_hint_queues_is_registered() {
        let demanding = "{metadata: {labels: {app: x}}, spec: {nodeName: n1,
            containers: [{ports: [{hostPort: 80}], resources: {requests: {cpu: '1'}}}],
            volumes: [{name: v, persistentVolumeClaim: {claimName: c}}],
            affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{labelSelector: {matchLabels: {app: x}}, topologyKey: z}]},
                       podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{labelSelector: {matchLabels: {app: x}}, topologyKey: z}]}},
            topologySpreadConstraints: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: x}}}]}}";
        let (waiting, other) = (pod("p", demanding), pod("q", demanding));
        let (configuration, cluster) = (Configuration::default(), ClusterState::default());
        for (event, n_helped) in [
            (ClusterEvent::pod_added(&other), 2),
            (ClusterEvent::pod_deleted(&other), 6),
        ] {
            let filters = configuration.profiles[0].filters.iter();
            let helped: Vec<Name> = filters
                .filter(|filter| filter.queueing_hint(&waiting, &event, &cluster))
                .map(|filter| filter.name())
                .collect();
            assert!(
                helped
                    .iter()
                    .all(|name| event.registered_plugins().has(*name)),
                "{helped:?}"
            );
            assert_eq!(helped.len(), n_helped, "{helped:?}");
        }
    }
}
