//! Node ports in a store that several servers share: one bitmap has all that are allocated, and every change of it is a
//! compare-and-swap.
//!
//! Kubernetes: the RangeAllocation `ranges/servicenodeports` (core/service/allocator, core/service/portallocator). Upstream's
//! servers on the same etcd change it in the same way, so no two servers allocate the same port.

use std::collections::{BTreeSet, HashMap};
use std::ops::RangeInclusive;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use mizzen_core_kinds::allocate;
use mizzen_object::Status;
use mizzen_registry::{Draft, Expect, Key, ListOptions, Write, WriteError};
use mizzen_value::{Value, json, value};

use mizzen_apiserver::server::ServerParts;

use super::repair_ports::{PortError, inspect};
use crate::ControlPlane;

const SPACE: &str = "ranges";
const KEY: &str = "servicenodeports";
/// How often a change is tried again because another server was faster.
const MAX_TRIES: usize = 100;
/// A port without Service is released by the repair that finds it for the third time: until then a server may be about to
/// write the Service. Kubernetes: numRepairsBeforeLeakCleanup.
const REPAIRS_BEFORE_RELEASE: u32 = 3;

/// The ports without Service, and how many repairs have found each. Whoever changes the bitmap holds it, so that writes of
/// one process do not compete.
pub(crate) type Leaks = tokio::sync::Mutex<HashMap<u16, u32>>;

/// Reserves ports, all or none. Returns those that are taken.
pub(super) async fn reserve(
    server: &Arc<ServerParts>,
    ports: &[u16],
) -> Result<BTreeSet<u16>, Status> {
    let mut taken = BTreeSet::new();
    update(server, |allocated| {
        taken = ports
            .iter()
            .filter(|port| allocated.contains(port))
            .copied()
            .collect();
        if taken.is_empty() {
            allocated.extend(ports);
        }
    })
    .await?;
    Ok(taken)
}

/// Releases those of the ports of a Service that it does not have any more.
pub(super) async fn release(
    server: &Arc<ServerParts>,
    service: &Key,
    ports: &BTreeSet<u16>,
) -> Result<(), Status> {
    let services = server.catalog.get("", "v1", "services");
    let services = services.ok_or_else(Status::no_such_resource)?;
    let kept = match server.registry.read(&services, service, "").await {
        Ok(found) => ports_of(&found.value()),
        Err(status) if status.code == 404 => BTreeSet::new(),
        Err(status) => return Err(status),
    };
    if ports.is_subset(&kept) {
        return Ok(());
    }
    update(server, |allocated| {
        allocated.retain(|port| kept.contains(port) || !ports.contains(port));
    })
    .await
}

/// The node ports of a Service.
pub(super) fn ports_of(service: &Value) -> BTreeSet<u16> {
    let ports = allocate::released(service, None).ports.into_iter();
    ports.filter_map(|port| port.try_into().ok()).collect()
}

/// Changes the bitmap.
async fn update(
    server: &Arc<ServerParts>,
    mut change: impl FnMut(&mut BTreeSet<u16>),
) -> Result<(), Status> {
    let mut leaks = ControlPlane::of(server).node_port_leaks.lock().await;
    let range = &ControlPlane::of(server).service_node_ports;
    for _ in 0..MAX_TRIES {
        let Some(stored) = StoredPorts::read(server).await? else {
            // No server has initialized it.
            rebuild(server, &mut leaks).await?;
            continue;
        };
        if stored.range != *range {
            // Kubernetes: until the next repair (core/service/allocator/bitmap.go, Restore).
            let problem = "the provided range does not match the current range";
            return Err(Status::internal(problem));
        }
        let mut ports = stored.ports.clone();
        change(&mut ports);
        if ports == stored.ports || write(server, stored.expect, &ports).await? {
            return Ok(());
        }
    }
    Err(Status::internal("node ports are changed by other servers"))
}

/// What a rebuild of the bitmap has found.
pub(super) struct RebuiltPorts {
    /// What is wrong with ports of Services.
    pub(super) errors: Vec<(Value, PortError)>,
    /// How many ports without Service were released.
    pub(super) n_leaked: u64,
    /// How often another server was faster.
    pub(super) n_conflicts: u64,
}

/// Writes what the Services say, and what may belong to Services that are being written.
pub(super) async fn rebuild(
    server: &Arc<ServerParts>,
    leaks: &mut HashMap<u16, u32>,
) -> Result<RebuiltPorts, Status> {
    let range = &ControlPlane::of(server).service_node_ports;
    let services = server.catalog.get("", "v1", "services");
    let services = services.ok_or_else(Status::no_such_resource)?;
    for n_conflicts in 0..MAX_TRIES {
        // It is read before the Services: what is written in between is found at the write.
        let stored = StoredPorts::read(server).await?;
        let options = ListOptions::default();
        let listed = server.registry.read_list(&services, &options).await?.items;
        let listed: Vec<Value> = listed.iter().map(|service| service.value()).collect();
        let before = stored.iter().flat_map(|stored| &stored.ports).copied();
        let before: BTreeSet<u16> = before.collect();
        let (mut ports, errors) = inspect(&listed, range, Some(&before));
        let (mut leaked, mut n_leaked) = (HashMap::new(), 0);
        for port in before.iter().filter(|port| range.contains(port)) {
            if ports.contains(port) {
                continue;
            }
            let n_found = leaks.get(port).map_or(1, |n_found| n_found + 1);
            if n_found < REPAIRS_BEFORE_RELEASE {
                leaked.insert(*port, n_found);
            } else {
                n_leaked += 1;
            }
        }
        ports.extend(leaked.keys());
        let is_current = stored
            .as_ref()
            .is_some_and(|stored| stored.range == *range && stored.ports == ports);
        let expect = stored.map_or(Expect::Absent, |stored| stored.expect);
        if is_current || write(server, expect, &ports).await? {
            *leaks = leaked;
            return Ok(RebuiltPorts {
                errors,
                n_leaked,
                n_conflicts: n_conflicts as u64,
            });
        }
    }
    Err(Status::internal("node ports are changed by other servers"))
}

/// Writes the bitmap; false if another server has changed it.
async fn write(
    server: &ServerParts,
    expect: Expect,
    ports: &BTreeSet<u16>,
) -> Result<bool, Status> {
    let range = &ControlPlane::of(server).service_node_ports;
    let object = value!({
        "kind": "RangeAllocation",
        "apiVersion": "v1",
        "metadata": {},
        "range": (format!("{}-{}", range.start(), range.end())),
        "data": (BASE64_STANDARD.encode(encode(range, ports)))
    });
    let draft = Draft {
        value: json::to_string(&object).into(),
        ..Draft::default()
    };
    let store = server.registry.store();
    let write = Write::put(&store.keyspace(SPACE), KEY, expect, draft);
    match store.commit_one(write).await {
        Ok(_) => Ok(true),
        Err(
            WriteError::Exists { .. } | WriteError::Missing { .. } | WriteError::Conflict { .. },
        ) => Ok(false),
        Err(error) => Err(Status::internal(error.to_string())),
    }
}

/// What the store has.
struct StoredPorts {
    /// The version that a change replaces.
    expect: Expect,
    range: RangeInclusive<u16>,
    ports: BTreeSet<u16>,
}

impl StoredPorts {
    async fn read(server: &ServerParts) -> Result<Option<StoredPorts>, Status> {
        let store = server.registry.store();
        let found = store.get(&store.keyspace(SPACE), KEY).await;
        let Some(record) = found.map_err(|error| Status::internal(error.to_string()))? else {
            return Ok(None);
        };
        let undecodable = || Status::internal("the allocated node ports cannot be decoded");
        let object = json::parse(&record.value).map_err(|_| undecodable())?;
        let range = parse_range(object["range"].str()).ok_or_else(undecodable)?;
        let data = BASE64_STANDARD.decode(object["data"].str());
        let ports = decode(&range, &data.map_err(|_| undecodable())?);
        Ok(Some(StoredPorts {
            expect: Expect::At(record.revision),
            range,
            ports,
        }))
    }
}

fn parse_range(text: &str) -> Option<RangeInclusive<u16>> {
    let (low, high) = text.split_once('-')?;
    Some(low.parse().ok()?..=high.parse().ok()?)
}

/// The ports whose bits are set: bit `n` of the big-endian number is port `n` of the range.
fn decode(range: &RangeInclusive<u16>, data: &[u8]) -> BTreeSet<u16> {
    let has_bit = |n: usize| {
        let byte = data.len().checked_sub(1 + n / 8).map_or(0, |at| data[at]);
        byte >> (n % 8) & 1 == 1
    };
    let ports = range.clone().enumerate();
    ports
        .filter_map(|(n, port)| has_bit(n).then_some(port))
        .collect()
}

/// The number, without leading zeros.
fn encode(range: &RangeInclusive<u16>, ports: &BTreeSet<u16>) -> Vec<u8> {
    let mut data = Vec::new();
    // From the highest, which decides the length.
    for port in ports.iter().rev() {
        let n = usize::from(port - range.start());
        if data.is_empty() {
            data.resize(1 + n / 8, 0);
        }
        let at = data.len() - 1 - n / 8;
        data[at] |= 1 << (n % 8);
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(ports: &[u16], data: &[u8]) {
        let (range, ports) = (30_000..=32_767, ports.iter().copied().collect());
        assert_eq!(encode(&range, &ports), data);
        assert_eq!(decode(&range, data), ports);
    }

    #[test]
    fn a_bitmap_is_a_big_endian_number() {
        check(&[], &[]);
        check(&[30_000], &[1]);
        check(&[30_001, 30_008], &[1, 2]);
        check(&[30_000, 30_023], &[0x80, 0, 1]);
        let mut last = [0; 346];
        last[0] = 0x80;
        check(&[32_767], &last);
    }

    #[test]
    fn bits_beyond_the_range_are_ignored() {
        assert_eq!(decode(&(1..=3), &[0xff, 0xff]), BTreeSet::from([1, 2, 3]));
    }
}
