//! The seams through which time and chance come in. No code outside their implementations reads the wall
//! clock, sleeps or draws a random number, so that everything can be replayed from one seed.

/// What time it is.
pub trait Clock: Send + Sync {
    /// Seconds and nanoseconds since 1970.
    fn now(&self) -> (i64, u32);
}

/// Where unpredictable bytes come from.
pub trait Random: Send + Sync {
    /// Fills `bytes`.
    fn fill(&self, bytes: &mut [u8]);
}

/// The characters of generated names: no vowels, so that they spell nothing.
const NAME_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// A random version 4 UUID.
pub fn uuid(random: &dyn Random) -> String {
    let mut bytes = [0; 16];
    random.fill(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// `n` random characters for a generated name.
pub fn name_suffix(random: &dyn Random, n: usize) -> String {
    let mut bytes = vec![0; n];
    random.fill(&mut bytes);
    bytes.iter().map(|byte| char::from(NAME_ALPHABET[usize::from(*byte) % NAME_ALPHABET.len()])).collect()
}
