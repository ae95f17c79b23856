//! What is there, of every kind? Metadata of all objects that can be listed, watched and deleted, for whoever listens.
//!
//! `served` asks which kinds there are, again whenever a definition or an API service changes; `follow` follows them,
//! each on its own.
//!
//! Invariant: nothing is kept here. Who listens keeps what it needs of what it hears.
//! Invariant: a kind that cannot be followed keeps nobody from hearing of the others.

mod follow;
mod served;

pub(crate) use follow::Listed;
pub(crate) use served::{Served, ServedKind};

use parking_lot::RwLock;
use std::sync::{Arc, Weak};
use std::time::Duration;

use kube::Client;
use mizzen_sdk::Resource;
use mizzen_sdk::failure_log::FailureLog;
use mizzen_value::Value;
use tokio::sync::{Mutex, Notify, watch};
use tokio::time::{sleep, timeout};

use follow::Following;

/// How often the server is asked which kinds it has, at least.
const EVERY: Duration = Duration::from_secs(30);
/// How long after a definition changed it is asked, so that many changes are one question. It may take the server a
/// moment, so it is asked again after four times as long, and so on.
const SOON: Duration = Duration::from_millis(100);
/// How long whoever waits for everything to be known waits for a kind that cannot be listed.
const PATIENCE: Duration = Duration::from_secs(30);

/// Hears of objects. What it hears of one is in order.
pub(crate) trait Listener: Send + Sync {
    /// These are all objects of a kind.
    fn replaced(&self, of: &Resource, objects: Listed);

    /// An object is new or has changed.
    fn changed(&self, of: &Resource, object: &Value);

    /// An object is gone.
    fn gone(&self, of: &Resource, object: &Value);

    /// Nobody hears of a kind any more, whatever becomes of its objects.
    fn forgotten(&self, _of: &Resource) {}

    /// The server has other kinds than before.
    fn served(&self) {}
}

/// Somebody who holds the census: it must not hold them in turn, or neither would ever go.
impl<L: Listener> Listener for Weak<L> {
    fn replaced(&self, of: &Resource, objects: Listed) {
        if let Some(listener) = self.upgrade() {
            listener.replaced(of, objects);
        }
    }

    fn changed(&self, of: &Resource, object: &Value) {
        self.upgrade()
            .iter()
            .for_each(|listener| listener.changed(of, object));
    }

    fn gone(&self, of: &Resource, object: &Value) {
        self.upgrade()
            .iter()
            .for_each(|listener| listener.gone(of, object));
    }

    fn forgotten(&self, of: &Resource) {
        self.upgrade()
            .iter()
            .for_each(|listener| listener.forgotten(of));
    }

    fn served(&self) {
        self.upgrade().iter().for_each(|listener| listener.served());
    }
}

/// Follows everything, once for all who listen. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Census(Arc<Inner>);

struct Inner {
    client: Client,
    listeners: RwLock<Vec<Arc<dyn Listener>>>,
    served: watch::Sender<Arc<Served>>,
    progress: watch::Sender<Progress>,
    /// Told when the server may have other kinds.
    wake: Notify,
    /// Held by the one who runs.
    turn: Mutex<()>,
}

/// Of how many kinds everything is known.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    n_followed: usize,
    n_known: usize,
    is_asked: bool,
}

impl Census {
    /// Asks and follows through `client`, as soon as somebody runs it.
    pub(crate) fn new(client: Client) -> Census {
        Census(Arc::new(Inner {
            client,
            listeners: RwLock::default(),
            served: watch::Sender::new(Arc::default()),
            progress: watch::Sender::new(Progress::default()),
            wake: Notify::new(),
            turn: Mutex::default(),
        }))
    }

    /// Lets somebody hear what happens from when the census runs.
    pub(crate) fn listen(&self, listener: Arc<dyn Listener>) {
        self.0.listeners.write().push(listener);
    }

    /// The kinds that the server has, as far as is known.
    pub(crate) fn served(&self) -> Arc<Served> {
        self.0.served.borrow().clone()
    }

    /// The kinds that the server has; waits until they are known.
    pub(crate) async fn kinds(&self) -> Arc<Served> {
        let mut progress = self.0.progress.subscribe();
        // The sender lives as long as the census, so that this cannot fail.
        let _ = progress.wait_for(|progress| progress.is_asked).await;
        self.served()
    }

    /// Waits until everything is known, except kinds that cannot be listed.
    pub(crate) async fn wait_for_sync(&self) {
        let mut progress = self.0.progress.subscribe();
        let known =
            |progress: &Progress| progress.is_asked && progress.n_known >= progress.n_followed;
        // Who cannot wait longer goes on with what is known.
        let _ = timeout(PATIENCE, progress.wait_for(known)).await;
    }

    /// Follows everything until the future is dropped. If several run it, one does, and the others wait to take over.
    pub(crate) async fn run(self) {
        let _turn = self.0.turn.lock().await;
        let mut following = Following::default();
        let mut wait = SOON;
        let failures = FailureLog::after(Duration::ZERO);
        loop {
            match Served::ask(&self.0.client).await {
                Ok(served) => {
                    failures.recovered();
                    self.0.follow(&mut following, served);
                }
                Err(error) => {
                    if let Some(unlogged) = failures.failed() {
                        tracing::warn!(%error, unlogged, "discovery keeps failing");
                    }
                }
            }
            tokio::select! {
                () = self.0.wake.notified() => {
                    wait = SOON;
                    sleep(wait).await;
                }
                () = sleep(wait) => {}
            }
            wait = (wait * 4).min(EVERY);
        }
    }
}

impl Inner {
    fn follow(self: &Arc<Inner>, following: &mut Following, served: Served) {
        // Without any kind it is the server that is not well.
        if served.kinds.is_empty() {
            return;
        }
        following.adjust(self, &served);
        let is_new = self.served.send_if_modified(|known| {
            let is_new = **known != served;
            *known = Arc::new(served);
            is_new
        });
        self.progress
            .send_modify(|progress| progress.is_asked = true);
        if is_new {
            self.tell(|listener| listener.served());
        }
    }

    fn tell(&self, say: impl Fn(&dyn Listener)) {
        let listeners = self.listeners.read();
        listeners.iter().for_each(|listener| say(&**listener));
    }
}
