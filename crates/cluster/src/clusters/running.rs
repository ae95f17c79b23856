//! A cluster that this process runs: it holds the lock, and publishes address and contexts when it is ready.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use mizzen_apiserver::clock::WallClock;
use mizzen_bootstrap::pki::PkiError;
use mizzen_node::cri::NodeTraces;
use mizzen_value::clock::Clock as _;
use mizzen_value::time::from_unix;

use super::contexts::Context;
use super::directory::{ClusterDirectory, ClusterDirectoryError, LOCK, LOG, PREVIOUS_LOG, RECORD};
use super::kubeconfig_file::{ChangeKubeconfigError, KubeconfigFile};
use super::lock::{ClusterLock, LockAttempt};
use super::record::RunRecord;

/// A cluster that this process runs.
#[derive(Debug)]
pub(crate) struct RunningCluster {
    /// Its directory.
    pub(crate) directory: ClusterDirectory,
    /// The number of its simulated nodes.
    pub(crate) n_nodes: u32,
    /// The kubeconfig file of the user that gets a context.
    pub(crate) context_file: Option<KubeconfigFile>,
    /// The log, if it runs in the background.
    log: Option<PathBuf>,
    _lock: ClusterLock,
}

/// Why this process cannot run a cluster.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BusyCluster {
    /// Another process runs it.
    #[error(
        "cluster {title} runs already ({process}{address}); stop it with: mizzen down{arguments}"
    )]
    Runs {
        /// The cluster.
        title: String,
        /// Its process.
        process: String,
        /// Its address, if it is ready.
        address: String,
        /// The arguments of `mizzen down`.
        arguments: String,
    },
    /// The directory cannot be used.
    #[error(transparent)]
    Directory(#[from] ClusterDirectoryError),
}

impl BusyCluster {
    /// The error if another process runs the cluster.
    pub(crate) fn check(directory: &ClusterDirectory) -> Result<(), BusyCluster> {
        match directory.holder()? {
            Some(pid) => Err(BusyCluster::held_by(directory, pid)),
            None => Ok(()),
        }
    }

    fn held_by(directory: &ClusterDirectory, pid: i32) -> BusyCluster {
        let record = directory.record().filter(|record| record.pid == pid);
        BusyCluster::Runs {
            title: directory.title(),
            process: match pid {
                0 => "in another PID namespace".into(),
                pid => format!("pid {pid}"),
            },
            address: record.map_or_else(String::new, |record| format!(" at {}", record.server)),
            arguments: directory.arguments(),
        }
    }
}

impl RunningCluster {
    /// Locks the cluster for this process.
    pub(crate) fn lock(directory: ClusterDirectory) -> Result<RunningCluster, BusyCluster> {
        directory.create()?;
        let LockAttempt::Acquired(lock) = ClusterLock::acquire(&directory.path.join(LOCK))? else {
            let pid = directory.holder()?.unwrap_or_default();
            return Err(BusyCluster::held_by(&directory, pid));
        };
        let cluster = RunningCluster {
            directory,
            n_nodes: 0,
            context_file: None,
            log: None,
            _lock: lock,
        };
        // The marker exists before any data does, so that a cluster that never became ready can be purged.
        if cluster.directory.record().is_none() {
            cluster.write_record(&RunRecord::default());
        }
        Ok(cluster)
    }

    /// The port of the last run of a named cluster, 0 before the first; none for clusters with the usual default.
    pub(crate) fn default_port(&self) -> Option<u16> {
        let is_named = self
            .directory
            .name
            .as_ref()
            .is_some_and(|name| !name.is_default());
        is_named.then(|| self.directory.record().map_or(0, |record| record.port))
    }

    /// Makes `log`, to which this process writes, the log of the cluster. The log of the run before is kept.
    pub(crate) fn adopt_log(&mut self, log: &Path) -> Result<(), ClusterDirectoryError> {
        let file = self.directory.path.join(LOG);
        let previous = self.directory.path.join(PREVIOUS_LOG);
        match fs::rename(&file, &previous) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed.map_err(ClusterDirectoryError::at(&file))?,
        }
        fs::rename(log, &file).map_err(ClusterDirectoryError::at(log))?;
        self.log = Some(file);
        Ok(())
    }

    /// Publishes the address, and sets the context if the user asked for one.
    pub(crate) async fn publish(
        &self,
        address: SocketAddr,
        kubeconfig: &Path,
    ) -> Result<(), ChangeKubeconfigError> {
        let server = format!("https://{address}");
        self.write_record(&RunRecord {
            pid: i32::try_from(std::process::id()).unwrap_or_default(),
            port: address.port(),
            server,
            since: from_unix(WallClock.now().0),
            version: env!("CARGO_PKG_VERSION").into(),
            n_nodes: self.n_nodes,
            kubeconfig: kubeconfig.into(),
            log: self.log.clone(),
            real_nodes: self.real_nodes(),
        });
        if let Some(file) = &self.context_file {
            let context = Context::from_kubeconfig(kubeconfig, self.directory.context_name())?;
            context.add(file, &self.directory).await?;
        }
        Ok(())
    }

    fn real_nodes(&self) -> Vec<NodeTraces> {
        let record = self.directory.record();
        record.map_or_else(Vec::new, |record| record.real_nodes)
    }

    /// Writes down where a node with real containers will leave something on this machine, before it
    /// does: `mizzen down --purge` removes that.
    pub(crate) fn record_node(&self, traces: NodeTraces) -> Result<(), PkiError> {
        let mut record = self.directory.record().unwrap_or_default();
        record.real_nodes.retain(|known| *known != traces);
        record.real_nodes.push(traces);
        record.write(&self.directory.path.join(RECORD))
    }

    /// A cluster on a full disk must start all the same: its data can be deleted through the API.
    fn write_record(&self, record: &RunRecord) {
        if let Err(error) = record.write(&self.directory.path.join(RECORD)) {
            tracing::warn!(%error, "the run of the cluster could not be recorded, so mizzen status lacks its address");
        }
    }
}
