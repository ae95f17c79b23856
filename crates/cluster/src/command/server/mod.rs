//! The arguments of an API server, with a file for each group of them.

mod admission;
mod audit;
mod authentication;
mod authorization;
mod clients;
mod encryption;
mod etcd;
mod fairness;
mod oidc;
mod peers;
mod proxy_headers;
mod service_accounts;
mod services;
mod serving;
mod storage;
mod trust;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgAction, Args};
use mizzen_controlplane::ApiSetting;
use mizzen_value::time::duration_nanos;
use mizzen_value::{Value, yaml};

use super::component::ComponentArgs;
use super::debug::DebugArgs;
use super::unsupported::{KubeApiserver, Unsupported};
use crate::clusters::{BusyCluster, ClusterDirectory, RunningCluster};
use crate::compose::ComposeError;
use crate::envtest::StorageLocation;
use admission::AdmissionArgs;
use audit::AuditArgs;
use authentication::AuthenticationArgs;
use authorization::AuthorizationArgs;
pub(crate) use authorization::ConfiguredAuthorizer;
use clients::ClientArgs;
pub(super) use encryption::EncryptionArgs;
pub(super) use etcd::EtcdArgs;
use fairness::FairnessArgs;
use peers::PeerArgs;
pub(super) use proxy_headers::ProxyHeaderArgs;
use service_accounts::ServiceAccountArgs;
pub(super) use services::ServiceArgs;
use serving::ServingArgs;
use storage::StorageArgs;
pub(super) use trust::TrustArgs;

/// The name of the administrator's kubeconfig in a data directory.
pub(super) const ADMIN: &str = "admin.kubeconfig";

/// The port of kube-apiserver.
const DEFAULT_PORT: u16 = 6443;

/// The arguments of an API server.
#[derive(Args, Clone)]
pub(crate) struct ServerArgs {
    /// Store data, certificates and keys in this directory [default: ~/.local/share/mizzen]
    #[arg(long, value_name = "DIR", conflicts_with = "in_memory")]
    pub data_dir: Option<PathBuf>,
    /// Store everything in memory; it is lost when the server stops
    #[arg(long, conflicts_with_all = ["etcd_servers", "etcd_cafile", "etcd_servers_overrides"])]
    pub in_memory: bool,
    /// Listen on this port; 0 picks a free one [default: 6443; a cluster with a name keeps a free one]
    #[arg(long, value_name = "N")]
    port: Option<u16>,
    /// Listen on this port, as --port does; 0 is rejected
    #[arg(long, value_name = "N", conflicts_with = "port", value_parser = secure_port)]
    secure_port: Option<u16>,
    /// Listen on this address
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    pub bind_address: IpAddr,
    /// Write the administrator's kubeconfig to this file [default: admin.kubeconfig in the data directory, or
    /// mizzen.kubeconfig in the working directory with --in-memory]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Stop when standard input is closed, so that the server ends with the test that started it
    #[arg(long)]
    pub stop_with_stdin: bool,
    /// Serve API versions that Kubernetes has removed, for old charts and tutorials: extensions/v1beta1, apps/v1beta1 and
    /// v1beta2, autoscaling/v2beta1 and v2beta2, flowcontrol v1beta1 to v1beta3, and v1beta1 of the other groups
    #[arg(long)]
    pub legacy_apis: bool,
    /// Enable or disable built-in API versions: GROUP/VERSION or GROUP/VERSION/RESOURCE (/v1 for the core group), or
    /// api/all, api/ga, api/beta, api/alpha. Fail to start if a version is not available or is required
    #[arg(long, value_name = "KEY=BOOL,…", value_delimiter = ',', value_parser = parse_api_setting)]
    runtime_config: Vec<Option<ApiSetting>>,
    /// Allow privileged containers
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = true, action = ArgAction::Set)]
    pub allow_privileged: bool,
    #[command(flatten)]
    pub authentication: AuthenticationArgs,
    #[command(flatten)]
    pub service_accounts: ServiceAccountArgs,
    #[command(flatten)]
    pub trust: TrustArgs,
    #[command(flatten)]
    pub authorization: AuthorizationArgs,
    #[command(flatten)]
    pub fairness: FairnessArgs,
    #[command(flatten)]
    pub admission: AdmissionArgs,
    #[command(flatten)]
    pub encryption: EncryptionArgs,
    #[command(flatten)]
    pub audit: AuditArgs,
    #[command(flatten)]
    pub serving: ServingArgs,
    #[command(flatten)]
    pub services: ServiceArgs,
    #[command(flatten)]
    pub storage: StorageArgs,
    #[command(flatten)]
    pub clients: ClientArgs,
    #[command(flatten)]
    pub peers: PeerArgs,
    #[command(flatten)]
    pub debug: DebugArgs,
    #[command(flatten)]
    pub component: ComponentArgs,
    #[command(flatten)]
    _unsupported: Unsupported<KubeApiserver>,
    /// The cluster of the user that this process runs.
    #[arg(skip)]
    pub cluster: Option<Arc<RunningCluster>>,
}

/// Parses a port. Kubernetes: 0 is invalid.
fn secure_port(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(0) | Err(_) => {
            Err("must be between 1 and 65535, inclusive; --port 0 picks a free port".into())
        }
        Ok(port) => Ok(port),
    }
}

/// Parses a member of `--runtime-config`; kind passes an empty one.
fn parse_api_setting(text: &str) -> Result<Option<ApiSetting>, String> {
    match text {
        "" => Ok(None),
        setting => setting.parse().map(Some),
    }
}

/// Parses a duration as Go writes it, which is not negative: `30s`, `1m30s`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let nanos = duration_nanos(text).map_err(|error| error.to_string())?;
    u64::try_from(nanos)
        .map(Duration::from_nanos)
        .map_err(|_| "must not be negative".into())
}

impl ServerArgs {
    /// The enabled and disabled API versions.
    pub(crate) fn runtime_config(&self) -> Vec<ApiSetting> {
        self.runtime_config.iter().flatten().cloned().collect()
    }

    /// The port to listen on; 0 picks a free one.
    pub(crate) fn port(&self) -> u16 {
        let default = self.cluster.as_ref().and_then(|it| it.default_port());
        self.secure_port
            .or(self.port)
            .or(default)
            .unwrap_or(DEFAULT_PORT)
    }

    /// The data directory; none with --in-memory.
    pub(crate) fn directory(&self) -> Option<PathBuf> {
        if self.in_memory {
            return None;
        }
        Some(self.data_dir.clone().unwrap_or_else(default_directory))
    }

    /// The same, with the data directory of the etcd of `mizzen envtest` if `--etcd-servers` names one.
    pub(crate) async fn with_storage_location(&self) -> Result<ServerArgs, ComposeError> {
        let mut args = self.clone();
        let limit = self.storage.storage_initialization_timeout;
        if let [server] = &*self.storage.etcd.etcd_servers
            && let Some(location) = StorageLocation::find(server, limit).await
        {
            args.data_dir = Some(location.data_dir.join("registry"));
            args.storage.is_envtest = true;
            args.storage.unsafe_no_fsync = location.unsafe_no_fsync;
        }
        Ok(args)
    }

    /// Locks the cluster of the data directory for this process. Servers in memory and those that store objects in etcd have
    /// none: several of them may share the certificates and keys of a directory.
    pub(crate) fn lock_cluster(&mut self) -> Result<(), BusyCluster> {
        if !self.in_memory && !self.storage.etcd.is_given() {
            let directory = ClusterDirectory::select(None, self.data_dir.as_deref());
            self.cluster = Some(Arc::new(RunningCluster::lock(directory)?));
        }
        Ok(())
    }

    /// The file of the administrator's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        let cluster = self.cluster.as_ref().map(|it| it.directory.path.clone());
        match (&self.kubeconfig, self.directory().or(cluster)) {
            (Some(file), _) => file.clone(),
            (None, Some(directory)) => directory.join(ADMIN),
            (None, None) => "mizzen.kubeconfig".into(),
        }
    }

    /// The kubeconfig in the data directory, which is always written: `mizzen kubeconfig` reads the address from it.
    pub(crate) fn own_kubeconfig(&self) -> Option<PathBuf> {
        self.directory().map(|directory| directory.join(ADMIN))
    }
}

/// `$XDG_DATA_HOME/mizzen`, or its default.
pub(super) fn default_directory() -> PathBuf {
    data_home().join("mizzen")
}

/// `$XDG_DATA_HOME`, or its default.
pub(crate) fn data_home() -> PathBuf {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let data = set("XDG_DATA_HOME").or_else(|| Some(set("HOME")?.join(".local/share")));
    data.unwrap_or_else(|| ".".into())
}

/// The text of a file that an argument names.
fn text(file: &Path) -> Result<String, ComposeError> {
    std::fs::read_to_string(file).map_err(|error| invalid_file(file, error.to_string()))
}

/// The only document, in YAML or JSON, of a file that an argument names.
pub(super) fn document(file: &Path) -> Result<Value, ComposeError> {
    let document = yaml::read(text(file)?.as_bytes())
        .map_err(|error| invalid_file(file, error.to_string()))?;
    match document.complaint {
        Some(complaint) => Err(invalid_file(file, complaint.to_string())),
        None => Ok(document.value),
    }
}

/// The error for an invalid file.
fn invalid_file(file: &Path, why: String) -> ComposeError {
    ComposeError::Configuration {
        file: file.display().to_string(),
        why,
    }
}
