//! Event handlers of informers.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::event::Event;
use super::mailbox::{Mailbox, QueuedEvent};

/// Handles events. A handler is called for one event after the other; a slow handler delays no
/// other handler.
pub trait Handler<K>: Send + 'static {
    /// Handles one event.
    fn handle(&mut self, event: Event<K>) -> impl Future<Output = ()> + Send;
}

impl<K: Send + Sync, F: FnMut(Event<K>) + Send + 'static> Handler<K> for F {
    async fn handle(&mut self, event: Event<K>) {
        self(event);
    }
}

/// The options of a handler.
#[derive(Debug, Clone)]
pub struct HandlerOptions {
    /// The number of queued events from which events of the same object are merged.
    pub limit: usize,
    /// The resync period: `None` for the informer's default, zero for never.
    pub resync: Option<Duration>,
}

impl Default for HandlerOptions {
    fn default() -> HandlerOptions {
        HandlerOptions {
            limit: 1024,
            resync: None,
        }
    }
}

/// A registered handler. It gets events while the informer runs, or until
/// [`remove`](Registration::remove).
pub struct Registration<K> {
    pub(super) mailbox: Arc<Mailbox<K>>,
    pub(super) synced: watch::Receiver<bool>,
}

impl<K> Registration<K> {
    /// Waits until the handler has got all initial objects.
    pub async fn wait_for_sync(&self) {
        let mut synced = self.synced.clone();
        let _ = synced.wait_for(|synced| *synced).await;
    }

    /// Whether the handler has got all initial objects.
    pub fn has_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// The number of queued events.
    pub fn waiting(&self) -> usize {
        self.mailbox.len()
    }

    /// Removes the handler; it still gets the queued events.
    pub fn remove(self) {
        self.mailbox.close();
    }
}

/// Calls a handler for its queued events.
pub(super) async fn read_out<K, H: Handler<K>>(
    mailbox: Arc<Mailbox<K>>,
    mut handler: H,
    synced: watch::Sender<bool>,
) {
    while let Some(queued) = mailbox.next().await {
        match queued {
            QueuedEvent::Event(event) => handler.handle(event).await,
            QueuedEvent::Synced => drop(synced.send_replace(true)),
        }
    }
}
