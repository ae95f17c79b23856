//! ResourceSlices.

use mizzen_object::validate::{field, names};
use mizzen_object::{HookContext, Path, Violations};
use mizzen_value::Value;

use super::{device, parts};
use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;
use mizzen_apiextensions::rules;

pub(super) const SLICE: Behaviour = Behaviour::of::<ResourceSliceStrategy>();

pub(super) struct ResourceSliceStrategy;

impl KindStrategy for ResourceSliceStrategy {
    fn default(slice: &mut Value) {
        devices_mut(slice).iter_mut().for_each(default_mappings);
    }

    /// Kubernetes: mappings and lists of attributes are behind gates that are off by default; they stay where they
    /// are in use.
    fn prepare(slice: &mut Value, old: Option<&Value>, context: &HookContext) {
        let old = old
            .map(|old| old["spec"]["devices"].list())
            .unwrap_or_default();
        let maps = old
            .iter()
            .any(|device| !device["nodeAllocatableResourceMappings"].is_empty());
        let lists = old.iter().any(device::has_list);
        for device in devices_mut(slice) {
            for taint in device
                .get_mut("taints")
                .into_iter()
                .flat_map(Value::list_mut)
            {
                taint.set_default("timeAdded", context.now);
            }
            if !maps {
                device.remove("nodeAllocatableResourceMappings");
            }
            for attribute in members_mut(device, "attributes").filter(|_| !lists) {
                for name in LISTS {
                    attribute.remove(name);
                }
            }
        }
    }

    fn validate(slice: &Value, old: Option<&Value>, _: &HookContext, violations: &mut Violations) {
        let (spec, path) = (&slice["spec"], Path::new("spec"));
        let old = old.map(|old| &old["spec"]);
        parts::driver(spec["driver"].str(), &path.child("driver"), violations);
        let pool = &spec["pool"];
        let place = path.child("pool");
        parts::pool(pool["name"].str(), &place.child("name"), violations);
        let (count, generation) = (pool["resourceSliceCount"].int(), pool["generation"].int());
        if count <= 0 {
            violations.invalid(
                place.child("resourceSliceCount"),
                count,
                "must be greater than zero",
            );
        }
        if generation < 0 {
            violations.invalid(
                place.child("generation"),
                generation,
                "must be greater than or equal to zero",
            );
        }
        if let Some(old) = old {
            let pool = path.child("pool");
            field::immutable(
                &spec["pool"]["name"],
                &old["pool"]["name"],
                &pool.child("name"),
                violations,
            );
            field::immutable(
                &spec["driver"],
                &old["driver"],
                &path.child("driver"),
                violations,
            );
            field::immutable(
                &spec["nodeName"],
                &old["nodeName"],
                &path.child("nodeName"),
                violations,
            );
        }
        validate_nodes(spec, &path, violations);
        if !spec["sharedCounters"].is_empty() && !spec["devices"].is_empty() {
            violations.invalid(
                path,
                "",
                "only one of `sharedCounters` or `devices` is allowed",
            );
        }
        let devices = spec["devices"].list();
        let max = if devices.iter().any(device::is_advanced) {
            MAX_ADVANCED_DEVICES
        } else {
            MAX_DEVICES
        };
        let by_device = spec["perDeviceNodeSelection"].bool();
        let validate = |device: &Value, path: &Path, violations: &mut Violations| {
            let old = old.and_then(|old| {
                old["devices"]
                    .items()
                    .find(|old| old["name"] == device["name"])
            });
            device::validate(device, old, by_device, path, violations);
        };
        parts::each_once(
            devices,
            max,
            &path.child("devices"),
            violations,
            validate,
            parts::name,
        );
        let (counters, path) = (spec["sharedCounters"].list(), path.child("sharedCounters"));
        parts::each_once(
            counters,
            MAX_COUNTER_SETS,
            &path,
            violations,
            device::validate_counter_set,
            parts::name,
        );
    }

    fn warnings(slice: &Value, _: Option<&Value>, _: &HookContext) -> Vec<String> {
        let driver = slice["spec"]["driver"].str();
        if driver == driver.to_lowercase() {
            return Vec::new();
        }
        vec![format!(
            "spec.driver: driver names should be lowercase; \"{driver}\" contains uppercase characters"
        )]
    }
}

pub(super) fn default_mappings(device: &mut Value) {
    for mapping in members_mut(device, "nodeAllocatableResourceMappings") {
        mapping.set_default("allocationMultiplier", "1");
    }
}

pub(super) fn devices_mut(slice: &mut Value) -> &mut [Value] {
    slice
        .at_mut("spec.devices")
        .map(Value::list_mut)
        .unwrap_or_default()
}

fn members_mut<'a>(device: &'a mut Value, map: &str) -> impl Iterator<Item = &'a mut Value> {
    let map = match device.get_mut(map) {
        Some(Value::Map(map)) => Some(map),
        _ => None,
    };
    map.into_iter().flat_map(|map| map.values_mut())
}

const LISTS: [&str; 4] = ["bools", "ints", "strings", "versions"];

const MAX_DEVICES: usize = 128;
const MAX_ADVANCED_DEVICES: usize = 64;
const MAX_COUNTER_SETS: usize = 8;

/// A slice says in one way where its devices are.
fn validate_nodes(spec: &Value, path: &Path, violations: &mut Violations) {
    let mut ways = Vec::new();
    match spec["nodeName"].as_str() {
        None => {}
        Some("") => {
            let detail = "must be either unset or set to a non-empty string";
            violations.invalid(path.child("nodeName"), "", detail);
        }
        Some(name) => {
            ways.push("`nodeName`");
            rules::text(
                name,
                names::is_dns1123_subdomain,
                &path.child("nodeName"),
                violations,
            );
        }
    }
    if let Some(selector) = spec.get("nodeSelector") {
        ways.push("`nodeSelector`");
        mizzen_core_kinds::pod::validate_node_selector(
            selector,
            false,
            &path.child("nodeSelector"),
            violations,
        );
        let terms = &selector["nodeSelectorTerms"];
        if terms.list().len() != 1 {
            let shown = terms
                .items()
                .map(|term| mizzen_apiextensions::internal::shown("NodeSelectorTerm", term));
            let shown = if terms.is_null() {
                Value::Null
            } else {
                shown.collect::<Vec<_>>().into()
            };
            violations.invalid(
                path.child("nodeSelector").child("nodeSelectorTerms"),
                shown,
                "must have exactly one node selector term",
            );
        }
    }
    for (name, way) in [
        ("allNodes", "`allNodes`"),
        ("perDeviceNodeSelection", "`perDeviceNodeSelection`"),
    ] {
        ways.extend(device::flag(&spec[name], &path.child(name), violations).then_some(way));
    }
    let one_of = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    match ways.len() {
        0 => violations.required(path, one_of),
        1 => {}
        _ => {
            let shown = format!("{{{}}}", ways.join(", "));
            violations.invalid(
                path,
                shown,
                &format!("{one_of}, but multiple fields are set"),
            );
        }
    }
}
