//! Clients of any Kubernetes API server, from a kubeconfig file.

use std::path::{Path, PathBuf};

use kube::Client;
use kube::client::ClientBuilder;
use mizzen_sdk::kubeconfig::{self, LoadKubeconfigError};
use tower::layer::layer_fn;

use crate::connection_log::LogFailures;

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// The kubeconfig file is invalid.
    #[error(transparent)]
    Kubeconfig(#[from] LoadKubeconfigError),
    /// The client cannot be set up, for instance its TLS.
    #[error(transparent)]
    Client(#[from] kube::Error),
}

/// A client of the server that `file` names, with `user_agent`. It logs requests that fail.
pub(crate) async fn connect(file: &Path, user_agent: &'static str) -> Result<Client, ConnectError> {
    let config = kubeconfig::load(file, None, user_agent).await?;
    let server = config.cluster_url.to_string();
    let log_failures = layer_fn(move |inner| LogFailures::new(inner, &server));
    Ok(ClientBuilder::try_from(config)?
        .with_layer(&log_failures)
        .build())
}

/// The host and the port of the server that `file` names.
pub(crate) async fn server_address(file: &Path) -> Result<String, ConnectError> {
    let config = kubeconfig::load(file, None, "kubelet").await?;
    let host = config.cluster_url.host().unwrap_or_default();
    let usual = match config.cluster_url.scheme_str() {
        Some("http") => 80,
        _ => 443,
    };
    let port = config.cluster_url.port_u16().unwrap_or(usual);
    Ok(format!("{host}:{port}"))
}

/// A client of the server of a context, by default of the current one, and its address. The caller reports requests that fail.
pub(crate) async fn connect_context(
    file: &Path,
    context: Option<&str>,
    user_agent: &'static str,
) -> Result<(Client, String), ConnectError> {
    let config = kubeconfig::load(file, context, user_agent).await?;
    let address = config.cluster_url.to_string();
    Ok((Client::try_from(config)?, address))
}

/// The kubeconfig file that kubectl would write to: the first of `$KUBECONFIG`, or else `~/.kube/config`.
pub(crate) fn default_file() -> PathBuf {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let files = set("KUBECONFIG").unwrap_or_default();
    std::env::split_paths(&files)
        .find(|file| !file.as_os_str().is_empty())
        .unwrap_or_else(|| set("HOME").unwrap_or_default().join(".kube/config"))
}
