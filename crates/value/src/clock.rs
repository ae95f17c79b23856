//! The clock and the source of random bytes, as traits, so that tests are deterministic.
//!
//! Invariant: code outside the implementations neither reads the wall clock, nor sleeps, nor draws
//! random numbers.

/// The wall clock.
pub trait Clock: Send + Sync {
    /// Seconds and nanoseconds since the Unix epoch.
    fn now(&self) -> (i64, u32);
}

/// A source of random bytes.
pub trait Random: Send + Sync {
    /// Fills `bytes`.
    fn fill(&self, bytes: &mut [u8]);
}

/// The alphabet of generated names. Without vowels, so that no words appear.
const NAME_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

const HEX: &[u8; 16] = b"0123456789abcdef";

/// A random version 4 UUID.
pub fn uuid(random: &dyn Random) -> String {
    let mut bytes = [0; 16];
    random.fill(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut text = String::with_capacity(36);
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push(char::from(HEX[usize::from(byte >> 4)]));
        text.push(char::from(HEX[usize::from(byte & 15)]));
    }
    text
}

/// `n` random characters for a generated name.
pub fn name_suffix(random: &dyn Random, n: usize) -> String {
    let mut bytes = vec![0; n];
    random.fill(&mut bytes);
    bytes
        .iter()
        .map(|byte| char::from(NAME_ALPHABET[usize::from(*byte) % NAME_ALPHABET.len()]))
        .collect()
}
