//! Which devices does a claim get on a node?

use std::sync::Arc;

use mizzen_object::{Str, Value, value};
use mizzen_sdk::Object;

use super::alternatives;
use super::selector::Selectors;
use crate::cache::Node;
use crate::devices::DeviceId;
use crate::model::{NodeRule, Taint, Toleration, first_untolerated};
use crate::world::World;
use crate::{HashMap, HashSet};

/// One thing that a claim would be content with.
pub(super) struct Wish {
    /// What the claim calls it.
    request: Str,
    class: Str,
    selectors: Selectors,
    /// None for all that there are.
    count: Option<usize>,
    admin: bool,
    tolerations: Box<[Toleration]>,
}

/// All that one claim asks for: for each request the alternatives, the best first.
pub(super) struct Wishes(Vec<Vec<Wish>>);

impl Wishes {
    pub fn of(claim: &Object, world: &World) -> Result<Wishes, String> {
        let requests = claim["spec"]["devices"]["requests"].list().iter();
        let wishes = requests.map(|request| {
            alternatives(request).into_iter().map(|(name, one)| Wish::of(&name, one, world)).collect()
        });
        Ok(Wishes(wishes.collect::<Result<_, String>>()?))
    }

    /// Takes devices for every request on a node; none if there are too few.
    pub fn take(
        &self,
        claim: &Object,
        offers: &[Offer],
        taken: &mut HashSet<DeviceId>,
        world: &World,
    ) -> Result<Option<Value>, String> {
        let (mut results, mut config, mut is_local) = (Vec::new(), Vec::new(), None);
        for wishes in &self.0 {
            let mut chosen = None;
            for wish in wishes {
                chosen = wish.choose(offers, taken)?.map(|devices| (wish, devices));
                if chosen.is_some() {
                    break;
                }
            }
            let Some((wish, devices)) = chosen else { return Ok(None) };
            for offer in devices {
                is_local = is_local.or(offer.node.clone());
                if !wish.admin {
                    taken.insert(offer.id.clone());
                }
                results.push(wish.result(offer));
            }
            let class = world.devices.classes.get(&wish.class);
            let of_class = class.into_iter().flat_map(|class| class["spec"]["config"].list());
            config
                .extend(of_class.map(|one| configured(one, "FromClass", vec![wish.request.as_str().into()])));
        }
        let own = claim["spec"]["devices"]["config"].list().iter();
        config.extend(own.map(|one| configured(one, "FromClaim", one["requests"].list().to_vec())));
        Ok(Some(allocation(results, config, is_local)))
    }
}

fn configured(config: &Value, source: &str, requests: Vec<Value>) -> Value {
    let mut out = value!({"source": source});
    if !requests.is_empty() {
        out.set("requests", requests);
    }
    if !config["opaque"].is_null() {
        out.set("opaque", config["opaque"].clone());
    }
    out
}

fn allocation(results: Vec<Value>, config: Vec<Value>, local: Option<Value>) -> Value {
    let mut allocation = value!({"devices": {"results": results}});
    if !config.is_empty() {
        allocation.entry("devices").set("config", config);
    }
    if let Some(selector) = local {
        allocation.set("nodeSelector", selector);
    }
    allocation
}

impl Wish {
    fn of(name: &str, request: &Value, world: &World) -> Result<Wish, String> {
        let class = request["deviceClassName"].str();
        let of_class = world.devices.classes.get(class).map(|class| class["spec"]["selectors"].clone());
        let of_class = of_class.unwrap_or_default();
        let selectors = Selectors::of(of_class.list().iter().chain(request["selectors"].list()))?;
        let count = match request["allocationMode"].str() {
            "All" => None,
            _ => Some(request["count"].as_int().unwrap_or(1).max(0) as usize),
        };
        Ok(Wish {
            request: name.into(),
            class: class.into(),
            selectors,
            count,
            admin: request["adminAccess"].bool(),
            tolerations: Toleration::list(&request["tolerations"]),
        })
    }

    /// Devices that suit; none if there are too few.
    fn choose<'a>(
        &self,
        offers: &'a [Offer],
        taken: &HashSet<DeviceId>,
    ) -> Result<Option<Vec<&'a Offer>>, String> {
        let mut chosen = Vec::new();
        for offer in offers {
            if self.count.is_some_and(|count| chosen.len() >= count) {
                break;
            }
            let is_free = self.admin || !taken.contains(&offer.id);
            let is_tolerated = first_untolerated(&offer.taints, &self.tolerations).is_none();
            let suits = self.selectors.suit(&offer.id.0, &offer.device)?;
            // Whoever wants all of them does not want all but one.
            if self.count.is_none() && suits && !(is_free && is_tolerated) {
                return Ok(None);
            }
            if is_free && is_tolerated && suits {
                chosen.push(offer);
            }
        }
        let enough = self.count.map_or(!chosen.is_empty(), |count| chosen.len() == count);
        Ok(enough.then_some(chosen))
    }

    fn result(&self, offer: &Offer) -> Value {
        let (driver, pool, device) = &offer.id;
        let mut result =
            value!({"request": (&self.request), "driver": driver, "pool": pool, "device": device});
        if self.admin {
            result.set("adminAccess", true);
        }
        result
    }
}

/// A device that a node can use.
pub(super) struct Offer {
    id: DeviceId,
    device: Value,
    taints: Box<[Taint]>,
    /// Where it can be used; none for everywhere.
    node: Option<Value>,
}

/// The devices that a node can use: of each pool only what its latest generation says.
pub(super) fn offers(node: &Node, world: &World) -> Vec<Offer> {
    let mut latest: HashMap<(&str, &str), i64> = HashMap::default();
    let slices: Vec<&Arc<Object>> = world.devices.slices.values().collect();
    for slice in &slices {
        let generation = latest.entry(pool(slice)).or_insert(i64::MIN);
        *generation = slice["spec"]["pool"]["generation"].int().max(*generation);
    }
    let current = slices
        .iter()
        .filter(|slice| latest.get(&pool(slice)) == Some(&slice["spec"]["pool"]["generation"].int()));
    let mut offers: Vec<Offer> = current.flat_map(|slice| of_slice(slice, node)).collect();
    offers.sort_by(|a, b| a.id.cmp(&b.id));
    offers
}

fn pool(slice: &Object) -> (&str, &str) {
    (slice["spec"]["driver"].str(), slice["spec"]["pool"]["name"].str())
}

fn of_slice(slice: &Object, node: &Node) -> Vec<Offer> {
    let spec = &slice["spec"];
    let (driver, pool) = pool(slice);
    let per_device = spec["perDeviceNodeSelection"].bool();
    let offer = |device: &Value| {
        let reach = reach(if per_device { device } else { spec }, node)?;
        Some(Offer {
            id: (driver.into(), pool.into(), device["name"].str().into()),
            taints: Taint::list(&device["taints"]),
            device: device.clone(),
            node: reach,
        })
    };
    spec["devices"].list().iter().filter_map(offer).collect()
}

/// Where something can be used, if that is on this node; none in it for everywhere.
fn reach(spec: &Value, node: &Node) -> Option<Option<Value>> {
    if spec["allNodes"].bool() {
        return Some(None);
    }
    if let Some(name) = spec["nodeName"].as_str() {
        let here = || {
            value!({"nodeSelectorTerms": [{
                "matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]
            }]})
        };
        return (name == node.name()).then(|| Some(here()));
    }
    let rule = NodeRule::new(&Value::Null, &spec["nodeSelector"])?;
    rule.allows(node.name(), &node.facts.labels).then(|| Some(spec["nodeSelector"].clone()))
}
