//! Metadata informers: watch the metadata of every kind that can be listed, watched and deleted.
//!
//! `discovery` reads the kinds that the server has, and again whenever a CustomResourceDefinition
//! or an APIService changes. `watches` runs one metadata watch for each kind.
//!
//! Invariant: nothing is stored here. Handlers store what they need.
//! Invariant: a kind that cannot be watched does not delay the events of other kinds.

mod discovery;
mod watches;

pub(crate) use discovery::{DiscoveredKind, DiscoveredKinds};
pub(crate) use watches::ObjectMetadataList;

use parking_lot::RwLock;
use std::sync::{Arc, Weak};
use std::time::Duration;

use kube::Client;
use mizzen_sdk::ResourceType;
use mizzen_sdk::failure_log::FailureLog;
use mizzen_value::Value;
use tokio::sync::{Mutex, Notify, watch};
use tokio::time::{sleep, timeout};

use watches::MetadataWatches;

/// How often discovery is read at least.
const DISCOVERY_PERIOD: Duration = Duration::from_secs(30);
/// How long after a definition changed discovery is read, so that many changes cause one request.
/// The server may need time to serve the change, so it is read again after four times as long, and
/// so on.
const DISCOVERY_DELAY: Duration = Duration::from_millis(100);
/// How long `wait_for_sync` waits for a kind that cannot be listed.
const SYNC_TIMEOUT: Duration = Duration::from_secs(30);

/// Handles events of all kinds. The events of one object arrive in order.
pub(crate) trait MetadataHandler: Send + Sync {
    /// The watch has listed all objects of a kind.
    fn on_replace(&self, of: &ResourceType, objects: ObjectMetadataList);

    /// An object was added or changed.
    fn on_update(&self, of: &ResourceType, object: &Value);

    /// An object was deleted.
    fn on_delete(&self, of: &ResourceType, object: &Value);

    /// A kind is not watched any more. Its objects may still exist.
    fn on_watch_stopped(&self, _of: &ResourceType) {}

    /// Discovery has changed.
    fn on_discovery(&self) {}
}

/// For handlers that hold the informers: a strong reference would be a cycle.
impl<L: MetadataHandler> MetadataHandler for Weak<L> {
    fn on_replace(&self, of: &ResourceType, objects: ObjectMetadataList) {
        if let Some(listener) = self.upgrade() {
            listener.on_replace(of, objects);
        }
    }

    fn on_update(&self, of: &ResourceType, object: &Value) {
        self.upgrade()
            .iter()
            .for_each(|listener| listener.on_update(of, object));
    }

    fn on_delete(&self, of: &ResourceType, object: &Value) {
        self.upgrade()
            .iter()
            .for_each(|listener| listener.on_delete(of, object));
    }

    fn on_watch_stopped(&self, of: &ResourceType) {
        self.upgrade()
            .iter()
            .for_each(|listener| listener.on_watch_stopped(of));
    }

    fn on_discovery(&self) {
        self.upgrade()
            .iter()
            .for_each(|listener| listener.on_discovery());
    }
}

/// Watches every kind, once for all handlers. Cheap to clone.
#[derive(Clone)]
pub(crate) struct MetadataInformers(Arc<MetadataInformersShared>);

struct MetadataInformersShared {
    client: Client,
    listeners: RwLock<Vec<Arc<dyn MetadataHandler>>>,
    served: watch::Sender<Arc<DiscoveredKinds>>,
    progress: watch::Sender<SyncProgress>,
    /// Notified when discovery may have changed.
    rediscover: Notify,
    /// Locked by the task that runs the informers.
    turn: Mutex<()>,
}

/// How many kinds have synced.
#[derive(Debug, Clone, Copy, Default)]
struct SyncProgress {
    n_followed: usize,
    n_known: usize,
    is_discovered: bool,
}

impl MetadataInformers {
    /// Uses `client` for discovery and watches, once `run` is called.
    pub(crate) fn new(client: Client) -> MetadataInformers {
        MetadataInformers(Arc::new(MetadataInformersShared {
            client,
            listeners: RwLock::default(),
            served: watch::Sender::new(Arc::default()),
            progress: watch::Sender::new(SyncProgress::default()),
            rediscover: Notify::new(),
            turn: Mutex::default(),
        }))
    }

    /// Registers a handler for the events from the start of `run` on.
    pub(crate) fn add_handler(&self, listener: Arc<dyn MetadataHandler>) {
        self.0.listeners.write().push(listener);
    }

    /// The kinds of the latest discovery.
    pub(crate) fn discovered(&self) -> Arc<DiscoveredKinds> {
        self.0.served.borrow().clone()
    }

    /// The discovered kinds; waits for the first discovery.
    pub(crate) async fn wait_for_discovery(&self) -> Arc<DiscoveredKinds> {
        let mut progress = self.0.progress.subscribe();
        // The sender lives as long as the informers, so this cannot fail.
        let _ = progress.wait_for(|progress| progress.is_discovered).await;
        self.discovered()
    }

    /// Waits until all kinds have synced, except kinds that cannot be listed.
    pub(crate) async fn wait_for_sync(&self) {
        let mut progress = self.0.progress.subscribe();
        let known = |progress: &SyncProgress| {
            progress.is_discovered && progress.n_known >= progress.n_followed
        };
        // After the timeout the caller goes on with what has synced.
        let _ = timeout(SYNC_TIMEOUT, progress.wait_for(known)).await;
    }

    /// Runs discovery and watches until the future is dropped. If several tasks call it, one runs
    /// and the rest wait.
    pub(crate) async fn run(self) {
        let _turn = self.0.turn.lock().await;
        let mut following = MetadataWatches::default();
        let mut wait = DISCOVERY_DELAY;
        let failures = FailureLog::after(Duration::ZERO);
        loop {
            match DiscoveredKinds::discover(&self.0.client).await {
                Ok(served) => {
                    failures.recovered();
                    self.0.sync_watches(&mut following, served);
                }
                Err(error) => {
                    if let Some(unlogged) = failures.failed() {
                        tracing::warn!(%error, unlogged, "discovery keeps failing");
                    }
                }
            }
            tokio::select! {
                () = self.0.rediscover.notified() => {
                    wait = DISCOVERY_DELAY;
                    sleep(wait).await;
                }
                () = sleep(wait) => {}
            }
            wait = (wait * 4).min(DISCOVERY_PERIOD);
        }
    }
}

impl MetadataInformersShared {
    fn sync_watches(
        self: &Arc<MetadataInformersShared>,
        following: &mut MetadataWatches,
        served: DiscoveredKinds,
    ) {
        // No kinds at all mean that the server is not healthy.
        if served.kinds.is_empty() {
            return;
        }
        following.sync_watches(self, &served);
        let is_new = self.served.send_if_modified(|known| {
            let is_new = **known != served;
            *known = Arc::new(served);
            is_new
        });
        self.progress
            .send_modify(|progress| progress.is_discovered = true);
        if is_new {
            self.notify(|listener| listener.on_discovery());
        }
    }

    fn notify(&self, say: impl Fn(&dyn MetadataHandler)) {
        let listeners = self.listeners.read();
        listeners.iter().for_each(|listener| say(&**listener));
    }
}
