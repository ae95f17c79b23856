//! Whether the files are encrypted under the current key.
//!
//! A log contains superseded records. When the key changes, or plain text is to be encrypted, a compaction rewrites all
//! files soon, so that the old key decrypts nothing that is left. A failed compaction is retried when the log is long, or
//! at the next start.

use crate::encryption::MaybeEncryptor;
use crate::{EventKind, Saved};

/// What is known of the files.
pub(super) struct EncryptionState {
    encryptor: MaybeEncryptor,
    /// The encryptor's generation when files were last rewritten.
    generation: u64,
    /// Whether something was found at opening that would be encrypted in another way now.
    found_old: bool,
}

impl EncryptionState {
    pub(super) fn new(encryptor: MaybeEncryptor) -> EncryptionState {
        let generation = encryptor
            .as_ref()
            .map_or(0, |encryptor| encryptor.generation());
        EncryptionState {
            encryptor,
            generation,
            found_old: false,
        }
    }

    pub(super) fn look_at(&mut self, saved: &Saved<'_>) {
        if let (Some(encryptor), EventKind::Put, false) =
            (&self.encryptor, saved.kind, self.found_old)
        {
            self.found_old =
                !encryptor.is_current(saved.space, saved.is_encrypted.then_some(saved.value));
        }
    }

    pub(super) fn are_outdated(&self) -> bool {
        self.found_old
            || self
                .encryptor
                .as_ref()
                .is_some_and(|encryptor| encryptor.generation() != self.generation)
    }

    /// What was begun anew has failed: files are as they were.
    pub(super) fn set_outdated(&mut self) {
        self.found_old |= self.encryptor.is_some();
    }

    /// The encryptor for the files that are rewritten now.
    pub(super) fn renew(&mut self) -> MaybeEncryptor {
        *self = EncryptionState::new(self.encryptor.take());
        self.encryptor.clone()
    }
}
