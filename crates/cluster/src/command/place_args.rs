//! The arguments that name where objects are: a cluster of the user, a data directory, etcd, or any API server.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{ArgGroup, Args};
use kube::Client;
use mizzen_apiserver::clock::WallClock;
use mizzen_encryption::Encryption;
use mizzen_etcd::EngineOptions;
use mizzen_etcd::client::{Client as EtcdClient, ConfigError};

use super::cluster_args::ClusterArgs;
use super::server::{EncryptionArgs, EtcdArgs};
use crate::clusters::{ClusterDirectoryError, ClusterState, ClusterStatus};
use crate::compose::ComposeError;
use crate::connect::{self, ConnectError, connect_context};
use crate::transfer::EtcdObjects;

/// The place of objects.
#[derive(Args, Clone)]
#[command(group = ArgGroup::new("place").args(["name", "data_dir", "kubeconfig", "etcd_servers"]))]
pub(crate) struct PlaceArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Use the API server of this kubeconfig file, of any Kubernetes cluster
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Use this context of the kubeconfig [default file: $KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["name", "data_dir", "etcd_servers"])]
    context: Option<String>,
    #[command(flatten)]
    etcd: EtcdArgs,
    #[command(flatten)]
    encryption: EncryptionArgs,
}

/// Where objects are.
pub(super) enum Place {
    /// An API server, and how messages name it.
    Server(Client, String),
    /// A data directory that no server uses.
    Directory(PathBuf, Option<Arc<Encryption>>),
    /// The keys of an etcd cluster.
    Etcd(EtcdPlace),
}

/// The arguments that name the etcd of a server.
#[derive(Args, Clone)]
pub(super) struct EtcdPlaceArgs {
    #[command(flatten)]
    etcd: EtcdArgs,
    #[command(flatten)]
    encryption: EncryptionArgs,
}

impl EtcdPlaceArgs {
    /// The place, if it is named.
    pub(super) async fn find(&self) -> Result<Option<EtcdPlace>, PlaceError> {
        if !self.etcd.is_given() {
            return Ok(None);
        }
        let encryption = self.encryption.encryption().await?;
        let etcd = self.etcd.clone();
        Ok(Some(EtcdPlace { etcd, encryption }))
    }
}

/// The keys of an etcd cluster.
pub(super) struct EtcdPlace {
    etcd: EtcdArgs,
    encryption: Option<Arc<Encryption>>,
}

impl EtcdPlace {
    /// How the objects are encrypted.
    pub(super) fn encryption(&self) -> Option<Arc<Encryption>> {
        self.encryption.clone()
    }

    /// The objects.
    pub(super) fn objects(&self, is_read_only: bool) -> Result<EtcdObjects, PlaceError> {
        let codec = self.etcd.codec(self.encryption.as_ref());
        let options = EngineOptions {
            is_read_only,
            ..EngineOptions::new(codec, Arc::new(WallClock))
        };
        Ok(EtcdObjects {
            store: self.etcd.store(options)?,
            elsewhere: self.etcd.overridden().collect(),
        })
    }

    /// A client of etcd.
    pub(super) fn client(&self) -> Result<EtcdClient, PlaceError> {
        Ok(self.etcd.client()?)
    }
}

/// How messages name it.
impl fmt::Display for EtcdPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "etcd at {}", self.etcd.etcd_servers.join(","))
    }
}

/// Why a place cannot be found.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlaceError {
    /// The API server cannot be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The directory cannot be read.
    #[error(transparent)]
    Directory(#[from] ClusterDirectoryError),
    /// The etcd cluster is not named as it must be.
    #[error("--etcd-servers: {0}")]
    Etcd(#[from] ConfigError),
    /// The encryption cannot be configured.
    #[error(transparent)]
    Encryption(#[from] ComposeError),
    /// The server does not serve yet.
    #[error("the server of {} is starting; try again when it is ready", .0.display())]
    Starting(PathBuf),
}

impl PlaceArgs {
    /// Finds the place. The server of a running cluster stands for its directory.
    pub(super) async fn find(&self, agent: &'static str) -> Result<Place, PlaceError> {
        if self.kubeconfig.is_some() || self.context.is_some() {
            let file = self.kubeconfig.clone();
            let file = file.unwrap_or_else(connect::default_file);
            return server(&file, self.context.as_deref(), agent).await;
        }
        if self.etcd.is_given() {
            let encryption = self.encryption.encryption().await?;
            let etcd = self.etcd.clone();
            return Ok(Place::Etcd(EtcdPlace { etcd, encryption }));
        }
        let status = ClusterStatus::inspect(self.cluster.directory()).await?;
        let directory = status.directory.path.clone();
        match (status.state, status.run()) {
            (ClusterState::Stopped, _) => {}
            (_, Some(run)) => return server(&run.kubeconfig, None, agent).await,
            (_, None) => return Err(PlaceError::Starting(directory)),
        }
        let encryption = self.encryption.encryption().await?;
        Ok(Place::Directory(directory, encryption))
    }
}

async fn server(
    file: &Path,
    context: Option<&str>,
    agent: &'static str,
) -> Result<Place, PlaceError> {
    let (client, address) = connect_context(file, context, agent).await?;
    Ok(Place::Server(client, address))
}
