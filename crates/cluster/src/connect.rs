//! The way to any Kubernetes API server, by a kubeconfig.

use std::path::{Path, PathBuf};

use http::header::{HeaderValue, USER_AGENT};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// Why a server cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig makes no sense.
    #[error("{}: {source}", .file.display())]
    Kubeconfig {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        source: kube::config::KubeconfigError,
    },
    /// There is no way to the server.
    #[error(transparent)]
    Client(#[from] kube::Error),
}

/// A client of the server that `file` names, which goes by the name of `agent`.
pub async fn connect(file: &Path, agent: &'static str) -> Result<Client, ConnectError> {
    let refuse = |source| ConnectError::Kubeconfig { file: file.into(), source };
    let kubeconfig = Kubeconfig::read_from(file).map_err(refuse)?;
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(refuse)?;
    config.headers.push((USER_AGENT, HeaderValue::from_static(agent)));
    Ok(Client::try_from(config)?)
}

/// Where kubectl would look.
pub fn default_file() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("KUBECONFIG").unwrap_or_else(|| set("HOME").unwrap_or_default().join(".kube/config"))
}
