//! Event handlers of informers.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::event::Event;
use super::mailbox::{Mailbox, QueuedEvent};

/// Handles events. A handler is called for one event after the other; a slow handler delays no
/// other handler.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use k8s_openapi::api::core::v1::Namespace;
/// use mizzen_sdk::informer::{Event, Handler, Informer};
/// use mizzen_sdk::watch::ListWatch;
///
/// /// A handler may wait; others are not delayed.
/// struct Slow;
///
/// impl Handler<Namespace> for Slow {
///     async fn handle(&mut self, event: Event<Namespace>) {
///         tokio::task::yield_now().await;
///         println!("{}", event.key());
///     }
/// }
///
/// let namespaces: Informer<Namespace> = Informer::new(ListWatch::all(client));
/// let slow = namespaces.add_handler(Slow);
/// namespaces.add_handler(|event: Event<Namespace>| println!("{}", event.key())); // a closure is one
/// namespaces.start();
/// slow.wait_for_sync().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use std::time::Duration;
/// use mizzen_sdk::Object;
/// use mizzen_sdk::informer::{Event, HandlerOptions, Informer};
/// use mizzen_sdk::resource::PODS;
/// use mizzen_sdk::watch::ListWatch;
///
/// let pods: Informer<Object> = Informer::new(ListWatch::at(client, PODS.path("")));
/// let options = HandlerOptions { resync: Some(Duration::from_secs(600)), ..HandlerOptions::default() };
/// pods.add_handler_with(|_: Event<Object>| {}, options);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use mizzen_sdk::Object;
/// use mizzen_sdk::informer::{Event, Informer};
/// use mizzen_sdk::resource::NAMESPACES;
/// use mizzen_sdk::watch::ListWatch;
///
/// let namespaces: Informer<Object> = Informer::new(ListWatch::at(client, NAMESPACES.path("")));
/// let registration = namespaces.add_handler(|_: Event<Object>| {});
/// namespaces.start();
/// registration.wait_for_sync().await; // the handler has got the initial objects
/// assert!(registration.has_synced());
/// registration.remove();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// use mizzen_sdk::Object;
    /// use mizzen_sdk::informer::{Event, Informer};
    /// use mizzen_sdk::resource::PODS;
    /// use mizzen_sdk::watch::ListWatch;
    ///
    /// let pods: Informer<Object> = Informer::new(ListWatch::at(client, PODS.path("")));
    /// assert_eq!(pods.add_handler(|_: Event<Object>| {}).waiting(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
