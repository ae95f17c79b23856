//! The allocation result that is written to a claim.

use std::hash::BuildHasher as _;

use mizzen_sdk::Object;
use mizzen_value::{Value, value};

use super::allocator::AllocatedDevice;
use super::pool::DeviceReach;
use super::request::{ClaimRequests, DeviceRequest};
use crate::devices::Devices;

/// The allocation of a claim on a node.
pub(super) fn allocation(
    claim: &Object,
    claim_requests: &ClaimRequests,
    got: &[AllocatedDevice],
    node: &str,
    devices: &Devices,
) -> Value {
    let results: Vec<Value> = got
        .iter()
        .enumerate()
        .map(|(at, got)| result(claim, at, got))
        .collect();
    let config = configuration(claim, claim_requests, got, devices);
    let mut allocation = value!({"devices": {"results": results}});
    if !config.is_empty() {
        allocation.entry("devices").set("config", config);
    }
    if let Some(selector) = DeviceReach::node_selector(got.iter().map(|got| &got.offer.reach), node)
    {
        allocation.set("nodeSelector", selector);
    }
    allocation
}

fn result(claim: &Object, at: usize, got: &AllocatedDevice) -> Value {
    let (driver, pool, device) = &got.offer.id;
    let mut result = value!({"request": (&got.device_request.name), "driver": driver, "pool": pool, "device": device});
    if got.device_request.is_admin {
        result.set("adminAccess", true);
    }
    if !got.device_request.tolerations_value.is_empty() {
        result.set("tolerations", got.device_request.tolerations_value.clone());
    }
    if let Some(amounts) = &got.amounts {
        result.set("shareID", share_id(claim, at, got));
        for (name, amount) in amounts {
            result
                .entry("consumedCapacity")
                .set(name, amount.to_string());
        }
    }
    result
}

/// A unique ID of one share of a device: it differs between claims and between versions of one
/// claim.
fn share_id(claim: &Object, at: usize, got: &AllocatedDevice) -> String {
    let half = |salt: u64| {
        let hasher = foldhash::fast::FixedState::with_seed(salt);
        hasher.hash_one((claim.uid(), claim.version(), at, &got.offer.id))
    };
    let (first, second) = (half(1), half(2));
    // In the form of a random UUID: version 4, the usual variant.
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        first >> 32,
        first >> 16 & 0xffff,
        first & 0xfff,
        second >> 48 & 0x3fff | 0x8000,
        second & 0xffff_ffff_ffff
    )
}

/// The configuration for drivers: that of each class once, and that of the claim for its requests.
fn configuration(
    claim: &Object,
    claim_requests: &ClaimRequests,
    got: &[AllocatedDevice],
    devices: &Devices,
) -> Vec<Value> {
    let mut config: Vec<(&str, Value)> = Vec::new();
    let chosen = claim_requests.requests.iter().filter_map(|subrequests| {
        // A request for zero devices counts as its first subrequest.
        let had = subrequests.iter().find(|device_request| {
            got.iter()
                .any(|got| got.device_request.name == device_request.name)
        });
        had.or(subrequests.first())
    });
    let chosen: Vec<_> = chosen.collect();
    for device_request in &chosen {
        let is_known = config
            .iter()
            .any(|(class, _)| *class == device_request.class);
        if is_known {
            for (_, known) in config
                .iter_mut()
                .filter(|(class, _)| *class == device_request.class)
            {
                known
                    .entry("requests")
                    .make_list()
                    .push(device_request.name.as_str().into());
            }
            continue;
        }
        let class = devices.classes.get(&device_request.class);
        for one in class
            .into_iter()
            .flat_map(|class| class["spec"]["config"].list())
        {
            config.push((
                &device_request.class,
                configured(one, "FromClass", vec![device_request.name.as_str().into()]),
            ));
        }
    }
    let mut config: Vec<Value> = config.into_iter().map(|(_, one)| one).collect();
    for one in claim["spec"]["devices"]["config"].list() {
        let names = one["requests"].list();
        let is_meant = |device_request: &&&DeviceRequest| {
            let base = device_request.name.split('/').next().unwrap_or_default();
            names
                .iter()
                .any(|name| name.str() == device_request.name || name.str() == base)
        };
        let n_meant = if names.is_empty() {
            1
        } else {
            chosen.iter().filter(is_meant).count()
        };
        // Kubernetes: repeated for each request that it applies to.
        config.extend((0..n_meant).map(|_| configured(one, "FromClaim", names.to_vec())));
    }
    config
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
