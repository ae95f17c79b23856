//! `mizzen down`: stops clusters.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use clap::Args;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::{Instant, sleep};

use super::cluster_args::ClusterArgs;
use super::server::duration;
use crate::clusters::{
    BusyCluster, ChangeKubeconfigError, ClusterDirectory, ClusterDirectoryError, PurgeError,
    RunningCluster,
};
use crate::log::write_output;
use crate::terminal::Progress;

/// How often the lock of a cluster is tried that stops.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long a killed process may take to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// Stop a cluster
#[derive(Args)]
#[command(
    after_help = "Example:\n  mizzen up --detach --name dev\n  mizzen down --name dev --purge\n\n\
    Exit codes:\n  0    the cluster was stopped, or did not run\n  1    failure\n  2    invalid arguments\n  \
    3    there is no such cluster"
)]
pub(crate) struct Down {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Stop all named clusters and the default one
    #[arg(long, conflicts_with_all = ["name", "data_dir"])]
    all: bool,
    /// Delete the data, certificates, keys and logs of the cluster, and what its node with real containers has made on this
    /// machine, but for images; other files in its directory are kept. On a terminal, ask first
    #[arg(long)]
    purge: bool,
    /// Do not ask before --purge
    #[arg(long, requires = "purge")]
    yes: bool,
    /// Wait this long for the process to end
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1m30s")]
    timeout: Duration,
    /// Kill the process if it has not ended after --timeout
    #[arg(long)]
    force: bool,
}

/// Why a cluster was not stopped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DownError {
    /// There is no such cluster.
    #[error("there is no cluster {0}; `mizzen status` lists clusters")]
    Missing(String),
    /// The process did not end.
    #[error(
        "cluster {title} (pid {pid}) did not stop within {} s; kill it with: mizzen down{arguments} --force",
        timeout.as_secs()
    )]
    Timeout {
        /// The cluster.
        title: String,
        /// Its process.
        pid: i32,
        /// The arguments that select it.
        arguments: String,
        /// The time that it had.
        timeout: Duration,
    },
    /// The process cannot be signalled.
    #[error(
        "cluster {0} runs in another PID namespace, for instance in a container; stop it there"
    )]
    OtherNamespace(String),
    /// The process belongs to another user.
    #[error("cannot stop pid {pid}: {errno}")]
    Signal {
        /// The process.
        pid: i32,
        /// What happened.
        errno: Errno,
    },
    /// The user said no.
    #[error("nothing was stopped or deleted")]
    Declined,
    /// A directory cannot be read.
    #[error(transparent)]
    Directory(#[from] ClusterDirectoryError),
    /// The kubeconfig of the user cannot be changed.
    #[error(transparent)]
    Kubeconfig(#[from] ChangeKubeconfigError),
    /// The data cannot be deleted.
    #[error(transparent)]
    Purge(#[from] PurgeError),
    /// The cluster was started again.
    #[error(transparent)]
    Busy(#[from] BusyCluster),
    /// A node with real containers cannot be removed from this machine.
    #[error("cannot remove node {node} from this machine, so no data was deleted: {source}")]
    Node {
        /// The node.
        node: String,
        /// Why.
        source: mizzen_node::cri::PurgeError,
    },
    /// The process could not be set up, or standard input not be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Down {
    /// Stops the selected clusters.
    pub(crate) fn run(self) -> Result<(), DownError> {
        let directories = match self.all {
            true => ClusterDirectory::all()?,
            false => vec![self.cluster.directory()],
        };
        if let Some(missing) = directories.iter().find(|directory| !directory.exists()) {
            return Err(DownError::Missing(missing.title()));
        }
        if directories.is_empty() {
            write_output(format_args!("there are no clusters"));
        }
        if self.purge && !self.yes && io::stdin().is_terminal() {
            self.confirm(&directories)?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            for directory in &directories {
                self.stop(directory).await?;
            }
            Ok(())
        })
    }

    /// Asks on the terminal.
    fn confirm(&self, directories: &[ClusterDirectory]) -> Result<(), DownError> {
        for directory in directories {
            write!(
                io::stderr(),
                "Delete all data of cluster {} in {}? [y/N] ",
                directory.title(),
                directory.path.display()
            )?;
            let mut answer = String::new();
            io::stdin().read_line(&mut answer)?;
            if !matches!(answer.trim(), "y" | "Y" | "yes") {
                return Err(DownError::Declined);
            }
        }
        Ok(())
    }

    /// Stops a cluster if it runs, removes its contexts, and deletes its data if that is wanted.
    async fn stop(&self, directory: &ClusterDirectory) -> Result<(), DownError> {
        let title = directory.title();
        match directory.holder()? {
            None => write_output(format_args!("cluster {title} is not running")),
            Some(0) => return Err(DownError::OtherNamespace(title)),
            Some(pid) => {
                self.stop_process(directory, pid).await?;
                write_output(format_args!("stopped cluster {title} (pid {pid})"));
            }
        }
        for line in directory.contexts().remove(directory).await? {
            write_output(format_args!("{line}"));
        }
        if self.purge {
            remove_nodes(directory).await?;
            let path = directory.path.display();
            let remains = directory.purge()?;
            write_output(format_args!("deleted the data of cluster {title}"));
            // The directory of the default cluster has the others in it.
            if remains
                && !directory
                    .name
                    .as_ref()
                    .is_some_and(|name| name.is_default())
            {
                write_output(format_args!("kept {path}, which has other files"));
            }
        }
        Ok(())
    }

    async fn stop_process(&self, directory: &ClusterDirectory, pid: i32) -> Result<(), DownError> {
        let _progress =
            Progress::start(format!("waiting until cluster {} stops", directory.title()));
        send(pid, Signal::SIGTERM)?;
        if has_ended(directory, pid, self.timeout).await? {
            return Ok(());
        }
        if self.force {
            send(pid, Signal::SIGKILL)?;
            if has_ended(directory, pid, KILL_TIMEOUT).await? {
                return Ok(());
            }
        }
        Err(DownError::Timeout {
            title: directory.title(),
            pid,
            arguments: directory.arguments(),
            timeout: self.timeout,
        })
    }
}

/// Removes what nodes with real containers have left on this machine.
async fn remove_nodes(directory: &ClusterDirectory) -> Result<(), DownError> {
    let nodes = directory.record().map(|record| record.real_nodes);
    let nodes = nodes.filter(|nodes| !nodes.is_empty());
    let Some(nodes) = nodes else {
        return Ok(());
    };
    // The lock excludes a server that starts meanwhile.
    let _cluster = RunningCluster::lock(directory.clone())?;
    for traces in nodes {
        let node = traces.node.clone();
        let _progress = Progress::start(format!("removing the pods of node {node}"));
        let removed = traces.remove().await;
        removed.map_err(|source| DownError::Node {
            node: node.clone(),
            source,
        })?;
        write_output(format_args!("removed the pods of node {node}"));
    }
    Ok(())
}

/// Sends a signal to a process, which may have ended.
fn send(pid: i32, signal: Signal) -> Result<(), DownError> {
    match kill(Pid::from_raw(pid), signal) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(errno) => Err(DownError::Signal { pid, errno }),
    }
}

/// Waits until a process no longer holds the lock of its cluster. Another one may have it by then.
async fn has_ended(
    directory: &ClusterDirectory,
    pid: i32,
    timeout: Duration,
) -> Result<bool, DownError> {
    let deadline = Instant::now() + timeout;
    loop {
        if directory.holder()? != Some(pid) {
            return Ok(true);
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        sleep(POLL_INTERVAL).await;
    }
}
