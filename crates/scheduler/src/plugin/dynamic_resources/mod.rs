//! Are the devices that the pod claims on the node?
//!
//! Requests for so many devices of a class, or the first of several alternatives that can be had, by CEL selectors on drivers,
//! attributes and capacities. Claims that say more (devices that must be alike, parts of devices, binding conditions) are
//! refused by name until they can be allocated.

mod allocate;
mod check;
mod selector;

use std::sync::Arc;

use mizzen_object::Value;
use mizzen_sdk::Object;

use super::{Filter, Name, Ready, Refusal};
use crate::happening::{Happening, PodChange};
use crate::model::Pod;
use crate::world::World;

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
        let refuse = |reason: String| Ready::Refuse(Refusal::for_good(Name::DynamicResources, reason));
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
            Happening::ResourceClaim { old, new: Some(new) } => {
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
            Happening::ResourceClaim { old: Some(old), new: None } => !old["status"]["allocation"].is_null(),
            Happening::ResourceSlice { new: Some(_) } | Happening::DeviceClass { new: Some(_), .. } => true,
            Happening::Pod { new: Some(new), change, .. } => {
                change.has(PodChange::CLAIM) && new.uid == pod.uid && world.devices.claims_of(new).is_ok()
            }
            Happening::Node { new: Some(_), .. } => true,
            _ => false,
        }
    }
}

/// Why a claim cannot be used by a pod.
fn usable(pod: &Pod, claim: &Object, world: &World) -> Result<(), String> {
    let consumers = claim["status"]["reservedFor"].list();
    let is_ours = consumers.iter().any(|consumer| consumer["uid"].str() == pod.uid);
    if !claim["status"]["allocation"].is_null() {
        let has_room = is_ours || consumers.len() < MOST_CONSUMERS;
        return if has_room { Ok(()) } else { Err("resourceclaim in use".into()) };
    }
    let name = format!("{}/{}", claim.namespace(), claim.name());
    if world.devices.is_pending(claim) {
        return Err(format!("resource claim {name} is in the process of being allocated"));
    }
    let devices = &claim["spec"]["devices"];
    if !devices["constraints"].is_empty() {
        return Err(format!("resource claim {name}: constraints between devices are not supported"));
    }
    for request in devices["requests"].list() {
        for (qualified, one) in alternatives(request) {
            let class = one["deviceClassName"].str();
            if class.is_empty() {
                return Err(format!("resource claim {name}, request {qualified}: unknown request type"));
            }
            if !world.devices.classes.contains_key(class) {
                return Err(format!("request {qualified}: device class {class} does not exist"));
            }
        }
    }
    Ok(())
}

/// What a request would be content with, the best first, each with its name.
fn alternatives(request: &Value) -> Vec<(String, &Value)> {
    let name = request["name"].str();
    match request["firstAvailable"].list() {
        [] => vec![(name.to_string(), &request["exactly"])],
        several => several.iter().map(|one| (format!("{name}/{}", one["name"].str()), one)).collect(),
    }
}
