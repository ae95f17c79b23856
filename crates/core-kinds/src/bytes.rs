//! Byte values, base64 in JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The text of some bytes.
pub(super) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The bytes of a text that has been decoded once before, so that it is sound.
pub(super) fn decode(text: &str) -> Vec<u8> {
    STANDARD.decode(text).unwrap_or_default()
}

/// How many bytes a text stands for.
pub(super) fn len(text: &str) -> usize {
    text.trim_end_matches('=').len() * 3 / 4
}
