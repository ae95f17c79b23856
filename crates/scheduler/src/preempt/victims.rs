//! Which pods would have to leave one node?

use std::cmp::Reverse;
use std::sync::Arc;

use mizzen_value::Str;

use super::{Case, budget};
use crate::cache::Node;
use crate::cycle::{Prepared, check_with_nominated};
use crate::model::Pod;
use crate::plugin::{Name, Refusal};

/// A node, and the pods that would have to leave it, the most important first.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub node: Str,
    pub victims: Vec<Arc<Pod>>,
    /// How many of them their budgets do not allow.
    pub n_violations: usize,
}

/// A node as it would be.
struct Imagined<'a> {
    case: &'a Case<'a>,
    prepared: Prepared,
    node: Node,
}

impl Imagined<'_> {
    fn remove(&mut self, pod: &Pod) {
        self.node.remove(&pod.uid);
        self.prepared.imagine(pod, &self.node, -1, self.case.world);
    }

    fn add(&mut self, pod: &Arc<Pod>) {
        self.node.add(pod.clone());
        self.prepared.imagine(pod, &self.node, 1, self.case.world);
    }

    fn refusal(&self) -> Option<Refusal> {
        check_with_nominated(
            &self.prepared,
            self.case.pod,
            &self.node,
            self.case.world,
            self.case.nominated,
        )
    }

    /// Lets a pod stay if there is room with it. Whether it stays.
    fn reprieve(&mut self, pod: &Arc<Pod>) -> bool {
        self.add(pod);
        let stays = self.refusal().is_none();
        if !stays {
            self.remove(pod);
        }
        stays
    }
}

/// The fewest pods that have to leave a node: all that are less important are taken away, then as many as possible are put
/// back, those first that would be missed most.
pub(super) fn on_node(case: &Case, node: &Node) -> Result<Candidate, Refusal> {
    let mut lesser: Vec<Arc<Pod>> = node
        .pods
        .iter()
        .filter(|other| other.priority < case.pod.priority)
        .cloned()
        .collect();
    if lesser.is_empty() {
        let reason = "No preemption victims found for incoming pod";
        return Err(Refusal::for_good(Name::DefaultPreemption, reason));
    }
    let mut imagined = Imagined {
        case,
        prepared: case.prepared.copy(),
        node: node.clone(),
    };
    lesser.iter().for_each(|pod| imagined.remove(pod));
    if let Some(refusal) = imagined.refusal() {
        return Err(refusal);
    }
    lesser.sort_by_key(|pod| importance(pod, case.now));
    let (violating, others) = budget::part(&lesser, &case.world.budgets);
    let mut victims: Vec<Arc<Pod>> = violating
        .into_iter()
        .filter(|pod| !imagined.reprieve(pod))
        .collect();
    let n_violations = victims.len();
    victims.extend(others.into_iter().filter(|pod| !imagined.reprieve(pod)));
    victims.sort_by_key(|pod| importance(pod, case.now));
    if victims.is_empty() {
        let reason = format!(
            "expected at least one victim pod on node \"{}\"",
            node.name()
        );
        return Err(Refusal::for_good(Name::DefaultPreemption, reason));
    }
    Ok(Candidate {
        node: node.name().clone(),
        victims,
        n_violations,
    })
}

/// The order of importance: by priority, then those that began earlier.
fn importance(pod: &Pod, now: i64) -> (Reverse<i32>, i64) {
    (Reverse(pod.priority), pod.started.unwrap_or(now))
}
