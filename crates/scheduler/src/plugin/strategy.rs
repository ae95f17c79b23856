//! How is the room judged that is left on a node? Least used is best, or most used, or as a shape says.

use std::sync::Arc;

use mizzen_value::Str;

use super::{BEST, Rank};
use crate::cache::{Node, Slot};
use crate::model::{Pod, Resources, is_scalar};
use crate::world::World;

/// A resource, and how much it counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Weighted {
    pub name: Str,
    pub weight: i64,
}

impl Weighted {
    /// CPU and memory alike.
    pub(crate) fn default_list() -> Vec<Weighted> {
        ["cpu", "memory"]
            .map(|name| Weighted {
                name: name.into(),
                weight: 1,
            })
            .into()
    }
}

/// What makes room good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Measure {
    /// That there is much.
    LeastAllocated,
    /// That there is little.
    MostAllocated,
    /// What a broken line says: how much is used in percent, and how good that is.
    RequestedToCapacityRatio(Vec<(i64, i64)>),
}

/// Which resources are judged, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Strategy {
    pub measure: Measure,
    pub resources: Vec<Weighted>,
}

impl Strategy {
    pub(crate) fn measure(&self, pod: &Arc<Pod>) -> Judge {
        let wants = self.resources.iter().filter_map(|resource| {
            let which = Which::of(&resource.name);
            let want = match which {
                Which::Cpu => pod.requests.assumed_cpu,
                Which::Memory => pod.requests.assumed_memory,
                Which::Other(ref name) => pod.requests.stated.get(name),
            };
            let matters = which.matters(want);
            matters.then_some(Want {
                which,
                want,
                weight: resource.weight,
            })
        });
        Judge {
            measure: self.measure.clone(),
            wants: wants.collect(),
        }
    }
}

/// A resource; those that every pod has are not looked up by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Which {
    Cpu,
    Memory,
    Other(Str),
}

impl Which {
    pub(super) fn of(name: &Str) -> Which {
        match name.as_str() {
            "cpu" => Which::Cpu,
            "memory" => Which::Memory,
            _ => Which::Other(name.clone()),
        }
    }

    /// How much there is of it.
    pub(super) fn amount(&self, resources: &Resources) -> i64 {
        match self {
            Which::Cpu => resources.cpu,
            Which::Memory => resources.memory,
            Which::Other(name) => resources.get(name),
        }
    }

    /// Whether it counts for a pod that wants so much; what few nodes have counts only for those that want it.
    pub(super) fn matters(&self, want: i64) -> bool {
        want != 0 || !matches!(self, Which::Other(name) if is_scalar(name))
    }
}

/// What a pod wants of a resource.
struct Want {
    which: Which,
    want: i64,
    weight: i64,
}

/// Judges nodes for one pod.
pub(crate) struct Judge {
    measure: Measure,
    wants: Vec<Want>,
}

impl Judge {
    fn score(&self, node: &Node) -> i64 {
        let (mut sum, mut weights) = (0, 0);
        for Want {
            which,
            want,
            weight,
        } in &self.wants
        {
            let have = which.amount(&node.allocatable);
            let used = match which {
                Which::Cpu => node.assumed_cpu,
                Which::Memory => node.assumed_memory,
                Which::Other(name) => node.requested.get(name),
            };
            if have == 0 {
                continue;
            }
            let score = self.measure.score(used + want, have);
            if score > 0 || !matches!(self.measure, Measure::RequestedToCapacityRatio(_)) {
                sum += score * weight;
                weights += weight;
            }
        }
        match (&self.measure, weights) {
            (_, 0) => 0,
            (Measure::RequestedToCapacityRatio(_), _) => {
                (sum as f64 / weights as f64).round() as i64
            }
            _ => sum / weights,
        }
    }
}

impl Measure {
    fn score(&self, used: i64, have: i64) -> i64 {
        match self {
            Measure::LeastAllocated if used > have => 0,
            Measure::LeastAllocated => (have - used) * BEST / have,
            Measure::MostAllocated => used.min(have) * BEST / have,
            Measure::RequestedToCapacityRatio(shape) if used > have => on_line(shape, 100),
            Measure::RequestedToCapacityRatio(shape) => on_line(shape, used * 100 / have),
        }
    }
}

/// The value of a broken line.
fn on_line(shape: &[(i64, i64)], at: i64) -> i64 {
    let Some(next) = shape.iter().position(|(x, _)| at <= *x) else {
        return shape.last().map_or(0, |(_, y)| *y);
    };
    match (next.checked_sub(1).map(|before| shape[before]), shape[next]) {
        (None, (_, y)) => y,
        (Some((x0, y0)), (x1, y1)) => y0 + (y1 - y0) * (at - x0) / (x1 - x0),
    }
}

impl Rank for Judge {
    fn rank(&self, world: &World, nodes: &[Slot]) -> Vec<i64> {
        nodes
            .iter()
            .map(|slot| self.score(world.cache.node(*slot)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(measure: Measure, used: i64, have: i64, score: i64) {
        assert_eq!(
            measure.score(used, have),
            score,
            "{measure:?} {used}/{have}"
        );
    }

    #[test]
    fn room_that_is_left_is_good_or_bad() {
        check(Measure::LeastAllocated, 1000, 4000, 75);
        check(Measure::LeastAllocated, 5000, 4000, 0);
        check(Measure::MostAllocated, 1000, 4000, 25);
        check(Measure::MostAllocated, 5000, 4000, 100);
    }

    #[test]
    fn a_shape_is_a_broken_line() {
        let shape = Measure::RequestedToCapacityRatio(vec![(0, 0), (70, 100), (100, 50)]);
        check(shape.clone(), 35, 100, 50);
        check(shape.clone(), 85, 100, 75);
        check(shape, 200, 100, 50);
    }
}
