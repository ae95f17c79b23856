//! On which node would pods be spread most evenly?

use super::{Counting, HOSTNAME};
use crate::HashSet;
use crate::cache::{Cache, Matcher, NOWHERE, Slot};
use crate::model::{Constraint, Pod};
use crate::plugin::{BEST, Rank};
use crate::world::World;

/// One constraint, and how many pods there are for each value.
struct Weighed {
    constraint: Constraint,
    topology: usize,
    counted: usize,
    /// None where each node is its own value.
    counts: Option<Vec<i64>>,
    /// Few values must not be outweighed by many.
    weight: f64,
}

/// How evenly pods would be spread.
pub(super) struct Evenness {
    weighed: Vec<Weighed>,
    /// Nodes that lack a label, and are worst.
    ignored: HashSet<Slot>,
}

impl Evenness {
    pub(super) fn of(
        pod: &Pod,
        constraints: Vec<Constraint>,
        needs_all: bool,
        nodes: &[Slot],
        cache: &mut Cache,
    ) -> Evenness {
        let counting = Counting::of(pod, &constraints, cache);
        let lacks = |slot: &&Slot| needs_all && !counting.has_all(**slot, cache);
        let ignored: HashSet<Slot> = nodes.iter().filter(lacks).copied().collect();
        let looked_at: Vec<Slot> = nodes
            .iter()
            .filter(|slot| !ignored.contains(slot))
            .copied()
            .collect();
        let weighed = constraints.into_iter().enumerate();
        let weighed = weighed.map(|(at, constraint)| {
            let counted = cache.count(&Matcher::in_namespace(&pod.namespace, &constraint.selector));
            weigh(
                constraint,
                (counting.topologies[at], counted),
                needs_all,
                &looked_at,
                &counting,
                cache,
            )
        });
        Evenness {
            weighed: weighed.collect(),
            ignored,
        }
    }

    fn score(&self, slot: Slot, cache: &Cache) -> i64 {
        let score = |one: &Weighed| {
            let number = cache.domains(one.topology).of(slot);
            if number == NOWHERE {
                return 0.0;
            }
            let count = match &one.counts {
                Some(counts) => counts.get(number as usize).copied().unwrap_or_default(),
                None if one.constraint.selector.is_empty() => 0,
                None => i64::from(cache.counted(one.counted).of(slot)),
            };
            count as f64 * one.weight + (one.constraint.max_skew - 1) as f64
        };
        self.weighed.iter().map(score).sum::<f64>().round() as i64
    }
}

fn weigh(
    constraint: Constraint,
    (topology, counted): (usize, usize),
    needs_all: bool,
    nodes: &[Slot],
    counting: &Counting,
    cache: &Cache,
) -> Weighed {
    let weight = |size: usize| (size as f64 + 2.0).ln();
    if constraint.topology_key == HOSTNAME {
        return Weighed {
            weight: weight(nodes.len()),
            constraint,
            topology,
            counted,
            counts: None,
        };
    }
    let domains = cache.domains(topology);
    let mut wanted = vec![false; domains.bound()];
    let mut size = 0;
    let mut any_lacks = false;
    for slot in nodes {
        match wanted.get_mut(domains.of(*slot) as usize) {
            Some(wanted) => size += usize::from(!std::mem::replace(wanted, true)),
            None => any_lacks = true,
        }
    }
    let mut counts = vec![0; domains.bound()];
    let pods = cache.counted(counted);
    if pods.total > 0 && !constraint.selector.is_empty() {
        for slot in cache.order() {
            let number = domains.of(*slot) as usize;
            let counts_here = wanted.get(number) == Some(&true)
                && (!needs_all || counting.has_all(*slot, cache))
                && counting.counts(&constraint, *slot, cache);
            if counts_here {
                counts[number] += i64::from(pods.of(*slot));
            }
        }
    }
    // Kubernetes: nodes without the label are together one more value (podtopologyspread/scoring.go).
    let weight = weight(size + usize::from(any_lacks));
    Weighed {
        weight,
        constraint,
        topology,
        counted,
        counts: Some(counts),
    }
}

impl Rank for Evenness {
    fn rank(&self, world: &World, nodes: &[Slot]) -> Vec<i64> {
        let score =
            |slot: &Slot| (!self.ignored.contains(slot)).then(|| self.score(*slot, &world.cache));
        let scores: Vec<Option<i64>> = nodes.iter().map(score).collect();
        let least = scores.iter().flatten().min().copied().unwrap_or_default();
        let most = scores.iter().flatten().max().copied().unwrap_or_default();
        let scaled = |score: Option<i64>| match score {
            None => 0,
            Some(_) if most == 0 => BEST,
            Some(score) => BEST * (most + least - score) / most,
        };
        scores.into_iter().map(scaled).collect()
    }
}
