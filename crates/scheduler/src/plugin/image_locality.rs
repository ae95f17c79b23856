//! Does the node have the pod's images already?

use std::sync::Arc;

use super::{BEST, Rank, Score};
use crate::HashMap;
use crate::cache::Slot;
use crate::model::Pod;
use crate::world::World;

/// Images that are smaller make no difference.
const SMALL: i64 = 23 * 1024 * 1024;
/// Containers whose images are larger than this together make no more difference.
const LARGE: i64 = 1000 * 1024 * 1024;

pub(crate) struct ImageLocality;

/// How much of the pod's images each node has; nodes that have nothing are left out.
struct Present {
    sizes: HashMap<Slot, i64>,
    most: i64,
}

impl Score for ImageLocality {
    fn prepare(&self, pod: &Arc<Pod>, world: &mut World, _nodes: &[Slot]) -> Option<Box<dyn Rank>> {
        let cache = &world.cache;
        let n_nodes = cache.order().len() as f64;
        let mut sizes: HashMap<Slot, i64> = HashMap::default();
        for image in pod.images.iter().filter_map(|image| cache.image(image)) {
            // An image that few nodes have counts little, or else all pods would go to them.
            let share = (image.size as f64 * (image.nodes.len() as f64 / n_nodes)) as i64;
            for slot in &image.nodes {
                *sizes.entry(*slot).or_default() += share;
            }
        }
        let most = LARGE * pod.n_containers as i64;
        if sizes.is_empty() {
            None
        } else {
            Some(Box::new(Present { sizes, most }))
        }
    }
}

impl Rank for Present {
    fn rank(&self, _world: &World, nodes: &[Slot]) -> Vec<i64> {
        let score = |slot: &Slot| {
            let size = self
                .sizes
                .get(slot)
                .copied()
                .unwrap_or_default()
                .clamp(SMALL, self.most.max(SMALL));
            BEST * (size - SMALL) / (self.most - SMALL).max(1)
        };
        nodes.iter().map(score).collect()
    }
}
