//! What does a request have to tell besides its answer?
//!
//! Whoever handles a request may leave a note; notes reach the client with the answer, whether or not it
//! worked.

use parking_lot::Mutex;

/// What was noted while a request was handled.
#[derive(Debug, Default)]
pub(crate) struct Notes(Mutex<Vec<String>>);

impl Notes {
    /// Warns the client. Said once is enough: a write that lost a race is tried again.
    pub(crate) fn warn(&self, warning: impl Into<String>) {
        let warning = warning.into();
        let mut warnings = self.0.lock();
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }

    /// Warns the client of each.
    pub(crate) fn warn_all(&self, warnings: impl IntoIterator<Item = String>) {
        warnings.into_iter().for_each(|warning| self.warn(warning));
    }

    /// The warnings so far, in the order in which they came.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }
}
