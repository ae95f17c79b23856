//! Validation of a service's cluster IPs and IP families.

use mizzen_object::validate::ip;
use mizzen_object::{Path, Violations};
use mizzen_value::Value;
use mizzen_value::address::family;

use super::super::fields::legacy_ip;
use super::{NONE, is, is_headless};

const FAMILIES: &[&str] = &["IPv4", "IPv6"];
const POLICIES: &[&str] = &["PreferDualStack", "RequireDualStack", "SingleStack"];

/// `clusterIP`, `clusterIPs`, `ipFamilies` and `ipFamilyPolicy` of a service that has an address.
pub(super) fn validate(service: &Value, old: Option<&Value>, violations: &mut Violations) {
    if is(service, "ExternalName") {
        return;
    }
    let spec = &service["spec"];
    let path = Path::new("spec");
    let (one, many) = (spec["clusterIP"].str(), &spec["clusterIPs"]);
    let ips_path = path.child("clusterIPs");
    match (one, many.list()) {
        ("", []) => {}
        ("", _) => violations.invalid(
            ips_path,
            many.clone(),
            "must be empty when `clusterIP` is not specified",
        ),
        (_, []) => violations.required(ips_path, ""),
        (one, [first, ..]) if first.str() != one => {
            violations.invalid(ips_path, many.clone(), "first value must match `clusterIP`");
        }
        _ => {}
    }
    families(&spec["ipFamilies"], &path.child("ipFamilies"), violations);
    let policy = &spec["ipFamilyPolicy"];
    if policy
        .as_str()
        .is_some_and(|policy| !POLICIES.contains(&policy))
    {
        violations.not_supported(path.child("ipFamilyPolicy"), policy.str(), POLICIES);
    }
    let known = old
        .map(|old| old["spec"]["clusterIPs"].clone())
        .unwrap_or_default();
    // Each address, and their number.
    let addresses = &spec["clusterIPs"];
    let place = path.child("clusterIPs");

    let mut fine = true;
    let n_addresses = addresses.list().len();
    for (index, address) in addresses.items().enumerate() {
        if index == 0 && address.str() == NONE {
            if n_addresses > 1 {
                fine = false;
                violations.invalid(
                    place,
                    addresses.clone(),
                    "'None' must be the first and only value",
                );
            }
        } else {
            fine &= legacy_ip(address.str(), &known, &place.index(index), violations);
        }
    }
    if n_addresses > 2 {
        violations.invalid(place, addresses.clone(), "may only hold up to 2 values");
    }
    if fine {
        let addresses = &spec["clusterIPs"];
        let has_family = |family: &&str| {
            let mut addresses = addresses.items();
            addresses.any(|address| family_of(address.str()) == *family)
        };
        if addresses.list().len() > 1 && !FAMILIES.iter().all(has_family) {
            violations.invalid(
                path.child("clusterIPs"),
                addresses.clone(),
                "may specify no more than one IP for each IP family",
            );
        }
        if !is_headless(spec) {
            let pairs = addresses.items().zip(spec["ipFamilies"].list());
            for (index, (address, family)) in pairs.enumerate() {
                let (address, family) = (address.str(), family.str());
                if FAMILIES.contains(&family) && family_of(address) != family {
                    let message =
                        format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
                    violations.invalid(path.child("clusterIPs").index(index), address, &message);
                }
            }
        }
    }
}

/// What an update may not do to addresses: change one that is set.
pub(super) fn validate_change(service: &Value, old: &Value, violations: &mut Violations) {
    if is(service, "ExternalName") || is(old, "ExternalName") {
        return;
    }
    let (spec, old_spec) = (&service["spec"], &old["spec"]);
    let (headless, was_headless) = (is_headless(spec), is_headless(old_spec));
    if !(headless && was_headless) {
        let path = Path::new("spec");
        let addresses = path.child("clusterIPs");
        let (new, old) = (spec["clusterIPs"].list(), old_spec["clusterIPs"].list());
        let shown = || {
            if new.is_empty() {
                Value::Null
            } else {
                spec["clusterIPs"].clone()
            }
        };
        if new.len() == old.len() {
            for index in (0..old.len()).filter(|index| new[*index] != old[*index]) {
                violations.invalid(addresses.index(index), shown(), "may not change once set");
            }
        } else {
            if new.is_empty() {
                violations.invalid(
                    addresses.index(0),
                    shown(),
                    "primary clusterIP can not be unset",
                );
            }
            if matches!((new, old), ([new, ..], [old, ..]) if new != old) {
                violations.invalid(addresses.index(0), shown(), "may not change once set");
            }
            if new.len() < old.len() {
                released(spec, new.len(), "clusterIP", &path, violations);
            }
        }
    }
    if !headless && !was_headless {
        // Kubernetes: validateUpgradeDowngradeIPFamilies shows the addresses where one would expect the families.
        let path = Path::new("spec");
        let families = path.child("ipFamilies");
        let families = families.index(0);
        let (new, old) = (spec["ipFamilies"].list(), old_spec["ipFamilies"].list());
        if new.len() == old.len() {
            for _ in (0..old.len()).filter(|index| new[*index] != old[*index]) {
                violations.invalid(
                    families,
                    spec["ipFamilies"].clone(),
                    "may not change once set",
                );
            }
        } else {
            if new.len() < old.len() && spec["clusterIPs"].is_empty() {
                violations.invalid(
                    families,
                    spec["ipFamilies"].clone(),
                    "primary ipFamily can not be unset",
                );
            }
            if matches!((new, old), ([new, ..], [old, ..]) if new != old) {
                violations.invalid(
                    families,
                    spec["clusterIPs"].clone(),
                    "may not change once set",
                );
            }
            if new.len() < old.len() {
                released(spec, new.len(), "ipFamily", &path, violations);
            }
        }
    }
}

fn families(families: &Value, path: &Path, violations: &mut Violations) {
    let list = families.list();
    for (index, family) in list.iter().enumerate() {
        if !FAMILIES.contains(&family.str()) {
            violations.not_supported(path.index(index), family.str(), FAMILIES);
        }
        if list[..index].contains(family) {
            violations.duplicate(path.index(index), family.str());
        }
    }
}

/// The family of an address; whatever is no address of version 6 counts as version 4.
pub(super) fn family_of(address: &str) -> &'static str {
    ip::parse_sloppy(address).map_or("IPv4", family)
}

fn released(spec: &Value, n_left: usize, what: &str, path: &Path, violations: &mut Violations) {
    let policy = &spec["ipFamilyPolicy"];
    if n_left == 1 && policy.str() != "SingleStack" {
        let message = format!("must be set to 'SingleStack' when releasing the secondary {what}");
        violations.invalid(path.child("ipFamilyPolicy"), policy.clone(), &message);
    }
}
