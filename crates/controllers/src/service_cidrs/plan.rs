//! Decides what to do with a ServiceCIDR.

use std::net::IpAddr;
use std::sync::Arc;

use mizzen_sdk::Object;
use mizzen_value::address::Cidr;
use mizzen_value::time;

/// How long a ServiceCIDR stays after its deletion, so that all allocators see it.
const GRACE_SECONDS: i64 = 10;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ServiceCidrPlan {
    /// It is Ready and has the finalizer.
    Serve,
    /// An IPAddress would be in no ServiceCIDR.
    Stay,
    /// The finalizer may be removed after so many seconds.
    Wait(u64),
    RemoveFinalizer,
}

pub(super) fn plan(
    range: &Object,
    ranges: &[Arc<Object>],
    addresses: &[Arc<Object>],
    now: i64,
) -> ServiceCidrPlan {
    if !range.is_terminating() {
        return ServiceCidrPlan::Serve;
    }
    let others: Vec<Cidr> = ranges
        .iter()
        .filter(|other| other.name() != range.name())
        .flat_map(|other| blocks(other))
        .collect();
    let own = blocks(range);
    let is_covered = |block: &Cidr| others.iter().any(|other| other.contains_block(block));
    let gives = |blocks: &[Cidr], address| blocks.iter().any(|block| block.gives(address));
    let is_needed = |address| gives(&own, address) && !gives(&others, address);
    if !own.iter().all(is_covered)
        && addresses
            .iter()
            .filter_map(|one| address(one))
            .any(is_needed)
    {
        return ServiceCidrPlan::Stay;
    }
    let deleted = time::to_unix(range["metadata"]["deletionTimestamp"].str()).unwrap_or_default();
    match u64::try_from(deleted + GRACE_SECONDS - now) {
        Ok(seconds) if seconds > 0 => ServiceCidrPlan::Wait(seconds),
        _ => ServiceCidrPlan::RemoveFinalizer,
    }
}

fn blocks(range: &Object) -> Vec<Cidr> {
    range["spec"]["cidrs"]
        .list()
        .iter()
        .filter_map(|text| Cidr::parse_sloppy(text.str()))
        .collect()
}

/// The address of an IPAddress; none if another component manages it.
fn address(object: &Object) -> Option<IpAddr> {
    let ours = object.label("ipaddress.kubernetes.io/managed-by") == Some("ipallocator.k8s.io");
    object.name().parse().ok().filter(|_| ours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::value;

    fn range(name: &str, cidr: &str, deleted: Option<&str>) -> Arc<Object> {
        let mut range = Object(value!({"metadata": {"name": name}, "spec": {"cidrs": [cidr]}}));
        if let Some(deleted) = deleted {
            range.entry("metadata").set("deletionTimestamp", deleted);
        }
        Arc::new(range)
    }

    #[track_caller]
    fn check(other: &str, address: &str, now: i64, expected: ServiceCidrPlan) {
        let going = range("a", "10.1.0.0/24", Some("1970-01-01T00:01:40Z"));
        let mut object = Object(value!({"metadata": {"name": address}}));
        object
            .entry("metadata")
            .entry("labels")
            .set("ipaddress.kubernetes.io/managed-by", "ipallocator.k8s.io");
        let ranges = [going.clone(), range("b", other, None)];
        assert_eq!(plan(&going, &ranges, &[Arc::new(object)], now), expected);
    }

    #[test]
    fn a_service_cidr_is_deleted_when_no_address_depends_on_it() {
        check("10.2.0.0/24", "10.1.0.7", 200, ServiceCidrPlan::Stay);
        check(
            "10.2.0.0/24",
            "10.2.0.7",
            200,
            ServiceCidrPlan::RemoveFinalizer,
        );
        check("10.2.0.0/24", "10.2.0.7", 103, ServiceCidrPlan::Wait(7));
        check(
            "10.1.0.0/16",
            "10.1.0.7",
            200,
            ServiceCidrPlan::RemoveFinalizer,
        );
        check(
            "10.1.0.0/28",
            "10.1.0.7",
            200,
            ServiceCidrPlan::RemoveFinalizer,
        );
        check("10.1.0.0/28", "10.1.0.77", 200, ServiceCidrPlan::Stay);
        // The first and the last address of a range are never allocated.
        check("10.1.0.0/28", "10.1.0.15", 200, ServiceCidrPlan::Stay);
        check(
            "10.2.0.0/24",
            "10.1.0.0",
            200,
            ServiceCidrPlan::RemoveFinalizer,
        );
        check(
            "10.2.0.0/24",
            "fd00::1",
            200,
            ServiceCidrPlan::RemoveFinalizer,
        );
    }

    #[test]
    fn a_service_cidr_that_is_not_deleted_is_ready() {
        let range = range("a", "10.1.0.0/24", None);
        assert_eq!(plan(&range, &[], &[], 0), ServiceCidrPlan::Serve);
    }
}
