//! What tells one document from every other.

use sha2::{Digest, Sha512};

/// The hash of a document, as Kubernetes writes it: SHA-512 in capital letters.
pub fn hash(bytes: &[u8]) -> String {
    Sha512::digest(bytes).iter().map(|byte| format!("{byte:02X}")).collect()
}
