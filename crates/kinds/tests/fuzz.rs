//! A short run of the fuzzer's targets on seeded inputs, so that every test run meets some nonsense.
//!
//! `MIZZEN_SEED` and `MIZZEN_FUZZ_ROUNDS` choose another run; what fails prints its input.

#[path = "../../../fuzz/src/targets.rs"]
mod targets;

use std::panic::catch_unwind;
use std::time::{Duration, Instant};

/// No input of a few kilobytes may take longer, even in a debug build on a busy machine.
const SOON: Duration = Duration::from_secs(2);

/// Pieces that mean something to one reader or another.
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

#[track_caller]
fn check(target: fn(&[u8]), seeds: &[&[u8]], n_rounds: usize) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let mut random = Random(number("MIZZEN_SEED").unwrap_or(1));
    let n_rounds = number("MIZZEN_FUZZ_ROUNDS").map_or(n_rounds, |rounds| rounds as usize);
    for round in 0..n_rounds {
        let input = random.input(seeds);
        let started = Instant::now();
        let outcome = catch_unwind(|| target(&input));
        assert!(outcome.is_ok(), "round {round}: {:?}", String::from_utf8_lossy(&input));
        let took = started.elapsed();
        assert!(took < SOON, "round {round} took {took:?}: {:?}", String::from_utf8_lossy(&input));
    }
}

#[test]
fn json_is_read_or_refused() {
    let other = br#"[1,-2.5e3,"\u00e9\n\"",{"a":[null,true,false]},{}]"#;
    check(targets::json, &[targets::POD_TEXT, other], 4_000);
}

#[test]
fn yaml_is_read_or_refused() {
    let other = b"# c\na: &x {b: [1, 'two', \"th\\tree\"], ? c : d}\ne: |+\n  f\n  g\nh: >-\n  i\n\n  j\nk: *x\n<<: *x\nl: !!str 5\nm: 0x1F\nn: ~\n- o\n---\np: q\n";
    check(targets::yaml, &[targets::POD_TEXT, other], 3_000);
}

#[test]
fn pods_in_json_are_read_or_refused() {
    check(targets::pod_json, &[targets::POD_TEXT], 1_500);
}

#[test]
fn pods_in_protobuf_are_read_or_refused() {
    let message = targets::pod_message();
    check(targets::pod_proto, &[&message], 1_500);
}

#[test]
fn selectors_are_read_or_refused() {
    let seeds: [&[u8]; 3] = [
        b"a=b,c!=d,e in (f,g),h notin (i),j,!k,l>5,m<6",
        b"x.y/z==1",
        b"metadata.name=a\\,b,spec.nodeName!=",
    ];
    check(targets::label_selector, &seeds, 10_000);
    check(targets::field_selector, &seeds, 10_000);
}

#[test]
fn quantities_are_read_or_refused() {
    let seeds: [&[u8]; 5] =
        [b"1500m", b"-0.5Gi", b"12e-6", b"999999999999999999999999999.9999999999", b"+1E"];
    check(targets::quantity, &seeds, 20_000);
}

#[test]
fn patches_are_applied_or_refused() {
    let patch = br#"[{"op":"add","path":"/metadata/labels/x~1y","value":"z"},{"op":"copy","from":"/spec","path":"/status/a"},{"op":"remove","path":"/spec/containers/0/env/-1"},{"op":"test","path":"/spec/containers/0/name","value":"l"},{"op":"move","from":"/spec/volumes/0","path":"/spec/volumes/-"},{"op":"replace","path":"","value":{}}]"#;
    check(targets::json_patch, &[patch], 2_000);
    let patch = br#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["j/k"],"labels":{"$patch":"replace","a":"b"}},"spec":{"$setElementOrder/containers":[{"name":"x"},{"name":"l"}],"$retainKeys":["containers","volumes"],"containers":[{"name":"x"},{"name":"l","$patch":"delete"}],"volumes":[{"name":"o","emptyDir":null,"hostPath":{"path":"/"}}]}}"#;
    check(targets::strategic_patch, &[patch, targets::POD_TEXT], 2_000);
}

/// Numbers from a seed (splitmix64), and the nonsense that is made of them.
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

    /// A seed with a few changes.
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
                let piece = PIECES[self.below(PIECES.len())].repeat(1 + self.below(3) * self.below(200));
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

    /// A piece of something of this length; short more often than long.
    fn range(&mut self, length: usize) -> (usize, usize) {
        let from = self.below(length + 1);
        let longest = if self.below(4) == 0 { length } else { 12 };
        (from, length.min(from + self.below(longest + 1)))
    }
}

fn insert(input: &mut Vec<u8>, at: usize, piece: &[u8]) {
    input.splice(at..at, piece.iter().copied());
}
