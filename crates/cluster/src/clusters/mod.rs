//! The clusters of a user: where each is stored, and which of them run.
//!
//! | module | content |
//! |---|---|
//! | `name` | names, which are DNS labels |
//! | `directory` | the directory of a cluster and the files in it |
//! | `lock` | the lock that a running cluster holds; the kernel tells its pid |
//! | `record` | `cluster.json`: the last run of a cluster |
//! | `running` | a cluster that this process runs |
//! | `state` | whether a cluster runs and is ready |
//! | `contexts` | contexts of a cluster in the kubeconfig files of the user |
//! | `kubeconfig_file` | changes of a kubeconfig file |
//! | `kubeconfig_text` | the text of a changed kubeconfig, with the comments of the user |
//! | `purge` | deletion of a cluster's data |
//!
//! Invariant: a cluster runs if its lock is held. A pid in a file is never trusted: it may belong to another process.

mod contexts;
mod directory;
mod kubeconfig_file;
mod kubeconfig_text;
mod lock;
mod name;
mod purge;
mod record;
mod running;
mod state;

pub(crate) use contexts::Context;
pub(crate) use directory::{ClusterDirectory, ClusterDirectoryError};
pub(crate) use kubeconfig_file::{ChangeKubeconfigError, KubeconfigFile};
pub(crate) use name::ClusterName;
pub(crate) use purge::PurgeError;
pub(crate) use running::{BusyCluster, RunningCluster};
pub(crate) use state::{ClusterState, ClusterStatus};
