//! The scope of handlers on shared informers.

use parking_lot::Mutex;
use std::sync::Arc;

use super::mailbox::Mailbox;

/// Removes one handler.
type End = Box<dyn FnOnce() + Send>;

/// Handlers that are removed together. Clones share the scope.
#[derive(Clone, Default)]
pub(super) struct HandlerScope(Arc<Mutex<Vec<End>>>);

impl HandlerScope {
    /// Adds a handler to the scope.
    pub(super) fn add<K: Send + Sync + 'static>(&self, mailbox: &Arc<Mailbox<K>>) {
        let mailbox = Arc::downgrade(mailbox);
        let end = move || mailbox.upgrade().iter().for_each(|mailbox| mailbox.close());
        self.0.lock().push(Box::new(end));
    }

    /// Removes all handlers of the scope.
    pub(super) fn remove_all(&self) {
        let ends = std::mem::take(&mut *self.0.lock());
        ends.into_iter().for_each(|end| end());
    }
}
