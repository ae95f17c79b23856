//! How does one key turn text into bytes that only it can read? A file per way; all write what Kubernetes writes.

mod aes_cbc;
mod aes_gcm;
mod derived;
mod secretbox;

use std::sync::Arc;

use mizzen_store::SealError;
use mizzen_value::clock::Random;

pub(super) use derived::{Derived, SEED};

/// A way of sealing, with its key.
pub(super) trait Cipher: Send + Sync {
    /// Appends `plain`, sealed for `path`, to `out`.
    fn seal(&self, plain: &[u8], path: &[u8], out: &mut Vec<u8>) -> Result<(), SealError>;

    /// What was sealed for `path`.
    fn open(&self, sealed: &[u8], path: &[u8]) -> Result<Vec<u8>, SealError>;
}

/// The ways that need nothing but a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    AesCbc,
    AesGcm,
    Secretbox,
}

impl Method {
    /// All of them, by their names in a configuration.
    pub(super) const ALL: [(&'static str, Method); 3] = [
        ("aesgcm", Method::AesGcm),
        ("aescbc", Method::AesCbc),
        ("secretbox", Method::Secretbox),
    ];

    /// What everything that is sealed so begins with; the key's name follows.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Method::AesCbc => "k8s:enc:aescbc:v1:",
            Method::AesGcm => "k8s:enc:aesgcm:v1:",
            Method::Secretbox => "k8s:enc:secretbox:v1:",
        }
    }

    /// How many bytes a key may have.
    pub(super) fn key_lengths(self) -> &'static [usize] {
        match self {
            Method::AesCbc | Method::AesGcm => &[16, 24, 32],
            Method::Secretbox => &[32],
        }
    }

    /// Kubernetes: both AES methods go by one name when no key fits.
    pub(super) fn family(self) -> &'static str {
        match self {
            Method::AesCbc | Method::AesGcm => "AES",
            Method::Secretbox => "Secretbox",
        }
    }

    /// This method with a key; none if the key has a wrong length.
    pub(super) fn with_key(self, key: &[u8], random: &Arc<dyn Random>) -> Option<Box<dyn Cipher>> {
        match self {
            Method::AesCbc => aes_cbc::with_key(key, random),
            Method::AesGcm => aes_gcm::with_key(key, random),
            Method::Secretbox => secretbox::with_key(key, random),
        }
    }
}

/// The first bytes and the rest.
fn split(sealed: &[u8], n: usize) -> Result<(&[u8], &[u8]), SealError> {
    sealed.split_at_checked(n).ok_or_else(too_short)
}

fn too_short() -> SealError {
    SealError("the stored data was shorter than the required size".into())
}

/// Appends `n` bytes that nobody can foresee, and returns them.
fn append_random<const N: usize>(random: &dyn Random, out: &mut Vec<u8>) -> [u8; N] {
    let mut bytes = [0; N];
    random.fill(&mut bytes);
    out.extend_from_slice(&bytes);
    bytes
}

#[cfg(test)]
mod tests;
