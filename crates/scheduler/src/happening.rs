//! What happened in the cluster that may let a waiting pod be placed?

use mizzen_sdk::Object;

use crate::model::{NodeFacts, Pod};
use crate::plugin::{Name, Names};

/// Which of a pod's properties changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PodChange(u8);

impl PodChange {
    pub(crate) const LABEL: PodChange = PodChange(1);
    pub(crate) const SCALE_DOWN: PodChange = PodChange(2);
    pub(crate) const GATES: PodChange = PodChange(4);
    pub(crate) const TOLERATION: PodChange = PodChange(8);
    pub(crate) const CLAIM: PodChange = PodChange(16);
    pub(crate) const ADD: PodChange = PodChange(32);
    pub(crate) const DELETE: PodChange = PodChange(64);

    /// Whether any of these changed.
    pub(crate) fn has(self, other: PodChange) -> bool {
        self.0 & other.0 != 0
    }

    /// What differs between two states of a pod.
    pub(crate) fn between(old: &Pod, new: &Pod) -> PodChange {
        let differs = [
            (old.labels != new.labels, PodChange::LABEL),
            (
                old.requests.stated.shrinks_to(&new.requests.stated),
                PodChange::SCALE_DOWN,
            ),
            (old.has_gates && !new.has_gates, PodChange::GATES),
            (
                old.tolerations.len() != new.tolerations.len(),
                PodChange::TOLERATION,
            ),
            (old.resource_claims != new.resource_claims, PodChange::CLAIM),
        ];
        PodChange(
            differs
                .into_iter()
                .filter(|(differs, _)| *differs)
                .map(|(_, change)| change.0)
                .sum(),
        )
    }
}

impl std::ops::BitOr for PodChange {
    type Output = PodChange;

    fn bitor(self, other: PodChange) -> PodChange {
        PodChange(self.0 | other.0)
    }
}

/// Which of a node's properties changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeChange(u8);

impl NodeChange {
    pub(crate) const NONE: NodeChange = NodeChange(0);
    pub(crate) const ADD: NodeChange = NodeChange(1);
    pub(crate) const DELETE: NodeChange = NodeChange(2);
    pub(crate) const ALLOCATABLE: NodeChange = NodeChange(4);
    pub(crate) const LABEL: NodeChange = NodeChange(8);
    pub(crate) const TAINT: NodeChange = NodeChange(16);
    pub(crate) const CONDITION: NodeChange = NodeChange(32);
    pub(crate) const ANNOTATION: NodeChange = NodeChange(64);
    pub(crate) const FEATURE: NodeChange = NodeChange(128);

    /// Whether any of these changed.
    pub(crate) fn has(self, other: NodeChange) -> bool {
        self.0 & other.0 != 0
    }

    /// What differs between two states of a node.
    pub(crate) fn between(old: &NodeFacts, new: &NodeFacts) -> NodeChange {
        let opened = old.unschedulable && !new.unschedulable;
        let differs = [
            (
                old.allocatable != new.allocatable || old.max_pods != new.max_pods,
                NodeChange::ALLOCATABLE,
            ),
            (old.labels != new.labels, NodeChange::LABEL),
            (old.taints != new.taints || opened, NodeChange::TAINT),
            (old.conditions != new.conditions, NodeChange::CONDITION),
            (old.annotations != new.annotations, NodeChange::ANNOTATION),
            (
                old.declared_features != new.declared_features,
                NodeChange::FEATURE,
            ),
        ];
        NodeChange(
            differs
                .into_iter()
                .filter(|(differs, _)| *differs)
                .map(|(_, change)| change.0)
                .sum(),
        )
    }
}

impl std::ops::BitOr for NodeChange {
    type Output = NodeChange;

    fn bitor(self, other: NodeChange) -> NodeChange {
        NodeChange(self.0 | other.0)
    }
}

/// Who is asked about new nodes but has nothing to say of taints.
///
/// Kubernetes: they are told of every change of taints as if it helped, so that pods which they rejected are tried again and
/// hear what speaks against them now (scheduler.go, `buildQueueingHintMap`).
const HELPED_BY_TAINTS: [Name; 10] = [
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

/// Something that happened. What is not there any more has no `new`, what is new no `old`.
pub(crate) enum Happening<'a> {
    Pod {
        old: Option<&'a Pod>,
        new: Option<&'a Pod>,
        change: PodChange,
    },
    Node {
        old: Option<&'a NodeFacts>,
        new: Option<&'a NodeFacts>,
        change: NodeChange,
    },
    Claim {
        old: Option<&'a Object>,
        new: Option<&'a Object>,
    },
    Volume {
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
    Capacity {
        old: Option<&'a Object>,
        new: Option<&'a Object>,
    },
    Attachment {
        new: Option<&'a Object>,
    },
    ResourceClaim {
        old: Option<&'a Object>,
        new: Option<&'a Object>,
    },
    ResourceSlice {
        new: Option<&'a Object>,
    },
    DeviceClass {
        old: Option<&'a Object>,
        new: Option<&'a Object>,
    },
}

impl Happening<'_> {
    /// Whose rejections it can undo. A plugin that is not named here is not asked, whatever it would say.
    pub(crate) fn interests(&self) -> Names {
        let some = |names: &[Name]| names.iter().copied().chain([Name::Extender]).collect();
        match self {
            Happening::Pod { old: None, .. } => {
                some(&[Name::PodTopologySpread, Name::InterPodAffinity])
            }
            Happening::Pod { new: None, .. } => some(&[
                Name::NodePorts,
                Name::NodeResourcesFit,
                Name::VolumeRestrictions,
                Name::NodeVolumeLimits,
                Name::PodTopologySpread,
                Name::InterPodAffinity,
            ]),
            _ => Names::all(),
        }
    }

    /// Whether it helps those whom a plugin rejected, without that the plugin is asked.
    pub(crate) fn helps_unasked(&self, rejector: Name) -> bool {
        let Happening::Node {
            old: Some(_),
            new: Some(_),
            change,
        } = self
        else {
            return false;
        };
        change.has(NodeChange::TAINT) && HELPED_BY_TAINTS.contains(&rejector)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Configuration;
    use crate::model::samples::pod;
    use crate::world::World;

    #[test]
    fn whoever_can_be_helped_is_interested() {
        let demanding = "{metadata: {labels: {app: x}}, spec: {nodeName: n1,
            containers: [{ports: [{hostPort: 80}], resources: {requests: {cpu: '1'}}}],
            volumes: [{name: v, persistentVolumeClaim: {claimName: c}}],
            affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{labelSelector: {matchLabels: {app: x}}, topologyKey: z}]},
                       podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{labelSelector: {matchLabels: {app: x}}, topologyKey: z}]}},
            topologySpreadConstraints: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: x}}}]}}";
        let (waiting, other) = (pod("p", demanding), pod("q", demanding));
        let (configuration, world) = (Configuration::default(), World::default());
        let came = Happening::Pod {
            old: None,
            new: Some(&other),
            change: PodChange::ADD,
        };
        let went = Happening::Pod {
            old: Some(&other),
            new: None,
            change: PodChange::DELETE,
        };
        for (happening, n_helped) in [(came, 2), (went, 6)] {
            let filters = configuration.profiles[0].filters.iter();
            let helped: Vec<Name> = filters
                .filter(|filter| filter.wakes(&waiting, &happening, &world))
                .map(|filter| filter.name())
                .collect();
            assert!(
                helped.iter().all(|name| happening.interests().has(*name)),
                "{helped:?}"
            );
            assert_eq!(helped.len(), n_helped, "{helped:?}");
        }
    }
}
