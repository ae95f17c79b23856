//! Validation of a device in a ResourceSlice.

use mizzen_object::validate::names;
use mizzen_object::{Path, Violations};
use mizzen_value::Value;
use mizzen_value::quantity::Quantity;

use super::{capacity, parts};
use mizzen_apiextensions::{internal, rules};

const MAX_PROPERTIES: usize = 32;
const MAX_ATTRIBUTE_VALUES: usize = 48;
const MAX_TAINTS: usize = 16;
const MAX_CONSUMPTIONS: usize = 2;
const MAX_COUNTERS: usize = 32;
const MAX_VALUE: usize = 64;
const LISTS: [&str; 4] = ["bools", "ints", "strings", "versions"];

/// Whether an attribute of a device is a list.
pub(super) fn has_list(device: &Value) -> bool {
    device["attributes"]
        .entries()
        .any(|(_, attribute)| LISTS.iter().any(|name| attribute.get(name).is_some()))
}

/// Whether a device has what fewer devices of a slice may have.
pub(super) fn is_advanced(device: &Value) -> bool {
    !device["taints"].is_empty() || !device["consumesCounters"].is_empty() || has_list(device)
}

/// One device of a slice.
pub(super) fn validate(
    device: &Value,
    old: Option<&Value>,
    by_device: bool,
    path: &Path,
    violations: &mut Violations,
) {
    parts::label(device["name"].str(), &path.child("name"), violations);
    validate_numbers(device, path, violations);
    let attributes = path.child("attributes");
    for (name, attribute) in device["attributes"].entries() {
        parts::qualified_name(name, &attributes, violations);
        validate_attribute(attribute, &attributes.key(&shortened(name)), violations);
    }
    let shared = device["allowMultipleAllocations"].bool();
    let amounts = path.child("capacity");
    for (name, amount) in device["capacity"].entries() {
        parts::qualified_name(name, &amounts, violations);
        capacity::validate(amount, shared, &amounts.key(&shortened(name)), violations);
    }
    if old.is_none_or(|old| old["taints"] != device["taints"]) {
        parts::each(
            device["taints"].list(),
            MAX_TAINTS,
            &path.child("taints"),
            violations,
            parts::taint,
        );
    }
    let (consumptions, place) = (
        device["consumesCounters"].list(),
        path.child("consumesCounters"),
    );
    parts::each_once(
        consumptions,
        MAX_CONSUMPTIONS,
        &place,
        violations,
        |consumption, path, violations| {
            let set = path.child("counterSet");
            rules::required_text(
                &consumption["counterSet"],
                names::is_dns1123_label,
                &set,
                violations,
            );
            validate_counters(
                &consumption["counters"],
                &path.child("counters"),
                violations,
            );
        },
        |item| item["counterSet"].str().into(),
    );
    validate_nodes(device, by_device, path, violations);
    parts::binding_conditions(device, path, violations);
    let mappings = path.child("nodeAllocatableResourceMappings");
    for (name, mapping) in device["nodeAllocatableResourceMappings"].entries() {
        let path = mappings.key(name);
        if !mizzen_component_helpers::resource_names::is_native(name) {
            violations.invalid(path, name, "must be a node allocatable resource name");
        }
        if let Some(factor) = mapping["allocationMultiplier"].as_str() {
            let quantity = Quantity::parse_or_zero(factor);
            if quantity.is_zero() || quantity.is_negative() {
                violations.invalid(
                    path.child("allocationMultiplier"),
                    factor,
                    "must be positive",
                );
            }
        }
        let place = path.child("capacityKey");
        match mapping["capacityKey"].as_str() {
            None => {}
            Some("") => violations.invalid(place, "", "capacityKey must not be an empty string"),
            Some(key) if device["capacity"].get(key).is_none() => violations.not_found(place, key),
            Some(_) => {}
        }
    }
}

fn validate_numbers(device: &Value, path: &Path, violations: &mut Violations) {
    let n_properties =
        device["attributes"].entries().count() + device["capacity"].entries().count();
    if n_properties > MAX_PROPERTIES {
        let detail = format!(
            "the total number of attributes and capacities must not exceed {MAX_PROPERTIES}"
        );
        violations.invalid(path, n_properties as i64, &detail);
    }
    let n_values = |attribute: &Value| {
        LISTS
            .iter()
            .map(|name| attribute[*name].list().len())
            .sum::<usize>()
            .max(1)
    };
    let n_values: usize = device["attributes"]
        .entries()
        .map(|(_, attribute)| n_values(attribute))
        .sum();
    if n_values > MAX_ATTRIBUTE_VALUES {
        let detail =
            format!("the total number of attribute values must not exceed {MAX_ATTRIBUTE_VALUES}");
        violations.invalid(path, n_values as i64, &detail);
    }
}

/// A key that is longer than any valid one, cut in the middle.
fn shortened(key: &str) -> String {
    const MAX: usize = 63 + 1 + 32;
    if key.len() <= MAX || !key.is_ascii() {
        return key.to_string();
    }
    let rest = MAX - 3;
    format!(
        "{}...{}",
        &key[..rest.div_ceil(2)],
        &key[key.len() - rest / 2..]
    )
}

fn validate_attribute(attribute: &Value, path: &Path, violations: &mut Violations) {
    let values = ["bool", "int", "string", "version"]
        .into_iter()
        .chain(LISTS);
    let present: Vec<&str> = values
        .filter(|name| attribute.get(name).is_some())
        .collect();
    for name in &present {
        let (value, path) = (&attribute[*name], path.child(name));
        match *name {
            "string" | "version" => {
                validate_text(value.str(), *name == "version", &path, violations)
            }
            "strings" | "versions" => {
                for (index, item) in value.items().enumerate() {
                    validate_text(
                        item.str(),
                        *name == "versions",
                        &path.index(index),
                        violations,
                    );
                }
            }
            _ => {}
        }
    }
    match present.len() {
        1 => {}
        0 => violations.invalid(path, "", "exactly one value must be specified"),
        _ => {
            let shown = internal::shown("DeviceAttribute", attribute);
            violations.invalid(path, shown, "exactly one value must be specified");
        }
    }
}

fn validate_text(text: &str, is_version: bool, path: &Path, violations: &mut Violations) {
    if is_version && !is_semver(text) {
        violations.invalid(
            path,
            text,
            "must be a string compatible with semver.org spec 2.0.0",
        );
    }
    if text.len() > MAX_VALUE {
        violations.too_long(path, MAX_VALUE);
    }
}

fn is_semver(text: &str) -> bool {
    let (rest, build) = text
        .split_once('+')
        .map_or((text, None), |(rest, build)| (rest, Some(build)));
    let (core, release) = rest
        .split_once('-')
        .map_or((rest, None), |(core, release)| (core, Some(release)));
    let is_number = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_digit())
            && (part == "0" || !part.starts_with('0'))
    };
    let is_word = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte == b'-' || byte.is_ascii_alphanumeric())
    };
    let is_release = |part: &str| {
        is_word(part) && (is_number(part) || part.bytes().any(|byte| !byte.is_ascii_digit()))
    };
    core.split('.').count() == 3
        && core.split('.').all(is_number)
        && release.is_none_or(|release| release.split('.').all(is_release))
        && build.is_none_or(|build| build.split('.').all(is_word))
}

/// Counters that devices draw on.
pub(super) fn validate_counter_set(set: &Value, path: &Path, violations: &mut Violations) {
    rules::required_text(
        &set["name"],
        names::is_dns1123_label,
        &path.child("name"),
        violations,
    );
    validate_counters(&set["counters"], &path.child("counters"), violations);
}

fn validate_counters(counters: &Value, path: &Path, violations: &mut Violations) {
    let n_counters = counters.entries().count();
    if n_counters == 0 {
        return violations.required(path, "");
    }
    if n_counters > MAX_COUNTERS {
        return violations.too_many(path, n_counters, MAX_COUNTERS);
    }
    for (name, _) in counters.entries() {
        parts::label(name, path, violations);
    }
}

/// Something that is unset or true. Answers whether it is true.
pub(super) fn flag(value: &Value, path: &Path, violations: &mut Violations) -> bool {
    if value.as_bool() == Some(false) {
        violations.invalid(path, false, "must be either unset or set to true");
    }
    value.bool()
}

/// A device says where it is if its slice says that each does.
fn validate_nodes(device: &Value, by_device: bool, path: &Path, violations: &mut Violations) {
    if !by_device {
        if ["nodeName", "nodeSelector", "allNodes"]
            .iter()
            .any(|name| device.get(name).is_some())
        {
            let detail = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set \
                          to true in the ResourceSlice spec";
            violations.invalid(path, Value::Null, detail);
        }
        return;
    }
    let mut ways = Vec::new();
    match device["nodeName"].as_str() {
        None => {}
        Some("") => violations.invalid(path.child("nodeName"), "", "must not be empty"),
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
    if let Some(selector) = device.get("nodeSelector") {
        ways.push("`nodeSelector`");
        mizzen_core_kinds::pod::validate_node_selector(
            selector,
            false,
            &path.child("nodeSelector"),
            violations,
        );
    }
    ways.extend(
        flag(&device["allNodes"], &path.child("allNodes"), violations).then_some("`allNodes`"),
    );
    let one_of = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is \
                  set to true in the ResourceSlice spec";
    match ways.len() {
        0 => violations.required(path, one_of),
        1 => {}
        _ => violations.invalid(path, format!("{{{}}}", ways.join(", ")), one_of),
    }
}
