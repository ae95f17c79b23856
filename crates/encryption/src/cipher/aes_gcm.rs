//! AES-GCM: a nonce of twelve random bytes, then the ciphertext with its tag, which authenticates the path.

use std::sync::Arc;

use aes::Aes192;
use aes_gcm::aead::consts::U12;
use aes_gcm::aead::{Aead, Payload};
use aes_gcm::{Aes128Gcm, Aes256Gcm, AesGcm, KeyInit, Nonce};
use mizzen_store::EncryptionError;
use mizzen_value::clock::Random;

use super::{Cipher, append_random, split};

const NONCE: usize = 12;

pub(super) fn with_key(key: &[u8], random: &Arc<dyn Random>) -> Option<Box<dyn Cipher>> {
    Some(match key.len() {
        16 => Box::new(Gcm {
            aead: Aes128Gcm::new_from_slice(key).ok()?,
            random: random.clone(),
        }),
        24 => Box::new(Gcm {
            aead: AesGcm::<Aes192, U12>::new_from_slice(key).ok()?,
            random: random.clone(),
        }),
        32 => Box::new(Gcm {
            aead: Aes256Gcm::new_from_slice(key).ok()?,
            random: random.clone(),
        }),
        _ => return None,
    })
}

struct Gcm<A> {
    aead: A,
    random: Arc<dyn Random>,
}

impl<A: Aead<NonceSize = U12> + Send + Sync> Cipher for Gcm<A> {
    fn encrypt(&self, plain: &[u8], path: &[u8], out: &mut Vec<u8>) -> Result<(), EncryptionError> {
        let nonce: [u8; NONCE] = append_random(&*self.random, out);
        let encrypted = self.aead.encrypt(
            &Nonce::from(nonce),
            Payload {
                msg: plain,
                aad: path,
            },
        );
        out.extend(
            encrypted
                .map_err(|_| EncryptionError("the data is too large to be encrypted".into()))?,
        );
        Ok(())
    }

    fn decrypt(&self, encrypted: &[u8], path: &[u8]) -> Result<Vec<u8>, EncryptionError> {
        let (nonce, encrypted) = split(encrypted, NONCE)?;
        let nonce: [u8; NONCE] = nonce.try_into().expect("it has the length of a nonce");
        let plain = self.aead.decrypt(
            &Nonce::from(nonce),
            Payload {
                msg: encrypted,
                aad: path,
            },
        );
        plain.map_err(|_| EncryptionError("cipher: message authentication failed".into()))
    }
}
