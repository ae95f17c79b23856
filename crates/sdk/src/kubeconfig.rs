//! Which server does a kubeconfig file name, and how does a client authenticate there?

use std::path::{Path, PathBuf};

use http::header::{HeaderValue, USER_AGENT};
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};

/// Why a kubeconfig file cannot be used.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
/// use mizzen_sdk::kubeconfig::{self, LoadKubeconfigError};
///
/// let error = kubeconfig::load("missing.conf".as_ref(), None, "my-controller").await.unwrap_err();
/// assert!(matches!(error, LoadKubeconfigError::Invalid { .. }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
pub enum LoadKubeconfigError {
    /// The file cannot be read or decoded, or lacks the context.
    #[error("{}: {source}", .file.display())]
    Invalid {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: kube::config::KubeconfigError,
    },
    /// The `certificate-authority` has no certificate, so no server certificate would be valid.
    #[error("{}: the certificate authority of the cluster has no certificate in PEM", .0.display())]
    NoAuthority(PathBuf),
}

/// The client configuration of a context of `file`, by default of its current one. Requests carry `user_agent`.
///
/// ```
/// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
/// let config = mizzen_sdk::kubeconfig::load("admin.conf".as_ref(), None, "my-controller").await?;
/// let client = kube::Client::try_from(config)?;
/// # Ok(())
/// # }
/// ```
pub async fn load(
    file: &Path,
    context: Option<&str>,
    user_agent: &'static str,
) -> Result<Config, LoadKubeconfigError> {
    let invalid = |source| LoadKubeconfigError::Invalid {
        file: file.into(),
        source,
    };
    let kubeconfig = Kubeconfig::read_from(file).map_err(invalid)?;
    let options = KubeConfigOptions {
        context: context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .map_err(invalid)?;
    if config.root_cert.as_ref().is_some_and(Vec::is_empty) {
        return Err(LoadKubeconfigError::NoAuthority(file.into()));
    }
    config
        .headers
        .push((USER_AGENT, HeaderValue::from_static(user_agent)));
    Ok(config)
}
