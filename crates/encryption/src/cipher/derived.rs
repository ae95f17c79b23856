//! AES-GCM with a key for each text: derived from a seed and 32 random bytes, which stand before what AES-GCM writes.
//!
//! So one seed may seal any number of texts.

use std::sync::Arc;

use mizzen_store::SealError;
use mizzen_value::clock::Random;
use ring::hkdf::{HKDF_SHA256, Prk};

use super::{Cipher, aes_gcm, append_random, split};

/// How many bytes a seed has at least, and how many one has that we make.
pub(crate) const SEED: usize = 32;

const INFO: usize = 32;

/// A seed from which keys are derived.
pub(crate) struct Derived {
    seed: Prk,
    random: Arc<dyn Random>,
}

impl Derived {
    /// None if the seed is too short.
    pub(crate) fn from_seed(
        seed: &[u8],
        random: &Arc<dyn Random>,
    ) -> Option<Derived> {
        let is_long = seed.len() >= SEED;
        is_long.then(|| Derived {
            seed: Prk::new_less_safe(HKDF_SHA256, seed),
            random: random.clone(),
        })
    }

    fn cipher(&self, info: &[u8]) -> Result<Box<dyn Cipher>, SealError> {
        let mut key = [0; 32];
        let failed = || SealError("failed to derive a key from the seed".into());
        let expanded = self
            .seed
            .expand(&[info], HKDF_SHA256)
            .and_then(|expanded| expanded.fill(&mut key));
        expanded.map_err(|_| failed())?;
        aes_gcm::with_key(&key, &self.random).ok_or_else(failed)
    }
}

impl Cipher for Derived {
    fn seal(&self, plain: &[u8], path: &[u8], out: &mut Vec<u8>) -> Result<(), SealError> {
        let info: [u8; INFO] = append_random(&*self.random, out);
        self.cipher(&info)?.seal(plain, path, out)
    }

    fn open(&self, sealed: &[u8], path: &[u8]) -> Result<Vec<u8>, SealError> {
        let (info, sealed) = split(sealed, INFO)?;
        self.cipher(info)?.open(sealed, path)
    }
}
