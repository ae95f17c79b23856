//! Which addresses are whose? A range is cut into equal blocks, and each node has one.

use std::collections::HashMap;

use mizzen_value::address::Block;

/// How long the prefix of a node's block is.
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

/// How much longer than that of its range it may be.
const MOST_BITS: u32 = 16;

/// Why there are no blocks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// It is no range at all.
    #[error("{0:?} is not a range of addresses, such as 10.244.0.0/16")]
    Nonsense(String),
    /// It is smaller than one block, or has too many of them.
    #[error("{0} cannot be cut into blocks for nodes")]
    Size(String),
}

/// A range and who has its blocks.
#[derive(Debug)]
pub(super) struct Range {
    whole: Block,
    /// The first of the blocks.
    first: Block,
    holders: HashMap<u128, String>,
    next: u128,
}

impl Range {
    /// A range all of whose blocks are free.
    pub(super) fn new(text: &str, masks: NodeMasks) -> Result<Range, RangeError> {
        let whole = Block::parse_sloppy(text).ok_or_else(|| RangeError::Nonsense(text.into()))?;
        let prefix = if whole.ip.is_ipv4() {
            masks.v4
        } else {
            masks.v6
        };
        if prefix > whole.width() || whole.prefix > prefix || prefix - whole.prefix > MOST_BITS {
            return Err(RangeError::Size(text.into()));
        }
        Ok(Range {
            whole,
            first: whole.part(prefix, 0),
            holders: HashMap::new(),
            next: 0,
        })
    }

    /// Gives a node the next free block, or again the one that it has; none if all are taken.
    pub(super) fn take(&mut self, node: &str) -> Option<Block> {
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

    /// Learns that a node has this block; what is not of this range does not matter.
    pub(super) fn hold(&mut self, node: &str, block: &str) {
        let Some(block) = Block::parse_sloppy(block) else {
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

    /// Takes back what a node has.
    pub(super) fn release(&mut self, node: &str) {
        self.holders.retain(|_, holder| holder != node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(range: &mut Range, node: &str) -> Option<String> {
        range.take(node).map(|block| block.to_string())
    }

    #[test]
    fn nodes_get_one_block_after_the_other() {
        let mut range = Range::new("10.244.0.0/16", NodeMasks::default()).unwrap();
        assert_eq!(take(&mut range, "a").as_deref(), Some("10.244.0.0/24"));
        assert_eq!(take(&mut range, "b").as_deref(), Some("10.244.1.0/24"));
        assert_eq!(take(&mut range, "a").as_deref(), Some("10.244.0.0/24"));
        range.release("a");
        assert_eq!(take(&mut range, "c").as_deref(), Some("10.244.2.0/24"));
    }

    #[test]
    fn a_released_block_is_given_again_when_the_others_are_gone() {
        let mut range = Range::new("10.0.0.0/23", NodeMasks::default()).unwrap();
        assert!(take(&mut range, "a").is_some() && take(&mut range, "b").is_some());
        assert_eq!(take(&mut range, "c"), None);
        range.release("a");
        assert_eq!(take(&mut range, "c").as_deref(), Some("10.0.0.0/24"));
    }

    #[test]
    fn a_block_that_a_node_has_is_not_given_to_another() {
        let mut range = Range::new("10.0.0.0/22", NodeMasks::default()).unwrap();
        range.hold("a", "10.0.0.0/23");
        range.hold("b", "192.168.0.0/24");
        range.hold("b", "nonsense");
        assert_eq!(take(&mut range, "c").as_deref(), Some("10.0.2.0/24"));
    }

    #[test]
    fn addresses_of_the_other_family_have_larger_blocks() {
        let mut range = Range::new("fd00:10:244::/48", NodeMasks::default()).unwrap();
        assert_eq!(take(&mut range, "a").as_deref(), Some("fd00:10:244::/64"));
        assert_eq!(take(&mut range, "b").as_deref(), Some("fd00:10:244:1::/64"));
    }

    #[test]
    fn what_cannot_be_cut_is_refused() {
        for text in ["", "10.0.0.0", "10.0.0.0/33", "x/8"] {
            assert!(
                matches!(
                    Range::new(text, NodeMasks::default()),
                    Err(RangeError::Nonsense(_))
                ),
                "{text}"
            );
        }
        for text in ["10.0.0.0/25", "10.0.0.0/7", "fd00::/40"] {
            assert!(
                matches!(
                    Range::new(text, NodeMasks::default()),
                    Err(RangeError::Size(_))
                ),
                "{text}"
            );
        }
    }
}
