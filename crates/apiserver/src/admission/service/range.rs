//! Which addresses may services have? Those of every range that is ready and stays.

use std::net::Ipv4Addr;

use mizzen_object::Value;
use mizzen_registry::{ListOptions, Registry};

use crate::catalog::Catalog;

/// Addresses that begin alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    first: u32,
    size: u32,
}

/// The range of a cluster whose ranges nobody has written down: 10.0.0.0/24.
const STANDARD: Range = Range { first: u32::from_be_bytes([10, 0, 0, 0]), size: 256 };
/// One of so many addresses is left to those who ask for one, within these bounds.
const SHARE: u32 = 16;
const LEFT: std::ops::RangeInclusive<u32> = 16..=256;

/// All ranges that addresses can be had of.
pub(super) fn ready(registry: &Registry, catalog: &Catalog) -> Vec<Range> {
    let resource = catalog.get("networking.k8s.io", "v1", "servicecidrs");
    let found = resource.and_then(|resource| registry.list(&resource, &ListOptions::default()).ok());
    let Some(found) = found.filter(|found| !found.items.is_empty()) else { return vec![STANDARD] };
    let found = found.items.iter().map(|object| object.value()).filter(is_ready);
    found.flat_map(|range| of(&range)).collect()
}

/// Kubernetes: a range of which nobody has said anything is ready (cidrallocator.go).
fn is_ready(range: &Value) -> bool {
    let is_it = |condition: &&Value| condition["type"].str() == "Ready";
    let condition = range["status"]["conditions"].list().iter().find(is_it);
    range["metadata"]["deletionTimestamp"].is_null()
        && condition.is_none_or(|condition| condition["status"].str() == "True")
}

/// Services have addresses of IPv4 only.
fn of(range: &Value) -> Vec<Range> {
    range["spec"]["cidrs"].list().iter().filter_map(|text| Range::parse(text.str())).collect()
}

impl Range {
    fn parse(text: &str) -> Option<Range> {
        let (first, prefix) = text.split_once('/')?;
        let (first, prefix): (Ipv4Addr, u32) = (first.parse().ok()?, prefix.parse().ok()?);
        let size = 1u32.checked_shl(32u32.checked_sub(prefix)?)?;
        Some(Range { first: u32::from(first) & !(size - 1), size })
    }

    /// Whether services get this address from it: not the first, which is the network's own, nor the last, which is
    /// everybody's.
    pub fn gives(self, address: Ipv4Addr) -> bool {
        let offset = u32::from(address).wrapping_sub(self.first);
        offset > 0 && offset < self.size - 1
    }

    /// Every address from somewhere on. The first ones come last: people ask for them.
    pub fn from(self, start: u32) -> impl Iterator<Item = Ipv4Addr> {
        let usable = self.size.saturating_sub(2);
        let left = match self.size {
            few if few < *LEFT.start() => 0,
            size => (size / SHARE).clamp(*LEFT.start(), *LEFT.end()).min(usable),
        };
        let around = move |n: u32| (0..n).map(move |step| (start % n.max(1) + step) % n);
        let offsets = around(usable - left).map(move |offset| left + offset).chain(around(left));
        offsets.map(move |offset| Ipv4Addr::from(self.first + 1 + offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_object::value;

    #[test]
    fn addresses_at_the_beginning_are_given_last() {
        let range = Range::parse("10.0.0.0/24").unwrap();
        let all: Vec<u8> = range.from(1000).map(|address| address.octets()[3]).collect();
        assert_eq!(all.len(), 254);
        assert!(all[..238].iter().all(|last| *last > 16), "{all:?}");
        let small: Vec<String> =
            Range::parse("10.1.0.8/30").unwrap().from(1).map(|address| address.to_string()).collect();
        assert_eq!(small, ["10.1.0.10", "10.1.0.9"]);
        assert_eq!(Range::parse("10.1.0.8/32").unwrap().from(7).count(), 0);
    }

    #[track_caller]
    fn check(range: &str, address: &str, expected: bool) {
        assert_eq!(Range::parse(range).unwrap().gives(address.parse().unwrap()), expected);
    }

    #[test]
    fn the_first_and_the_last_address_are_never_given() {
        check("10.1.0.0/24", "10.1.0.1", true);
        check("10.1.0.0/24", "10.1.0.254", true);
        check("10.1.0.0/24", "10.1.0.0", false);
        check("10.1.0.0/24", "10.1.0.255", false);
        check("10.1.0.0/24", "10.2.0.1", false);
        check("10.1.0.8/32", "10.1.0.8", false);
    }

    #[test]
    fn a_range_that_goes_or_is_not_ready_gives_nothing() {
        assert!(is_ready(&value!({})));
        assert!(!is_ready(&value!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})));
        assert!(!is_ready(&value!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}})));
        assert_eq!(of(&value!({"spec": {"cidrs": ["fd00::/64"]}})), []);
    }
}
