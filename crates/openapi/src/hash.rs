//! Hashes of documents and of shared parameters.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE;
use sha2::{Digest, Sha512};

/// The hash of a document, as Kubernetes prints it: SHA-512 in capital letters.
pub fn hash(bytes: &[u8]) -> String {
    Sha512::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02X}"))
        .collect()
}

/// The hash of a shared parameter: six bytes of FNV-1 in base64
/// (kube-openapi/pkg/builder/parameters.go).
pub(super) fn short_hash(bytes: &[u8]) -> String {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let hash = bytes.iter().fold(OFFSET, |hash, byte| {
        hash.wrapping_mul(PRIME) ^ u64::from(*byte)
    });
    URL_SAFE.encode(&hash.to_be_bytes()[..6])
}
