//! Byte values, base64 in JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The bytes of a field. It was decoded before, so that it is sound.
pub fn decode(text: &str) -> Vec<u8> {
    STANDARD.decode(text).unwrap_or_default()
}

/// How many bytes a field has.
pub fn len(text: &str) -> usize {
    text.trim_end_matches('=').len() * 3 / 4
}
