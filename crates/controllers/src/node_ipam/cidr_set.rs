//! CIDR sets: a cluster CIDR that is split into equal podCIDRs.

use std::collections::HashMap;

use mizzen_value::address::Cidr;

/// The prefix lengths of podCIDRs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeMasks {
    /// Of IPv4.
    pub v4: u32,
    /// Of IPv6.
    pub v6: u32,
}

impl Default for NodeMasks {
    fn default() -> NodeMasks {
        NodeMasks { v4: 24, v6: 64 }
    }
}

/// How many bits longer than the cluster CIDR's prefix it may be.
const MAX_SUBNET_MASK_DIFF: u32 = 16;

/// Why a range cannot be split into podCIDRs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// It is not a CIDR.
    #[error("{0:?} is not a range of addresses, such as 10.244.0.0/16")]
    Invalid(String),
    /// It is smaller than one podCIDR, or has too many of them.
    #[error("{0} cannot be cut into blocks for nodes")]
    Size(String),
}

/// A cluster CIDR and the owners of its podCIDRs.
#[derive(Debug)]
pub(super) struct CidrSet {
    whole: Cidr,
    /// The first podCIDR.
    first: Cidr,
    holders: HashMap<u128, String>,
    next: u128,
}

impl CidrSet {
    /// A set without allocations.
    pub(super) fn new(text: &str, masks: NodeMasks) -> Result<CidrSet, RangeError> {
        let whole = Cidr::parse_sloppy(text).ok_or_else(|| RangeError::Invalid(text.into()))?;
        let prefix = if whole.ip.is_ipv4() {
            masks.v4
        } else {
            masks.v6
        };
        if prefix > whole.width()
            || whole.prefix > prefix
            || prefix - whole.prefix > MAX_SUBNET_MASK_DIFF
        {
            return Err(RangeError::Size(text.into()));
        }
        Ok(CidrSet {
            whole,
            first: whole.part(prefix, 0),
            holders: HashMap::new(),
            next: 0,
        })
    }

    /// Allocates the next free podCIDR to a node, or returns the one it has; none if all are used.
    pub(super) fn allocate_next(&mut self, node: &str) -> Option<Cidr> {
        let has = self
            .holders
            .iter()
            .find(|(_, holder)| *holder == node)
            .map(|(index, _)| *index);
        let index = has.or_else(|| self.next_free())?;
        self.holders.insert(index, node.into());
        Some(self.whole.part(self.first.prefix, index))
    }

    fn next_free(&mut self) -> Option<u128> {
        let n_blocks = self.whole.size() / self.first.size();
        let mut candidates = (0..n_blocks).map(|step| (self.next + step) % n_blocks);
        let free = candidates.find(|index| !self.holders.contains_key(index))?;
        self.next = (free + 1) % n_blocks;
        Some(free)
    }

    /// Marks a podCIDR as used by a node; ignores those outside of the set.
    pub(super) fn occupy(&mut self, node: &str, block: &str) {
        let Some(block) = Cidr::parse_sloppy(block) else {
            return;
        };
        let Some(offset) = self.whole.offset(block.network()) else {
            return;
        };
        let last = (offset + block.size().min(self.whole.size() - offset) - 1) / self.first.size();
        for index in offset / self.first.size()..=last {
            self.holders.insert(index, node.into());
        }
    }

    /// Releases the podCIDR of a node.
    pub(super) fn release(&mut self, node: &str) {
        self.holders.retain(|_, holder| holder != node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(range: &mut CidrSet, node: &str) -> Option<String> {
        range.allocate_next(node).map(|block| block.to_string())
    }

    #[test]
    fn nodes_get_consecutive_pod_cidrs() {
        let mut range = CidrSet::new("10.244.0.0/16", NodeMasks::default()).unwrap();
        assert_eq!(take(&mut range, "a").as_deref(), Some("10.244.0.0/24"));
        assert_eq!(take(&mut range, "b").as_deref(), Some("10.244.1.0/24"));
        assert_eq!(take(&mut range, "a").as_deref(), Some("10.244.0.0/24"));
        range.release("a");
        assert_eq!(take(&mut range, "c").as_deref(), Some("10.244.2.0/24"));
    }

    #[test]
    fn a_released_pod_cidr_is_reused_last() {
        let mut range = CidrSet::new("10.0.0.0/23", NodeMasks::default()).unwrap();
        assert!(take(&mut range, "a").is_some() && take(&mut range, "b").is_some());
        assert_eq!(take(&mut range, "c"), None);
        range.release("a");
        assert_eq!(take(&mut range, "c").as_deref(), Some("10.0.0.0/24"));
    }

    #[test]
    fn an_occupied_pod_cidr_is_not_allocated_again() {
        let mut range = CidrSet::new("10.0.0.0/22", NodeMasks::default()).unwrap();
        range.occupy("a", "10.0.0.0/23");
        range.occupy("b", "192.168.0.0/24");
        range.occupy("b", "nonsense");
        assert_eq!(take(&mut range, "c").as_deref(), Some("10.0.2.0/24"));
    }

    #[test]
    fn ipv6_pod_cidrs_have_their_own_prefix_length() {
        let mut range = CidrSet::new("fd00:10:244::/48", NodeMasks::default()).unwrap();
        assert_eq!(take(&mut range, "a").as_deref(), Some("fd00:10:244::/64"));
        assert_eq!(take(&mut range, "b").as_deref(), Some("fd00:10:244:1::/64"));
    }

    #[test]
    fn an_invalid_range_is_rejected() {
        for text in ["", "10.0.0.0", "10.0.0.0/33", "x/8"] {
            assert!(
                matches!(
                    CidrSet::new(text, NodeMasks::default()),
                    Err(RangeError::Invalid(_))
                ),
                "{text}"
            );
        }
        for text in ["10.0.0.0/25", "10.0.0.0/7", "fd00::/40"] {
            assert!(
                matches!(
                    CidrSet::new(text, NodeMasks::default()),
                    Err(RangeError::Size(_))
                ),
                "{text}"
            );
        }
    }
}
