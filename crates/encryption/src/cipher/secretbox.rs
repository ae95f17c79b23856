//! XSalsa20 with Poly1305, as NaCl's secretbox: 24 random bytes, then the tag and the text. The path does not count.

use std::sync::Arc;

use crypto_secretbox::aead::{Aead, KeyInit};
use crypto_secretbox::{Nonce, XSalsa20Poly1305};
use mizzen_store::SealError;
use mizzen_value::clock::Random;

use super::{Cipher, append_random, split, too_short};

const NONCE: usize = 24;
const TAG: usize = 16;

pub(super) fn with_key(key: &[u8], random: &Arc<dyn Random>) -> Option<Box<dyn Cipher>> {
    let sealer = XSalsa20Poly1305::new_from_slice(key).ok()?;
    Some(Box::new(Secretbox {
        sealer,
        random: random.clone(),
    }))
}

struct Secretbox {
    sealer: XSalsa20Poly1305,
    random: Arc<dyn Random>,
}

impl Cipher for Secretbox {
    fn seal(&self, plain: &[u8], _path: &[u8], out: &mut Vec<u8>) -> Result<(), SealError> {
        let nonce: [u8; NONCE] = append_random(&*self.random, out);
        let sealed = self.sealer.encrypt(&Nonce::from(nonce), plain);
        out.extend(sealed.map_err(|_| SealError("the data is too large to be encrypted".into()))?);
        Ok(())
    }

    fn open(&self, sealed: &[u8], _path: &[u8]) -> Result<Vec<u8>, SealError> {
        let (nonce, sealed) = split(sealed, NONCE)?;
        if sealed.len() < TAG {
            return Err(too_short());
        }
        let plain = self.sealer.decrypt(Nonce::from_slice(nonce), sealed);
        // Kubernetes: this is what it says of a wrong key (encrypt/secretbox/secretbox.go).
        plain.map_err(|_| SealError("output array was not large enough for encryption".into()))
    }
}
