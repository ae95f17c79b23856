//! Runs a target on seeded inputs for some seconds, so that every test run has malformed inputs.
//!
//! `MIZZEN_SEED` and `MIZZEN_FUZZ_ROUNDS` choose another run; a failure prints its input.

#![expect(
    clippy::disallowed_methods,
    reason = "how long an input takes is measured on a thread without tokio"
)]

use std::panic::catch_unwind;
use std::thread;
use std::time::{Duration, Instant};

/// No input of a few kilobytes may take longer, even in a debug build on a busy machine.
const SOON: Duration = Duration::from_secs(2);

/// Tokens that some parser recognizes.
const PIECES: [&[u8]; 24] = [
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b":",
    b",",
    b"null",
    b"true",
    b"-1",
    b"1e400",
    b"9223372036854775808",
    b"\\u0000",
    b"\\ud800",
    b"\xff",
    b"\0",
    b"\n- ",
    b"&a ",
    b"*a",
    b"!!binary ",
    b"|\n",
    b"%",
    b" in (",
    b"$patch",
];

/// The stack size of the server's threads.
const STACK: usize = 16 << 20;

/// Calls a target with mutations of `seeds`.
#[track_caller]
pub(crate) fn check(target: fn(&[u8]), seeds: &[&[u8]], n_rounds: usize) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let mut random = Random(number("MIZZEN_SEED").unwrap_or(1));
    let n_rounds = number("MIZZEN_FUZZ_ROUNDS").map_or(n_rounds, |rounds| rounds as usize);
    let run = || {
        for round in 0..n_rounds {
            let input = random.input(seeds);
            let started = Instant::now();
            let outcome = catch_unwind(|| target(&input));
            assert!(
                outcome.is_ok(),
                "round {round}: {:?}",
                String::from_utf8_lossy(&input)
            );
            let took = started.elapsed();
            assert!(
                took < SOON,
                "round {round} took {took:?}: {:?}",
                String::from_utf8_lossy(&input)
            );
        }
    };
    thread::scope(|scope| {
        let worker = thread::Builder::new()
            .stack_size(STACK)
            .spawn_scoped(scope, run)
            .expect("a thread");
        assert!(worker.join().is_ok(), "see above");
    });
}

/// Random numbers (splitmix64) and mutated inputs.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % (n.max(1) as u64)).expect("less than n")
    }

    /// A seed with a few mutations.
    fn input(&mut self, seeds: &[&[u8]]) -> Vec<u8> {
        let mut input = seeds[self.below(seeds.len())].to_vec();
        for _ in 0..=self.below(4) {
            self.change(&mut input, seeds);
        }
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, seeds: &[&[u8]]) {
        let (from, to) = self.range(input.len());
        match self.below(8) {
            0 => drop(input.drain(from..to)),
            1 => input.truncate(from),
            2 if from < input.len() => input[from] ^= 1 << self.below(8),
            3 if from < input.len() => input[from] = self.next().to_le_bytes()[0],
            4 => {
                let copy = input[from..to].repeat(1 + self.below(20));
                insert(input, from, &copy);
            }
            5 => {
                let piece =
                    PIECES[self.below(PIECES.len())].repeat(1 + self.below(3) * self.below(200));
                insert(input, from, &piece);
            }
            6 => {
                let seed = seeds[self.below(seeds.len())];
                let (start, end) = self.range(seed.len());
                insert(input, from, &seed[start..end]);
            }
            _ => {
                let at = self.below(input.len());
                let moved: Vec<u8> = input.drain(from..to).collect();
                insert(input, at.min(input.len()), &moved);
            }
        }
    }

    /// A range within this length; short more often than long.
    fn range(&mut self, length: usize) -> (usize, usize) {
        let from = self.below(length + 1);
        let longest = if self.below(4) == 0 { length } else { 12 };
        (from, length.min(from + self.below(longest + 1)))
    }
}

fn insert(input: &mut Vec<u8>, at: usize, piece: &[u8]) {
    input.splice(at..at, piece.iter().copied());
}
