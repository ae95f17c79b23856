//! Which addresses do pods get? From the range of their node, or from one of the agent's own.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use mizzen_object::Str;

/// A range of addresses, and which of them are taken.
#[derive(Debug)]
pub struct Pool {
    first: u32,
    size: u32,
    next: u32,
    taken: BTreeSet<u32>,
}

impl Pool {
    /// The range of a node, such as `10.244.3.0/24`; none if it is no range of IPv4 addresses.
    pub fn of_range(range: &str) -> Option<Pool> {
        let (address, length) = range.split_once('/')?;
        let (address, length): (Ipv4Addr, u32) = (address.parse().ok()?, length.parse().ok()?);
        let size = 1u32.checked_shl(32 - length.min(32)).filter(|size| *size > 2)?;
        Some(Pool { first: u32::from(address) & !(size - 1), size, next: 1, taken: BTreeSet::new() })
    }

    /// The agent's own range. Agents of different names begin at different places.
    pub fn own(name: &str) -> Pool {
        let mut pool = Pool::of_range("10.128.0.0/9").expect("it is a range");
        pool.next = (crate::digest(name) as u32) % (pool.size / 0x1_0000) * 0x1_0000 + 1;
        pool
    }

    /// Takes the next free address; none if all are taken.
    pub fn take(&mut self) -> Option<Str> {
        // The first and the last address of a range are nobody's, and neither is the gateway's.
        let usable = self.size - 3;
        for _ in 0..usable.min(self.taken.len() as u32 + 1) {
            let offset = 2 + (self.next - 1) % usable;
            self.next = self.next % usable + 1;
            if self.taken.insert(self.first + offset) {
                return Some(show(self.first + offset));
            }
        }
        None
    }

    /// Takes one address that somebody has already; whether it is of this range.
    pub fn keep(&mut self, address: &str) -> bool {
        self.find(address).map(|address| self.taken.insert(address)).is_some()
    }

    /// Gives an address back.
    pub fn free(&mut self, address: &str) {
        if let Some(address) = self.find(address) {
            self.taken.remove(&address);
        }
    }

    fn find(&self, address: &str) -> Option<u32> {
        let address = u32::from(address.parse::<Ipv4Addr>().ok()?);
        (address >= self.first && address - self.first < self.size).then_some(address)
    }
}

fn show(address: u32) -> Str {
    Str::from(Ipv4Addr::from(address).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_range_is_used_up_and_given_back() {
        let mut pool = Pool::of_range("10.1.2.0/29").unwrap();
        let taken: Vec<Str> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(taken, ["10.1.2.2", "10.1.2.3", "10.1.2.4", "10.1.2.5", "10.1.2.6"]);
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
        for range in ["", "10.0.0.0", "fd00::/64", "10.0.0.0/31", "10.0.0.0/x"] {
            assert!(Pool::of_range(range).is_none(), "{range}");
        }
    }

    #[test]
    fn agents_begin_at_different_places() {
        assert_ne!(Pool::own("a").take(), Pool::own("b").take());
    }
}
