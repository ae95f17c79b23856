//! Are the devices that the pod claims on the node?
//!
//! `wish` is what a claim asks for: so many devices of a class, or the first of several alternatives that can be had, by CEL
//! selectors on drivers, attributes and capacities; `constraint` is what must hold between them. `pool` is what drivers
//! publish for a node, parts that share counters included; `capacity`, how much of a device that several share a request
//! takes. `search` brings them together, `allocation` says what came of it, `rank` how good that is.
//!
//! Devices that must be made ready while the pod waits (binding conditions) are left to others.

mod allocation;
mod capacity;
mod check;
mod constraint;
mod pool;
mod rank;
mod search;
mod selector;
mod wish;

use std::sync::Arc;

use mizzen_sdk::Object;

use super::{Filter, Name, Rank, Ready, Refusal, Score};
use crate::cache::Slot;
use crate::happening::{Happening, PodChange};
use crate::model::Pod;
use crate::world::World;
use wish::alternatives;

/// How many pods can share a claim.
const MOST_CONSUMERS: usize = 256;

pub(crate) struct DynamicResources;

impl Filter for DynamicResources {
    fn name(&self) -> Name {
        Name::DynamicResources
    }

    fn prepare(&self, pod: &Arc<Pod>, world: &mut World) -> Ready {
        if pod.resource_claims.iter().all(|used| used.needless) {
            return Ready::Skip;
        }
        let refuse =
            |reason: String| Ready::Refuse(Refusal::for_good(Name::DynamicResources, reason));
        let claims: Vec<Arc<Object>> = match world.devices.claims_of(pod) {
            Ok(claims) => claims.into_iter().cloned().collect(),
            Err(reason) => return refuse(reason),
        };
        for claim in &claims {
            if let Err(reason) = usable(pod, claim, world) {
                return refuse(reason);
            }
        }
        match check::Claimed::of(pod, claims, world) {
            Ok(claimed) => Ready::Check(Box::new(claimed)),
            Err(error) => Ready::Fail(error),
        }
    }

    fn wakes(&self, pod: &Pod, happening: &Happening, world: &World) -> bool {
        match happening {
            Happening::ResourceClaim {
                old,
                new: Some(new),
            } => {
                let uses = world
                    .devices
                    .claims_of(pod)
                    .is_ok_and(|claims| claims.iter().any(|one| one.uid() == new.uid()));
                let freed = |old: &Object| {
                    !old["status"]["allocation"].is_null() && new["status"]["allocation"].is_null()
                };
                let changed = |old: &Object| {
                    old["status"]["allocation"] != new["status"]["allocation"]
                        || old["status"]["reservedFor"] != new["status"]["reservedFor"]
                };
                match old {
                    Some(old) => freed(old) || (uses && changed(old)),
                    None => uses,
                }
            }
            // Devices of a claim that is gone are free.
            Happening::ResourceClaim {
                old: Some(old),
                new: None,
            } => !old["status"]["allocation"].is_null(),
            Happening::ResourceSlice { new: Some(_) }
            | Happening::DeviceClass { new: Some(_), .. } => true,
            Happening::Pod {
                new: Some(new),
                change,
                ..
            } => {
                change.has(PodChange::CLAIM)
                    && new.uid == pod.uid
                    && world.devices.claims_of(new).is_ok()
            }
            Happening::Node { new: Some(_), .. } => true,
            _ => false,
        }
    }
}

impl Score for DynamicResources {
    fn prepare(&self, pod: &Arc<Pod>, world: &mut World, _nodes: &[Slot]) -> Option<Box<dyn Rank>> {
        let claims: Vec<Arc<Object>> = world
            .devices
            .claims_of(pod)
            .ok()?
            .into_iter()
            .cloned()
            .collect();
        let claimed = check::Claimed::of(pod, claims, world).ok()?;
        claimed.has_alternatives().then(|| Box::new(claimed) as _)
    }
}

/// Why a claim cannot be used by a pod.
fn usable(pod: &Pod, claim: &Object, world: &World) -> Result<(), String> {
    let consumers = claim["status"]["reservedFor"].list();
    let is_ours = consumers
        .iter()
        .any(|consumer| consumer["uid"].str() == pod.uid);
    if !claim["status"]["allocation"].is_null() {
        let has_room = is_ours || consumers.len() < MOST_CONSUMERS;
        return if has_room {
            Ok(())
        } else {
            Err("resourceclaim in use".into())
        };
    }
    let name = format!("{}/{}", claim.namespace(), claim.name());
    if world.devices.is_pending(claim) {
        return Err(format!(
            "resource claim {name} is in the process of being allocated"
        ));
    }
    for request in claim["spec"]["devices"]["requests"].list() {
        for (qualified, one) in alternatives(request) {
            let class = one["deviceClassName"].str();
            if class.is_empty() {
                return Err(format!(
                    "resource claim {name}, request {qualified}: unknown request type"
                ));
            }
            if !world.devices.classes.contains_key(class) {
                return Err(format!(
                    "request {qualified}: device class {class} does not exist"
                ));
            }
        }
    }
    Ok(())
}
