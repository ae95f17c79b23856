//! Choice of a service's IP families: by policy, by its cluster IPs, by what the cluster supports.

use mizzen_object::{Path, Violations};
use mizzen_value::Value;

use super::super::addresses::{self, family_of};
use super::super::{NONE, is};
use super::{AllocateError, ServiceIpPool};

const SINGLE: &str = "SingleStack";
const REQUIRE: &str = "RequireDualStack";
const PREFER: &str = "PreferDualStack";

/// Decides policy and families, as far as the caller and the addresses have not.
pub(super) fn decide(
    service: &mut Value,
    old: Option<&Value>,
    pool: &dyn ServiceIpPool,
) -> Result<(), AllocateError> {
    if is(service, "ExternalName") || old.is_some_and(|old| is_settled(service, old)) {
        return Ok(());
    }
    let has_selector = !service["spec"]["selector"].is_empty();
    let spec = service.entry("spec");
    let before = old
        .map(|old| old["spec"]["ipFamilyPolicy"].clone())
        .unwrap_or_default();
    let policy = match before {
        Value::Null if spec["clusterIP"].str() == NONE && !has_selector => REQUIRE.into(),
        Value::Null => SINGLE.into(),
        before => before,
    };
    spec.set_default("ipFamilyPolicy", policy);
    check(|violations| addresses::validate(service, old, violations))?;

    let spec = service.entry("spec");
    let mut violations = Violations::default();
    if let Some(old) = old {
        // One family means one address: the second is released, unless the client changed the list.
        let old_spec = &old["spec"];
        let path = Path::new("spec");
        let words = [("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")];
        for (field, word) in words {
            let (n_new, n_old) = (spec[field].list().len(), old_spec[field].list().len());
            if spec["ipFamilyPolicy"].str() == SINGLE {
                if spec[field] == old_spec[field] && n_new > 1 {
                    spec.entry(field).make_list().truncate(1);
                }
            } else if n_new > 0 && n_new < n_old {
                let message = format!("must be '{SINGLE}' to release the secondary {word}");
                violations.invalid(
                    path.child("ipFamilyPolicy"),
                    spec["ipFamilyPolicy"].clone(),
                    &message,
                );
            }
        }
    }
    if spec["ipFamilyPolicy"].str() == SINGLE {
        let path = Path::new("spec");
        for (field, word) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
            if spec[field].list().len() == 2 {
                let message =
                    format!("must be '{REQUIRE}' or '{PREFER}' when multiple {word} are specified");
                violations.invalid(path.child("ipFamilyPolicy"), SINGLE, &message);
            }
        }
    }
    families_of_addresses(spec, pool, &mut violations);
    refuse_if_any(violations)?;

    if spec["clusterIP"].str() == NONE && !has_selector {
        fill_families(spec, pool, true);
        return Ok(());
    }
    check(|violations| {
        let path = Path::new("spec");
        if spec["ipFamilyPolicy"].str() == REQUIRE && pool.families().len() < 2 {
            let message = "this cluster is not configured for dual-stack services";
            violations.invalid(path.child("ipFamilyPolicy"), REQUIRE, message);
        }
        let path = path.child("ipFamilies");
        for (index, family) in spec["ipFamilies"].items().enumerate() {
            if !pool.families().contains(&family.str()) {
                let message = "not configured on this cluster";
                violations.invalid(path.index(index), family.str(), message);
            }
        }
    })?;
    fill_families(spec, pool, false);
    Ok(())
}

/// A service that would like both families and did not change what it has.
pub(super) fn is_settled(service: &Value, old: &Value) -> bool {
    let (spec, old_spec) = (&service["spec"], &old["spec"]);
    let prefers = |spec: &Value| spec["ipFamilyPolicy"].str() == PREFER;
    prefers(spec)
        && (prefers(old_spec) || old_spec["ipFamilyPolicy"].is_null())
        && ["ClusterIP", "NodePort", "LoadBalancer"].contains(&spec["type"].str())
        && ["type", "clusterIPs", "ipFamilies"]
            .iter()
            .all(|field| spec[*field] == old_spec[*field])
}

fn families_of_addresses(spec: &mut Value, pool: &dyn ServiceIpPool, violations: &mut Violations) {
    let path = Path::new("spec");
    let path = path.child("clusterIPs");
    let addresses = spec["clusterIPs"].clone();
    for (index, address) in addresses
        .items()
        .enumerate()
        .take_while(|(_, address)| address.str() != NONE)
    {
        let family = family_of(address.str());
        if index < spec["ipFamilies"].list().len() {
            continue;
        }
        match pool.families().contains(&family) {
            true => spec.entry("ipFamilies").make_list().push(family.into()),
            false => {
                let message = format!("{family} is not configured on this cluster");
                violations.invalid(path.index(index), addresses.clone(), &message);
            }
        }
    }
}

/// The default family, and the other one too if the policy wants both and there may be both.
fn fill_families(spec: &mut Value, pool: &dyn ServiceIpPool, any_cluster: bool) {
    let wants_both =
        spec["ipFamilyPolicy"].str() != SINGLE && (any_cluster || pool.families().len() == 2);
    let families = spec.entry("ipFamilies").make_list();
    if families.is_empty() {
        families.push(pool.families()[0].into());
    }
    if wants_both && families.len() == 1 {
        let other = if families[0].str() == "IPv4" {
            "IPv6"
        } else {
            "IPv4"
        };
        families.push(other.into());
    }
}

fn check(find: impl FnOnce(&mut Violations)) -> Result<(), AllocateError> {
    let mut violations = Violations::default();
    find(&mut violations);
    refuse_if_any(violations)
}

fn refuse_if_any(violations: Violations) -> Result<(), AllocateError> {
    if violations.is_empty() {
        Ok(())
    } else {
        Err(AllocateError::Invalid(violations))
    }
}
