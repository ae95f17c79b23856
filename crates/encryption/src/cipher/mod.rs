//! The ciphers, a file each. All write what Kubernetes writes.

mod aes_cbc;
mod aes_gcm;
mod derived;
mod secretbox;

use std::sync::Arc;

use mizzen_store::EncryptionError;
use mizzen_value::clock::Random;

pub(super) use derived::{Derived, SEED};

/// A cipher with its key.
pub(super) trait Cipher: Send + Sync {
    /// Appends `plain`, encrypted, to `out`. Ciphers with authenticated data authenticate `path`.
    fn encrypt(&self, plain: &[u8], path: &[u8], out: &mut Vec<u8>) -> Result<(), EncryptionError>;

    /// Decrypts what was encrypted for `path`.
    fn decrypt(&self, encrypted: &[u8], path: &[u8]) -> Result<Vec<u8>, EncryptionError>;
}

/// The ciphers that are configured with a key.
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

    /// The prefix of records; the name of the key follows.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Method::AesCbc => "k8s:enc:aescbc:v1:",
            Method::AesGcm => "k8s:enc:aesgcm:v1:",
            Method::Secretbox => "k8s:enc:secretbox:v1:",
        }
    }

    /// The valid lengths of keys, in bytes.
    pub(super) fn key_lengths(self) -> &'static [usize] {
        match self {
            Method::AesCbc | Method::AesGcm => &[16, 24, 32],
            Method::Secretbox => &[32],
        }
    }

    /// The name in errors. Kubernetes: both AES methods have the same.
    pub(super) fn family(self) -> &'static str {
        match self {
            Method::AesCbc | Method::AesGcm => "AES",
            Method::Secretbox => "Secretbox",
        }
    }

    /// The cipher with a key; none if the key has an invalid length.
    pub(super) fn with_key(self, key: &[u8], random: &Arc<dyn Random>) -> Option<Box<dyn Cipher>> {
        match self {
            Method::AesCbc => aes_cbc::with_key(key, random),
            Method::AesGcm => aes_gcm::with_key(key, random),
            Method::Secretbox => secretbox::with_key(key, random),
        }
    }
}

const TOO_SHORT: &str = "the stored data was shorter than the required size";

/// The first `n` bytes and the rest.
fn split(encrypted: &[u8], n: usize) -> Result<(&[u8], &[u8]), EncryptionError> {
    let parts = encrypted.split_at_checked(n);
    parts.ok_or_else(|| EncryptionError(TOO_SHORT.into()))
}

/// Appends `N` random bytes, and returns them.
fn append_random<const N: usize>(random: &dyn Random, out: &mut Vec<u8>) -> [u8; N] {
    let mut bytes = [0; N];
    random.fill(&mut bytes);
    out.extend_from_slice(&bytes);
    bytes
}

#[cfg(test)]
mod tests;
