//! Can a pod's volumes be used on one node?

use std::sync::Arc;
use std::time::Duration;

use mizzen_object::select::LabelSelector;
use mizzen_sdk::Object;
use mizzen_value::{Str, Value, value};

use super::{Claims, limit, matching, size};
use crate::HashMap;
use crate::cache::Node;
use crate::model::Labels;
use crate::plugin::{Check, Name, Reasons, Refusal, Text};
use crate::reserve::Step;
use crate::storage::{SELECTED_NODE, Volume, class_of};
use crate::world::World;

/// A pod's claims, and the volumes that they could have.
#[derive(Clone)]
pub(super) struct Reach {
    claims: Arc<Claims>,
    /// By class.
    volumes: Arc<HashMap<Str, Vec<Arc<Volume>>>>,
    /// How long they are waited for.
    patience: Duration,
}

/// What becomes of claims that have no volume yet.
#[derive(Default)]
struct Found {
    bindings: Vec<(Arc<Volume>, Arc<Object>)>,
    provisions: Vec<Arc<Object>>,
}

impl Reach {
    pub(super) fn of(claims: Claims, patience: Duration, world: &World) -> Reach {
        let classes = claims.waiting.iter().map(|claim| class_of(claim));
        let volumes = classes
            .map(|class| (class.into(), world.storage.volumes_of(class)))
            .collect();
        Reach {
            claims: Arc::new(claims),
            volumes: Arc::new(volumes),
            patience,
        }
    }

    /// What becomes of the pod's claims on a node, or all that speaks against it.
    fn find(&self, node: &Node, world: &World) -> Result<Found, Vec<Text>> {
        let labels = &node.facts.labels;
        let mut reasons: Vec<Text> = Vec::new();
        let volumes = self
            .claims
            .bound
            .iter()
            .map(|claim| world.storage.volume(claim["spec"]["volumeName"].str()));
        let volumes: Option<Vec<_>> = volumes.collect();
        if volumes
            .iter()
            .flatten()
            .any(|volume| !volume.reaches(labels))
        {
            reasons.push("node(s) didn't match PersistentVolume's node affinity".into());
        }
        let found = self.find_new(node, world);
        reasons.extend(found.as_ref().err().map(|reason| Text::from(*reason)));
        if volumes.is_none() {
            reasons.push(
                "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)".into(),
            );
        }
        match found {
            Ok(found) if reasons.is_empty() => Ok(found),
            _ => Err(reasons),
        }
    }

    fn find_new(&self, node: &Node, world: &World) -> Result<Found, &'static str> {
        const NOTHING: &str = "node(s) didn't find available persistent volumes to bind";
        let mut found = Found::default();
        let mut claims = self.claims.waiting.clone();
        claims.sort_by(|a, b| {
            size(a)
                .partial_cmp(&size(b))
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        for claim in claims {
            match claim.annotation(SELECTED_NODE) {
                Some(selected) if selected != node.name() => return Err(NOTHING),
                Some(_) => found.provisions.push(claim),
                None => {
                    let taken: Vec<&str> = found
                        .bindings
                        .iter()
                        .map(|(volume, _)| volume.object.name())
                        .collect();
                    let volumes = self
                        .volumes
                        .get(class_of(&claim))
                        .map_or(&[][..], Vec::as_slice);
                    match matching::find(&claim, volumes, &node.facts.labels, &taken).cloned() {
                        Some(volume) => found.bindings.push((volume, claim)),
                        None => found.provisions.push(claim),
                    }
                }
            }
        }
        for claim in &found.provisions {
            let class = world.storage.classes.get(class_of(claim)).ok_or(NOTHING)?;
            if !can_provision(class, &node.facts.labels) {
                return Err(NOTHING);
            }
            if !has_capacity(claim, class, &node.facts.labels, world) {
                return Err("node(s) did not have enough free storage");
            }
        }
        Ok(found)
    }
}

/// Whether somebody makes volumes of a class for a node.
fn can_provision(class: &Object, labels: &Labels) -> bool {
    let holds = |expression: &Value| {
        let value = labels.get(expression["key"].str());
        value.is_some_and(|value| {
            expression["values"]
                .list()
                .iter()
                .any(|one| one.str() == value)
        })
    };
    let terms = class["allowedTopologies"].list();
    !matches!(
        class["provisioner"].str(),
        "" | "kubernetes.io/no-provisioner"
    ) && (terms.is_empty()
        || terms.iter().any(|term| {
            let expressions = term["matchLabelExpressions"].list();
            !expressions.is_empty() && expressions.iter().all(holds)
        }))
}

/// Whether there is space for a claim, as far as its driver says.
fn has_capacity(claim: &Object, class: &Object, labels: &Labels, world: &World) -> bool {
    let tells = |driver: &Arc<Object>| driver["spec"]["storageCapacity"].bool();
    if !world
        .storage
        .csi_drivers
        .get(class["provisioner"].str())
        .is_some_and(tells)
    {
        return true;
    }
    let wanted = size(claim).value();
    world.storage.capacities.values().any(|capacity| {
        capacity["storageClassName"].str() == class.name()
            && limit(capacity).is_some_and(|limit| limit >= wanted)
            && LabelSelector::of(&capacity["nodeTopology"])
                .is_some_and(|nodes| labels.match_selector(&nodes))
    })
}

impl Check for Reach {
    fn check(&self, node: &Node, world: &World) -> Option<Refusal> {
        let reasons = self.find(node, world).err()?;
        Some(Refusal {
            plugin: Name::VolumeBinding,
            reasons: Reasons::Several(reasons),
            resolvable: false,
        })
    }

    fn reserve(&self, node: &Node, world: &World) -> Result<Vec<Step>, String> {
        let patience = self.patience;
        let reasons = |reasons: Vec<Text>| reasons.join(", ");
        let Found {
            bindings,
            provisions,
        } = self.find(node, world).map_err(reasons)?;
        let bindings = bindings
            .into_iter()
            .map(|(volume, claim)| Step::BindVolume {
                volume: Arc::new(bound(&volume, &claim)),
                claim: claim.key(),
                patience,
            });
        let provisions = provisions.into_iter().map(|claim| {
            let mut claim = Object::clone(&claim);
            claim
                .entry("metadata")
                .entry("annotations")
                .set(SELECTED_NODE, node.name());
            Step::Provision {
                claim: Arc::new(claim),
                patience,
            }
        });
        Ok(bindings.chain(provisions).collect())
    }

    fn copy(&self) -> Box<dyn Check> {
        Box::new(self.clone())
    }
}

/// A volume as it is when it is bound to a claim.
fn bound(volume: &Volume, claim: &Object) -> Object {
    let mut object = Object::clone(&volume.object);
    if !volume.is_for(claim) {
        object
            .entry("metadata")
            .entry("annotations")
            .set("pv.kubernetes.io/bound-by-controller", "yes");
    }
    let reference = value!({
        "kind": "PersistentVolumeClaim",
        "namespace": (claim.namespace()),
        "name": (claim.name()),
        "uid": (claim.uid()),
        "apiVersion": "v1",
        "resourceVersion": (claim.version())
    });
    object.entry("spec").set("claimRef", reference);
    object
}
