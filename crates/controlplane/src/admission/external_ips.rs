//! DenyServiceExternalIPs: services may not claim addresses outside the cluster (CVE-2020-8554).

use mizzen_object::Status;
use mizzen_value::Value;

use super::Attributes;

/// Rejects external addresses that a service does not have yet.
pub(super) fn check(attributes: &Attributes, service: &Value) -> Result<(), Status> {
    if !attributes.is_main("", "services") {
        return Ok(());
    }
    let old = attributes
        .old
        .map(|old| old["spec"]["externalIPs"].list())
        .unwrap_or_default();
    match service["spec"]["externalIPs"]
        .list()
        .iter()
        .all(|address| old.contains(address))
    {
        true => Ok(()),
        false => Err(attributes.forbidden(
            service,
            "Use of external IPs is denied by admission control",
        )),
    }
}
