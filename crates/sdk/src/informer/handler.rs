//! Who listens, and how.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::event::Event;
use super::mailbox::{Letter, Mailbox};

/// Listens to what happens. A handler is called for one event after the other, never for two at once; how long it takes
/// is nobody else's business.
pub trait Handler<K>: Send + 'static {
    /// Hears one event.
    fn handle(&mut self, event: Event<K>) -> impl Future<Output = ()> + Send;
}

impl<K: Send + Sync, F: FnMut(Event<K>) + Send + 'static> Handler<K> for F {
    async fn handle(&mut self, event: Event<K>) {
        self(event);
    }
}

/// How a handler listens.
#[derive(Debug, Clone)]
pub struct HandlerOptions {
    /// How many events may wait before those about the same object are joined.
    pub limit: usize,
    /// How often it hears of every object, whether or not anything happened: none for the informer's default, zero
    /// for never.
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

/// A handler that listens. It does so for as long as the informer runs, or until [`remove`](Registration::remove).
pub struct Registration<K> {
    pub(super) mailbox: Arc<Mailbox<K>>,
    pub(super) synced: watch::Receiver<bool>,
}

impl<K> Registration<K> {
    /// Waits until the handler has heard of everything that was there when it began.
    pub async fn wait_for_sync(&self) {
        let mut synced = self.synced.clone();
        let _ = synced.wait_for(|synced| *synced).await;
    }

    /// Whether the handler has heard of everything that was there when it began.
    pub fn has_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// How many events wait.
    pub fn waiting(&self) -> usize {
        self.mailbox.len()
    }

    /// Lets the handler hear what waits, and nothing more.
    pub fn remove(self) {
        self.mailbox.close();
    }
}

/// Reads a handler its letters.
pub(super) async fn read_out<K, H: Handler<K>>(
    mailbox: Arc<Mailbox<K>>,
    mut handler: H,
    synced: watch::Sender<bool>,
) {
    while let Some(letter) = mailbox.next().await {
        match letter {
            Letter::Event(event) => handler.handle(event).await,
            Letter::Synced => drop(synced.send_replace(true)),
        }
    }
}
