//! How good is each node?

use std::sync::Arc;

use crate::cache::Slot;
use crate::model::Pod;
use crate::profile::Profile;
use crate::world::World;

/// The weighted sum of what plugins say of each node.
pub(crate) fn rank(
    profile: &Profile,
    pod: &Arc<Pod>,
    world: &mut World,
    nodes: &[Slot],
) -> Vec<i64> {
    let mut totals = vec![0; nodes.len()];
    for (score, weight) in &profile.scores {
        let Some(rank) = score.prepare(pod, world, nodes) else {
            continue;
        };
        for (total, score) in totals.iter_mut().zip(rank.rank(world, nodes)) {
            *total += score * weight;
        }
    }
    totals
}
