//! Pod IPs, allocated from the podCIDR of the node or from a range of the agent.

use std::collections::BTreeSet;

use mizzen_value::Str;
use mizzen_value::address::Cidr;

/// A range of addresses, and the offsets that are allocated.
#[derive(Debug)]
pub(crate) struct AddressPool {
    range: Cidr,
    next: u128,
    taken: BTreeSet<u128>,
}

impl AddressPool {
    /// The podCIDR of a node, such as `10.244.3.0/24`; `None` if it has no address for a pod.
    pub(crate) fn of_range(range: &str) -> Option<AddressPool> {
        let range = Cidr::parse_sloppy(range).filter(|range| range.size() > 2)?;
        Some(AddressPool {
            range,
            next: 0,
            taken: BTreeSet::new(),
        })
    }

    /// The agent's own range. Agents of different names start at different offsets.
    pub(crate) fn own(name: &str) -> AddressPool {
        let mut pool = AddressPool::of_range("10.128.0.0/9").expect("a valid range");
        pool.next = u128::from(crate::digest(name)) % (pool.range.size() / 0x1_0000) * 0x1_0000;
        pool
    }

    /// Allocates the next free address; `None` if the range is full.
    pub(crate) fn take(&mut self) -> Option<Str> {
        // The first and the last address of a range are reserved, and so is the gateway's.
        let usable = self.range.size() - 3;
        for _ in 0..usable.min(self.taken.len() as u128 + 1) {
            let offset = 2 + self.next % usable;
            self.next = (self.next + 1) % usable;
            if self.taken.insert(offset) {
                return Some(Str::from(self.range.nth(offset).to_string()));
            }
        }
        None
    }

    /// Marks an address as allocated; false if it is not in this range.
    pub(crate) fn keep(&mut self, address: &str) -> bool {
        self.find(address)
            .map(|offset| self.taken.insert(offset))
            .is_some()
    }

    /// Releases an address.
    pub(crate) fn free(&mut self, address: &str) {
        if let Some(offset) = self.find(address) {
            self.taken.remove(&offset);
        }
    }

    fn find(&self, address: &str) -> Option<u128> {
        self.range.offset(address.parse().ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_range_is_used_up_and_given_back() {
        let mut pool = AddressPool::of_range("10.1.2.0/29").unwrap();
        let taken: Vec<Str> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(
            taken,
            ["10.1.2.2", "10.1.2.3", "10.1.2.4", "10.1.2.5", "10.1.2.6"]
        );
        pool.free("10.1.2.4");
        assert_eq!(pool.take().as_deref(), Some("10.1.2.4"));
        assert_eq!(pool.take(), None);
    }

    #[test]
    fn an_address_is_not_given_twice_in_a_row() {
        let mut pool = AddressPool::of_range("10.1.2.0/24").unwrap();
        let first = pool.take().unwrap();
        pool.free(&first);
        assert_ne!(pool.take(), Some(first));
    }

    #[test]
    fn an_allocated_address_is_not_allocated_again() {
        let mut pool = AddressPool::of_range("10.1.2.0/30").unwrap();
        assert!(pool.keep("10.1.2.2") && !pool.keep("10.1.3.2"));
        assert_eq!(pool.take(), None);
    }

    #[test]
    fn an_invalid_range_is_rejected() {
        for range in ["", "10.0.0.0", "10.0.0.0/31", "10.0.0.0/x"] {
            assert!(AddressPool::of_range(range).is_none(), "{range}");
        }
    }

    #[test]
    fn a_range_may_be_ipv6() {
        let mut pool = AddressPool::of_range("fd00:1::/64").unwrap();
        assert!(pool.keep("fd00:1::2"));
        assert_eq!(pool.take().as_deref(), Some("fd00:1::3"));
    }

    #[test]
    fn agents_start_at_different_offsets() {
        assert_ne!(AddressPool::own("a").take(), AddressPool::own("b").take());
    }
}
