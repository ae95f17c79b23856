//! Who uses informers that are not theirs, and may leave while others go on?

use parking_lot::Mutex;
use std::sync::Arc;

use super::mailbox::Mailbox;

/// Ends one handler.
type End = Box<dyn FnOnce() + Send>;

/// Somebody who may leave. Clones are the same guest.
#[derive(Clone, Default)]
pub(super) struct Guest(Arc<Mutex<Vec<End>>>);

impl Guest {
    /// Remembers a handler that came with the guest.
    pub(super) fn brings<K: Send + Sync + 'static>(&self, mailbox: &Arc<Mailbox<K>>) {
        let mailbox = Arc::downgrade(mailbox);
        let end = move || mailbox.upgrade().iter().for_each(|mailbox| mailbox.close());
        self.0.lock().push(Box::new(end));
    }

    /// Ends the guest's handlers.
    pub(super) fn leave(&self) {
        let ends = std::mem::take(&mut *self.0.lock());
        ends.into_iter().for_each(|end| end());
    }
}
