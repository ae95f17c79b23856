//! Which addresses do pods get? From the range of their node, or from one of the agent's own.

use std::collections::BTreeSet;

use mizzen_value::Str;
use mizzen_value::address::Block;

/// A range of addresses, and which of them are taken, by where they are in it.
#[derive(Debug)]
pub(crate) struct Pool {
    range: Block,
    next: u128,
    taken: BTreeSet<u128>,
}

impl Pool {
    /// The range of a node, such as `10.244.3.0/24`; none if it is no range that has an address for a pod.
    pub(crate) fn of_range(range: &str) -> Option<Pool> {
        let range = Block::parse_sloppy(range).filter(|range| range.size() > 2)?;
        Some(Pool {
            range,
            next: 0,
            taken: BTreeSet::new(),
        })
    }

    /// The agent's own range. Agents of different names begin at different places.
    pub(crate) fn own(name: &str) -> Pool {
        let mut pool = Pool::of_range("10.128.0.0/9").expect("it is a range");
        pool.next = u128::from(crate::digest(name)) % (pool.range.size() / 0x1_0000) * 0x1_0000;
        pool
    }

    /// Takes the next free address; none if all are taken.
    pub(crate) fn take(&mut self) -> Option<Str> {
        // The first and the last address of a range are nobody's, and neither is the gateway's.
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

    /// Takes one address that somebody has already; whether it is of this range.
    pub(crate) fn keep(&mut self, address: &str) -> bool {
        self.find(address)
            .map(|offset| self.taken.insert(offset))
            .is_some()
    }

    /// Gives an address back.
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
        let mut pool = Pool::of_range("10.1.2.0/29").unwrap();
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
        let mut pool = Pool::of_range("10.1.2.0/24").unwrap();
        let first = pool.take().unwrap();
        pool.free(&first);
        assert_ne!(pool.take(), Some(first));
    }

    #[test]
    fn what_somebody_has_is_not_given_away() {
        let mut pool = Pool::of_range("10.1.2.0/30").unwrap();
        assert!(pool.keep("10.1.2.2") && !pool.keep("10.1.3.2"));
        assert_eq!(pool.take(), None);
    }

    #[test]
    fn what_is_no_range_is_none() {
        for range in ["", "10.0.0.0", "10.0.0.0/31", "10.0.0.0/x"] {
            assert!(Pool::of_range(range).is_none(), "{range}");
        }
    }

    #[test]
    fn a_range_may_be_of_the_other_family() {
        let mut pool = Pool::of_range("fd00:1::/64").unwrap();
        assert!(pool.keep("fd00:1::2"));
        assert_eq!(pool.take().as_deref(), Some("fd00:1::3"));
    }

    #[test]
    fn agents_begin_at_different_places() {
        assert_ne!(Pool::own("a").take(), Pool::own("b").take());
    }
}
