//! A data directory that no server uses, or an etcd cluster, and an API server over it in this process.
//!
//! The server has no port and no controllers: it decodes, converts, validates and allocates as the one of `mizzen up` does.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use mizzen_apiserver::clock::{SystemRandom, WallClock};
use mizzen_apiserver::{Server, User};
use mizzen_authentication::TrustedAuthorities;
use mizzen_bootstrap::objects::{KubernetesService, ServerLocation, bootstrap};
use mizzen_bootstrap::pki::{Authority, PkiError};
use mizzen_bootstrap::token_key::TokenKey;
use mizzen_controlplane::Options;
use mizzen_encryption::Encryption;
use mizzen_registry::{Registry, Revision};
use mizzen_store::{Encryptor, OpenError, ReadError, Store};
use mizzen_value::address::Cidr;

use super::request::Requests;
use crate::definitions::{DEFINITIONS, by_keyspace};
use crate::filled::filled_within;

/// The port in the Endpoints of the `kubernetes` Service until a server is started.
const PORT: u16 = 6443;

/// How long etcd may take to be read.
const FILL_TIMEOUT: Duration = Duration::from_secs(60);

/// Why a data directory or an etcd cluster cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DirectoryError {
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// A key cannot be read or written.
    #[error(transparent)]
    Key(#[from] PkiError),
    /// The objects that every cluster has cannot be written.
    #[error("cannot write bootstrap objects: {0}")]
    Bootstrap(String),
    /// etcd cannot be read.
    #[error("{0}; check --etcd-servers")]
    Etcd(String),
    /// The directory has no data.
    #[error("{} is no data directory", .0.display())]
    NoData(PathBuf),
}

/// An API server over a store that no other server uses.
pub(super) struct OfflineServer {
    pub(super) store: Store,
    pub(super) server: Server,
}

impl OfflineServer {
    /// Opens a directory for reading.
    pub(super) async fn open_read_only(
        directory: &Path,
        encryption: Option<Arc<Encryption>>,
    ) -> Result<OfflineServer, DirectoryError> {
        if !has_data(directory) {
            return Err(DirectoryError::NoData(directory.into()));
        }
        let (path, options) = (directory.to_owned(), store_options(encryption));
        let store = blocking(move || Store::open_read_only(path, options)).await?;
        Ok(OfflineServer::start(store, Options::default()).await)
    }

    /// Opens a directory for writing, which is created if need be, with the keys that every cluster has.
    pub(super) async fn open(
        directory: &Path,
        encryption: Option<Arc<Encryption>>,
        options: Options,
    ) -> Result<OfflineServer, DirectoryError> {
        let (path, store) = (directory.to_owned(), store_options(encryption));
        let store = blocking(move || Store::open(path, store)).await?;
        match store.revision() > Revision::FIRST {
            true => drop(Authority::open_existing(directory)?),
            false => make_keys(directory)?,
        }
        Ok(OfflineServer::start(store, options).await)
    }

    /// A copy of a directory in memory, for a dry run. The directory need not exist.
    pub(super) async fn open_copy(
        directory: &Path,
        encryption: Option<Arc<Encryption>>,
        options: Options,
    ) -> Result<OfflineServer, DirectoryError> {
        if !has_data(directory) {
            return Ok(OfflineServer::in_memory(options).await);
        }
        let (path, store) = (directory.to_owned(), store_options(encryption));
        let store = blocking(move || Store::open_read_only(path, store)).await?;
        Ok(OfflineServer::start(store.fork(), options).await)
    }

    /// A server over the objects in etcd, which other servers may use meanwhile.
    pub(super) async fn on_etcd(
        store: Store,
        options: Options,
    ) -> Result<OfflineServer, DirectoryError> {
        let offline = OfflineServer::build(store, options);
        let filled = filled_within(&offline.store, FILL_TIMEOUT).await;
        filled.map_err(DirectoryError::Etcd)?;
        offline.server.start().await;
        Ok(offline)
    }

    /// A copy of the objects in etcd in memory, for a dry run.
    pub(super) async fn etcd_copy(
        etcd: EtcdObjects,
        options: Options,
    ) -> Result<OfflineServer, DirectoryError> {
        let copy = etcd.at_one_revision().await?;
        Ok(OfflineServer::start(copy, options).await)
    }

    /// The same for reading.
    pub(super) async fn etcd_copy_read_only(
        etcd: EtcdObjects,
    ) -> Result<OfflineServer, DirectoryError> {
        let copy = etcd.at_one_revision().await?;
        // It is read all the same. The server would change definitions that are in transit, and their objects.
        copy.close().await;
        Ok(OfflineServer::start(copy, Options::default()).await)
    }

    /// Whether nothing is stored.
    pub(super) fn is_empty(&self) -> bool {
        self.store.stats().iter().all(|space| space.records == 0)
    }

    /// Writes the objects that every cluster has.
    pub(super) async fn bootstrap(&self, ranges: Vec<Cidr>) -> Result<(), DirectoryError> {
        let location = ServerLocation {
            service: KubernetesService {
                service_ip: ranges[0].nth(1),
                advertise_address: None,
                port: PORT,
                node_port: None,
            },
            peer_address: None,
            service_ranges: ranges,
        };
        // The authorities are published when a server starts.
        bootstrap(&self.server, &location, &TrustedAuthorities::default())
            .await
            .map_err(DirectoryError::Bootstrap)
    }

    /// A server over nothing.
    pub(super) async fn in_memory(options: Options) -> OfflineServer {
        OfflineServer::start(Store::in_memory(Default::default()), options).await
    }

    async fn start(store: Store, options: Options) -> OfflineServer {
        let offline = OfflineServer::build(store, options);
        offline.server.start().await;
        offline
    }

    fn build(store: Store, options: Options) -> OfflineServer {
        let registry = Registry::new(store.clone(), Arc::new(WallClock), Arc::new(SystemRandom));
        let server = mizzen_controlplane::server(registry, options);
        OfflineServer { store, server }
    }

    /// Requests of an administrator.
    pub(super) fn requests(&self, agent: &'static str) -> Requests {
        let service = self.server.in_process(User::master("admin"), agent);
        Requests::new(Client::new(service, "default"))
    }

    /// Makes everything durable, and gives the directory back.
    pub(super) async fn close(self) {
        self.server.close().await;
        self.store.close().await;
    }
}

/// The objects in etcd, which servers may use meanwhile.
pub(crate) struct EtcdObjects {
    /// It is read-only unless objects are written: an API server over another one goes on with what is in transit, such
    /// as the deletion of a definition and its objects.
    pub(crate) store: Store,
    /// The keyspaces that are in other etcd clusters, which number their writes themselves.
    pub(crate) elsewhere: Vec<String>,
}

impl EtcdObjects {
    /// A copy in memory, of which all that is in the main cluster is of one revision.
    async fn at_one_revision(self) -> Result<Store, DirectoryError> {
        let unavailable = |error: ReadError| DirectoryError::Etcd(error.to_string());
        let is_elsewhere = |name: &str| self.elsewhere.iter().any(|space| space == name);
        let original = OfflineServer::on_etcd(self.store, Options::default()).await?;
        let store = &original.store;
        let mut main = store.stats().into_iter();
        let revision = match main.find(|space| !is_elsewhere(&space.name)) {
            Some(space) => {
                let latest = store.latest(&store.keyspace(&space.name)).await;
                latest.map_err(unavailable)?.at()
            }
            None => Revision::ZERO,
        };
        let read = async |name: &str| {
            let space = store.keyspace(name);
            let snapshot = match is_elsewhere(name) {
                true => store.latest(&space).await,
                false => store.snapshot_at(&space, revision).await,
            };
            snapshot.map_err(unavailable)
        };
        // The server may not have opened the keyspaces of a definition yet that another one has accepted.
        for space in by_keyspace(&read(DEFINITIONS).await?).keys() {
            store.keyspace(space);
        }
        let mut snapshots = Vec::new();
        for space in store.stats() {
            snapshots.push((space.name.clone(), read(&space.name).await?));
        }
        original.close().await;
        Ok(Store::of_snapshots(snapshots))
    }
}

/// Makes the keys of a data directory, unless they are there.
pub(super) fn make_keys(directory: &Path) -> Result<(), PkiError> {
    TokenKey::open(directory)?;
    Authority::open(directory)?;
    Authority::front_proxy(Some(directory)).map(drop)
}

/// Whether something was ever stored in a directory.
fn has_data(directory: &Path) -> bool {
    directory.join("tip").is_file()
}

/// How a store is opened.
pub(super) fn store_options(encryption: Option<Arc<Encryption>>) -> mizzen_store::Options {
    mizzen_store::Options {
        encryptor: encryption.map(|encryption| encryption as Arc<dyn Encryptor>),
        ..Default::default()
    }
}

/// Runs work that blocks on the disk.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, OpenError> + Send + 'static,
) -> Result<T, OpenError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.expect("opening a store does not panic")
}
