//! Which nodes may a pod be on?

use std::sync::Arc;

use mizzen_value::Str;

use super::diagnosis::Diagnosis;
use crate::cache::{Node, Slot};
use crate::model::Pod;
use crate::plugin::{Check, Name, Names, Ready, Reasons, Refusal};
use crate::profile::Profile;
use crate::queue::Nominated;
use crate::reserve::Step;
use crate::world::World;

/// With fewer nodes all are looked at.
const FEW: usize = 100;
/// At least so many of a hundred nodes are looked for.
const LEAST_SHARE: usize = 5;

/// What plugins made of a pod.
#[derive(Default)]
pub(crate) struct Prepared {
    pub checks: Vec<Box<dyn Check>>,
    /// The only nodes that come into question, if some plugin knows them.
    pub only: Option<Vec<Slot>>,
    /// The plugins that were asked.
    pub asked: Names,
}

impl Prepared {
    pub(crate) fn copy(&self) -> Prepared {
        let checks = self.checks.iter().map(|check| check.copy()).collect();
        Prepared {
            checks,
            only: self.only.clone(),
            asked: self.asked,
        }
    }

    /// Imagines another pod on a node, or away from it.
    pub(crate) fn imagine(&mut self, pod: &Pod, node: &Node, by: i64, world: &World) {
        self.checks
            .iter_mut()
            .for_each(|check| check.imagine(pod, node, by, world));
    }

    /// Why the pod cannot be on a node; none if it can.
    pub(crate) fn check(&self, node: &Node, world: &World) -> Option<Refusal> {
        self.checks
            .iter()
            .find_map(|check| check.check(node, world))
    }
}

impl Prepared {
    /// What must be done before the pod is bound to a node.
    pub(crate) fn reserve(&self, node: &Node, world: &World) -> Result<Vec<Step>, String> {
        let steps = self
            .checks
            .iter()
            .map(|check| check.reserve(node, world))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(steps.into_iter().flatten().collect())
    }
}

/// Lets each plugin look at a pod. An error is what went wrong; what speaks against every node is in the diagnosis.
pub(crate) fn prepare(
    profile: &Profile,
    pod: &Arc<Pod>,
    world: &mut World,
    diagnosis: &mut Diagnosis,
) -> Result<Prepared, String> {
    let (mut prepared, mut named, mut refusal) = (Prepared::default(), Named::default(), None);
    for filter in &profile.filters {
        prepared.asked.insert(filter.name());
        match filter.prepare(pod, world) {
            Ready::Skip => {}
            Ready::Check(check) => prepared.checks.push(check),
            Ready::Only(names, check) => {
                prepared.checks.push(check);
                if let Some(refusal) = named.narrow(filter.name(), names) {
                    return Ok(refuse(diagnosis, prepared, named.by, refusal));
                }
            }
            // If other pods went this would still be so; those that come later need not be asked.
            Ready::Refuse(now) if !now.resolvable => {
                return Ok(refuse(diagnosis, prepared, Names::default(), now));
            }
            Ready::Refuse(now) => refusal = Some(now),
            Ready::Fail(error) => {
                return Err(format!(
                    "running PreFilter plugin \"{}\": {error}",
                    filter.name()
                ));
            }
        }
    }
    if let Some(refusal) = refusal {
        return Ok(refuse(diagnosis, prepared, named.by, refusal));
    }
    diagnosis.rejectors = named.by;
    if let Some(names) = named.names {
        let reason = format!("node(s) didn't satisfy plugin(s) {}", named.by.text());
        diagnosis.elsewhere = Some(Refusal::for_good(Name::NodeAffinity, reason));
        let slots = names
            .iter()
            .filter_map(|name| world.cache.find(name))
            .map(|node| node.slot);
        prepared.only = Some(slots.collect());
    }
    Ok(prepared)
}

/// Notes what speaks against every node.
fn refuse(
    diagnosis: &mut Diagnosis,
    prepared: Prepared,
    rejectors: Names,
    refusal: Refusal,
) -> Prepared {
    diagnosis.rejectors = rejectors;
    diagnosis.rejectors.insert(refusal.plugin);
    diagnosis.before = refusal.reasons.text();
    diagnosis.elsewhere = Some(refusal);
    prepared
}

/// The only nodes that come into question, and who says so.
#[derive(Default)]
struct Named {
    names: Option<Vec<Str>>,
    by: Names,
}

impl Named {
    /// Leaves only nodes that this plugin names, too. Why not, if none is left.
    fn narrow(&mut self, by: Name, names: Vec<Str>) -> Option<Refusal> {
        self.by.insert(by);
        let both: Vec<Str> = match self.names.take() {
            Some(known) => known
                .into_iter()
                .filter(|name| names.contains(name))
                .collect(),
            None => names,
        };
        let is_empty = both.is_empty();
        self.names = Some(both);
        let alone = self.by == [by].into_iter().collect();
        let reason = match alone {
            true => format!("node(s) didn't satisfy plugin {by}"),
            false => format!(
                "node(s) didn't satisfy plugin(s) {} simultaneously",
                self.by.text()
            ),
        };
        is_empty.then(|| Refusal::for_good(by, reason))
    }
}

/// How many nodes are enough to choose from.
pub(crate) fn how_many(share: Option<usize>, n_nodes: usize) -> usize {
    if n_nodes < FEW {
        return n_nodes;
    }
    let share = match share {
        Some(share) if share > 0 => share,
        _ => 50usize.saturating_sub(n_nodes / 125).max(LEAST_SHARE),
    };
    (n_nodes * share / 100).max(FEW)
}

/// Looks for nodes from `start` on, until there are enough. An error is what a plugin could not find out.
pub(crate) fn filter(
    prepared: &Prepared,
    pod: &Pod,
    world: &World,
    nominated: &Nominated,
    (start, enough): (usize, usize),
    diagnosis: &mut Diagnosis,
) -> Result<Vec<Slot>, String> {
    let nodes = prepared.only.as_deref().unwrap_or(world.cache.order());
    let mut feasible = Vec::with_capacity(enough.min(nodes.len()));
    let (before, after) = nodes.split_at(if nodes.is_empty() {
        0
    } else {
        start % nodes.len()
    });
    for slot in after.iter().chain(before) {
        if feasible.len() >= enough {
            break;
        }
        match check_with_nominated(prepared, pod, world.cache.node(*slot), world, nominated) {
            None => feasible.push(*slot),
            Some(Refusal {
                plugin,
                reasons: Reasons::Error(error),
                ..
            }) => {
                return Err(format!("running \"{plugin}\" filter plugin: {error}"));
            }
            Some(refusal) => diagnosis.refuse(*slot, refusal),
        }
    }
    Ok(feasible)
}

/// Why a pod cannot be on a node: with those that will perhaps be there and come first, and without them.
pub(crate) fn check_with_nominated(
    prepared: &Prepared,
    pod: &Pod,
    node: &Node,
    world: &World,
    nominated: &Nominated,
) -> Option<Refusal> {
    let coming = nominated.on(node.name());
    if !coming.is_empty() {
        let (mut imagined, mut node) = (prepared.copy(), node.clone());
        let first = coming
            .iter()
            .filter(|other| other.priority >= pod.priority && other.uid != pod.uid);
        for other in first {
            node.add(other.clone());
            imagined.imagine(other, &node, 1, world);
        }
        let refusal = imagined.check(&node, world);
        if refusal.is_some() {
            return refusal;
        }
    }
    prepared.check(node, world)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_nodes_there_are_the_smaller_a_share_is_enough() {
        let check =
            |n_nodes, share, enough| assert_eq!(how_many(share, n_nodes), enough, "{n_nodes}");
        check(99, None, 99);
        check(100, None, 100);
        check(1000, None, 420);
        check(5000, None, 500);
        check(6000, None, 300);
        check(20_000, None, 1000);
        check(5000, Some(40), 2000);
        check(150, Some(10), 100);
    }
}
