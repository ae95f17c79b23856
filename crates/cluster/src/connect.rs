//! The way to any Kubernetes API server, by a kubeconfig.

use std::path::{Path, PathBuf};

use http::header::{HeaderValue, USER_AGENT};
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::layer::layer_fn;

use crate::complain::Overheard;

/// Why a server cannot be reached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// The kubeconfig makes no sense.
    #[error("{}: {source}", .file.display())]
    Kubeconfig {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        source: kube::config::KubeconfigError,
    },
    /// No server could show that it is the right one.
    #[error("{}: the certificate authority of the cluster has no certificate in PEM", .0.display())]
    Authority(PathBuf),
    /// There is no way to the server.
    #[error(transparent)]
    Client(#[from] kube::Error),
}

/// How to reach the server of a context of `file`, the current one unless one is named, for a client that goes by the
/// name of `agent`.
pub(crate) async fn configuration(
    file: &Path,
    context: Option<&str>,
    agent: &'static str,
) -> Result<Config, ConnectError> {
    let refuse = |source| ConnectError::Kubeconfig {
        file: file.into(),
        source,
    };
    let kubeconfig = Kubeconfig::read_from(file).map_err(refuse)?;
    let options = KubeConfigOptions {
        context: context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .map_err(refuse)?;
    if config.root_cert.as_ref().is_some_and(Vec::is_empty) {
        return Err(ConnectError::Authority(file.into()));
    }
    config
        .headers
        .push((USER_AGENT, HeaderValue::from_static(agent)));
    Ok(config)
}

/// A client of the server that `file` names, which goes by the name of `agent`. What goes wrong on the way is logged.
pub(crate) async fn connect(file: &Path, agent: &'static str) -> Result<Client, ConnectError> {
    let config = configuration(file, None, agent).await?;
    let server = config.cluster_url.to_string();
    let overheard = layer_fn(move |inner| Overheard::new(inner, &server));
    Ok(ClientBuilder::try_from(config)?
        .with_layer(&overheard)
        .build())
}

/// Where kubectl would look.
pub(crate) fn default_file() -> PathBuf {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    set("KUBECONFIG").unwrap_or_else(|| set("HOME").unwrap_or_default().join(".kube/config"))
}
