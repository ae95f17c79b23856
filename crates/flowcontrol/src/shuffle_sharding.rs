//! Shuffle sharding: the hand of queues that a flow may use, dealt from all queues by the flow's
//! hash.
//!
//! Two flows seldom get the same hand, so a flow that fills its queues leaves other flows at least
//! one.

/// The maximum hand size: a larger hand cannot be dealt from a hash without bias.
const MAX_HAND: usize = 15;
/// How many bits of entropy a hash has. With more the last card would be biased.
const MAX_BITS: f64 = 60.0;

/// The indexes of the dealt queues.
pub(super) struct Hand {
    cards: [usize; MAX_HAND],
    size: usize,
}

impl Hand {
    /// Whether a hash has enough entropy for such hands.
    pub(super) fn is_possible(deck: usize, size: usize) -> bool {
        (1..=MAX_HAND).contains(&size)
            && size <= deck
            && (deck as f64).log2() * size as f64 <= MAX_BITS
    }

    /// Deals `size` different cards of a deck of `deck`.
    pub(super) fn deal(mut hash: u64, deck: usize, size: usize) -> Hand {
        let mut drawn = [0; MAX_HAND];
        for (n_drawn, card) in drawn[..size].iter_mut().enumerate() {
            let left = (deck - n_drawn) as u64;
            *card = (hash % left) as usize;
            hash /= left;
        }
        let mut hand = Hand { cards: drawn, size };
        for at in 0..size {
            // The n-th of the cards that are left: skip the drawn ones.
            hand.cards[at] = drawn[..at]
                .iter()
                .rev()
                .fold(drawn[at], |card, gone| card + usize::from(card >= *gone));
        }
        hand
    }

    /// The cards, starting with another one each `turn`, so that no queue is preferred.
    pub(super) fn beginning_at(&self, turn: usize) -> impl Iterator<Item = usize> {
        (0..self.size).map(move |at| self.cards[(turn + at) % self.size])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_hand_has_different_cards_of_the_deck() {
        for hash in (0..1_000_u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
            let cards: BTreeSet<usize> = Hand::deal(hash, 16, 4).beginning_at(3).collect();
            assert_eq!(cards.len(), 4, "hash {hash}");
            assert!(cards.iter().all(|card| *card < 16));
        }
    }

    #[test]
    fn every_queue_is_dealt_about_as_often() {
        let mut dealt = [0_u32; 16];
        for hash in (0..16_000_u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
            Hand::deal(hash, 16, 4)
                .beginning_at(0)
                .for_each(|card| dealt[card] += 1);
        }
        assert!(
            dealt.iter().all(|times| (3_600..4_400).contains(times)),
            "{dealt:?}"
        );
    }

    #[test]
    fn a_hash_must_be_enough_for_the_hand() {
        let possible = [(128, 6), (64, 6), (16, 4), (1, 1), (1 << 26, 2)];
        assert!(
            possible
                .iter()
                .all(|(deck, hand)| Hand::is_possible(*deck, *hand))
        );
        let impossible = [(0, 0), (8, 0), (2, 3), (512, 8), (1 << 26, 3)];
        assert!(
            impossible
                .iter()
                .all(|(deck, hand)| !Hand::is_possible(*deck, *hand))
        );
    }
}
