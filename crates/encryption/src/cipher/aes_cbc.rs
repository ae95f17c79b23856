//! AES-CBC: a random initialization vector, then the ciphertext, padded by PKCS #7.
//!
//! Not authenticated: changed or moved records are not detected, as in Kubernetes.

use std::sync::Arc;

use aes::cipher::block_padding::Pkcs7;
use aes::cipher::consts::U16;
use aes::cipher::{
    BlockCipherDecrypt, BlockCipherEncrypt, BlockModeDecrypt, BlockModeEncrypt, BlockSizeUser,
    InnerIvInit, KeyInit,
};
use aes::{Aes128, Aes192, Aes256};
use cbc::{Decryptor, Encryptor};
use mizzen_store::EncryptionError;
use mizzen_value::clock::Random;

use super::{Cipher, append_random, split};

const BLOCK: usize = 16;

pub(super) fn with_key(key: &[u8], random: &Arc<dyn Random>) -> Option<Box<dyn Cipher>> {
    Some(match key.len() {
        16 => Box::new(Cbc {
            block: Aes128::new_from_slice(key).ok()?,
            random: random.clone(),
        }),
        24 => Box::new(Cbc {
            block: Aes192::new_from_slice(key).ok()?,
            random: random.clone(),
        }),
        32 => Box::new(Cbc {
            block: Aes256::new_from_slice(key).ok()?,
            random: random.clone(),
        }),
        _ => return None,
    })
}

struct Cbc<B> {
    block: B,
    random: Arc<dyn Random>,
}

impl<B> Cipher for Cbc<B>
where
    B: BlockCipherEncrypt
        + BlockCipherDecrypt
        + BlockSizeUser<BlockSize = U16>
        + Clone
        + Send
        + Sync,
{
    fn encrypt(
        &self,
        plain: &[u8],
        _path: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), EncryptionError> {
        let iv: [u8; BLOCK] = append_random(&*self.random, out);
        let at = out.len();
        out.extend_from_slice(plain);
        out.resize(at + (plain.len() / BLOCK + 1) * BLOCK, 0);
        Encryptor::inner_iv_init(self.block.clone(), &iv.into())
            .encrypt_padded::<Pkcs7>(&mut out[at..], plain.len())
            .expect("the buffer has a block for the padding");
        Ok(())
    }

    fn decrypt(&self, encrypted: &[u8], _path: &[u8]) -> Result<Vec<u8>, EncryptionError> {
        let (iv, encrypted) = split(encrypted, BLOCK)?;
        if !encrypted.len().is_multiple_of(BLOCK) {
            return Err(EncryptionError(
                "the stored data is not a multiple of the block size".into(),
            ));
        }
        let iv: [u8; BLOCK] = iv.try_into().expect("it is a block");
        let mut plain = encrypted.to_vec();
        let length = Decryptor::inner_iv_init(self.block.clone(), &iv.into())
            .decrypt_padded::<Pkcs7>(&mut plain)
            .map_err(|_| EncryptionError("invalid PKCS7 data (empty or not padded)".into()))?
            .len();
        plain.truncate(length);
        Ok(plain)
    }
}
