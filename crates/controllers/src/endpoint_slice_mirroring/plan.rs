//! The changes that bring EndpointSlices in line with the Endpoints that they mirror.

use std::collections::BTreeMap;

use mizzen_value::{Value, value};

use crate::services::member::{self, IpFamily};
use crate::services::slice::{self, Endpoints, MANAGED_BY, SERVICE_NAME, SliceChanges, port_key};
use crate::services::subsets::Subsets;
use crate::services::trigger;

/// The managed-by label of these slices.
pub(crate) const CONTROLLER: &str = "endpointslicemirroring-controller.k8s.io";
/// How many addresses of a subset are mirrored, so that each subset fits into one slice.
pub(crate) const MAX_ADDRESSES: usize = 1000;
/// Annotations that are not mirrored.
const UNMIRRORED: [&str; 2] = [
    trigger::ANNOTATION,
    "kubectl.kubernetes.io/last-applied-configuration",
];

/// The changes, and what was left out.
#[derive(Debug, Default)]
pub(crate) struct MirroringPlan<'a> {
    pub changes: SliceChanges<'a>,
    /// How many addresses are invalid.
    pub n_invalid: usize,
    /// How many addresses are skipped, the invalid ones included.
    pub n_skipped: usize,
}

/// Addresses of one family with the same ports.
#[derive(Default)]
struct AddressGroup {
    ports: Vec<Value>,
    endpoints: Endpoints,
}

/// The family and the ports.
type GroupKey = (IpFamily, String);

/// Whether Endpoints are mirrored.
pub(crate) fn is_mirrored(endpoints: &Value) -> bool {
    let metadata = &endpoints["metadata"];
    metadata["labels"]["endpointslice.kubernetes.io/skip-mirror"].str() != "true"
        && metadata["annotations"]
            .get("control-plane.alpha.kubernetes.io/leader")
            .is_none()
}

/// Plans the changes.
pub(crate) fn plan<'a>(endpoints: &Value, slices: &[&'a Value]) -> MirroringPlan<'a> {
    let mut plan = MirroringPlan::default();
    let mut old: BTreeMap<GroupKey, Vec<&'a Value>> = BTreeMap::new();
    for slice in slices {
        match IpFamily::from_name(slice["addressType"].str()) {
            Some(family) => old
                .entry((family, port_key(slice["ports"].list())))
                .or_default()
                .push(slice),
            None => plan.changes.delete.push(slice),
        }
    }
    for (key, group) in groups(endpoints, &mut plan) {
        let own = old.remove(&key).unwrap_or_default();
        plan.changes.append(mirror(endpoints, key.0, group, own));
    }
    plan.changes.delete.extend(old.into_values().flatten());
    plan.changes.recycle(|_| true);
    plan
}

fn groups(endpoints: &Value, plan: &mut MirroringPlan) -> BTreeMap<GroupKey, AddressGroup> {
    let mut groups: BTreeMap<GroupKey, AddressGroup> = BTreeMap::new();
    for subset in Subsets::from_list(&endpoints["subsets"]).to_list() {
        let mut ports = subset["ports"].list().to_vec();
        ports
            .iter_mut()
            .for_each(|port| port.set_default("name", ""));
        let ready = subset["addresses"]
            .list()
            .iter()
            .map(|address| (address, true));
        let unready = subset["notReadyAddresses"]
            .list()
            .iter()
            .map(|address| (address, false));
        let all: Vec<_> = ready.chain(unready).collect();
        let mut n_added = 0;
        for (address, ready) in &all {
            if n_added >= MAX_ADDRESSES {
                break;
            }
            let Some((family, endpoint)) = endpoint(address, *ready) else {
                plan.n_invalid += 1;
                continue;
            };
            n_added += 1;
            let group = groups.entry((family, port_key(&ports))).or_default();
            group.ports.clone_from(&ports);
            group
                .endpoints
                .insert(slice::endpoint_identity(&endpoint), endpoint);
        }
        plan.n_skipped += all.len() - n_added;
    }
    groups
}

fn endpoint(address: &Value, ready: bool) -> Option<(IpFamily, Value)> {
    let ip = member::parse_address(address["ip"].str())?;
    let mut endpoint = value!({"addresses": [(ip.to_string())], "conditions": {"ready": (ready)}});
    for name in ["targetRef", "nodeName", "hostname"] {
        if !address[name].is_null() && address[name] != value!("") {
            endpoint.set(name, address[name].clone());
        }
    }
    Some((IpFamily::from_address(ip), endpoint))
}

/// One slice for each group; of several existing ones the first is kept.
fn mirror<'a>(
    endpoints: &Value,
    family: IpFamily,
    group: AddressGroup,
    slices: Vec<&'a Value>,
) -> SliceChanges<'a> {
    let mut slices = slices.into_iter();
    let first = slices.next();
    let mut changes = SliceChanges {
        delete: slices.collect(),
        ..SliceChanges::default()
    };
    let mut wanted = slice::empty_slice(
        ("Endpoints", endpoints),
        family.name(),
        &group.ports,
        labels(endpoints),
    );
    wanted
        .entry("metadata")
        .set("annotations", annotations(endpoints));
    wanted.set(
        "endpoints",
        group.endpoints.into_values().collect::<Vec<Value>>(),
    );
    match first {
        None => changes.create.push(wanted),
        Some(old) if is_up_to_date(old, &wanted) => changes.unchanged.push(old),
        Some(old) => {
            wanted
                .entry("metadata")
                .set("name", old["metadata"]["name"].clone());
            changes.update.push(wanted);
        }
    }
    changes
}

fn labels(endpoints: &Value) -> Value {
    let mut labels = endpoints["metadata"]["labels"].clone();
    labels.set(SERVICE_NAME, endpoints["metadata"]["name"].clone());
    labels.set(MANAGED_BY, CONTROLLER);
    labels
}

fn annotations(endpoints: &Value) -> Value {
    let mut annotations = endpoints["metadata"]["annotations"].clone();
    annotations
        .make_map()
        .retain(|name, _| !UNMIRRORED.contains(&name));
    annotations
}

/// Whether a slice has the wanted content in any order.
fn is_up_to_date(old: &Value, wanted: &Value) -> bool {
    let (before, after) = (old["endpoints"].list(), wanted["endpoints"].list());
    let known: BTreeMap<String, &Value> = before
        .iter()
        .map(|endpoint| (slice::endpoint_identity(endpoint), endpoint))
        .collect();
    let is_known = |endpoint: &Value| {
        known
            .get(&slice::endpoint_identity(endpoint))
            .is_some_and(|old| slice::is_same_endpoint(old, endpoint))
    };
    let map = |slice: &Value, name: &str| {
        slice["metadata"][name]
            .as_map()
            .cloned()
            .unwrap_or_default()
    };
    before.len() == after.len()
        && after.iter().all(is_known)
        && map(old, "labels") == map(wanted, "labels")
        && map(old, "annotations") == map(wanted, "annotations")
        && old["metadata"]["ownerReferences"] == wanted["metadata"]["ownerReferences"]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(subsets: Value) -> Value {
        value!({
            "metadata": {
                "namespace": "a", "name": "s", "uid": "e1", "labels": {"own": "1"},
                "annotations": {"note": "n", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
            },
            "subsets": (subsets)
        })
    }

    fn subset(addresses: &[&str]) -> Value {
        let addresses: Vec<Value> = addresses.iter().map(|ip| value!({"ip": (*ip)})).collect();
        value!({"addresses": (addresses), "ports": [{"port": 80, "protocol": "TCP"}]})
    }

    fn named(slices: Vec<Value>) -> Vec<Value> {
        let name = |(at, mut slice): (usize, Value)| {
            slice.entry("metadata").set("name", format!("s-{at}"));
            slice
        };
        slices.into_iter().enumerate().map(name).collect()
    }

    #[test]
    fn a_slice_mirrors_the_endpoints() {
        let endpoints = endpoints(value!([{
            "addresses": [{"ip": "192.0.2.1", "hostname": "h"}], "notReadyAddresses": [{"ip": "192.0.2.3"}],
            "ports": [{"port": 80, "protocol": "TCP"}]
        }]));
        let slices = named(plan(&endpoints, &[]).changes.create);
        let [slice] = slices.as_slice() else {
            panic!("{slices:?}")
        };
        assert_eq!(
            slice["endpoints"],
            value!([
                {"addresses": ["192.0.2.1"], "conditions": {"ready": true}, "hostname": "h"},
                {"addresses": ["192.0.2.3"], "conditions": {"ready": false}}
            ])
        );
        assert_eq!(
            slice["ports"],
            value!([{"name": "", "port": 80, "protocol": "TCP"}])
        );
        assert_eq!(slice["metadata"]["annotations"], value!({"note": "n"}));
        assert_eq!(
            slice["metadata"]["ownerReferences"][0]["kind"].str(),
            "Endpoints"
        );
        assert!(
            plan(&endpoints, &[slice]).changes.is_empty(),
            "written once is enough"
        );
    }

    /// Addresses before and after; the number of slices created, updated and deleted.
    #[track_caller]
    fn check(before: &[&str], after: &[&str], expect: (usize, usize, usize)) {
        let slices = named(
            plan(&endpoints(value!([(subset(before))])), &[])
                .changes
                .create,
        );
        let changes = plan(
            &endpoints(value!([(subset(after))])),
            &slices.iter().collect::<Vec<_>>(),
        )
        .changes;
        assert_eq!(
            (
                changes.create.len(),
                changes.update.len(),
                changes.delete.len()
            ),
            expect
        );
    }

    #[test]
    fn there_is_a_slice_for_each_family() {
        check(&["192.0.2.1"], &["192.0.2.1", "fd00::1"], (1, 0, 0));
        check(
            &["192.0.2.1", "fd00::1"],
            &["192.0.2.2", "fd00::1"],
            (0, 1, 0),
        );
        check(&["192.0.2.1", "fd00::1"], &["fd00::1"], (0, 0, 1));
        check(&["192.0.2.1"], &[], (0, 0, 1));
    }

    #[test]
    fn invalid_and_surplus_addresses_are_left_out() {
        let many: Vec<String> = (0..1003)
            .map(|n| format!("10.0.{}.{}", n / 200, n % 200))
            .collect();
        let mut addresses: Vec<&str> = many.iter().map(String::as_str).collect();
        addresses.insert(0, "!nonsense");
        let endpoints = endpoints(value!([(subset(&addresses))]));
        let plan = plan(&endpoints, &[]);
        assert_eq!(
            plan.changes.create[0]["endpoints"].list().len(),
            MAX_ADDRESSES
        );
        assert_eq!((plan.n_invalid, plan.n_skipped), (1, 4));
    }

    #[test]
    fn the_skip_mirror_label_is_honoured() {
        let wanted = endpoints(value!([]));
        assert!(is_mirrored(&wanted));
        let mut skipped = wanted.clone();
        skipped
            .entry("metadata")
            .entry("labels")
            .set("endpointslice.kubernetes.io/skip-mirror", "true");
        assert!(!is_mirrored(&skipped));
        let mut leader = wanted;
        leader
            .entry("metadata")
            .entry("annotations")
            .set("control-plane.alpha.kubernetes.io/leader", "{}");
        assert!(!is_mirrored(&leader));
    }
}
