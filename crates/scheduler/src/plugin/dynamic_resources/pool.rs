//! The pools of devices that a node can use.
//!
//! A driver publishes a pool in ResourceSlices. Nothing of a pool is allocated until all slices of
//! its latest generation are there. Slices are ordered by name and pools by driver and name, so
//! that drivers control by names what is allocated first.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use mizzen_component_helpers::tolerations::Taint;
use mizzen_sdk::Object;
use mizzen_value::quantity::Quantity;
use mizzen_value::{Str, Value, value};

use crate::cache::NodeInfo;
use crate::devices::{AllocatedDevices, DeviceId, Devices};
use crate::model::NodeRule;

/// What is left of the shared counters, by counter set and name.
pub(super) type Counters = BTreeMap<(Str, Str), Quantity>;

/// A pool, as a node sees it.
pub(super) struct ResourcePool {
    pub driver: Str,
    pub name: Str,
    pub state: PoolState,
    /// The devices that the node can use.
    pub offers: Vec<PoolDevice>,
    /// What is left of its shared counters.
    pub counters: Counters,
}

/// Whether a pool can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PoolState {
    Complete,
    /// Slices are missing.
    Incomplete,
    /// Names are not unique, or a device consumes an unknown counter.
    Invalid,
}

/// A device that a node can use.
pub(super) struct PoolDevice {
    pub id: DeviceId,
    pub device: Value,
    pub taints: Box<[Taint]>,
    pub reach: DeviceReach,
    /// `allowMultipleAllocations`.
    pub is_shared: bool,
    /// The counters that it consumes.
    pub consumes: Counters,
}

/// The nodes on which a device can be used.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum DeviceReach {
    Everywhere,
    /// On the current node alone.
    Here,
    /// On the nodes of a node selector.
    Nodes(Value),
}

impl DeviceReach {
    /// Where a slice or device can be used; `None` if not on this node.
    fn on_node(spec: &Value, node: &NodeInfo) -> Option<DeviceReach> {
        if let Some(name) = spec["nodeName"].as_str().filter(|name| !name.is_empty()) {
            return (name == node.name()).then_some(DeviceReach::Here);
        }
        if spec["allNodes"].bool() {
            return Some(DeviceReach::Everywhere);
        }
        let rule = NodeRule::new(&Value::Null, &spec["nodeSelector"])?;
        rule.allows(node.name(), &node.facts.labels)
            .then(|| DeviceReach::Nodes(spec["nodeSelector"].clone()))
    }

    /// A node selector for the nodes on which all of these can be used; `None` for all nodes.
    pub(super) fn node_selector<'a>(
        all: impl Iterator<Item = &'a DeviceReach>,
        node: &str,
    ) -> Option<Value> {
        let mut term = Value::object();
        for reach in all {
            match reach {
                DeviceReach::Everywhere => {}
                DeviceReach::Here => {
                    return Some(value!({"nodeSelectorTerms": [{
                        "matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]
                    }]}));
                }
                DeviceReach::Nodes(selector) => {
                    let from = &selector["nodeSelectorTerms"][0];
                    for field in ["matchFields", "matchExpressions"] {
                        for requirement in from[field].list() {
                            let known = term.entry(field).make_list();
                            if !known.contains(requirement) {
                                known.push(requirement.clone());
                            }
                        }
                    }
                }
            }
        }
        (!term.is_empty()).then(|| value!({"nodeSelectorTerms": [(term)]}))
    }
}

/// The pools with devices for a node, in the order in which they are allocated.
pub(super) fn node_pools(
    node: &NodeInfo,
    devices: &Devices,
    taken: &AllocatedDevices,
) -> Vec<ResourcePool> {
    // Most slices, and so their pools, belong to other nodes.
    let may_reach = |slice: &&Arc<Object>| {
        let name = slice["spec"]["nodeName"].str();
        name.is_empty() || name == node.name()
    };
    let near: HashSet<_> = devices
        .slices
        .values()
        .filter(may_reach)
        .map(|slice| pool_id(slice))
        .collect();
    let mut pools: BTreeMap<(&str, &str), Vec<&Arc<Object>>> = BTreeMap::new();
    for slice in devices
        .slices
        .values()
        .filter(|slice| near.contains(&pool_id(slice)))
    {
        let slices = pools.entry(pool_id(slice)).or_default();
        let latest = slices
            .first()
            .map_or(i64::MIN, |known| pool_generation(known));
        match pool_generation(slice).cmp(&latest) {
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Equal => slices.push(slice),
            std::cmp::Ordering::Greater => *slices = vec![slice],
        }
    }
    pools
        .into_iter()
        .filter_map(|(id, slices)| ResourcePool::from_slices(id, slices, node, taken))
        .collect()
}

fn pool_id(slice: &Object) -> (&str, &str) {
    (
        slice["spec"]["driver"].str(),
        slice["spec"]["pool"]["name"].str(),
    )
}

fn pool_generation(slice: &Object) -> i64 {
    slice["spec"]["pool"]["generation"].int()
}

impl ResourcePool {
    /// The pool of all slices of the latest generation; `None` if it has no device for the node.
    fn from_slices(
        id: (&str, &str),
        mut slices: Vec<&Arc<Object>>,
        node: &NodeInfo,
        taken: &AllocatedDevices,
    ) -> Option<ResourcePool> {
        slices.sort_by(|one, other| one.name().cmp(other.name()));
        let offers: Vec<PoolDevice> = slices
            .iter()
            .flat_map(|slice| slice_devices(slice, node))
            .collect();
        if offers.is_empty() {
            return None;
        }
        let expected = slices[0]["spec"]["pool"]["resourceSliceCount"].int();
        let mut names = HashSet::new();
        let is_unique = offers.iter().all(|offer| names.insert(&offer.id.2));
        let (state, counters) = match remaining_counters(&slices, taken) {
            _ if slices.len() as i64 != expected => (PoolState::Incomplete, Counters::new()),
            Some(counters) if is_unique => (PoolState::Complete, counters),
            _ => (PoolState::Invalid, Counters::new()),
        };
        Some(ResourcePool {
            driver: id.0.into(),
            name: id.1.into(),
            state,
            offers,
            counters,
        })
    }
}

/// What is left of a pool's counters; `None` if a device consumes an unknown counter or a counter
/// set is duplicated.
fn remaining_counters(slices: &[&Arc<Object>], taken: &AllocatedDevices) -> Option<Counters> {
    let mut counters = Counters::new();
    let mut names = HashSet::new();
    for set in slices
        .iter()
        .flat_map(|slice| slice["spec"]["sharedCounters"].list())
    {
        if !names.insert(set["name"].str()) {
            return None;
        }
        counters.extend(counter_amounts(set["name"].str(), set));
    }
    for slice in slices {
        for device in slice["spec"]["devices"].list() {
            let id = device_id(slice, device);
            for (counter, amount) in consumed_counters(device) {
                let left = counters.get_mut(&counter)?;
                if taken.is_allocated(&id) {
                    *left = left.sub(&amount);
                }
            }
        }
    }
    Some(counters)
}

fn counter_amounts(set: &str, counters: &Value) -> impl Iterator<Item = ((Str, Str), Quantity)> {
    let set = Str::from(set);
    let amount = move |(name, counter): (&str, &Value)| {
        (
            (set.clone(), Str::from(name)),
            Quantity::parse_or_zero(counter["value"].str()),
        )
    };
    counters["counters"].entries().map(amount)
}

fn consumed_counters(device: &Value) -> Counters {
    let sets = device["consumesCounters"].list().iter();
    sets.flat_map(|set| counter_amounts(set["counterSet"].str(), set).collect::<Vec<_>>())
        .collect()
}

fn device_id(slice: &Object, device: &Value) -> DeviceId {
    let (driver, pool) = pool_id(slice);
    (driver.into(), pool.into(), device["name"].str().into())
}

/// The devices of a slice that a node can use, without those that have binding conditions.
fn slice_devices(slice: &Object, node: &NodeInfo) -> Vec<PoolDevice> {
    let spec = &slice["spec"];
    let per_device = spec["perDeviceNodeSelection"].bool();
    let offer = |device: &Value| {
        if !device["bindingConditions"].is_empty() {
            return None;
        }
        let reach = DeviceReach::on_node(if per_device { device } else { spec }, node)?;
        let reach = if device["bindsToNode"].bool() {
            DeviceReach::Here
        } else {
            reach
        };
        Some(PoolDevice {
            id: device_id(slice, device),
            taints: Taint::list(&device["taints"]),
            reach,
            is_shared: device["allowMultipleAllocations"].bool(),
            consumes: consumed_counters(device),
            device: device.clone(),
        })
    };
    spec["devices"].list().iter().filter_map(offer).collect()
}
