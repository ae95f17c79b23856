//! Preemption: which pods to delete so that a pod of higher priority fits.
//!
//! Nothing is deleted here. Victims are selected by simulating nodes without them.

mod disruption_budgets;
mod pick_one_node;
mod victims;

use std::sync::Arc;

use mizzen_sdk::clock::Rng;
use mizzen_value::Str;

use crate::cache::Slot;
use crate::cluster_state::ClusterState;
use crate::cycle::{CycleState, Diagnosis};
use crate::model::PodInfo;
use crate::plugin::{Name, Rejection};
use crate::queue::Nominator;
pub(crate) use pick_one_node::pick_one_node;
pub(crate) use victims::PreemptionCandidate;

/// The number of candidates to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CandidateLimits {
    /// `minCandidateNodesPercentage`.
    pub min_percentage: usize,
    pub min_absolute: usize,
}

impl Default for CandidateLimits {
    fn default() -> CandidateLimits {
        CandidateLimits {
            min_percentage: 10,
            min_absolute: 100,
        }
    }
}

/// The preemptor, and what decides about its candidates.
pub(crate) struct PreemptionContext<'a> {
    pub pod: &'a Arc<PodInfo>,
    pub state: &'a CycleState,
    pub cluster: &'a ClusterState,
    pub nominated: &'a Nominator,
    /// The time in Unix seconds.
    pub now: i64,
}

/// The result of the search for candidates.
pub(crate) enum CandidateSearch {
    /// Nodes on which preemption would help.
    Candidates(Vec<PreemptionCandidate>),
    /// No node; `forget` if the nomination is to be cleared.
    None { message: String, forget: bool },
}

/// Searches for nodes on which preemption would help.
pub(crate) fn find_candidates(
    case: &PreemptionContext,
    diagnosis: &Diagnosis,
    candidate_limits: CandidateLimits,
    chance: &Rng,
) -> CandidateSearch {
    if let Err(message) = check_eligible_to_preempt(case, diagnosis) {
        return CandidateSearch::None {
            message: message.into(),
            forget: false,
        };
    }
    let nodes = case.cluster.cache.node_order();
    let potential = diagnosis.resolvable(nodes);
    let mut refused = Diagnosis::default();
    let candidates = dry_run_preemption(case, &potential, candidate_limits, chance, &mut refused);
    if candidates.is_empty() {
        refused.untried = Some(Rejection::unresolvable(
            Name::DefaultPreemption,
            "Preemption is not helpful for scheduling",
        ));
        return CandidateSearch::None {
            message: refused.message(nodes.len()),
            forget: true,
        };
    }
    CandidateSearch::Candidates(candidates)
}

/// Whether a pod may preempt (upstream: PodEligibleToPreemptOthers).
fn check_eligible_to_preempt(
    case: &PreemptionContext,
    diagnosis: &Diagnosis,
) -> Result<(), &'static str> {
    if case.pod.never_preempts {
        return Err("not eligible due to preemptionPolicy=Never.");
    }
    let Some(node) = case.cluster.cache.node_by_name(&case.pod.nominated_node) else {
        return Ok(());
    };
    if diagnosis
        .rejection(node.slot)
        .is_some_and(|rejection| !rejection.resolvable)
    {
        return Ok(());
    }
    let waits = node
        .pods
        .iter()
        .any(|other| other.priority < case.pod.priority && other.is_preempted);
    if waits {
        Err("not eligible due to a terminating pod on the nominated node.")
    } else {
        Ok(())
    }
}

/// Simulates nodes without their pods of lower priority, from a random one on, until there are
/// enough candidates.
fn dry_run_preemption(
    case: &PreemptionContext,
    potential: &[Slot],
    candidate_limits: CandidateLimits,
    chance: &Rng,
    refused: &mut Diagnosis,
) -> Vec<PreemptionCandidate> {
    if potential.is_empty() {
        return Vec::new();
    }
    let n_wanted = (potential.len() * candidate_limits.min_percentage / 100)
        .max(candidate_limits.min_absolute)
        .min(potential.len());
    let offset = ((chance() * potential.len() as f64) as usize).min(potential.len() - 1);
    let (before, after) = potential.split_at(offset);
    let (mut clean, mut violating) = (Vec::new(), Vec::new());
    for slot in after.iter().chain(before) {
        match victims::select_victims_on_node(case, case.cluster.cache.node(*slot)) {
            Ok(candidate) if candidate.n_violations == 0 => clean.push(candidate),
            Ok(candidate) => violating.push(candidate),
            Err(rejection) => refused.reject(*slot, rejection),
        }
        if !clean.is_empty() && clean.len() + violating.len() >= n_wanted {
            break;
        }
    }
    clean.append(&mut violating);
    clean
}

/// A preemption that was decided.
pub(crate) struct Preemption {
    pub preemptor: Arc<PodInfo>,
    pub node: Str,
    pub victims: Vec<Arc<PodInfo>>,
    /// Pods of lower priority that were nominated to the same node.
    pub displaced: Vec<Arc<PodInfo>>,
}
