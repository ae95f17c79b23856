//! Which pools of devices does a node see?
//!
//! A driver publishes a pool in slices. Until all slices of its latest generation are there, nobody gets anything of it.
//! Slices are taken by name and pools by driver and name, so that drivers can say by names what is to be had first.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use mizzen_kinds::tolerations::Taint;
use mizzen_sdk::Object;
use mizzen_value::quantity::Quantity;
use mizzen_value::{Str, Value, value};

use crate::cache::Node;
use crate::devices::{DeviceId, Devices, Taken};
use crate::model::NodeRule;

/// What is left of the counters that devices share, by set and name.
pub(super) type Counters = BTreeMap<(Str, Str), Quantity>;

/// A pool, as a node sees it.
pub(super) struct Pool {
    pub driver: Str,
    pub name: Str,
    pub state: State,
    /// The devices that the node can use.
    pub offers: Vec<Offer>,
    /// What nobody has taken of the counters.
    pub counters: Counters,
}

/// Whether a pool can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Sound,
    /// Slices are missing.
    Incomplete,
    /// What it says makes no sense.
    Invalid,
}

/// A device that a node can use.
pub(super) struct Offer {
    pub id: DeviceId,
    pub device: Value,
    pub taints: Box<[Taint]>,
    pub reach: Reach,
    /// Whether several claims may have parts of it.
    pub is_shared: bool,
    /// What it takes of the counters.
    pub consumes: Counters,
}

/// Where a device can be used.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Reach {
    Everywhere,
    /// On the node at hand alone.
    Here,
    /// Where a node selector says.
    Nodes(Value),
}

impl Reach {
    /// Where something can be used, if that is on this node.
    fn of(spec: &Value, node: &Node) -> Option<Reach> {
        if let Some(name) = spec["nodeName"].as_str().filter(|name| !name.is_empty()) {
            return (name == node.name()).then_some(Reach::Here);
        }
        if spec["allNodes"].bool() {
            return Some(Reach::Everywhere);
        }
        let rule = NodeRule::new(&Value::Null, &spec["nodeSelector"])?;
        rule.allows(node.name(), &node.facts.labels)
            .then(|| Reach::Nodes(spec["nodeSelector"].clone()))
    }

    /// The nodes on which all of these can be used; none for everywhere.
    pub(super) fn join<'a>(all: impl Iterator<Item = &'a Reach>, node: &str) -> Option<Value> {
        let mut term = Value::object();
        for reach in all {
            match reach {
                Reach::Everywhere => {}
                Reach::Here => {
                    return Some(value!({"nodeSelectorTerms": [{
                        "matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]
                    }]}));
                }
                Reach::Nodes(selector) => {
                    add_requirements(&mut term, &selector["nodeSelectorTerms"][0])
                }
            }
        }
        (!term.is_empty()).then(|| value!({"nodeSelectorTerms": [(term)]}))
    }
}

fn add_requirements(to: &mut Value, from: &Value) {
    for field in ["matchFields", "matchExpressions"] {
        for requirement in from[field].list() {
            let known = to.entry(field).make_list();
            if !known.contains(requirement) {
                known.push(requirement.clone());
            }
        }
        if to[field].is_empty() {
            to.remove(field);
        }
    }
}

/// The pools of which a node can use devices, in the order in which they are taken.
pub(super) fn pools(node: &Node, devices: &Devices, taken: &Taken) -> Vec<Pool> {
    // Most slices are of other nodes, and so are their pools.
    let may_reach = |slice: &&Arc<Object>| {
        let name = slice["spec"]["nodeName"].str();
        name.is_empty() || name == node.name()
    };
    let near: HashSet<_> = devices
        .slices
        .values()
        .filter(may_reach)
        .map(|slice| pool_of(slice))
        .collect();
    let mut pools: BTreeMap<(&str, &str), Vec<&Arc<Object>>> = BTreeMap::new();
    for slice in devices
        .slices
        .values()
        .filter(|slice| near.contains(&pool_of(slice)))
    {
        let slices = pools.entry(pool_of(slice)).or_default();
        let latest = slices.first().map_or(i64::MIN, |known| generation(known));
        match generation(slice).cmp(&latest) {
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Equal => slices.push(slice),
            std::cmp::Ordering::Greater => *slices = vec![slice],
        }
    }
    pools
        .into_iter()
        .filter_map(|(id, slices)| Pool::of(id, slices, node, taken))
        .collect()
}

fn pool_of(slice: &Object) -> (&str, &str) {
    (
        slice["spec"]["driver"].str(),
        slice["spec"]["pool"]["name"].str(),
    )
}

fn generation(slice: &Object) -> i64 {
    slice["spec"]["pool"]["generation"].int()
}

impl Pool {
    /// A pool of which all slices of the latest generation are given; none if it has nothing for the node.
    fn of(
        id: (&str, &str),
        mut slices: Vec<&Arc<Object>>,
        node: &Node,
        taken: &Taken,
    ) -> Option<Pool> {
        slices.sort_by(|one, other| one.name().cmp(other.name()));
        let offers: Vec<Offer> = slices
            .iter()
            .flat_map(|slice| offers(slice, node))
            .collect();
        if offers.is_empty() {
            return None;
        }
        let expected = slices[0]["spec"]["pool"]["resourceSliceCount"].int();
        let (state, counters) = match counters(&slices, taken) {
            _ if slices.len() as i64 != expected => (State::Incomplete, Counters::new()),
            Some(counters) if has_unique_names(&offers) => (State::Sound, counters),
            _ => (State::Invalid, Counters::new()),
        };
        Some(Pool {
            driver: id.0.into(),
            name: id.1.into(),
            state,
            offers,
            counters,
        })
    }
}

fn has_unique_names(offers: &[Offer]) -> bool {
    let mut seen = HashSet::new();
    offers.iter().all(|offer| seen.insert(&offer.id.2))
}

/// What is left of a pool's counters; none if a device takes of what there is not, or if a set is there twice.
fn counters(slices: &[&Arc<Object>], taken: &Taken) -> Option<Counters> {
    let mut counters = Counters::new();
    let mut names = HashSet::new();
    for set in slices
        .iter()
        .flat_map(|slice| slice["spec"]["sharedCounters"].list())
    {
        if !names.insert(set["name"].str()) {
            return None;
        }
        counters.extend(amounts(set["name"].str(), set));
    }
    for slice in slices {
        for device in slice["spec"]["devices"].list() {
            let id = device_id(slice, device);
            for (counter, amount) in consumed(device) {
                let left = counters.get_mut(&counter)?;
                if taken.has(&id) {
                    *left = left.sub(&amount);
                }
            }
        }
    }
    Some(counters)
}

fn amounts(set: &str, counters: &Value) -> impl Iterator<Item = ((Str, Str), Quantity)> {
    let set = Str::from(set);
    let amount = move |(name, counter): (&str, &Value)| {
        (
            (set.clone(), Str::from(name)),
            Quantity::of(counter["value"].str()),
        )
    };
    counters["counters"].entries().map(amount)
}

fn consumed(device: &Value) -> Counters {
    let sets = device["consumesCounters"].list().iter();
    sets.flat_map(|set| amounts(set["counterSet"].str(), set).collect::<Vec<_>>())
        .collect()
}

fn device_id(slice: &Object, device: &Value) -> DeviceId {
    let (driver, pool) = pool_of(slice);
    (driver.into(), pool.into(), device["name"].str().into())
}

/// The devices of a slice that a node can use.
///
/// Those that must be made ready while the pod waits are not among them.
fn offers(slice: &Object, node: &Node) -> Vec<Offer> {
    let spec = &slice["spec"];
    let per_device = spec["perDeviceNodeSelection"].bool();
    let offer = |device: &Value| {
        if !device["bindingConditions"].is_empty() {
            return None;
        }
        let reach = Reach::of(if per_device { device } else { spec }, node)?;
        let reach = if device["bindsToNode"].bool() {
            Reach::Here
        } else {
            reach
        };
        Some(Offer {
            id: device_id(slice, device),
            taints: Taint::list(&device["taints"]),
            reach,
            is_shared: device["allowMultipleAllocations"].bool(),
            consumes: consumed(device),
            device: device.clone(),
        })
    };
    spec["devices"].list().iter().filter_map(offer).collect()
}
