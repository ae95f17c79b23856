//! Whether the files are encrypted under the current key.
//!
//! A log contains superseded records. When the key changes, or plain text is to be encrypted, a compaction rewrites all
//! files soon, so that the old key decrypts nothing that is left. A failed compaction is retried when the log is long, or
//! at the next start.

use crate::seal::MaybeSealer;
use crate::{EventKind, Saved};

/// What is known of the files.
pub(super) struct Seals {
    sealer: MaybeSealer,
    /// The sealer's generation when files were last begun anew.
    generation: u64,
    /// Whether something was found at opening that would be sealed in another way now.
    found_old: bool,
}

impl Seals {
    pub(super) fn new(sealer: MaybeSealer) -> Seals {
        let generation = sealer.as_ref().map_or(0, |sealer| sealer.generation());
        Seals {
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
    pub(super) fn renew(&mut self) -> MaybeSealer {
        *self = Seals::new(self.sealer.take());
        self.sealer.clone()
    }
}
