//! The allocation of cluster IPs and node ports: each belongs to one Service at a time.
//!
//! The store is the only record: an address is taken if a stored Service has it, which an index answers. An address that a
//! write has chosen and not stored yet is *claimed*; the claim ends with the write, so nothing can leak, not even by a crash.
//!
//! Invariant: a claim is released only after its write is visible or rejected, and an allocation checks claims and store
//! under one lock; so no two writes can choose the same address.
//!
//! Where several servers share the store, claims and cache are not enough: what was chosen is then *reserved* in the store,
//! before the Service is written, and another is chosen if another server was faster.

mod address;
mod ports;
mod range;
mod repair_address;
mod repair_events;
mod repair_ports;

use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use mizzen_core_kinds::allocate::{self, AllocateError, AllocationError, ServiceIpPool};
use mizzen_object::Status;
use mizzen_object::schema::CanonicalObject;
use mizzen_registry::{BoxFuture, Key, Resource};
use mizzen_value::Value;
use mizzen_value::address::{Cidr, family};
use mizzen_value::clock::Random;

pub(crate) use ports::Leaks;
pub(crate) use repair_address::repair_addresses;
pub(crate) use repair_events::RepairEvents;
pub(crate) use repair_ports::{PortRepairMetrics, repair_ports};

use address::ChangedAddresses;
use mizzen_apiserver::admission::{Attributes, WriteOutcome, WriteStrategy, WriteTransaction};
use mizzen_apiserver::server::ServerParts;
use mizzen_apiserver::verbs::ResourceCall;

use crate::ControlPlane;

const ADDRESS: &str = "spec.clusterIPs";
const NODE_PORT: &str = "spec.ports.nodePort";
const HEALTH_PORT: &str = "spec.healthCheckNodePort";

/// How often a Service chooses again because another server was faster.
const MAX_CHOICES: usize = 32;

/// Allocates the addresses and ports of services, and keeps IPAddress objects in line with them. Kubernetes: this is no
/// plug-in but a part of the resource, and comes after them all (core/service/storage).
pub(crate) struct ServiceAllocation;

impl WriteStrategy for ServiceAllocation {
    fn begin(&self, call: &ResourceCall) -> Option<Box<dyn WriteTransaction>> {
        let kind = call.resource.kind();
        let is_concerned = matches!(
            (kind.gvk.group.as_str(), kind.plural.as_str()),
            ("", "services") | ("networking.k8s.io", "ipaddresses")
        );
        is_concerned.then(|| {
            Box::new(ServiceTransaction {
                claim: Mutex::new(ControlPlane::of(call.server).allocations.claim()),
                addresses: ChangedAddresses::default(),
                released: Mutex::default(),
                attempted: Mutex::default(),
            }) as _
        })
    }
}

/// What the writes of one request allocate.
struct ServiceTransaction {
    claim: Mutex<PendingAllocation>,
    addresses: ChangedAddresses,
    /// The ports that a Service does not have after the last attempt to write it. Only in a shared store.
    released: Mutex<HashMap<Key, BTreeSet<u16>>>,
    /// The addresses and ports that the last attempt writes. Only in a shared store.
    attempted: Mutex<HashSet<String>>,
}

impl WriteTransaction for ServiceTransaction {
    fn allocate<'a>(
        &'a self,
        call: &'a ResourceCall<'a>,
        old: Option<&'a Value>,
        object: &'a mut CanonicalObject,
    ) -> BoxFuture<'a, Result<(), Status>> {
        if !(Attributes { call, old }).is_main("", "services") {
            return Box::pin(std::future::ready(Ok(())));
        }
        if is_shared(call) && !is_dry_run(call) {
            return Box::pin(self.allocate_shared(call, old, object));
        }
        let allocated = allocate(call, old, &mut self.claim.lock(), object);
        Box::pin(std::future::ready(allocated))
    }

    fn begin_attempt<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        new: Option<&'a Value>,
    ) -> BoxFuture<'a, ()> {
        if attributes.is("", "services") {
            let is_shared = is_shared(attributes.call);
            self.addresses.note(new, attributes.old, is_shared);
            if let Some(new) = new.filter(|_| is_shared) {
                *self.attempted.lock() = names_of(new);
            }
            if let Some(old) = attributes.old.filter(|_| is_shared) {
                let metadata = &old["metadata"];
                let key = Key::new(metadata["namespace"].str(), metadata["name"].str());
                let kept = new.map(ports::ports_of).unwrap_or_default();
                let released = &ports::ports_of(old) - &kept;
                self.released.lock().insert(key, released);
            }
        } else if let Some(old) = attributes.old {
            self.addresses.note_address(old);
        }
        Box::pin(std::future::ready(()))
    }

    /// What a Service may have, because the store did not say whether it was stored, is left to a repair.
    fn settle<'a>(
        &'a self,
        call: &'a ResourceCall<'a>,
        outcome: WriteOutcome,
    ) -> BoxFuture<'a, ()> {
        let mut kept = std::mem::take(&mut *self.attempted.lock());
        if !outcome.may_be_stored() {
            kept.clear();
        }
        Box::pin(async move {
            self.addresses.follow(call, &kept).await;
            self.release_ports(call, outcome, &kept).await;
        })
    }
}

impl ServiceTransaction {
    /// Allocates in a store that other servers write to, too.
    async fn allocate_shared(
        &self,
        call: &ResourceCall<'_>,
        old: Option<&Value>,
        object: &mut CanonicalObject,
    ) -> Result<(), Status> {
        // The IPAddress refers to it. Kubernetes: the name is generated before anything is allocated
        // (registry/generic/registry/store.go).
        if old.is_none() {
            let kind = call.resource.kind();
            (call.server.registry).generate_name(kind, object.entry("metadata"));
        }
        let service = Key::new(&call.path.namespace, object["metadata"]["name"].str());
        for _ in 0..MAX_CHOICES {
            let mut chosen = object.clone();
            allocate(call, old, &mut self.claim.lock(), &mut chosen)?;
            if self.reserve(call, &service).await? {
                *object = chosen;
                return Ok(());
            }
        }
        Err(Status::internal("range is full"))
    }

    /// Reserves what was claimed; false if another server has something of it.
    async fn reserve(&self, call: &ResourceCall<'_>, service: &Key) -> Result<bool, Status> {
        let resource = address::resource(call.server).ok_or_else(Status::no_such_resource)?;
        let claimed = self.claim.lock().unreserved();
        let mut is_reserved = true;
        for address in claimed.iter().filter(|name| !is_port(name)) {
            let reserved = address::reserve(call.server, &resource, service, address).await;
            // After an error it may have been created.
            if !matches!(reserved, Ok(false)) {
                self.addresses.note_reserved(service, address);
            }
            is_reserved &= self.claim.lock().settle(address, reserved?);
        }
        let claimed: Vec<u16> = claimed
            .iter()
            .filter_map(|name| name.parse().ok())
            .collect();
        if !is_reserved || claimed.is_empty() {
            return Ok(is_reserved);
        }
        let taken = ports::reserve(call.server, &claimed).await?;
        let mut claim = self.claim.lock();
        for port in claimed {
            if taken.is_empty() || taken.contains(&port) {
                claim.settle(&port.to_string(), taken.is_empty());
            }
        }
        if taken.is_empty() {
            let mut reserved = self.released.lock();
            reserved.entry(service.clone()).or_default();
        }
        Ok(taken.is_empty())
    }

    /// Releases the ports that a Service had, or that were reserved for it, and that it does not have.
    async fn release_ports(
        &self,
        call: &ResourceCall<'_>,
        outcome: WriteOutcome,
        kept: &HashSet<String>,
    ) {
        let mut released = std::mem::take(&mut *self.released.lock());
        if outcome != WriteOutcome::Stored {
            released.values_mut().for_each(BTreeSet::clear);
        }
        // Reservations are those of one Service.
        let mut reserved: Vec<u16> = self.claim.lock().reserved();
        reserved.retain(|port| !kept.contains(&port.to_string()));
        released
            .values_mut()
            .for_each(|ports| ports.extend(&reserved));
        released.retain(|_, ports| !ports.is_empty());
        if released.is_empty() {
            return;
        }
        let server = call.server.clone();
        // A client that disconnects must not leave a port behind.
        let task = tokio::spawn(async move {
            for (service, ports) in released {
                if let Err(status) = ports::release(&server, &service, &ports).await {
                    let error = status.message;
                    tracing::warn!(%error, ?ports, "node ports are released by a later repair");
                }
            }
        });
        // It fails only when the process ends.
        let _ = task.await;
    }
}

/// The addresses and ports of a Service.
fn names_of(service: &Value) -> HashSet<String> {
    let ports = ports::ports_of(service).into_iter();
    let ports = ports.map(|port| port.to_string());
    ports.chain(address::addresses_of(service)).collect()
}

fn is_shared(call: &ResourceCall) -> bool {
    call.server.registry.store().is_shared()
}

fn is_dry_run(call: &ResourceCall) -> bool {
    call.request.query.get("dryRun").is_some()
}

/// Whether a claim is of a port and not of an address.
fn is_port(name: &str) -> bool {
    name.parse::<u16>().is_ok()
}

/// What writes under way have chosen.
#[derive(Clone, Default)]
pub(crate) struct PendingAllocations(Arc<Mutex<HashSet<String>>>);

/// The claims of one write; released on drop.
struct PendingAllocation {
    claims: PendingAllocations,
    mine: Vec<String>,
    /// What this request has reserved in a shared store, in any attempt.
    reserved: HashSet<String>,
    /// What other servers have reserved there.
    refused: HashSet<String>,
}

impl PendingAllocations {
    /// An empty claim.
    fn claim(&self) -> PendingAllocation {
        PendingAllocation {
            claims: self.clone(),
            mine: Vec::new(),
            reserved: HashSet::new(),
            refused: HashSet::new(),
        }
    }

    /// Whether a write has chosen an address or a port, and is under way.
    fn is_claimed(&self, name: &str) -> bool {
        self.0.lock().contains(name)
    }
}

impl Drop for PendingAllocation {
    fn drop(&mut self) {
        self.reset();
    }
}

impl PendingAllocation {
    /// Claims `name` unless it is claimed or taken.
    fn take(&mut self, name: &str, taken: impl FnOnce() -> bool) -> bool {
        if self.mine.iter().any(|mine| mine == name) || self.refused.contains(name) {
            return false;
        }
        let mut claims = self.claims.0.lock();
        if claims.contains(name) || !self.reserved.contains(name) && taken() {
            return false;
        }
        claims.insert(name.into());
        self.mine.push(name.into());
        true
    }

    /// Releases the claims of an earlier attempt.
    fn reset(&mut self) {
        let mut claims = self.claims.0.lock();
        for name in self.mine.drain(..) {
            claims.remove(&name);
        }
    }

    /// The claims that are yet to be reserved.
    fn unreserved(&self) -> Vec<String> {
        let mine = self.mine.iter();
        mine.filter(|name| !self.reserved.contains(*name))
            .cloned()
            .collect()
    }

    /// What was reserved and is a `T`: an address or a port.
    fn reserved<T: FromStr>(&self) -> Vec<T> {
        let reserved = self.reserved.iter();
        reserved.filter_map(|name| name.parse().ok()).collect()
    }

    /// Records whether a claim could be reserved, and returns that.
    fn settle(&mut self, name: &str, is_reserved: bool) -> bool {
        match is_reserved {
            true => self.reserved.insert(name.into()),
            false => self.refused.insert(name.into()),
        };
        is_reserved
    }
}

/// Gives a service the addresses and ports that it needs.
fn allocate(
    call: &ResourceCall,
    old: Option<&Value>,
    claim: &mut PendingAllocation,
    service: &mut Value,
) -> Result<(), Status> {
    claim.reset();
    let addresses = address::resource(call.server).ok_or_else(Status::no_such_resource)?;
    let families = ControlPlane::of(call.server)
        .service_ranges
        .iter()
        .map(|range| family(range.ip))
        .collect();
    let mut pool = AllocationRanges {
        server: call.server,
        services: call.resource,
        addresses: &addresses,
        families,
        claim,
        is_named: !["name", "generateName"]
            .iter()
            .all(|field| service["metadata"][*field].is_empty()),
        dry_run: is_dry_run(call),
    };
    allocate::allocate(service, old, &mut pool).map_err(|error| match error {
        AllocateError::Invalid(violations) => {
            // Kubernetes: the name is generated before anything is allocated (registry/generic/registry/store.go).
            let (kind, mut metadata) = (call.resource.kind(), service["metadata"].clone());
            call.server.registry.generate_name(kind, &mut metadata);
            Status::invalid(&kind.gvk, metadata["name"].str(), &violations)
        }
        AllocateError::Internal(message) => Status::internal(message),
        AllocateError::Unknown(message) => Status::unknown(message),
    })
}

/// The ranges of the cluster.
struct AllocationRanges<'a> {
    server: &'a ServerParts,
    services: &'a Resource,
    addresses: &'a Resource,
    families: Vec<&'static str>,
    claim: &'a mut PendingAllocation,
    /// Whether the Service has a name or generateName.
    is_named: bool,
    dry_run: bool,
}

impl AllocationRanges<'_> {
    /// Whether the cache decides. A certain address is only reserved in a shared store, because the cache may lag behind.
    fn asks_cache(&self, is_requested: bool) -> bool {
        !is_requested || self.dry_run || !self.server.registry.store().is_shared()
    }

    fn claim_address(&mut self, address: IpAddr, is_requested: bool) -> bool {
        let asks_cache = self.asks_cache(is_requested);
        let (registry, services, addresses) =
            (&self.server.registry, self.services, self.addresses);
        let address = &address.to_string();
        // An IPAddress may also have been created manually.
        let taken = || {
            asks_cache
                && (registry.is_taken(services, ADDRESS, address)
                    || registry.get(addresses, &Key::new("", address), "").is_ok())
        };
        self.claim.take(address, taken)
    }

    fn claim_port(&mut self, port: i64, is_requested: bool) -> bool {
        let asks_cache = self.asks_cache(is_requested);
        let (registry, services, text) = (&self.server.registry, self.services, port.to_string());
        let taken = || {
            asks_cache
                && (registry.is_taken(services, NODE_PORT, &text)
                    || registry.is_taken(services, HEALTH_PORT, &text))
        };
        self.claim.take(&text, taken)
    }
}

impl ServiceIpPool for AllocationRanges<'_> {
    fn families(&self) -> &[&'static str] {
        &self.families
    }

    fn take_address(
        &mut self,
        wanted_family: &str,
        requested: Option<&str>,
    ) -> Result<String, AllocationError> {
        let mut ranges = range::ready(self.server);
        ranges.retain(|range| family(range.ip) == wanted_family);
        if let Some(requested) = requested {
            let given = |address: &IpAddr| ranges.iter().any(|range| range.gives(*address));
            let Some(address) = requested.parse().ok().filter(given) else {
                let message = "the provided network does not match the current range";
                return Err(AllocationError::Refused(message.into()));
            };
            return match self.claim_address(address, true) {
                true => Ok(requested.into()),
                false => Err(AllocationError::Refused(
                    "provided IP is already allocated".into(),
                )),
            };
        }
        let start = random(self.server.registry.random());
        // An earlier attempt may have reserved one.
        let mut reserved: Vec<IpAddr> = self.claim.reserved();
        reserved.retain(|address| ranges.iter().any(|range| range.gives(*address)));
        let all = ranges
            .iter()
            .flat_map(|range: &Cidr| range::from(*range, start.into()));
        let mut addresses = reserved.into_iter().chain(all);
        let free = addresses.find(|address| self.claim_address(*address, false));
        let address = free.ok_or_else(|| AllocationError::Full("range is full".into()))?;
        // Kubernetes: the IPAddress is created before the Service is validated (ipallocator/ipallocator.go, `createIPAddress`).
        if !self.is_named && !self.dry_run {
            return Err(AllocationError::Refused(format!(
                "IPAddress.networking.k8s.io \"{address}\" is invalid: spec.parentRef.name: Required value"
            )));
        }
        Ok(address.to_string())
    }

    fn take_port(&mut self, requested: Option<i64>) -> Result<i64, AllocationError> {
        let ports = &ControlPlane::of(self.server).service_node_ports;
        let (low, high) = (i64::from(*ports.start()), i64::from(*ports.end()));
        if let Some(requested) = requested {
            // Kubernetes: a dry run checks only whether ports are allocated (portallocator/operation.go).
            if !(low..=high).contains(&requested) && !self.dry_run {
                let message = format!(
                    "provided port is not in the valid range. The range of valid ports is {low}-{high}"
                );
                return Err(AllocationError::Refused(message));
            }
            return match self.claim_port(requested, true) {
                true => Ok(requested),
                false => Err(AllocationError::Refused(
                    "provided port is already allocated".into(),
                )),
            };
        }
        let count = high - low + 1;
        let start = (random(self.server.registry.random()) % count as u64) as i64;
        let all = (0..count).map(|step| low + (start + step) % count);
        // An earlier attempt may have reserved one.
        let reserved: Vec<u16> = self.claim.reserved();
        let mut ports = reserved.into_iter().map(i64::from).chain(all);
        ports
            .find(|port| self.claim_port(*port, false))
            .ok_or_else(|| AllocationError::Full("range is full".into()))
    }
}

fn random(random: &dyn Random) -> u64 {
    let mut bytes = [0; 8];
    random.fill(&mut bytes);
    u64::from_le_bytes(bytes)
}
