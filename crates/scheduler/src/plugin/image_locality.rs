//! ImageLocality: prefers nodes that have the pod's images.

use std::sync::Arc;

use super::{MAX_NODE_SCORE, NodeScorer, ScorePlugin};
use crate::HashMap;
use crate::cache::Slot;
use crate::cluster_state::ClusterState;
use crate::model::PodInfo;

/// Smaller images do not count (upstream: minThreshold).
const MIN_THRESHOLD: i64 = 23 * 1024 * 1024;
/// Larger images per container do not count more (upstream: maxContainerThreshold).
const MAX_CONTAINER_THRESHOLD: i64 = 1000 * 1024 * 1024;

pub(crate) struct ImageLocality;

/// The size of the pod's images per node; nodes without any are left out.
struct ImageScorer {
    sizes: HashMap<Slot, i64>,
    most: i64,
}

impl ScorePlugin for ImageLocality {
    fn pre_score(
        &self,
        pod: &Arc<PodInfo>,
        cluster: &mut ClusterState,
        _nodes: &[Slot],
    ) -> Option<Box<dyn NodeScorer>> {
        let cache = &cluster.cache;
        let n_nodes = cache.node_order().len() as f64;
        let mut sizes: HashMap<Slot, i64> = HashMap::default();
        for image in pod.images.iter().filter_map(|image| cache.image(image)) {
            // Scaled by the share of nodes that have it, so that not all pods go to the few nodes
            // with an image.
            let share = (image.size as f64 * (image.nodes.len() as f64 / n_nodes)) as i64;
            for slot in &image.nodes {
                *sizes.entry(*slot).or_default() += share;
            }
        }
        let most = MAX_CONTAINER_THRESHOLD * pod.n_containers as i64;
        if sizes.is_empty() {
            None
        } else {
            Some(Box::new(ImageScorer { sizes, most }))
        }
    }
}

impl NodeScorer for ImageScorer {
    fn score_nodes(&self, _world: &ClusterState, nodes: &[Slot]) -> Vec<i64> {
        let score = |slot: &Slot| {
            let size = self
                .sizes
                .get(slot)
                .copied()
                .unwrap_or_default()
                .clamp(MIN_THRESHOLD, self.most.max(MIN_THRESHOLD));
            MAX_NODE_SCORE * (size - MIN_THRESHOLD) / (self.most - MIN_THRESHOLD).max(1)
        };
        nodes.iter().map(score).collect()
    }
}
