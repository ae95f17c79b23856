//! The victims on one node.

use std::cmp::Reverse;
use std::sync::Arc;

use mizzen_value::Str;

use super::{PreemptionContext, disruption_budgets};
use crate::cache::NodeInfo;
use crate::cycle::{CycleState, FilterRun};
use crate::model::PodInfo;
use crate::plugin::{Name, Rejection};

/// A node and its victims, the most important first.
#[derive(Debug, Clone)]
pub(crate) struct PreemptionCandidate {
    pub node: Str,
    pub victims: Vec<Arc<PodInfo>>,
    /// The number of victims whose PDB is violated.
    pub n_violations: usize,
}

/// A node without some of its pods.
struct SimulatedNode<'a> {
    case: &'a PreemptionContext<'a>,
    state: CycleState,
    node: NodeInfo,
}

impl SimulatedNode<'_> {
    fn remove(&mut self, pod: &PodInfo) {
        self.node.remove_pod(&pod.uid);
        self.state
            .simulate_pod(pod, &self.node, -1, self.case.cluster);
    }

    fn add(&mut self, pod: &Arc<PodInfo>) {
        self.node.add_pod(pod.clone());
        self.state
            .simulate_pod(pod, &self.node, 1, self.case.cluster);
    }

    fn run_filters(&self) -> Option<Rejection> {
        let filters = FilterRun {
            state: &self.state,
            pod: self.case.pod,
            cluster: self.case.cluster,
            nominated: self.case.nominated,
        };
        filters.run_filters_with_nominated_pods(&self.node)
    }

    /// Puts a pod back if the preemptor still fits. Returns whether it does.
    fn reprieve(&mut self, pod: &Arc<PodInfo>) -> bool {
        self.add(pod);
        let stays = self.run_filters().is_none();
        if !stays {
            self.remove(pod);
        }
        stays
    }
}

/// The fewest victims on a node: all pods of lower priority are removed, then as many as possible
/// are reprieved, the most important first (upstream: SelectVictimsOnNode).
pub(super) fn select_victims_on_node(
    case: &PreemptionContext,
    node: &NodeInfo,
) -> Result<PreemptionCandidate, Rejection> {
    let mut lesser: Vec<Arc<PodInfo>> = node
        .pods
        .iter()
        .filter(|other| other.priority < case.pod.priority)
        .cloned()
        .collect();
    if lesser.is_empty() {
        let reason = "No preemption victims found for incoming pod";
        return Err(Rejection::unresolvable(Name::DefaultPreemption, reason));
    }
    let mut imagined = SimulatedNode {
        case,
        state: case.state.copy(),
        node: node.clone(),
    };
    lesser.iter().for_each(|pod| imagined.remove(pod));
    if let Some(rejection) = imagined.run_filters() {
        return Err(rejection);
    }
    lesser.sort_by_key(|pod| importance(pod, case.now));
    let (violating, others) =
        disruption_budgets::filter_pods_with_pdb_violation(&lesser, &case.cluster.budgets);
    let mut victims: Vec<Arc<PodInfo>> = violating
        .into_iter()
        .filter(|pod| !imagined.reprieve(pod))
        .collect();
    let n_violations = victims.len();
    victims.extend(others.into_iter().filter(|pod| !imagined.reprieve(pod)));
    victims.sort_by_key(|pod| importance(pod, case.now));
    if victims.is_empty() {
        let reason = format!(
            "expected at least one victim pod on node \"{}\"",
            node.name()
        );
        return Err(Rejection::unresolvable(Name::DefaultPreemption, reason));
    }
    Ok(PreemptionCandidate {
        node: node.name().clone(),
        victims,
        n_violations,
    })
}

/// The order of importance: by priority, then by start time.
fn importance(pod: &PodInfo, now: i64) -> (Reverse<i32>, i64) {
    (Reverse(pod.priority), pod.started.unwrap_or(now))
}
