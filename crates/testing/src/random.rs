//! Random numbers of one seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mizzen_sdk::clock::Rng;
use mizzen_value::clock::Random;

/// The step of the sequence: the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Random numbers of one seed. Clones share the sequence.
#[derive(Debug, Clone)]
pub(crate) struct SeededRandom(Arc<AtomicU64>);

impl SeededRandom {
    pub(crate) fn new(seed: u64) -> SeededRandom {
        let first = seed.wrapping_mul(STEP).wrapping_add(1);
        SeededRandom(Arc::new(AtomicU64::new(first)))
    }

    /// The source of random numbers of the loops.
    pub(crate) fn rng(&self) -> Rng {
        let random = self.clone();
        Arc::new(move || random.next() as f64 / (1u64 << 53) as f64)
    }

    fn next(&self) -> u64 {
        mix(self.0.fetch_add(STEP, Ordering::Relaxed)) >> 11
    }
}

impl Random for SeededRandom {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(4) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}

/// A number that depends on `seed` and `text` alone.
pub(crate) fn hash(seed: u64, text: &str) -> u64 {
    let start = mix(seed.wrapping_mul(STEP).wrapping_add(1));
    mix(text.bytes().fold(start, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    }))
}

/// The finalizer of splitmix64.
fn mix(state: u64) -> u64 {
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}
