//! ResourceClaims, ResourceSlices and DeviceClasses, and allocations that are assumed until the API
//! has them.

use std::collections::BTreeMap;
use std::sync::Arc;

use mizzen_sdk::{Key, Object};
use mizzen_value::quantity::Quantity;
use mizzen_value::{Str, Value};

use crate::model::PodInfo;
use crate::{HashMap, HashSet};

/// A device: its driver, pool and name.
pub(crate) type DeviceId = (Str, Str, Str);

/// Quantities by capacity name.
pub(crate) type Amounts = BTreeMap<Str, Quantity>;

/// Adds `amounts` to `to`.
pub(crate) fn add_amounts(to: &mut Amounts, amounts: &Amounts) {
    for (name, amount) in amounts {
        let sum = to.get(name).map_or(*amount, |known| known.add(amount));
        to.insert(name.clone(), sum);
    }
}

/// Allocated devices. Admin access allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct AllocatedDevices {
    /// Devices that one claim has alone.
    pub whole: HashSet<DeviceId>,
    /// Shared devices, and the capacity of each that is consumed.
    pub parts: HashMap<DeviceId, Amounts>,
}

impl AllocatedDevices {
    /// Whether any part of a device is allocated.
    pub(crate) fn is_allocated(&self, id: &DeviceId) -> bool {
        self.whole.contains(id) || self.parts.contains_key(id)
    }

    fn add(&mut self, result: &Value) {
        if result["shareID"].is_null() {
            self.whole.insert(device_id(result));
            return;
        }
        let consumed = result["consumedCapacity"].entries();
        let consumed = consumed
            .map(|(name, amount)| (name.into(), Quantity::parse_or_zero(amount.str())))
            .collect();
        add_amounts(self.parts.entry(device_id(result)).or_default(), &consumed);
    }
}

/// The objects of dynamic resource allocation.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    pub claims: HashMap<Key, Arc<Object>>,
    pub slices: HashMap<Str, Arc<Object>>,
    pub classes: HashMap<Str, Arc<Object>>,
    /// Assumed allocations, by claim UID.
    assumed: HashMap<Str, Value>,
}

impl Devices {
    /// The ResourceClaims of a pod, or why it must wait for them.
    pub(crate) fn pod_claims(&self, pod: &PodInfo) -> Result<Vec<&Arc<Object>>, String> {
        let mut claims = Vec::new();
        for used in pod.resource_claims.iter().filter(|used| !used.not_needed) {
            let PodInfo {
                namespace,
                name: pod_name,
                ..
            } = pod;
            let Some(name) = &used.claim else {
                return Err(format!(
                    "pod \"{namespace}/{pod_name}\": ResourceClaim not created yet"
                ));
            };
            let claim = self
                .claims
                .get(&Key::new(namespace.as_str(), name.as_str()));
            let claim = claim
                .ok_or_else(|| format!("resourceclaim.resource.k8s.io \"{name}\" not found"))?;
            if claim.is_terminating() {
                return Err(format!("resourceclaim \"{name}\" is being deleted"));
            }
            if used.owned && !claim.is_controlled_by(&pod.uid) {
                return Err(format!(
                    "ResourceClaim {namespace}/{name} was not created for pod {namespace}/{pod_name} (pod is not owner)"
                ));
            }
            claims.push(claim);
        }
        Ok(claims)
    }

    /// Whether an allocation of the claim is assumed.
    pub(crate) fn is_assumed(&self, claim: &Object) -> bool {
        self.assumed.contains_key(claim.uid())
    }

    /// All devices that are allocated or assumed to be.
    pub(crate) fn allocated(&self) -> AllocatedDevices {
        let allocated = self
            .claims
            .values()
            .map(|claim| &claim["status"]["allocation"]);
        let results = allocated
            .chain(self.assumed.values())
            .flat_map(|one| one["devices"]["results"].list());
        let mut taken = AllocatedDevices::default();
        results
            .filter(|result| !result["adminAccess"].bool())
            .for_each(|result| taken.add(result));
        taken
    }

    /// Sets or removes a claim. Returns the old one.
    pub(crate) fn set_claim(
        &mut self,
        key: &Key,
        claim: Option<Arc<Object>>,
    ) -> Option<Arc<Object>> {
        if let Some(claim) = claim
            .as_ref()
            .filter(|claim| !claim["status"]["allocation"].is_null())
        {
            self.assumed.remove(claim.uid());
        }
        match claim {
            Some(claim) => self.claims.insert(key.clone(), claim),
            None => self.claims.remove(key),
        }
    }

    pub(crate) fn assume(&mut self, uid: &Str, allocation: &Value) {
        self.assumed.insert(uid.clone(), allocation.clone());
    }

    pub(crate) fn forget(&mut self, uid: &str) {
        self.assumed.remove(uid);
    }
}

fn device_id(result: &Value) -> DeviceId {
    (
        result["driver"].str().into(),
        result["pool"].str().into(),
        result["device"].str().into(),
    )
}
