//! PreScore and Score.

use std::sync::Arc;

use tokio::time::Instant;

use super::filter::CycleState;
use crate::cache::Slot;
use crate::cluster_state::ClusterState;
use crate::configuration::ExtensionPoint;
use crate::framework_metrics::StatusCode;
use crate::model::PodInfo;
use crate::profile::Profile;

/// The weighted sum of all plugins' scores per node.
pub(crate) fn prioritize_nodes(
    profile: &Profile,
    pod: &Arc<PodInfo>,
    state: &CycleState,
    cluster: &mut ClusterState,
    nodes: &[Slot],
) -> Vec<i64> {
    let (metrics, started) = (&profile.metrics, Instant::now());
    let mut scorers = Vec::with_capacity(profile.scores.len());
    for (name, plugin, weight) in &profile.scores {
        let run = || plugin.pre_score(pod, cluster, nodes);
        let scorer = state.run_plugin(*name, ExtensionPoint::PreScore, run, |scorer| match scorer
            .is_some()
        {
            true => StatusCode::Success,
            false => StatusCode::Skip,
        });
        if let Some(scorer) = scorer {
            if ExtensionPoint::PreScore.measures(*name) {
                metrics.count(*name, ExtensionPoint::PreScore, 1);
            }
            scorers.push((*name, scorer, weight));
        }
    }
    let pre_scored = Instant::now();
    let took = pre_scored - started;
    metrics.observe_point(ExtensionPoint::PreScore, StatusCode::Success, took);

    let mut totals = vec![0; nodes.len()];
    for (name, scorer, weight) in scorers {
        metrics.count(name, ExtensionPoint::Score, nodes.len());
        let run = || scorer.score_nodes(cluster, nodes);
        let scores = state.run_plugin(name, ExtensionPoint::Score, run, |_| StatusCode::Success);
        for (total, score) in totals.iter_mut().zip(scores) {
            *total += score * weight;
        }
    }
    for (custom, weight) in &profile.custom_scores {
        metrics.count(custom.name, ExtensionPoint::Score, nodes.len());
        let run = || custom.score_nodes(pod, state, (cluster, nodes));
        let success = |_: &Vec<i64>| StatusCode::Success;
        let scores = state.run_plugin(custom.name, ExtensionPoint::Score, run, success);
        for (total, score) in totals.iter_mut().zip(scores) {
            *total += score * weight;
        }
    }
    let took = pre_scored.elapsed();
    metrics.observe_point(ExtensionPoint::Score, StatusCode::Success, took);
    totals
}
