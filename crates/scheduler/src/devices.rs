//! What is known of devices? Claims, slices of devices that drivers publish, classes, and what we allocate until the API
//! says so.

use std::collections::BTreeMap;
use std::sync::Arc;

use mizzen_sdk::{Key, Object};
use mizzen_value::quantity::Quantity;
use mizzen_value::{Str, Value};

use crate::model::Pod;
use crate::{HashMap, HashSet};

/// A device: its driver, pool and name.
pub(crate) type DeviceId = (Str, Str, Str);

/// Amounts by the names of capacities.
pub(crate) type Amounts = BTreeMap<Str, Quantity>;

/// Adds amounts to others.
pub(crate) fn add(to: &mut Amounts, amounts: &Amounts) {
    for (name, amount) in amounts {
        let sum = to.get(name).map_or(*amount, |known| known.add(amount));
        to.insert(name.clone(), sum);
    }
}

/// What somebody has. Administrators have nothing for themselves.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// Devices that one claim has.
    pub whole: HashSet<DeviceId>,
    /// Devices that claims share, and how much of them is taken.
    pub parts: HashMap<DeviceId, Amounts>,
}

impl Taken {
    /// Whether anybody has anything of a device.
    pub(crate) fn has(&self, id: &DeviceId) -> bool {
        self.whole.contains(id) || self.parts.contains_key(id)
    }

    fn add(&mut self, result: &Value) {
        if result["shareID"].is_null() {
            self.whole.insert(id(result));
            return;
        }
        let consumed = result["consumedCapacity"].entries();
        let consumed = consumed
            .map(|(name, amount)| (name.into(), Quantity::of(amount.str())))
            .collect();
        add(self.parts.entry(id(result)).or_default(), &consumed);
    }
}

/// Everything that is known of devices.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    pub claims: HashMap<Key, Arc<Object>>,
    pub slices: HashMap<Str, Arc<Object>>,
    pub classes: HashMap<Str, Arc<Object>>,
    /// What we allocate, by the claim's uid.
    pending: HashMap<Str, Value>,
}

impl Devices {
    /// The claims of a pod, or why it has to wait for them.
    pub(crate) fn claims_of(&self, pod: &Pod) -> Result<Vec<&Arc<Object>>, String> {
        let mut claims = Vec::new();
        for used in pod.resource_claims.iter().filter(|used| !used.needless) {
            let Pod {
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
            if claim.is_going() {
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

    /// Whether we are allocating devices for a claim.
    pub(crate) fn is_pending(&self, claim: &Object) -> bool {
        self.pending.contains_key(claim.uid())
    }

    /// The devices that somebody has.
    pub(crate) fn taken(&self) -> Taken {
        let allocated = self
            .claims
            .values()
            .map(|claim| &claim["status"]["allocation"]);
        let results = allocated
            .chain(self.pending.values())
            .flat_map(|one| one["devices"]["results"].list());
        let mut taken = Taken::default();
        results
            .filter(|result| !result["adminAccess"].bool())
            .for_each(|result| taken.add(result));
        taken
    }

    /// Follows a claim. What it was before.
    pub(crate) fn set_claim(
        &mut self,
        key: &Key,
        claim: Option<Arc<Object>>,
    ) -> Option<Arc<Object>> {
        if let Some(claim) = claim
            .as_ref()
            .filter(|claim| !claim["status"]["allocation"].is_null())
        {
            self.pending.remove(claim.uid());
        }
        match claim {
            Some(claim) => self.claims.insert(key.clone(), claim),
            None => self.claims.remove(key),
        }
    }

    pub(crate) fn assume(&mut self, uid: &Str, allocation: &Value) {
        self.pending.insert(uid.clone(), allocation.clone());
    }

    pub(crate) fn forget(&mut self, uid: &str) {
        self.pending.remove(uid);
    }
}

fn id(result: &Value) -> DeviceId {
    (
        result["driver"].str().into(),
        result["pool"].str().into(),
        result["device"].str().into(),
    )
}
