//! AES-GCM with a key per record: derived by HKDF from a seed and 32 random bytes, which precede the output of AES-GCM.
//!
//! One seed can encrypt any number of records.

use std::sync::Arc;

use mizzen_store::EncryptionError;
use mizzen_value::clock::Random;
use ring::hkdf::{HKDF_SHA256, Prk};

use super::{Cipher, aes_gcm, append_random, split};

/// The minimum length of a seed in bytes, and the length of a generated one.
pub(crate) const SEED: usize = 32;

const INFO: usize = 32;

/// A seed from which keys are derived.
pub(crate) struct Derived {
    seed: Prk,
    random: Arc<dyn Random>,
}

impl Derived {
    /// None if the seed is too short.
    pub(crate) fn from_seed(seed: &[u8], random: &Arc<dyn Random>) -> Option<Derived> {
        (seed.len() >= SEED).then(|| Derived {
            seed: Prk::new_less_safe(HKDF_SHA256, seed),
            random: random.clone(),
        })
    }

    fn cipher(&self, info: &[u8]) -> Result<Box<dyn Cipher>, EncryptionError> {
        let mut key = [0; 32];
        let failed = || EncryptionError("failed to derive a key from the seed".into());
        let expanded = self
            .seed
            .expand(&[info], HKDF_SHA256)
            .and_then(|expanded| expanded.fill(&mut key));
        expanded.map_err(|_| failed())?;
        aes_gcm::with_key(&key, &self.random).ok_or_else(failed)
    }
}

impl Cipher for Derived {
    fn encrypt(&self, plain: &[u8], path: &[u8], out: &mut Vec<u8>) -> Result<(), EncryptionError> {
        let info: [u8; INFO] = append_random(&*self.random, out);
        self.cipher(&info)?.encrypt(plain, path, out)
    }

    fn decrypt(&self, encrypted: &[u8], path: &[u8]) -> Result<Vec<u8>, EncryptionError> {
        let (info, encrypted) = split(encrypted, INFO)?;
        self.cipher(info)?.decrypt(encrypted, path)
    }
}
