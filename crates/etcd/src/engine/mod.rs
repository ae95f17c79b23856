//! The store engine on etcd.
//!
//! etcd decides transactions. Each keyspace is a cache of the keys below one prefix: a list in pages, then one watch
//! (`space`). A write is a transaction with conditions on revisions (`commit`), answered once the cache shows it. Reads ask
//! etcd for its revision, and wait for the watch to reach it (`read`). Records expire by lease (`lease`), and servers agree on
//! one that compacts (`compact`).
//!
//! Kubernetes: storage/etcd3 and storage/cacher together.
//!
//! Invariant: every call has a deadline. A watch that breaks goes on after the last revision that it has published, so that
//! nothing is lost or published twice; if that was compacted, the keyspace is listed again and its watches expire. A
//! keyspace that nothing uses any more has no watch.

mod blocking;
mod commit;
mod compact;
mod lease;
mod metrics;
mod read;
mod space;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mizzen_store::{
    BoxFuture, Codec, CommitResult, Engine, EngineCheck, Expired, Feed, Keyspace, ReadError,
    Record, Revision, Snapshot, Store, WindowLimits, Write, WriteError,
};
use mizzen_value::clock::Clock;
use parking_lot::RwLock;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use self::blocking::BlockingCodec;
use self::compact::Compactor;
use self::lease::Leases;
pub use self::metrics::EtcdMetrics;
use self::space::CachedSpace;
use crate::client::{CallError, Client, Outcome};

/// How long a read waits for the watch of a keyspace.
///
/// Kubernetes: blockTimeout (storage/cacher/watch_cache.go).
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(3);

/// How often the members that did not tell their version are asked again.
const FEATURES_INTERVAL: Duration = Duration::from_secs(60);

/// How the engine behaves.
pub struct EngineOptions {
    /// Keys and values.
    pub codec: Arc<dyn Codec>,
    /// The clock by which the time until a record expires is computed.
    pub clock: Arc<dyn Clock>,
    /// How much of the past each keyspace remembers.
    pub window: WindowLimits,
    /// Keyspaces that are in other etcd clusters.
    ///
    /// Kubernetes: `--etcd-servers-overrides`.
    pub overrides: Vec<ClusterOverride>,
    /// How long one lease is shared by records that expire at about the same time.
    ///
    /// Kubernetes: `--lease-reuse-duration-seconds`.
    pub lease_reuse: Duration,
    /// How long the check of health waits.
    ///
    /// Kubernetes: `--etcd-healthcheck-timeout`.
    pub health_timeout: Duration,
    /// How long the check of readiness waits.
    ///
    /// Kubernetes: `--etcd-readycheck-timeout`.
    pub readiness_timeout: Duration,
    /// How often etcd is asked for its size; zero is never.
    ///
    /// Kubernetes: `--etcd-db-metric-poll-interval`.
    pub size_interval: Duration,
    /// Whether every write is rejected.
    pub is_read_only: bool,
    /// Where requests are counted.
    pub metrics: Arc<EtcdMetrics>,
}

/// Keyspaces that are in an etcd cluster of their own.
#[derive(Debug)]
pub struct ClusterOverride {
    /// Their names.
    pub spaces: Vec<String>,
    /// The client of the cluster.
    pub client: Client,
}

impl EngineOptions {
    /// The defaults of upstream.
    pub fn new(codec: Arc<dyn Codec>, clock: Arc<dyn Clock>) -> EngineOptions {
        EngineOptions {
            codec,
            clock,
            window: WindowLimits::default(),
            overrides: Vec::new(),
            lease_reuse: Duration::from_secs(60),
            health_timeout: Duration::from_secs(2),
            readiness_timeout: Duration::from_secs(2),
            size_interval: Duration::from_secs(30),
            is_read_only: false,
            metrics: Arc::default(),
        }
    }
}

/// A store on the etcd cluster of `client`. Must be called within a tokio runtime, in which the watches run.
pub fn store(client: Client, options: EngineOptions) -> Store {
    let window = options.window;
    Store::with_engine(engine(client, options), window)
}

/// The engine of such a store.
pub fn engine(client: Client, options: EngineOptions) -> Box<dyn Engine> {
    Box::new(EtcdEngine::new(client, options))
}

struct EtcdEngine(Arc<EngineParts>);

struct EngineParts {
    /// The first one has all keyspaces that no other one has.
    clusters: Vec<Cluster>,
    /// Which cluster has a keyspace, unless the first one has it.
    overrides: HashMap<String, usize>,
    codec: Arc<dyn Codec>,
    clock: Arc<dyn Clock>,
    lease_reuse: Duration,
    health_timeout: Duration,
    readiness_timeout: Duration,
    is_read_only: bool,
    metrics: Arc<EtcdMetrics>,
    spaces: RwLock<HashMap<Arc<str>, OpenSpace>>,
    /// Whether the store is closed; watches end then.
    closed: watch::Sender<bool>,
}

/// A keyspace that is in use.
struct OpenSpace {
    cached: Arc<CachedSpace>,
    /// The task that fills it. Its end ends the watch of etcd.
    task: AbortHandle,
}

/// One etcd cluster.
struct Cluster {
    client: Client,
    compactor: Compactor,
    /// Whether watches answer requests for their progress truthfully.
    has_progress: Arc<AtomicBool>,
}

impl EtcdEngine {
    fn new(client: Client, options: EngineOptions) -> EtcdEngine {
        let closed = watch::Sender::new(false);
        let metrics = options.metrics.clone();
        let cluster = |(number, client): (usize, Client)| {
            if !options.size_interval.is_zero() {
                let metrics = metrics.clone();
                let size =
                    metrics::follow_size(client.clone(), number, metrics, options.size_interval);
                tokio::spawn(until_closed(closed.subscribe(), size));
            }
            let has_progress = Arc::new(AtomicBool::new(false));
            let (asked, told) = (client.clone(), has_progress.clone());
            tokio::spawn(until_closed(closed.subscribe(), ask_features(asked, told)));
            Cluster {
                compactor: Compactor::default(),
                client,
                has_progress,
            }
        };
        let (mut clients, mut overrides) = (vec![client], HashMap::new());
        for ClusterOverride { spaces, client } in options.overrides {
            overrides.extend(spaces.into_iter().map(|space| (space, clients.len())));
            clients.push(client);
        }
        EtcdEngine(Arc::new(EngineParts {
            clusters: clients.into_iter().enumerate().map(cluster).collect(),
            overrides,
            codec: match options.codec.may_block() {
                true => Arc::new(BlockingCodec(options.codec)),
                false => options.codec,
            },
            clock: options.clock,
            lease_reuse: options.lease_reuse,
            health_timeout: options.health_timeout,
            readiness_timeout: options.readiness_timeout,
            is_read_only: options.is_read_only,
            metrics: options.metrics,
            spaces: RwLock::default(),
            closed,
        }))
    }
}

impl EngineParts {
    /// The cluster in which the keys of a keyspace are.
    fn cluster(&self, space: &str) -> &Cluster {
        let number = self.overrides.get(space).copied();
        &self.clusters[number.unwrap_or_default()]
    }

    fn cached(&self, space: &Keyspace) -> Arc<CachedSpace> {
        let spaces = self.spaces.read();
        let open = spaces.get(space.name());
        open.expect("a keyspace is open while there is a handle of it")
            .cached
            .clone()
    }

    /// The Unix time in seconds.
    fn now(&self) -> u64 {
        u64::try_from(self.clock.now().0).unwrap_or_default()
    }
}

impl Engine for EtcdEngine {
    fn open(&self, feed: Feed) {
        let parts = &self.0;
        let name = feed.space().name().clone();
        let cluster = parts.cluster(&name);
        let prefix = parts.codec.prefix(&name);
        let (client, metrics) = (cluster.client.clone(), parts.metrics.clone());
        let leases = Leases::new(client.clone(), parts.lease_reuse, metrics.clone());
        let cached = CachedSpace::new(name.clone(), prefix, client, metrics, leases);
        let cached = Arc::new(cached);
        let has_progress = cluster.has_progress.clone();
        let run = space::run(feed, cached.clone(), parts.codec.clone(), has_progress);
        let task = tokio::spawn(until_closed(parts.closed.subscribe(), run)).abort_handle();
        let open = OpenSpace { cached, task };
        parts.spaces.write().insert(name, open);
    }

    fn release(&self, space: &Keyspace) {
        if let Some(open) = self.0.spaces.write().remove(space.name()) {
            open.task.abort();
        }
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn commit(&self, writes: Vec<Write>) -> BoxFuture<'_, CommitResult> {
        Box::pin(commit::commit(&self.0, writes))
    }

    fn get<'a>(
        &'a self,
        space: &'a Keyspace,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<Record>>, ReadError>> {
        Box::pin(read::get(&self.0, space, key))
    }

    fn latest<'a>(
        &'a self,
        space: &'a Keyspace,
        prefix: &'a str,
    ) -> BoxFuture<'a, Result<Snapshot, ReadError>> {
        Box::pin(read::latest(&self.0, space, prefix))
    }

    fn snapshot_at<'a>(
        &'a self,
        space: &'a Keyspace,
        prefix: &'a str,
        revision: Revision,
        expired: Expired,
    ) -> BoxFuture<'a, Result<Snapshot, ReadError>> {
        let read = read::snapshot_at(&self.0, space, prefix, revision, expired);
        Box::pin(read)
    }

    /// Nothing: records expire by lease.
    fn expire(&self, _now: u64) -> BoxFuture<'_, Result<usize, WriteError>> {
        let expired = match *self.0.closed.borrow() {
            true => Err(WriteError::Closed),
            false => Ok(0),
        };
        Box::pin(std::future::ready(expired))
    }

    fn compact(&self, _revision: Revision) -> BoxFuture<'_, ()> {
        Box::pin(compact::compact(&self.0))
    }

    /// What is known to be compacted in the cluster of the keyspace.
    fn compacted(&self, space: &str, _revision: Revision) -> Revision {
        self.0.cluster(space).compactor.compacted()
    }

    fn is_stale(&self, space: &str, record: &Record) -> bool {
        self.0.codec.mark(space) != record.mark()
    }

    fn n_clusters(&self) -> usize {
        self.0.clusters.len()
    }

    fn check(&self, check: EngineCheck, cluster: usize) -> BoxFuture<'_, Result<(), ReadError>> {
        let client = &self.0.clusters[cluster].client;
        let limit = match check {
            EngineCheck::Health => self.0.health_timeout,
            EngineCheck::Readiness => self.0.readiness_timeout,
        };
        Box::pin(async move {
            let prefix = self.0.codec.prefix("");
            client.health(&prefix, limit).await.map_err(unavailable)
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.0.closed.send_replace(true);
        Box::pin(std::future::ready(()))
    }
}

impl Drop for EtcdEngine {
    fn drop(&mut self) {
        self.0.closed.send_replace(true);
    }
}

/// Asks for the versions of the members until all have told them, and whenever one did not.
async fn ask_features(client: Client, has_progress: Arc<AtomicBool>) {
    loop {
        let features = client.features().await;
        has_progress.store(features.request_watch_progress, Ordering::Release);
        if features.unchecked.is_empty() {
            return;
        }
        tokio::time::sleep(FEATURES_INTERVAL).await;
    }
}

/// Runs until the store is closed.
async fn until_closed(mut closed: watch::Receiver<bool>, task: impl Future<Output = ()>) {
    tokio::select! {
        _ = closed.wait_for(|is_closed| *is_closed) => {}
        () = task => {}
    }
}

fn unavailable(error: CallError) -> ReadError {
    ReadError::Unavailable(error.message)
}

/// The error of a write that etcd did not answer, or rejected.
fn rejected(error: CallError) -> WriteError {
    WriteError::Remote {
        is_known: error.outcome == Outcome::NotExecuted,
        message: error.message,
    }
}
