//! PreScore and Score.

use std::sync::Arc;

use crate::cache::Slot;
use crate::cluster_state::ClusterState;
use crate::model::PodInfo;
use crate::profile::Profile;

/// The weighted sum of all plugins' scores per node.
pub(crate) fn prioritize_nodes(
    profile: &Profile,
    pod: &Arc<PodInfo>,
    cluster: &mut ClusterState,
    nodes: &[Slot],
) -> Vec<i64> {
    let mut totals = vec![0; nodes.len()];
    for (score, weight) in &profile.scores {
        let Some(rank) = score.pre_score(pod, cluster, nodes) else {
            continue;
        };
        for (total, score) in totals.iter_mut().zip(rank.score_nodes(cluster, nodes)) {
            *total += score * weight;
        }
    }
    totals
}
