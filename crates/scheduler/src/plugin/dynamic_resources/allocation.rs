//! What a claim says of the devices that it got.

use std::hash::BuildHasher as _;

use mizzen_sdk::Object;
use mizzen_value::{Value, value};

use super::pool::Reach;
use super::search::Got;
use super::wish::{Wish, Wishes};
use crate::devices::Devices;

/// The allocation of a claim on a node.
pub(super) fn allocation(
    claim: &Object,
    wishes: &Wishes,
    got: &[Got],
    node: &str,
    devices: &Devices,
) -> Value {
    let results: Vec<Value> = got
        .iter()
        .enumerate()
        .map(|(at, got)| result(claim, at, got))
        .collect();
    let config = configuration(claim, wishes, got, devices);
    let mut allocation = value!({"devices": {"results": results}});
    if !config.is_empty() {
        allocation.entry("devices").set("config", config);
    }
    if let Some(selector) = Reach::join(got.iter().map(|got| &got.offer.reach), node) {
        allocation.set("nodeSelector", selector);
    }
    allocation
}

fn result(claim: &Object, at: usize, got: &Got) -> Value {
    let (driver, pool, device) = &got.offer.id;
    let mut result =
        value!({"request": (&got.wish.name), "driver": driver, "pool": pool, "device": device});
    if got.wish.is_admin {
        result.set("adminAccess", true);
    }
    if !got.wish.said_tolerations.is_empty() {
        result.set("tolerations", got.wish.said_tolerations.clone());
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

/// What tells one part of a device from others: no two claims, and no two versions of one, are the same.
fn share_id(claim: &Object, at: usize, got: &Got) -> String {
    let half = |salt: u64| {
        let hasher = foldhash::fast::FixedState::with_seed(salt);
        hasher.hash_one((claim.uid(), claim.version(), at, &got.offer.id))
    };
    let (first, second) = (half(1), half(2));
    // As those look that are drawn: version 4, and the usual variant.
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        first >> 32,
        first >> 16 & 0xffff,
        first & 0xfff,
        second >> 48 & 0x3fff | 0x8000,
        second & 0xffff_ffff_ffff
    )
}

/// What drivers are told: what classes say, each once, and what the claim says of what it got.
fn configuration(claim: &Object, wishes: &Wishes, got: &[Got], devices: &Devices) -> Vec<Value> {
    let mut config: Vec<(&str, Value)> = Vec::new();
    let chosen = wishes.requests.iter().filter_map(|alternatives| {
        // A request that got nothing, because it wants nothing, is content with the first.
        let had = alternatives
            .iter()
            .find(|wish| got.iter().any(|got| got.wish.name == wish.name));
        had.or(alternatives.first())
    });
    let chosen: Vec<_> = chosen.collect();
    for wish in &chosen {
        let is_known = config.iter().any(|(class, _)| *class == wish.class);
        if is_known {
            for (_, known) in config.iter_mut().filter(|(class, _)| *class == wish.class) {
                known
                    .entry("requests")
                    .make_list()
                    .push(wish.name.as_str().into());
            }
            continue;
        }
        let class = devices.classes.get(&wish.class);
        for one in class
            .into_iter()
            .flat_map(|class| class["spec"]["config"].list())
        {
            config.push((
                &wish.class,
                configured(one, "FromClass", vec![wish.name.as_str().into()]),
            ));
        }
    }
    let mut config: Vec<Value> = config.into_iter().map(|(_, one)| one).collect();
    for one in claim["spec"]["devices"]["config"].list() {
        let names = one["requests"].list();
        let is_meant = |wish: &&&Wish| {
            let base = wish.name.split('/').next().unwrap_or_default();
            names
                .iter()
                .any(|name| name.str() == wish.name || name.str() == base)
        };
        let n_meant = if names.is_empty() {
            1
        } else {
            chosen.iter().filter(is_meant).count()
        };
        // Kubernetes: once for each request that it is about.
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
