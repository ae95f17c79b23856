//! Is there room for what the pod asks for?

use std::sync::Arc;

use mizzen_kinds::resource_names::is_extended;
use mizzen_value::Str;

use super::strategy::Strategy;
use super::{Check, Filter, Name, Rank, Ready, Reasons, Refusal, Score, Text};
use crate::cache::{Node, Slot};
use crate::happening::{Happening, NodeChange, PodChange};
use crate::model::{NodeFacts, Pod, Resources};
use crate::world::World;

/// Room, and how the room that is left is judged.
pub(crate) struct Fit {
    pub ignored: Vec<Str>,
    pub ignored_groups: Vec<Str>,
    pub strategy: Strategy,
}

/// What a pod asks for, without what is ignored.
#[derive(Clone)]
struct Room(Resources);

impl Fit {
    fn request(&self, pod: &Pod) -> Resources {
        let mut request = pod.requests.stated.clone();
        request
            .scalar
            .retain(|(name, amount)| *amount != 0 && !self.ignores(name));
        request
    }

    fn ignores(&self, name: &str) -> bool {
        let group = name.split('/').next().unwrap_or_default();
        is_extended(name)
            && (self.ignored.iter().any(|one| one == name)
                || self.ignored_groups.iter().any(|one| one == group))
    }

    /// Whether a change of a pod that is placed leaves more of what `pod` asks for.
    fn frees(&self, pod: &Pod, old: &Pod, new: &Pod) -> bool {
        let (want, old, new) = (
            &pod.requests.stated,
            &old.requests.stated,
            &new.requests.stated,
        );
        let freed = |name: &str| want.get(name) > 0 && old.get(name) > new.get(name);
        ["cpu", "memory", "ephemeral-storage"]
            .into_iter()
            .any(freed)
            || want.scalar.iter().any(|(name, _)| freed(name))
    }
}

/// Whether there is more of anything that is asked for.
fn grows(request: &Resources, old: &NodeFacts, new: &NodeFacts) -> bool {
    let more =
        |name: &str| request.get(name) > 0 && new.allocatable.get(name) > old.allocatable.get(name);
    new.max_pods > old.max_pods
        || ["cpu", "memory", "ephemeral-storage"].into_iter().any(more)
        || request.scalar.iter().any(|(name, _)| more(name))
}

impl Filter for Fit {
    fn name(&self) -> Name {
        Name::NodeResourcesFit
    }

    fn prepare(&self, pod: &Arc<Pod>, _world: &mut World) -> Ready {
        Ready::Check(Box::new(Room(self.request(pod))))
    }

    fn wakes(&self, pod: &Pod, happening: &Happening, _world: &World) -> bool {
        match happening {
            Happening::Pod {
                old: Some(gone),
                new: None,
                ..
            } => gone.has_prospect(),
            Happening::Pod {
                old: Some(old),
                new: Some(new),
                change,
            } => {
                let frees = || new.uid == pod.uid || (new.is_placed() && self.frees(pod, old, new));
                change.has(PodChange::SCALE_DOWN) && frees()
            }
            Happening::Node {
                old,
                new: Some(new),
                change,
            } => {
                let request = self.request(pod);
                change.has(NodeChange::ADD | NodeChange::ALLOCATABLE)
                    && lacks(
                        &request,
                        &new.allocatable,
                        &Resources::default(),
                        new.max_pods,
                        0,
                    )
                    .is_empty()
                    && old.is_none_or(|old| grows(&request, old, new))
            }
            Happening::DeviceClass {
                old,
                new: Some(new),
            } => {
                let backs = |name: &str| !name.is_empty() && pod.requests.stated.scalar(name) > 0;
                let extended = new["spec"]["extendedResourceName"].str();
                match old {
                    Some(old) => {
                        old["spec"]["extendedResourceName"].str() != extended && backs(extended)
                    }
                    None => {
                        backs(extended)
                            || backs(&format!(
                                "deviceclass.resource.kubernetes.io/{}",
                                new.name()
                            ))
                    }
                }
            }
            _ => false,
        }
    }
}

/// What there is too little of, and whether there is too little even of all that the node has.
fn lacks(
    request: &Resources,
    allocatable: &Resources,
    used: &Resources,
    max_pods: i64,
    n_pods: i64,
) -> Vec<(Text, bool)> {
    let mut lacks: Vec<(Text, bool)> = Vec::new();
    if n_pods + 1 > max_pods {
        lacks.push(("Too many pods".into(), false));
    }
    let mut compare = |name: Text, want: i64, have: i64, used: i64| {
        if want > 0 && want > have - used {
            lacks.push((name, want > have));
        }
    };
    compare(
        "Insufficient cpu".into(),
        request.cpu,
        allocatable.cpu,
        used.cpu,
    );
    compare(
        "Insufficient memory".into(),
        request.memory,
        allocatable.memory,
        used.memory,
    );
    let storage = "Insufficient ephemeral-storage".into();
    compare(
        storage,
        request.ephemeral,
        allocatable.ephemeral,
        used.ephemeral,
    );
    for (name, want) in &request.scalar {
        compare(
            format!("Insufficient {name}").into(),
            *want,
            allocatable.scalar(name),
            used.scalar(name),
        );
    }
    lacks
}

impl Room {
    fn fits(&self, node: &Node) -> bool {
        let (want, have, used) = (&self.0, &node.allocatable, &node.requested);
        let enough = |want: i64, have: i64, used: i64| want <= 0 || want <= have - used;
        (node.pods.len() as i64) < node.max_pods
            && enough(want.cpu, have.cpu, used.cpu)
            && enough(want.memory, have.memory, used.memory)
            && enough(want.ephemeral, have.ephemeral, used.ephemeral)
            && want
                .scalar
                .iter()
                .all(|(name, want)| enough(*want, have.scalar(name), used.scalar(name)))
    }
}

impl Check for Room {
    fn check(&self, node: &Node, _world: &World) -> Option<Refusal> {
        if self.fits(node) {
            return None;
        }
        let facts = &node.facts;
        let n_pods = node.pods.len() as i64;
        let lacks = lacks(
            &self.0,
            &facts.allocatable,
            &node.requested,
            facts.max_pods,
            n_pods,
        );
        let resolvable = lacks.iter().all(|(_, forever)| !forever);
        let mut reasons: Vec<Text> = lacks.into_iter().map(|(reason, _)| reason).collect();
        let reasons = if reasons.len() == 1 {
            Reasons::One(reasons.remove(0))
        } else {
            Reasons::Several(reasons)
        };
        Some(Refusal {
            plugin: Name::NodeResourcesFit,
            reasons,
            resolvable,
        })
    }

    fn copy(&self) -> Box<dyn Check> {
        Box::new(self.clone())
    }
}

impl Score for Fit {
    fn prepare(
        &self,
        pod: &Arc<Pod>,
        _world: &mut World,
        _nodes: &[Slot],
    ) -> Option<Box<dyn Rank>> {
        Some(Box::new(self.strategy.measure(pod)))
    }
}
