//! Whether the files are encrypted under the current key.
//!
//! A log contains superseded records. When the key changes, or plain text is to be encrypted, a compaction rewrites all
//! files soon, so that the old key decrypts nothing that is left. A failed compaction is retried when the log is long, or
//! at the next start.

use crate::encryption::MaybeEncryptor;
use crate::{EventKind, Saved};

/// What is known of the files.
pub(super) struct EncryptionState {
    sealer: MaybeEncryptor,
    /// The sealer's generation when files were last begun anew.
    generation: u64,
    /// Whether something was found at opening that would be sealed in another way now.
    found_old: bool,
}

impl EncryptionState {
    pub(super) fn new(sealer: MaybeEncryptor) -> EncryptionState {
        let generation = sealer.as_ref().map_or(0, |sealer| sealer.generation());
        EncryptionState {
            sealer,
            generation,
            found_old: false,
        }
    }

    pub(super) fn look_at(&mut self, saved: &Saved<'_>) {
        if let (Some(sealer), EventKind::Put, false) = (&self.sealer, saved.kind, self.found_old) {
            self.found_old = !sealer.is_current(saved.space, saved.sealed.then_some(saved.value));
        }
    }

    pub(super) fn are_outdated(&self) -> bool {
        self.found_old
            || self
                .sealer
                .as_ref()
                .is_some_and(|sealer| sealer.generation() != self.generation)
    }

    /// What was begun anew has failed: files are as they were.
    pub(super) fn set_outdated(&mut self) {
        self.found_old |= self.sealer.is_some();
    }

    /// Who seals the files that are now begun anew.
    pub(super) fn renew(&mut self) -> MaybeEncryptor {
        *self = EncryptionState::new(self.sealer.take());
        self.sealer.clone()
    }
}
