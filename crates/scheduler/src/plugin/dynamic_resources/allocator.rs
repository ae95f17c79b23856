//! The allocator: which devices the claims of a pod get on a node.
//!
//! A depth-first search over claims, requests and devices. It backtracks when a choice leads
//! nowhere and returns the first allocation that satisfies all claims.
//!
//! Invariant: a search ends after `MAX_STEPS` steps.

use mizzen_component_helpers::tolerations::first_untolerated;
use mizzen_value::Str;
use mizzen_value::quantity::Quantity;

use super::capacity::consume;
use super::constraint::DeviceConstraint;
use super::pool::{PoolDevice, PoolState, ResourcePool};
use super::request::{ClaimRequests, DeviceRequest};
use crate::devices::{AllocatedDevices, Amounts, DeviceId, add_amounts};
use crate::{HashMap, HashSet};

/// The most devices of a claim (upstream: AllocationResultsMaxSize).
const MAX_DEVICES: usize = 32;
/// The most devices that are tried.
const MAX_STEPS: usize = 50_000;

/// A device that is allocated to a claim.
#[derive(Clone)]
pub(super) struct AllocatedDevice<'a> {
    pub device_request: &'a DeviceRequest,
    pub offer: &'a PoolDevice,
    /// The capacity that is consumed, if the device is shared.
    pub amounts: Option<Amounts>,
}

/// The search for an allocation.
pub(super) struct Allocator<'a> {
    pools: &'a [ResourcePool],
    taken: &'a AllocatedDevices,
    claims: &'a [(Str, ClaimRequests)],
    constraints: Vec<Vec<DeviceConstraint>>,
    /// The devices allocated so far, by claim.
    got: Vec<Vec<AllocatedDevice<'a>>>,
    /// Cached results of selectors.
    matched: HashMap<(*const DeviceRequest, *const PoolDevice), bool>,
    n_steps: usize,
}

/// The position of the search.
#[derive(Clone, Copy)]
struct SearchPosition {
    claim: usize,
    request: usize,
    alternative: usize,
    /// The number of devices allocated to the request.
    n_devices: usize,
    /// The first device to try: the order within one request makes no difference.
    from: usize,
}

/// Why the search backtracks.
enum DeadEnd {
    /// No device fits.
    NoDevice,
    /// The claim would exceed `MAX_DEVICES`; only fewer devices would help.
    TooMany,
    /// An internal error.
    Failed(AllocationError),
}

/// Why claims cannot be allocated.
#[derive(Debug)]
pub(super) enum AllocationError {
    /// The node has too few devices.
    NotEnoughDevices(&'static str),
    /// The search took too many steps.
    Timeout,
    /// A claim or class is invalid, on every node.
    Error(String),
}

impl<'a> Allocator<'a> {
    /// Allocates devices for claims, each given with its name.
    pub(super) fn run(
        claims: &'a [(Str, ClaimRequests)],
        pools: &'a [ResourcePool],
        taken: &'a AllocatedDevices,
    ) -> Result<Vec<Vec<AllocatedDevice<'a>>>, AllocationError> {
        let constraints = claims
            .iter()
            .map(|(_, claim_requests)| claim_requests.constraints.clone())
            .collect();
        let got = claims.iter().map(|_| Vec::new()).collect();
        let mut search = Allocator {
            pools,
            taken,
            claims,
            constraints,
            got,
            matched: HashMap::default(),
            n_steps: 0,
        };
        search.check_pools().map_err(AllocationError::Error)?;
        match search.allocate_claim(0) {
            Ok(()) => Ok(search.got),
            Err(DeadEnd::Failed(failure)) => Err(failure),
            Err(_) if pools.iter().any(|pool| pool.state == PoolState::Invalid) => Err(
                AllocationError::NotEnoughDevices("invalid resource pools were encountered"),
            ),
            Err(_) => Err(AllocationError::NotEnoughDevices(
                "cannot allocate all claims",
            )),
        }
    }

    /// A request for all devices needs complete pools.
    fn check_pools(&self) -> Result<(), String> {
        let broken = self
            .pools
            .iter()
            .find(|pool| pool.state != PoolState::Complete);
        let claim_requests = |(name, claim_requests): &'a (Str, ClaimRequests)| {
            claim_requests
                .requests
                .iter()
                .flatten()
                .map(move |device_request| (name, device_request))
        };
        let mut all = self
            .claims
            .iter()
            .flat_map(claim_requests)
            .filter(|(_, device_request)| device_request.count.is_none());
        let (Some(pool), Some((claim, device_request))) = (broken, all.next()) else {
            return Ok(());
        };
        let state = if pool.state == PoolState::Incomplete {
            "being updated"
        } else {
            "invalid"
        };
        let base = device_request.name.rsplit('/').next().unwrap_or_default();
        Err(format!(
            "claim {claim}, request {base}: asks for all devices, but resource pool {}/{} is currently {state}",
            pool.driver, pool.name
        ))
    }

    fn allocate_claim(&mut self, claim: usize) -> Result<(), DeadEnd> {
        if claim == self.claims.len() {
            return Ok(());
        }
        self.allocate_request(claim, 0)
    }

    /// Continues with a request of a claim, or with the next claim.
    fn allocate_request(&mut self, claim: usize, request: usize) -> Result<(), DeadEnd> {
        let claims = self.claims;
        let Some(subrequests) = claims[claim].1.requests.get(request) else {
            // Fewer devices for another claim might help.
            return self.allocate_claim(claim + 1).map_err(|dead| match dead {
                DeadEnd::TooMany => DeadEnd::NoDevice,
                other => other,
            });
        };
        let mut dead = DeadEnd::TooMany;
        for alternative in 0..subrequests.len() {
            match self.allocate_devices(SearchPosition {
                claim,
                request,
                alternative,
                n_devices: 0,
                from: 0,
            }) {
                Ok(()) => return Ok(()),
                Err(DeadEnd::TooMany) => {}
                Err(DeadEnd::NoDevice) => dead = DeadEnd::NoDevice,
                Err(error) => return Err(error),
            }
        }
        Err(dead)
    }

    /// Continues with the devices of a request.
    fn allocate_devices(&mut self, at: SearchPosition) -> Result<(), DeadEnd> {
        let claims = self.claims;
        let device_request = &claims[at.claim].1.requests[at.request][at.alternative];
        match device_request.count {
            None => self.allocate_all_devices(at, device_request),
            Some(count) if at.n_devices == count => self.allocate_request(at.claim, at.request + 1),
            Some(count) if self.got[at.claim].len() + count - at.n_devices > MAX_DEVICES => {
                Err(DeadEnd::TooMany)
            }
            Some(_) => self.allocate_one_device(at, device_request),
        }
    }

    /// Tries one device after the other.
    fn allocate_one_device(
        &mut self,
        at: SearchPosition,
        device_request: &'a DeviceRequest,
    ) -> Result<(), DeadEnd> {
        let pools = self.pools;
        let sound = pools
            .iter()
            .filter(|pool| pool.state == PoolState::Complete);
        let offers = sound.flat_map(|pool| pool.offers.iter().map(move |offer| (pool, offer)));
        for (index, (pool, offer)) in offers.enumerate().skip(at.from) {
            if !self.selectors_match(device_request, offer)?
                || !self.allocate_device(at.claim, device_request, pool, offer)
            {
                continue;
            }
            match self.allocate_devices(SearchPosition {
                n_devices: at.n_devices + 1,
                from: index + 1,
                ..at
            }) {
                Err(DeadEnd::NoDevice) => self.deallocate_device(at.claim),
                Err(dead) => {
                    self.deallocate_device(at.claim);
                    return Err(dead);
                }
                Ok(()) => return Ok(()),
            }
        }
        Err(DeadEnd::NoDevice)
    }

    /// Allocates every device that matches, or none.
    fn allocate_all_devices(
        &mut self,
        at: SearchPosition,
        device_request: &'a DeviceRequest,
    ) -> Result<(), DeadEnd> {
        let pools = self.pools;
        let mut wanted = Vec::new();
        for pool in pools {
            for offer in &pool.offers {
                if self.selectors_match(device_request, offer)?
                    && consume(
                        &device_request.capacity,
                        &offer.device,
                        &self.consumed_capacity(offer),
                    )
                    .is_some()
                {
                    wanted.push((pool, offer));
                }
            }
        }
        if wanted.is_empty() {
            return Err(DeadEnd::NoDevice);
        }
        if self.got[at.claim].len() + wanted.len() > MAX_DEVICES {
            return Err(DeadEnd::TooMany);
        }
        let n_before = self.got[at.claim].len();
        let all = wanted
            .into_iter()
            .all(|(pool, offer)| self.allocate_device(at.claim, device_request, pool, offer));
        let outcome = if all {
            self.allocate_request(at.claim, at.request + 1)
        } else {
            Err(DeadEnd::NoDevice)
        };
        if outcome.is_err() {
            while self.got[at.claim].len() > n_before {
                self.deallocate_device(at.claim);
            }
        }
        outcome
    }

    /// Whether a device matches the selectors of a request.
    fn selectors_match(
        &mut self,
        device_request: &'a DeviceRequest,
        offer: &'a PoolDevice,
    ) -> Result<bool, DeadEnd> {
        self.n_steps += 1;
        if self.n_steps > MAX_STEPS {
            return Err(DeadEnd::Failed(AllocationError::Timeout));
        }
        let key = (
            std::ptr::from_ref(device_request),
            std::ptr::from_ref(offer),
        );
        if let Some(known) = self.matched.get(&key) {
            return Ok(*known);
        }
        let suits = device_request
            .selectors
            .matches(&offer.id.0, &offer.device)
            .map_err(|error| DeadEnd::Failed(AllocationError::Error(error)))?;
        self.matched.insert(key, suits);
        Ok(suits)
    }

    /// Allocates a device to a request, if it is available.
    fn allocate_device(
        &mut self,
        claim: usize,
        device_request: &'a DeviceRequest,
        pool: &'a ResourcePool,
        offer: &'a PoolDevice,
    ) -> bool {
        if self.is_in_use(claim, device_request, offer)
            || first_untolerated(&offer.taints, &device_request.tolerations).is_some()
            || !self.has_counters(pool, offer)
        {
            return false;
        }
        let Some(amounts) = consume(
            &device_request.capacity,
            &offer.device,
            &self.consumed_capacity(offer),
        ) else {
            return false;
        };
        let constraints = &mut self.constraints[claim];
        if let Some(n_added) = constraints
            .iter_mut()
            .position(|one| !one.add(&device_request.name, offer))
        {
            constraints[..n_added]
                .iter_mut()
                .for_each(|one| one.remove(&device_request.name));
            return false;
        }
        let amounts = offer.is_shared.then_some(amounts);
        self.got[claim].push(AllocatedDevice {
            device_request,
            offer,
            amounts,
        });
        true
    }

    /// Deallocates the last device of a claim.
    fn deallocate_device(&mut self, claim: usize) {
        if let Some(got) = self.got[claim].pop() {
            self.constraints[claim]
                .iter_mut()
                .for_each(|one| one.remove(&got.device_request.name));
        }
    }

    /// Whether a device is in use. Admin access ignores other claims, but takes a device once.
    fn is_in_use(&self, claim: usize, device_request: &DeviceRequest, offer: &PoolDevice) -> bool {
        let has = |got: &[AllocatedDevice]| got.iter().any(|got| got.offer.id == offer.id);
        match (offer.is_shared, device_request.is_admin) {
            (true, _) => self.taken.whole.contains(&offer.id),
            (false, true) => has(&self.got[claim]),
            (false, false) => {
                self.taken.whole.contains(&offer.id) || self.got.iter().any(|got| has(got))
            }
        }
    }

    /// The capacity of a shared device that is consumed.
    fn consumed_capacity(&self, offer: &PoolDevice) -> Amounts {
        let mut amounts = self.taken.parts.get(&offer.id).cloned().unwrap_or_default();
        for got in self
            .got
            .iter()
            .flatten()
            .filter(|got| got.offer.id == offer.id)
        {
            got.amounts
                .iter()
                .for_each(|own| add_amounts(&mut amounts, own));
        }
        amounts
    }

    /// Whether a pool has the counters that a device consumes. A device that is shared already has
    /// consumed them.
    fn has_counters(&self, pool: &ResourcePool, offer: &PoolDevice) -> bool {
        let is_begun = offer.is_shared
            && (self.taken.parts.contains_key(&offer.id)
                || self
                    .got
                    .iter()
                    .flatten()
                    .any(|got| got.offer.id == offer.id));
        offer.consumes.is_empty() || is_begun || {
            let mut left = pool.counters.clone();
            let mut seen: HashSet<&DeviceId> = HashSet::default();
            let got = self.got.iter().flatten().map(|got| got.offer);
            let ours =
                got.filter(|other| (&*other.id.0, &*other.id.1) == (&*pool.driver, &*pool.name));
            let ours = ours.filter(|other| seen.insert(&other.id));
            for (counter, amount) in ours.chain([offer]).flat_map(|other| &other.consumes) {
                if let Some(left) = left.get_mut(counter) {
                    *left = left.sub(amount);
                }
            }
            !left.values().any(Quantity::is_negative)
        }
    }
}
