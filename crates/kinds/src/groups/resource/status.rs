//! Validation of a ResourceClaim's status.

use mizzen_object::validate::{condition, field, ip};
use mizzen_object::{Path, Violations};
use mizzen_value::Value;

use super::claim::{ClaimRequests, validate_references};
use super::parts;
use mizzen_apiextensions::internal;

/// What identifies a device, or a share of one.
fn device_id(device: &Value) -> [&str; 4] {
    ["driver", "pool", "device", "shareID"].map(|name| device[name].str())
}

fn allocated(status: &Value) -> Vec<[&str; 4]> {
    status
        .at("allocation.devices.results")
        .items()
        .map(device_id)
        .collect()
}

/// What is reported about a device goes when the device goes.
pub(super) fn drop_deallocated(claim: &mut Value, old: &Value) {
    let (before, now) = (allocated(&old["status"]), allocated(&claim["status"]));
    let gone: Vec<[&str; 4]> = before
        .into_iter()
        .filter(|device| !now.contains(device))
        .collect();
    let devices = claim["status"]["devices"].list();
    let kept: Vec<Value> = devices
        .iter()
        .filter(|device| !gone.contains(&device_id(device)))
        .cloned()
        .collect();
    if claim["status"].get("devices").is_some() {
        claim.entry("status").set("devices", kept);
    }
}

const MAX_USERS: usize = 256;

/// Looks at a new status.
pub(super) fn validate(claim: &Value, old: &Value, violations: &mut Violations) {
    let (status, old_status, path) = (&claim["status"], &old["status"], Path::new("status"));
    let users = path.child("reservedFor");
    parts::each_once(
        status["reservedFor"].list(),
        MAX_USERS,
        &users,
        violations,
        |user, path, violations| {
            for name in ["resource", "name", "uid"] {
                if user[name].is_empty() {
                    violations.required(path.child(name), "");
                }
            }
        },
        |user| user["uid"].clone(),
    );
    let known = allocated(status);
    let validate = |device: &Value, path: &Path, violations: &mut Violations| {
        validate_device(device, &known, path, violations);
    };
    parts::each_once(
        status["devices"].list(),
        usize::MAX,
        &path.child("devices"),
        violations,
        validate,
        shown_id,
    );
    let place = users;
    let users = claim["status"]["reservedFor"].list();
    if !users.is_empty() {
        if claim["status"]["allocation"].is_null() {
            violations.forbidden(place, "may not be specified when `allocated` is not set");
        } else if !claim["metadata"]["deletionTimestamp"].is_null()
            && users
                .iter()
                .any(|user| !old_status["reservedFor"].list().contains(user))
        {
            let detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
            violations.forbidden(place, detail);
        }
    }

    let (new, old, path) = (
        &status["allocation"],
        &old_status["allocation"],
        path.child("allocation"),
    );
    if !old.is_null() && !new.is_null() {
        let shown = |allocation: &Value| internal::shown("AllocationResult", allocation);
        field::immutable(&shown(new), &shown(old), &path, violations);
    } else if !new.is_null() {
        validate_allocation(
            new,
            &ClaimRequests(&claim["spec"]["devices"]),
            &path,
            violations,
        );
    }
}

fn shown_id(device: &Value) -> Value {
    internal::shown("SharedDeviceID", device)
}

const MAX_CONDITIONS: usize = 8;
const MAX_ADDRESSES: usize = 16;

fn validate_device(device: &Value, known: &[[&str; 4]], path: &Path, violations: &mut Violations) {
    parts::driver(device["driver"].str(), &path.child("driver"), violations);
    parts::pool(device["pool"].str(), &path.child("pool"), violations);
    parts::label(device["device"].str(), &path.child("device"), violations);
    if let Some(id) = device["shareID"].as_str() {
        parts::share_id(id, &path.child("shareID"), violations);
    }
    if !known.contains(&device_id(device)) {
        violations.invalid(
            path,
            shown_id(device),
            "must be an allocated device in the claim",
        );
    }
    let n_conditions = device["conditions"].list().len();
    if n_conditions > MAX_CONDITIONS {
        violations.too_many(path.child("conditions"), n_conditions, MAX_CONDITIONS);
    }
    condition::conditions(&device["conditions"], &path.child("conditions"), violations);
    if let Some(data) = device.get("data").filter(|data| !data.is_null()) {
        parts::raw(data, false, &path.child("data"), violations);
    }
    let network = &device["networkData"];
    for (name, limit) in [("interfaceName", 256), ("hardwareAddress", 128)] {
        if network[name].str().len() > limit {
            violations.too_long(path.child("networkData").child(name), limit);
        }
    }
    let validate = |address: &Value, path: &Path, violations: &mut Violations| {
        if let Some(detail) = interface_error(address.str()) {
            violations.invalid(path, address.str(), &detail);
        }
    };
    parts::each_once(
        network["ips"].list(),
        MAX_ADDRESSES,
        &path.child("networkData").child("ips"),
        violations,
        validate,
        Value::clone,
    );
}

/// An address with the length of its network, in the one way to write it.
fn interface_error(text: &str) -> Option<String> {
    let Some(block) = ip::Cidr::parse_sloppy(text) else {
        return Some(
            "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)".into(),
        );
    };
    let (address, prefix) = match block.ip {
        std::net::IpAddr::V6(ip) if block.prefix > 32 => match ip.to_ipv4_mapped() {
            Some(ip) => (std::net::IpAddr::V4(ip), block.prefix - 96),
            None => (block.ip, block.prefix),
        },
        ip => (ip, block.prefix),
    };
    let canonical = format!("{address}/{prefix}");
    (text != canonical).then(|| format!("must be in canonical form (\"{canonical}\")"))
}

const MAX_RESULTS: usize = 32;

fn validate_allocation(
    allocation: &Value,
    known: &ClaimRequests,
    path: &Path,
    violations: &mut Violations,
) {
    let (devices, place) = (&allocation["devices"], path.child("devices"));
    let results = place.child("results");
    parts::each(
        devices["results"].list(),
        MAX_RESULTS,
        &results,
        violations,
        |result, path, violations| {
            known.validate(result["request"].str(), &path.child("request"), violations);
            parts::driver(result["driver"].str(), &path.child("driver"), violations);
            parts::pool(result["pool"].str(), &path.child("pool"), violations);
            parts::label(result["device"].str(), &path.child("device"), violations);
            parts::binding_conditions(result, path, violations);
            if let Some(id) = result["shareID"].as_str() {
                parts::share_id(id, &path.child("shareID"), violations);
            }
        },
    );
    let configurations = place.child("config");
    parts::each(
        devices["config"].list(),
        2 * MAX_RESULTS,
        &configurations,
        violations,
        |item, path, violations| {
            match item["source"].str() {
                "" => violations.required(path.child("source"), ""),
                source => field::one_of(
                    source,
                    &["FromClaim", "FromClass"],
                    &path.child("source"),
                    violations,
                ),
            }
            validate_references(item, known, path, violations);
            parts::configuration(item, false, path, violations);
        },
    );
    if let Some(selector) = allocation.get("nodeSelector") {
        mizzen_core_kinds::pod::validate_node_selector(
            selector,
            false,
            &path.child("nodeSelector"),
            violations,
        );
    }
}
