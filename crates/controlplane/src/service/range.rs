//! The address ranges of Services: every ServiceCIDR that is ready and not terminating.

use std::net::IpAddr;

use mizzen_object::condition::find;
use mizzen_registry::ListOptions;
use mizzen_value::Value;
use mizzen_value::address::Cidr;

use mizzen_apiserver::server::ServerParts;

use crate::ControlPlane;

/// The share of a range that is reserved for static allocation, within these bounds.
const SHARE: u128 = 16;
const LEFT: std::ops::RangeInclusive<u128> = 16..=256;
/// The shortest prefix of an IPv6 range.
const V6_PREFIX: u32 = 64;

/// All ranges for allocation; those of the command line if there are no ServiceCIDRs.
pub(super) fn ready(server: &ServerParts) -> Vec<Cidr> {
    let found = service_cidrs(server).filter(|found| !found.is_empty());
    let Some(found) = found else {
        return ControlPlane::of(server).service_ranges.clone();
    };
    let found = found.iter().filter(|range| is_ready(range));
    found.flat_map(blocks_of).collect()
}

/// The ranges that addresses of Services may be in, whether they are given still or not. Kubernetes: ContainsIP in
/// api/servicecidr.
pub(super) fn configured(server: &ServerParts) -> Vec<Cidr> {
    let found = service_cidrs(server).filter(|found| !found.is_empty());
    let Some(found) = found else {
        return ControlPlane::of(server).service_ranges.clone();
    };
    let texts = found.iter().flat_map(|range| range["spec"]["cidrs"].list());
    texts
        .filter_map(|text| Cidr::parse_sloppy(text.str()))
        .collect()
}

fn service_cidrs(server: &ServerParts) -> Option<Vec<Value>> {
    let resource = server
        .catalog
        .get("networking.k8s.io", "v1", "servicecidrs")?;
    let found = server.registry.list(&resource, &ListOptions::default());
    let objects = found.ok()?.items;
    Some(objects.iter().map(|object| object.value()).collect())
}

/// Kubernetes: a ServiceCIDR without a Ready condition is ready (cidrallocator.go).
fn is_ready(range: &Value) -> bool {
    let condition = find(&range["status"]["conditions"], "Ready");
    range["metadata"]["deletionTimestamp"].is_null()
        && condition.is_none_or(|condition| condition["status"].str() == "True")
}

fn blocks_of(range: &Value) -> Vec<Cidr> {
    let blocks = range["spec"]["cidrs"]
        .list()
        .iter()
        .filter_map(|text| Cidr::parse_sloppy(text.str()));
    blocks
        .filter(|block| block.ip.is_ipv4() || block.prefix >= V6_PREFIX)
        .collect()
}

/// Every address of a range, starting at an offset. The static share comes last.
pub(super) fn from(range: Cidr, start: u128) -> impl Iterator<Item = IpAddr> {
    let hosts = range.hosts();
    let n_hosts = hosts.end - hosts.start;
    let left = match range.size() {
        few if few <= *LEFT.start() => 0,
        size => (size / SHARE).clamp(*LEFT.start(), *LEFT.end()),
    };
    let around = move |n: u128| (0..n).map(move |step| (start % n + step) % n);
    let offsets = around(n_hosts - left)
        .map(move |offset| left + offset)
        .chain(around(left));
    offsets.map(move |offset| range.nth(hosts.start + offset))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::value;

    fn block(text: &str) -> Cidr {
        Cidr::parse_sloppy(text).unwrap()
    }

    /// The offsets of all addresses of a range, in allocation order.
    fn given(range: &str, start: u128) -> Vec<u128> {
        let range = block(range);
        from(range, start)
            .map(|address| range.offset(address).unwrap())
            .collect()
    }

    #[track_caller]
    fn check(range: &str, n_all: usize, n_left: u128) {
        let all = given(range, 1000);
        assert_eq!(all.len(), n_all, "{range}");
        let (upper, lower) = all.split_at(n_all - n_left as usize);
        assert!(
            upper.iter().all(|offset| *offset > n_left),
            "{range}: {upper:?}"
        );
        assert!(
            lower.iter().all(|offset| (1..=n_left).contains(offset)),
            "{range}: {lower:?}"
        );
    }

    #[test]
    fn addresses_at_the_beginning_are_given_last() {
        check("10.0.0.0/24", 254, 16);
        check("10.0.0.0/16", 65_534, 256);
        check("10.0.0.0/27", 30, 16);
        check("10.0.0.0/28", 14, 0);
        check("fd00::/120", 255, 16);
        check("fd00::/123", 31, 16);
        check("fd00::/124", 15, 0);
        assert_eq!(given("10.1.0.8/30", 1), [2, 1]);
        assert_eq!(given("10.1.0.8/32", 7), [0; 0]);
        assert_eq!(given("fd00::8/128", 7), [0; 0]);
    }

    #[test]
    fn a_huge_range_is_not_gone_through() {
        let mut all = from(block("fd00::/64"), u128::from(u64::MAX) - 258);
        assert_eq!(all.next().unwrap().to_string(), "fd00::ffff:ffff:ffff:fffe");
        assert_eq!(all.nth(1).unwrap().to_string(), "fd00::101");
    }

    #[test]
    fn a_range_that_goes_or_is_not_ready_gives_nothing() {
        assert!(is_ready(&value!({})));
        assert!(!is_ready(
            &value!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
        ));
        assert!(!is_ready(
            &value!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}})
        ));
    }

    #[test]
    fn a_range_of_ipv6_that_is_too_large_gives_nothing() {
        let ranges = value!({"spec": {"cidrs": ["10.0.0.0/8", "fd00::/63", "fd00::/64"]}});
        assert_eq!(
            blocks_of(&ranges),
            [block("10.0.0.0/8"), block("fd00::/64")]
        );
    }
}
