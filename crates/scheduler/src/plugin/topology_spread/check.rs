//! Would a node have too many of the pods that shall be spread?

use std::sync::Arc;

use mizzen_value::Str;

use super::Counting;
use crate::cache::{Cache, Matcher, NOWHERE, Node};
use crate::model::{Constraint, NodeRule, Pod};
use crate::plugin::{Check, Name, Refusal};
use crate::world::World;

/// No node that counts has the value.
const ABSENT: i64 = -1;

/// How one constraint stands.
#[derive(Clone)]
struct Standing {
    constraint: Arc<Constraint>,
    topology: usize,
    /// How many pods there are for each value.
    counts: Arc<Vec<i64>>,
    n_domains: i64,
    /// The two values with the fewest pods: if one of them gets more, the other has the fewest.
    fewest: [(u32, i64); 2],
    /// Pods that are imagined at a value.
    imagined: Vec<(u32, i64)>,
    counts_itself: bool,
}

impl Standing {
    fn at(&self, number: u32) -> i64 {
        let counted = self
            .counts
            .get(number as usize)
            .copied()
            .unwrap_or_default()
            .max(0);
        let imagined = self.imagined.iter().filter(|(known, _)| *known == number);
        counted + imagined.map(|(_, by)| by).sum::<i64>()
    }

    fn least(&self) -> i64 {
        if self.n_domains < self.constraint.min_domains {
            0
        } else {
            self.fewest[0].1
        }
    }

    fn note(&mut self, number: u32, count: i64) {
        let [first, second] = &mut self.fewest;
        if first.0 == number {
            first.1 = count;
        } else if second.0 == number {
            second.1 = count;
        } else if count < first.1 {
            (*second, *first) = (*first, (number, count));
        } else if count < second.1 {
            *second = (number, count);
        }
        if first.1 > second.1 {
            std::mem::swap(first, second);
        }
    }
}

/// How all constraints of a pod stand.
#[derive(Clone)]
pub(super) struct Evenly {
    namespace: Str,
    rule: Option<Arc<NodeRule>>,
    away: Arc<[bool]>,
    standings: Vec<Standing>,
}

impl Evenly {
    pub(super) fn of(pod: &Pod, constraints: Vec<Constraint>, cache: &mut Cache) -> Evenly {
        let counting = Counting::of(pod, &constraints, cache);
        let standings = constraints.into_iter().enumerate();
        let standings = standings
            .map(|(at, constraint)| standing(pod, constraint, at, &counting, cache))
            .collect();
        Evenly {
            namespace: pod.namespace.clone(),
            rule: pod.node_rule.clone(),
            away: counting.away.into(),
            standings,
        }
    }

    /// Whether an imagined pod counts for a constraint.
    fn counts(&self, constraint: &Constraint, pod: &Pod, node: &Node) -> bool {
        let facts = &node.facts;
        let allowed = || {
            self.rule
                .as_ref()
                .is_none_or(|rule| rule.allows(&facts.name, &facts.labels))
        };
        let away = || self.away.get(node.taints as usize) == Some(&true);
        pod.labels.match_selector(&constraint.selector)
            && (!constraint.honor_affinity || allowed())
            && !(constraint.honor_taints && away())
    }
}

fn standing(
    pod: &Pod,
    constraint: Constraint,
    at: usize,
    counting: &Counting,
    cache: &mut Cache,
) -> Standing {
    let topology = counting.topologies[at];
    let counted = cache.count(&Matcher::in_namespace(&pod.namespace, &constraint.selector));
    let (counted, domains) = (cache.counted(counted), cache.domains(topology));
    // Kubernetes: a selector that says nothing counts nothing, but means everything (podtopologyspread/common.go).
    let is_empty = constraint.selector.is_empty();
    let mut counts = vec![ABSENT; domains.bound()];
    for slot in cache.order() {
        if counting.has_all(*slot, cache) && counting.counts(&constraint, *slot, cache) {
            let count = &mut counts[domains.of(*slot) as usize];
            *count = (*count).max(0)
                + if is_empty {
                    0
                } else {
                    i64::from(counted.of(*slot))
                };
        }
    }
    let mut standing = Standing {
        counts_itself: pod.labels.match_selector(&constraint.selector),
        constraint: Arc::new(constraint),
        topology,
        n_domains: counts.iter().filter(|count| **count != ABSENT).count() as i64,
        fewest: [(NOWHERE, i32::MAX.into()); 2],
        counts: Arc::new(counts),
        imagined: Vec::new(),
    };
    let counts = standing.counts.clone();
    for (number, count) in counts
        .iter()
        .enumerate()
        .filter(|(_, count)| **count != ABSENT)
    {
        standing.note(number as u32, *count);
    }
    standing
}

impl Check for Evenly {
    fn check(&self, node: &Node, world: &World) -> Option<Refusal> {
        for standing in &self.standings {
            let number = world.cache.domains(standing.topology).of(node.slot);
            let reason = "node(s) didn't match pod topology spread constraints";
            if number == NOWHERE {
                let reason =
                    "node(s) didn't match pod topology spread constraints (missing required label)";
                return Some(Refusal::for_good(Name::PodTopologySpread, reason));
            }
            let skew = standing.at(number) + i64::from(standing.counts_itself) - standing.least();
            if skew > standing.constraint.max_skew {
                return Some(Refusal::for_now(Name::PodTopologySpread, reason));
            }
        }
        None
    }

    fn imagine(&mut self, pod: &Pod, node: &Node, by: i64, world: &World) {
        let labels = &node.facts.labels;
        let has_all = self
            .standings
            .iter()
            .all(|one| labels.get(&one.constraint.topology_key).is_some());
        if pod.namespace != self.namespace || !has_all {
            return;
        }
        for at in 0..self.standings.len() {
            if !self.counts(&self.standings[at].constraint.clone(), pod, node) {
                continue;
            }
            let standing = &mut self.standings[at];
            let number = world.cache.domains(standing.topology).of(node.slot);
            standing.imagined.push((number, by));
            standing.note(number, standing.at(number));
        }
    }

    fn copy(&self) -> Box<dyn Check> {
        Box::new(self.clone())
    }
}
