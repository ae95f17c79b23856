//! Numbers from a seed, which is printed.

/// Numbers from a seed (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Prints its seed; `MIZZEN_SEED` repeats one.
    pub(crate) fn from_env() -> Random {
        let given = std::env::var("MIZZEN_SEED").ok();
        let given = given.map(|seed| seed.parse().expect("MIZZEN_SEED is a number"));
        let seed = given.unwrap_or_else(|| getrandom::u64().unwrap());
        println!("MIZZEN_SEED={seed}");
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// A number of rounds from the environment, for runs that are longer than a test.
pub(crate) fn rounds(variable: &str, default: usize) -> usize {
    let given = std::env::var(variable).ok();
    given.map_or(default, |n| n.parse().expect("a number of rounds"))
}
