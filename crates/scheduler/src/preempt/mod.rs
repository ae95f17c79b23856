//! Which pods shall go, so that a more important one finds room?
//!
//! Nothing is done here: victims are chosen by imagining nodes without them.

mod budget;
mod victims;
mod which;

use std::sync::Arc;

use mizzen_sdk::seam::Chance;
use mizzen_value::Str;

use crate::cache::Slot;
use crate::cycle::{Diagnosis, Prepared};
use crate::model::Pod;
use crate::plugin::{Name, Refusal};
use crate::queue::Nominated;
use crate::world::World;
pub(crate) use victims::Candidate;
pub(crate) use which::best;

/// How many nodes are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Breadth {
    /// Of a hundred.
    pub share: usize,
    pub least: usize,
}

impl Default for Breadth {
    fn default() -> Breadth {
        Breadth {
            share: 10,
            least: 100,
        }
    }
}

/// What is known while room is made for one pod.
pub(crate) struct Case<'a> {
    pub pod: &'a Arc<Pod>,
    pub prepared: &'a Prepared,
    pub world: &'a World,
    pub nominated: &'a Nominated,
    /// The time of day, in seconds since 1970.
    pub now: i64,
}

/// What came of looking for victims.
pub(crate) enum Search {
    /// Nodes where there would be room.
    Candidates(Vec<Candidate>),
    /// None, for this reason; `forget` if the node that was nominated is no prospect any more.
    None { message: String, forget: bool },
}

/// Looks for nodes where there would be room if pods went.
pub(crate) fn search(
    case: &Case,
    diagnosis: &Diagnosis,
    breadth: Breadth,
    chance: &Chance,
) -> Search {
    if let Err(message) = eligible(case, diagnosis) {
        return Search::None {
            message: message.into(),
            forget: false,
        };
    }
    let nodes = case.world.cache.order();
    let potential = diagnosis.resolvable(nodes);
    let mut refused = Diagnosis::default();
    let candidates = dry_run(case, &potential, breadth, chance, &mut refused);
    if candidates.is_empty() {
        refused.elsewhere = Some(Refusal::for_good(
            Name::DefaultPreemption,
            "Preemption is not helpful for scheduling",
        ));
        return Search::None {
            message: refused.text(nodes.len()),
            forget: true,
        };
    }
    Search::Candidates(candidates)
}

/// Whether a pod may let others go.
fn eligible(case: &Case, diagnosis: &Diagnosis) -> Result<(), &'static str> {
    if case.pod.never_preempts {
        return Err("not eligible due to preemptionPolicy=Never.");
    }
    let Some(node) = case.world.cache.find(&case.pod.nominated) else {
        return Ok(());
    };
    if diagnosis
        .refusal(node.slot)
        .is_some_and(|refusal| !refusal.resolvable)
    {
        return Ok(());
    }
    let waits = node
        .pods
        .iter()
        .any(|other| other.priority < case.pod.priority && other.is_preempted);
    if waits {
        Err("not eligible due to a terminating pod on the nominated node.")
    } else {
        Ok(())
    }
}

/// Imagines each node without less important pods, from some node on, until there are enough candidates.
fn dry_run(
    case: &Case,
    potential: &[Slot],
    breadth: Breadth,
    chance: &Chance,
    refused: &mut Diagnosis,
) -> Vec<Candidate> {
    if potential.is_empty() {
        return Vec::new();
    }
    let n_wanted = (potential.len() * breadth.share / 100)
        .max(breadth.least)
        .min(potential.len());
    let offset = ((chance() * potential.len() as f64) as usize).min(potential.len() - 1);
    let (before, after) = potential.split_at(offset);
    let (mut clean, mut violating) = (Vec::new(), Vec::new());
    for slot in after.iter().chain(before) {
        match victims::on_node(case, case.world.cache.node(*slot)) {
            Ok(candidate) if candidate.n_violations == 0 => clean.push(candidate),
            Ok(candidate) => violating.push(candidate),
            Err(refusal) => refused.refuse(*slot, refusal),
        }
        if !clean.is_empty() && clean.len() + violating.len() >= n_wanted {
            break;
        }
    }
    clean.append(&mut violating);
    clean
}

/// What is done for a pod that preempts.
pub(crate) struct Preemption {
    pub preemptor: Arc<Pod>,
    pub node: Str,
    pub victims: Vec<Arc<Pod>>,
    /// Less important pods for which the same node was nominated.
    pub displaced: Vec<Arc<Pod>>,
}
