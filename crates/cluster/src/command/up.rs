//! `mizzen up`: the whole control plane.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use mizzen_bootstrap::pki::PkiError;
use mizzen_controllers::{NodeMasks, RangeError, check_range};
use mizzen_scheduler::Configuration;
use mizzen_value::Value;
use tokio::runtime::Builder;

use super::load_balancers::LoadBalancerArgs;
use super::node::capacity;
use super::node_runtime::{NodeRuntimeArgs, RuntimeError};
use super::{DetachError, ServerArgs, detach, scheduler};
use crate::clusters::{
    BusyCluster, ChangeKubeconfigError, ClusterDirectory, ClusterDirectoryError, ClusterName,
    KubeconfigFile, RunningCluster,
};
use crate::compose::{self, ComposeError, ControlPlane, EnabledControllers, Topology};
use crate::real_node::RealNode;
use crate::simulated_nodes::SimulatedNodes;

/// Run the control plane with nodes, simulated or real
#[derive(Args)]
#[command(after_help = "Example:\n  mizzen up --data-dir ./data --nodes 3\n  \
                        kubectl --kubeconfig ./data/admin.kubeconfig get nodes\n\n  \
                        mizzen up --detach --name dev --set-context\n  kubectl get nodes\n  mizzen down --name dev\n\n\
                        Exit codes:\n  0    stopped by Ctrl-C or SIGTERM, or ready with --detach\n  1    failure\n  \
                        2    invalid arguments\n  4    the cluster runs already\n  \
                        130  interrupted by a second Ctrl-C or SIGTERM, or while --detach waits")]
pub(crate) struct Up {
    #[command(flatten)]
    server: ServerArgs,
    /// Run the cluster with this name, a DNS label. It has a directory in ~/.local/share/mizzen and a port of its own
    /// [default: default, which is ~/.local/share/mizzen itself]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["data_dir", "etcd_servers"])]
    name: Option<ClusterName>,
    /// Run in the background: return when the cluster is ready, and log to mizzen.log in its directory
    #[arg(long, conflicts_with = "etcd_servers")]
    detach: bool,
    /// Add the context mizzen, or mizzen-NAME, to the first file of $KUBECONFIG or ~/.kube/config, and make it the current
    /// one; `mizzen down` removes it
    #[arg(long, conflicts_with = "etcd_servers")]
    set_context: bool,
    /// Run as the process in the background, which logs to this file
    #[arg(long, value_name = "FILE", hide = true)]
    detached_log: Option<PathBuf>,
    /// Run this many simulated nodes [default: 1, or 0 with --node-runtime cri]
    #[arg(long, value_name = "N")]
    nodes: Option<u32>,
    /// Allocate pod CIDRs of nodes from these ranges, at most one per IP family; empty allocates none [default:
    /// 10.244.0.0/16, or a larger one for more than 256 nodes]
    #[arg(long, value_name = "RANGE,…", value_delimiter = ',', value_parser = pod_range)]
    cluster_cidr: Option<Vec<String>>,
    /// Set the capacity of each node; other resources keep the defaults cpu=8, memory=32Gi, pods=110
    #[arg(long, value_name = "NAME=AMOUNT,…", default_value = "", value_parser = capacity)]
    node_capacity: Value,
    #[command(flatten)]
    runtime: Box<NodeRuntimeArgs>,
    /// Configure the scheduler by this KubeSchedulerConfiguration in YAML or JSON
    #[arg(long, value_name = "FILE")]
    scheduler_config: Option<PathBuf>,
    /// Serve metrics.k8s.io for kubectl top and HorizontalPodAutoscalers from the metrics of kubelets [default: true if
    /// there are nodes]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    metrics_server: Option<bool>,
    #[command(flatten)]
    load_balancers: LoadBalancerArgs,
}

/// Parses a range from which node CIDRs can be allocated; empty for none.
fn pod_range(text: &str) -> Result<String, RangeError> {
    if !text.is_empty() {
        check_range(text, NodeMasks::default())?;
    }
    Ok(text.into())
}

/// The usual pod CIDR, or a larger one that has a block for every node.
pub(crate) fn default_pod_range(n_nodes: u32) -> String {
    let doublings = n_nodes.div_ceil(256).next_power_of_two().ilog2();
    format!("10.244.0.0/{}", 16 - doublings.min(7))
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpError {
    /// The arguments do not name a cluster.
    #[error(
        "--detach and --set-context need a cluster with a name or a data directory: add --name to --in-memory"
    )]
    Nameless,
    /// The cluster runs already.
    #[error(transparent)]
    Busy(#[from] BusyCluster),
    /// The log cannot be written.
    #[error(transparent)]
    Log(#[from] ClusterDirectoryError),
    /// The kubeconfig of the user cannot be changed.
    #[error(transparent)]
    Kubeconfig(#[from] ChangeKubeconfigError),
    /// The process in the background failed.
    #[error(transparent)]
    Detach(#[from] DetachError),
    /// Real containers cannot run.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// What the node leaves on the machine could not be removed later.
    #[error("cannot record the node: {0}")]
    Record(#[source] PkiError),
    /// The server cannot be composed.
    #[error(transparent)]
    Compose(#[from] ComposeError),
}

/// The node with real containers, if there is one. It is checked before anything starts.
fn check_runtime(runtime: &NodeRuntimeArgs) -> Result<Option<Box<RealNode>>, UpError> {
    let checking = Builder::new_current_thread().enable_all().build();
    let checking = checking.map_err(ComposeError::Runtime)?;
    let Some(cri) = checking.block_on(runtime.real_node())? else {
        return Ok(None);
    };
    Ok(Some(Box::new(RealNode {
        cri,
        address: runtime.node_address(None),
        static_pods: runtime.static_pods(),
        pressure: runtime.pressure()?,
        shutdown: runtime.shutdown()?,
        streaming_idle_timeout: runtime.streaming_connection_idle_timeout,
    })))
}

impl Up {
    /// Serves until it is stopped; with --detach starts the server in the background.
    pub(crate) fn run(mut self) -> Result<(), UpError> {
        let directory = self.directory();
        if directory.is_none() && (self.detach || self.set_context) {
            return Err(UpError::Nameless);
        }
        if self.set_context {
            // A file that cannot be changed is an error before anything starts.
            KubeconfigFile::of_user().read()?;
        }
        if let Some(directory) = directory {
            if self.detach && self.detached_log.is_none() {
                return Ok(detach::start(&directory)?);
            }
            self.lock_cluster(directory)?;
        }
        self.serve()
    }

    /// The directory of the cluster. Servers in memory have one if they have a name, for their log and kubeconfig.
    fn directory(&self) -> Option<ClusterDirectory> {
        let is_elsewhere = self.server.in_memory || self.server.storage.etcd.is_given();
        if is_elsewhere && self.name.is_none() {
            return None;
        }
        let data_dir = self.server.data_dir.as_deref();
        Some(ClusterDirectory::select(self.name.as_ref(), data_dir))
    }

    /// Locks the cluster for this process.
    fn lock_cluster(&mut self, directory: ClusterDirectory) -> Result<(), UpError> {
        let mut cluster = RunningCluster::lock(directory)?;
        if let Some(log) = &self.detached_log {
            // Signals of the terminal do not reach another session. It fails if the process leads one already.
            let _ = nix::unistd::setsid();
            cluster.adopt_log(log)?;
        }
        cluster.n_nodes = self.n_nodes();
        cluster.context_file = self.set_context.then(KubeconfigFile::of_user);
        if !self.server.in_memory {
            self.server.data_dir = Some(cluster.directory.path.clone());
        }
        self.server.cluster = Some(Arc::new(cluster));
        Ok(())
    }

    fn n_simulated(&self) -> u32 {
        let usual = u32::from(!self.runtime.is_real());
        self.nodes.unwrap_or(usual)
    }

    fn n_nodes(&self) -> u32 {
        self.n_simulated() + u32::from(self.runtime.is_real())
    }

    fn serve(mut self) -> Result<(), UpError> {
        self.server.authentication.limit_anonymous_to_health();
        let n_nodes = self.n_nodes();
        let real_node = check_runtime(&self.runtime)?;
        if let (Some(cluster), Some(node)) = (&self.server.cluster, &real_node) {
            cluster
                .record_node(node.cri.traces(&node.shutdown))
                .map_err(UpError::Record)?;
        }
        let scheduler = match &self.scheduler_config {
            Some(file) => {
                scheduler::read_configuration(file).map_err(|why| ComposeError::Configuration {
                    file: file.display().to_string(),
                    why,
                })?
            }
            None => Configuration::default(),
        };
        let nodes = SimulatedNodes {
            n: self.n_simulated() as usize,
            capacity: self.node_capacity,
            streaming_idle_timeout: self.runtime.streaming_connection_idle_timeout,
        };
        let ranges = self
            .cluster_cidr
            .unwrap_or_else(|| vec![default_pod_range(n_nodes)]);
        let pod_ranges = ranges
            .into_iter()
            .filter(|range| !range.is_empty())
            .collect();
        let load_balancer_ranges = self.load_balancers.ranges();
        let control_plane = ControlPlane {
            nodes,
            real_node,
            pod_ranges,
            load_balancer_ranges,
            controllers: EnabledControllers::All,
            scheduler: Some(Arc::new(scheduler)),
            serves_metrics: self.metrics_server.unwrap_or(n_nodes > 0),
        };
        Ok(compose::serve(
            &self.server,
            Topology::ControlPlane(control_plane),
        )?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_pod_range_has_a_block_for_every_node() {
        let cases = [
            (0, 16),
            (1, 16),
            (256, 16),
            (257, 15),
            (1000, 14),
            (5000, 11),
            (1_000_000, 9),
        ];
        for (n_nodes, prefix) in cases {
            let range = default_pod_range(n_nodes);
            assert_eq!(range, format!("10.244.0.0/{prefix}"));
            assert!(pod_range(&range).is_ok());
        }
    }
}
