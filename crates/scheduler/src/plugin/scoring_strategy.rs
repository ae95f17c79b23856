//! Scoring strategies of NodeResourcesFit.

use std::sync::Arc;

use mizzen_value::Str;

use super::{MAX_NODE_SCORE, NodeScorer};
use crate::cache::{NodeInfo, Slot};
use crate::cluster_state::ClusterState;
use crate::model::{PodInfo, ResourceAmounts, is_scalar};

/// A resource and its weight (upstream: ResourceSpec).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResourceSpec {
    pub name: Str,
    pub weight: i64,
}

impl ResourceSpec {
    /// CPU and memory with equal weights.
    pub(crate) fn default_list() -> Vec<ResourceSpec> {
        ["cpu", "memory"]
            .map(|name| ResourceSpec {
                name: name.into(),
                weight: 1,
            })
            .into()
    }
}

/// `scoringStrategy.type`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ScoringStrategyType {
    /// Prefers nodes with low utilization.
    LeastAllocated,
    /// Prefers nodes with high utilization.
    MostAllocated,
    /// Scores by a broken line of utilization in percent and score.
    RequestedToCapacityRatio(Vec<(i64, i64)>),
}

/// `scoringStrategy`: its type, and the weighted resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScoringStrategy {
    pub kind: ScoringStrategyType,
    pub resources: Vec<ResourceSpec>,
}

impl ScoringStrategy {
    pub(crate) fn scorer(&self, pod: &Arc<PodInfo>) -> ResourceScorer {
        let wants = self.resources.iter().filter_map(|resource| {
            let which = ResourceKind::from_name(&resource.name);
            let want = match which {
                ResourceKind::Cpu => pod.requests.non_zero_cpu,
                ResourceKind::Memory => pod.requests.non_zero_memory,
                ResourceKind::Other(ref name) => pod.requests.stated.get(name),
            };
            let matters = which.matters(want);
            matters.then_some(ResourceRequest {
                which,
                want,
                weight: resource.weight,
            })
        });
        ResourceScorer {
            kind: self.kind.clone(),
            wants: wants.collect(),
        }
    }
}

/// A resource; the common ones are not looked up by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ResourceKind {
    Cpu,
    Memory,
    Other(Str),
}

impl ResourceKind {
    pub(super) fn from_name(name: &Str) -> ResourceKind {
        match name.as_str() {
            "cpu" => ResourceKind::Cpu,
            "memory" => ResourceKind::Memory,
            _ => ResourceKind::Other(name.clone()),
        }
    }

    /// Its amount.
    pub(super) fn amount(&self, resources: &ResourceAmounts) -> i64 {
        match self {
            ResourceKind::Cpu => resources.cpu,
            ResourceKind::Memory => resources.memory,
            ResourceKind::Other(name) => resources.get(name),
        }
    }

    /// Whether it counts for a pod that requests `want`. Scalar resources count only if they are
    /// requested.
    pub(super) fn matters(&self, want: i64) -> bool {
        want != 0 || !matches!(self, ResourceKind::Other(name) if is_scalar(name))
    }
}

/// The pod's request of a resource.
struct ResourceRequest {
    which: ResourceKind,
    want: i64,
    weight: i64,
}

/// Scores nodes for one pod.
pub(crate) struct ResourceScorer {
    kind: ScoringStrategyType,
    wants: Vec<ResourceRequest>,
}

impl ResourceScorer {
    fn score(&self, node: &NodeInfo) -> i64 {
        let (mut sum, mut weights) = (0, 0);
        for ResourceRequest {
            which,
            want,
            weight,
        } in &self.wants
        {
            let have = which.amount(&node.allocatable);
            let used = match which {
                ResourceKind::Cpu => node.non_zero_cpu,
                ResourceKind::Memory => node.non_zero_memory,
                ResourceKind::Other(name) => node.requested.get(name),
            };
            if have == 0 {
                continue;
            }
            let score = self.kind.score(used + want, have);
            if score > 0 || !matches!(self.kind, ScoringStrategyType::RequestedToCapacityRatio(_)) {
                sum += score * weight;
                weights += weight;
            }
        }
        match (&self.kind, weights) {
            (_, 0) => 0,
            (ScoringStrategyType::RequestedToCapacityRatio(_), _) => {
                (sum as f64 / weights as f64).round() as i64
            }
            _ => sum / weights,
        }
    }
}

impl ScoringStrategyType {
    fn score(&self, used: i64, have: i64) -> i64 {
        match self {
            ScoringStrategyType::LeastAllocated if used > have => 0,
            ScoringStrategyType::LeastAllocated => (have - used) * MAX_NODE_SCORE / have,
            ScoringStrategyType::MostAllocated => used.min(have) * MAX_NODE_SCORE / have,
            ScoringStrategyType::RequestedToCapacityRatio(shape) if used > have => {
                interpolate(shape, 100)
            }
            ScoringStrategyType::RequestedToCapacityRatio(shape) => {
                interpolate(shape, used * 100 / have)
            }
        }
    }
}

/// The value of a broken line at `at`.
fn interpolate(shape: &[(i64, i64)], at: i64) -> i64 {
    let Some(next) = shape.iter().position(|(x, _)| at <= *x) else {
        return shape.last().map_or(0, |(_, y)| *y);
    };
    match (next.checked_sub(1).map(|before| shape[before]), shape[next]) {
        (None, (_, y)) => y,
        (Some((x0, y0)), (x1, y1)) => y0 + (y1 - y0) * (at - x0) / (x1 - x0),
    }
}

impl NodeScorer for ResourceScorer {
    fn score_nodes(&self, cluster: &ClusterState, nodes: &[Slot]) -> Vec<i64> {
        nodes
            .iter()
            .map(|slot| self.score(cluster.cache.node(*slot)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kind: ScoringStrategyType, used: i64, have: i64, score: i64) {
        assert_eq!(kind.score(used, have), score, "{kind:?} {used}/{have}");
    }

    #[test]
    fn utilization_scores_low_or_high() {
        check(ScoringStrategyType::LeastAllocated, 1000, 4000, 75);
        check(ScoringStrategyType::LeastAllocated, 5000, 4000, 0);
        check(ScoringStrategyType::MostAllocated, 1000, 4000, 25);
        check(ScoringStrategyType::MostAllocated, 5000, 4000, 100);
    }

    #[test]
    fn a_shape_is_interpolated() {
        let shape =
            ScoringStrategyType::RequestedToCapacityRatio(vec![(0, 0), (70, 100), (100, 50)]);
        check(shape.clone(), 35, 100, 50);
        check(shape.clone(), 85, 100, 75);
        check(shape, 200, 100, 50);
    }
}
