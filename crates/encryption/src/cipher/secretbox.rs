//! XSalsa20-Poly1305 (NaCl's secretbox): a nonce of 24 random bytes, then the tag and the ciphertext. The path is not
//! authenticated.

use std::sync::Arc;

use crypto_secretbox::aead::{Aead, KeyInit};
use crypto_secretbox::{Nonce, XSalsa20Poly1305};
use mizzen_store::EncryptionError;
use mizzen_value::clock::Random;

use super::{Cipher, TOO_SHORT, append_random, split};

const NONCE: usize = 24;
const TAG: usize = 16;

pub(super) fn with_key(key: &[u8], random: &Arc<dyn Random>) -> Option<Box<dyn Cipher>> {
    let aead = XSalsa20Poly1305::new_from_slice(key).ok()?;
    Some(Box::new(Secretbox {
        aead,
        random: random.clone(),
    }))
}

struct Secretbox {
    aead: XSalsa20Poly1305,
    random: Arc<dyn Random>,
}

impl Cipher for Secretbox {
    fn encrypt(
        &self,
        plain: &[u8],
        _path: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), EncryptionError> {
        let nonce: [u8; NONCE] = append_random(&*self.random, out);
        let encrypted = self.aead.encrypt(&Nonce::from(nonce), plain);
        out.extend(
            encrypted
                .map_err(|_| EncryptionError("the data is too large to be encrypted".into()))?,
        );
        Ok(())
    }

    fn decrypt(&self, encrypted: &[u8], _path: &[u8]) -> Result<Vec<u8>, EncryptionError> {
        let (nonce, encrypted) = split(encrypted, NONCE)?;
        if encrypted.len() < TAG {
            return Err(EncryptionError(TOO_SHORT.into()));
        }
        let plain = self.aead.decrypt(Nonce::from_slice(nonce), encrypted);
        // Kubernetes: the message for a wrong key (encrypt/secretbox/secretbox.go).
        plain
            .map_err(|_| EncryptionError("output array was not large enough for encryption".into()))
    }
}
