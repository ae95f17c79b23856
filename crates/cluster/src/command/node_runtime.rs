//! The flags of nodes with real containers.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use mizzen_node::StaticPodSource;
use mizzen_node::cri::{CriOptions, CriRuntime, check_sysctl_pattern};
use mizzen_object::validate::names::is_dns1123_subdomain;

/// A container runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Runtime {
    /// Simulated containers, which need neither privileges nor a container runtime
    Auto,
    /// Simulated containers that run no process
    Simulated,
    /// Real containers of containerd or another runtime with CRI v1: this machine becomes a node
    Cri,
}

/// Where real containers run.
#[derive(Debug, Clone, Args)]
pub(crate) struct NodeRuntimeArgs {
    /// Run containers with this runtime
    #[arg(long, value_name = "RUNTIME", default_value = "auto")]
    node_runtime: Runtime,
    /// Reach the container runtime at this socket, with --node-runtime cri
    #[arg(
        long,
        value_name = "ENDPOINT",
        default_value = "unix:///run/containerd/containerd.sock"
    )]
    cri_endpoint: String,
    /// Name the node with real containers [default: the host name]
    #[arg(long, value_name = "NAME", value_parser = node_name)]
    node_name: Option<String>,
    /// Keep the volumes of pods with real containers in this directory
    #[arg(long, value_name = "DIR", default_value = "/var/lib/mizzen/node")]
    node_root_dir: PathBuf,
    /// Keep the logs of real containers in this directory
    #[arg(long, value_name = "DIR", default_value = "/var/log/pods")]
    pod_logs_dir: PathBuf,
    /// Write a CNI configuration with the node's pod CIDR to this directory, in which the container runtime looks for it,
    /// unless there is one
    #[arg(long, value_name = "DIR", default_value = "/etc/cni/net.d")]
    cni_conf_dir: PathBuf,
    /// Run the pods of the manifests in this directory, or of this file, on the node with real containers
    #[arg(long, value_name = "PATH")]
    pod_manifest_path: Option<PathBuf>,
    /// Let pods with real containers set these sysctls besides the safe ones; a * at the end stands for any rest
    #[arg(long, value_name = "SYSCTL,…", value_delimiter = ',', value_parser = sysctl)]
    allowed_unsafe_sysctls: Vec<String>,
}

/// Why real containers cannot run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RuntimeError {
    #[error(
        "--node-runtime cri needs root: it mounts volumes, makes networks and calls the container runtime"
    )]
    NotRoot,
    #[error(
        "the host name {name:?} is not the name of a node ({why}); choose one with --node-name"
    )]
    Name { name: String, why: String },
    #[error(transparent)]
    Connect(#[from] mizzen_node::cri::ConnectError),
}

impl NodeRuntimeArgs {
    /// Whether containers are real.
    pub(crate) fn is_real(&self) -> bool {
        self.node_runtime == Runtime::Cri
    }

    /// The configuration of the node with real containers, if there is one. The runtime is checked.
    pub(crate) async fn real_node(&self) -> Result<Option<CriOptions>, RuntimeError> {
        if !self.is_real() {
            return Ok(None);
        }
        if !nix::unistd::geteuid().is_root() {
            return Err(RuntimeError::NotRoot);
        }
        let options = CriOptions {
            endpoint: self.cri_endpoint.clone(),
            node: match &self.node_name {
                Some(name) => name.clone(),
                None => host_name()?,
            },
            root: self.node_root_dir.clone(),
            logs: self.pod_logs_dir.clone(),
            network: self.cni_conf_dir.clone(),
            api_server: None,
            unsafe_sysctls: self.allowed_unsafe_sysctls.clone(),
        };
        CriRuntime::check(&options.endpoint).await?;
        Ok(Some(options))
    }
}

impl NodeRuntimeArgs {
    /// Where static pods come from. They are completed and validated as the API server does it.
    pub(crate) fn static_pods(&self) -> Option<StaticPodSource> {
        let path = self.pod_manifest_path.clone()?;
        Some(StaticPodSource {
            path,
            complete: Arc::new(|pod| mizzen_kinds::complete("", "Pod", &pod)),
        })
    }
}

fn sysctl(text: &str) -> Result<String, String> {
    check_sysctl_pattern(text).map(|()| text.into())
}

/// The host name, in lower case as the kubelet has it.
fn host_name() -> Result<String, RuntimeError> {
    let name = nix::unistd::gethostname().unwrap_or_default();
    let name = name.to_string_lossy().trim().to_lowercase();
    node_name(&name).map_err(|why| RuntimeError::Name { name, why })
}

fn node_name(text: &str) -> Result<String, String> {
    match is_dns1123_subdomain(text) {
        wrong if wrong.is_empty() => Ok(text.into()),
        wrong => Err(wrong.join("; ")),
    }
}
