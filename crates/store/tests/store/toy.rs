//! An encryptor without security: the cipher text names the key and the record, and every byte is changed.

use parking_lot::Mutex;
use std::sync::Arc;

use mizzen_store::{EncryptedContent, EncryptionError, Encryptor, KeyMark};

/// Encrypts all spaces but `two` and `others` with the last of its keys; without keys it encrypts nothing.
#[derive(Debug, Default)]
pub(crate) struct Toy(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    keys: Vec<u8>,
    generation: u64,
    /// Encryption fails.
    is_stuck: bool,
    /// Nothing may be plain.
    is_strict: bool,
}

impl Toy {
    pub(crate) fn with_keys(keys: &[u8]) -> Arc<Toy> {
        Arc::new(Toy(Mutex::new(State {
            keys: keys.to_vec(),
            ..State::default()
        })))
    }

    /// Plain text is rejected in encrypted spaces.
    pub(crate) fn strict(keys: &[u8]) -> Arc<Toy> {
        Arc::new(Toy(Mutex::new(State {
            keys: keys.to_vec(),
            is_strict: true,
            ..State::default()
        })))
    }

    /// Another key is the last.
    pub(crate) fn rotate(&self) {
        let mut state = self.0.lock();
        let next = state
            .keys
            .last()
            .map_or(1, |key| key.wrapping_add(1).max(1));
        state.keys.push(next);
        state.generation += 1;
    }

    pub(crate) fn set_stuck(&self, is_stuck: bool) {
        self.0.lock().is_stuck = is_stuck;
    }
}

impl State {
    fn key(&self, space: &str) -> Option<u8> {
        self.keys
            .last()
            .copied()
            .filter(|_| !["two", "others"].contains(&space))
    }
}

fn head(key: u8, space: &str, name: &str) -> Vec<u8> {
    [&[key][..], space.as_bytes(), b" ", name.as_bytes(), b"\0"].concat()
}

impl Encryptor for Toy {
    fn mark(&self, space: &str) -> KeyMark {
        self.0
            .lock()
            .key(space)
            .map_or(KeyMark::PLAIN, |key| KeyMark(key.into()))
    }

    fn encrypt(
        &self,
        space: &str,
        key: &str,
        plain: &[u8],
    ) -> Result<Option<EncryptedContent>, EncryptionError> {
        let state = self.0.lock();
        if state.is_stuck {
            return Err(EncryptionError("the lock is stuck".into()));
        }
        let Some(toy_key) = state.key(space) else {
            return Ok(None);
        };
        let mut bytes = head(toy_key, space, key);
        bytes.extend(plain.iter().map(|byte| byte ^ toy_key));
        Ok(Some(EncryptedContent {
            bytes: bytes.into(),
            mark: KeyMark(toy_key.into()),
        }))
    }

    fn decrypt(
        &self,
        space: &str,
        key: &str,
        ciphertext: &[u8],
    ) -> Result<(Vec<u8>, KeyMark), EncryptionError> {
        let toy_key = ciphertext[0];
        if !self.0.lock().keys.contains(&toy_key) {
            return Err(EncryptionError(format!("there is no key {toy_key}")));
        }
        let body = ciphertext.strip_prefix(head(toy_key, space, key).as_slice());
        let body = body.ok_or_else(|| EncryptionError("it belongs elsewhere".into()))?;
        Ok((
            body.iter().map(|byte| byte ^ toy_key).collect(),
            KeyMark(toy_key.into()),
        ))
    }

    fn allow_plain_text(&self, space: &str) -> Result<(), EncryptionError> {
        let state = self.0.lock();
        match state.is_strict && state.key(space).is_some() {
            true => Err(EncryptionError("it is not encrypted".into())),
            false => Ok(()),
        }
    }

    fn is_current(&self, space: &str, ciphertext: Option<&[u8]>) -> bool {
        self.0.lock().key(space) == ciphertext.map(|ciphertext| ciphertext[0])
    }

    fn generation(&self) -> u64 {
        self.0.lock().generation
    }
}
