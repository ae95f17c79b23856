//! NodeResourcesFit: the node has the resources that the pod requests.

use std::sync::Arc;

use mizzen_component_helpers::resource_names::is_extended;
use mizzen_value::Str;

use super::scoring_strategy::ScoringStrategy;
use super::{
    FilterPlugin, Name, NodeFilter, NodeScorer, PreFilterResult, Reasons, Rejection, ScorePlugin,
    Text,
};
use crate::cache::{NodeInfo, Slot};
use crate::cluster_event::{ClusterEvent, NodeAction, PodAction};
use crate::cluster_state::ClusterState;
use crate::model::{NodeFacts, PodInfo, ResourceAmounts};

/// The plugin, and how it scores nodes.
pub(crate) struct Fit {
    pub ignored: Vec<Str>,
    pub ignored_groups: Vec<Str>,
    pub strategy: ScoringStrategy,
}

/// The pod's requests, without ignored resources.
#[derive(Clone)]
struct FitFilter(ResourceAmounts);

impl Fit {
    fn request(&self, pod: &PodInfo) -> ResourceAmounts {
        let mut request = pod.requests.stated.clone();
        request
            .scalar
            .retain(|(name, amount)| *amount != 0 && !self.ignores(name));
        request
    }

    fn ignores(&self, name: &str) -> bool {
        let group = name.split('/').next().unwrap_or_default();
        is_extended(name)
            && (self.ignored.iter().any(|one| one == name)
                || self.ignored_groups.iter().any(|one| one == group))
    }

    /// Whether a change of an assigned pod frees a resource that `pod` requests.
    fn frees(&self, pod: &PodInfo, old: &PodInfo, new: &PodInfo) -> bool {
        let (want, old, new) = (
            &pod.requests.stated,
            &old.requests.stated,
            &new.requests.stated,
        );
        let freed = |name: &str| want.get(name) > 0 && old.get(name) > new.get(name);
        ["cpu", "memory", "ephemeral-storage"]
            .into_iter()
            .any(freed)
            || want.scalar.iter().any(|(name, _)| freed(name))
    }
}

impl FilterPlugin for Fit {
    fn name(&self) -> Name {
        Name::NodeResourcesFit
    }

    fn pre_filter(&self, pod: &Arc<PodInfo>, _world: &mut ClusterState) -> PreFilterResult {
        PreFilterResult::Filter(Box::new(FitFilter(self.request(pod))))
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent, _world: &ClusterState) -> bool {
        match event {
            ClusterEvent::Pod {
                old: Some(gone),
                new: None,
                ..
            } => gone.is_assigned_or_nominated(),
            ClusterEvent::Pod {
                old: Some(old),
                new: Some(new),
                change,
            } => {
                let frees =
                    || new.uid == pod.uid || (new.is_assigned() && self.frees(pod, old, new));
                change.has(PodAction::SCALE_DOWN) && frees()
            }
            ClusterEvent::Node {
                old,
                new: Some(new),
                change,
            } => {
                let request = self.request(pod);
                let grows = |old: &NodeFacts| {
                    let more = |name: &str| {
                        request.get(name) > 0
                            && new.allocatable.get(name) > old.allocatable.get(name)
                    };
                    new.max_pods > old.max_pods
                        || ["cpu", "memory", "ephemeral-storage"].into_iter().any(more)
                        || request.scalar.iter().any(|(name, _)| more(name))
                };
                change.has(NodeAction::ADD | NodeAction::ALLOCATABLE)
                    && insufficient_resources(
                        &request,
                        &new.allocatable,
                        &ResourceAmounts::default(),
                        new.max_pods,
                        0,
                    )
                    .is_empty()
                    && old.is_none_or(grows)
            }
            ClusterEvent::DeviceClass {
                old,
                new: Some(new),
            } => {
                let backs = |name: &str| !name.is_empty() && pod.requests.stated.scalar(name) > 0;
                let extended = new["spec"]["extendedResourceName"].str();
                match old {
                    Some(old) => {
                        old["spec"]["extendedResourceName"].str() != extended && backs(extended)
                    }
                    None => {
                        backs(extended)
                            || backs(&format!(
                                "deviceclass.resource.kubernetes.io/{}",
                                new.name()
                            ))
                    }
                }
            }
            _ => false,
        }
    }
}

/// The insufficient resources, each with whether the request exceeds even the node's allocatable
/// amount.
fn insufficient_resources(
    request: &ResourceAmounts,
    allocatable: &ResourceAmounts,
    used: &ResourceAmounts,
    max_pods: i64,
    n_pods: i64,
) -> Vec<(Text, bool)> {
    let mut insufficient_resources: Vec<(Text, bool)> = Vec::new();
    if n_pods + 1 > max_pods {
        insufficient_resources.push(("Too many pods".into(), false));
    }
    let mut compare = |name: Text, want: i64, have: i64, used: i64| {
        if want > 0 && want > have - used {
            insufficient_resources.push((name, want > have));
        }
    };
    compare(
        "Insufficient cpu".into(),
        request.cpu,
        allocatable.cpu,
        used.cpu,
    );
    compare(
        "Insufficient memory".into(),
        request.memory,
        allocatable.memory,
        used.memory,
    );
    let storage = "Insufficient ephemeral-storage".into();
    compare(
        storage,
        request.ephemeral,
        allocatable.ephemeral,
        used.ephemeral,
    );
    for (name, want) in &request.scalar {
        compare(
            format!("Insufficient {name}").into(),
            *want,
            allocatable.scalar(name),
            used.scalar(name),
        );
    }
    insufficient_resources
}

impl FitFilter {
    fn fits(&self, node: &NodeInfo) -> bool {
        let (want, have, used) = (&self.0, &node.allocatable, &node.requested);
        let enough = |want: i64, have: i64, used: i64| want <= 0 || want <= have - used;
        (node.pods.len() as i64) < node.max_pods
            && enough(want.cpu, have.cpu, used.cpu)
            && enough(want.memory, have.memory, used.memory)
            && enough(want.ephemeral, have.ephemeral, used.ephemeral)
            && want
                .scalar
                .iter()
                .all(|(name, want)| enough(*want, have.scalar(name), used.scalar(name)))
    }
}

impl NodeFilter for FitFilter {
    fn filter(&self, node: &NodeInfo, _world: &ClusterState) -> Option<Rejection> {
        if self.fits(node) {
            return None;
        }
        let facts = &node.facts;
        let n_pods = node.pods.len() as i64;
        let insufficient_resources = insufficient_resources(
            &self.0,
            &facts.allocatable,
            &node.requested,
            facts.max_pods,
            n_pods,
        );
        let resolvable = insufficient_resources.iter().all(|(_, forever)| !forever);
        let mut reasons: Vec<Text> = insufficient_resources
            .into_iter()
            .map(|(reason, _)| reason)
            .collect();
        let reasons = if reasons.len() == 1 {
            Reasons::One(reasons.remove(0))
        } else {
            Reasons::Several(reasons)
        };
        Some(Rejection {
            plugin: Name::NodeResourcesFit,
            reasons,
            resolvable,
        })
    }

    fn copy(&self) -> Box<dyn NodeFilter> {
        Box::new(self.clone())
    }
}

impl ScorePlugin for Fit {
    fn pre_score(
        &self,
        pod: &Arc<PodInfo>,
        _world: &mut ClusterState,
        _nodes: &[Slot],
    ) -> Option<Box<dyn NodeScorer>> {
        Some(Box::new(self.strategy.scorer(pod)))
    }
}
