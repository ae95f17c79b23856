//! Warnings of a request: the one channel to the client beside the response.

use parking_lot::Mutex;

/// The warnings of one request, each once, in the order in which they came. They reach the client whether or not the
/// request succeeds, and whichever attempt of a write they come from.
#[derive(Debug, Default)]
pub struct Warnings(Mutex<Vec<String>>);

impl Warnings {
    /// Adds a warning, unless it is there already: a write that lost a race is tried again.
    pub fn warn(&self, warning: impl Into<String>) {
        let warning = warning.into();
        let mut warnings = self.0.lock();
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }

    /// Adds each warning.
    pub fn warn_all(&self, warnings: impl IntoIterator<Item = String>) {
        warnings.into_iter().for_each(|warning| self.warn(warning));
    }

    /// The warnings so far.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }
}
