//! Runs an aggregated API server: follows the main server and serves over TLS.

use std::time::Duration;

use mizzen_authentication::Authorities;
use mizzen_outgoing::ClientIdentity;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::{UpstreamError, trust};
use crate::listen::{SecureServing, listen};
use crate::{BuildError, Server};

/// The grace period of requests at shutdown.
const GRACE: Duration = Duration::from_secs(60);
/// Kubernetes: how often the history is compacted (storage/etcd3/compact.go).
const COMPACTION_INTERVAL: Duration = Duration::from_secs(300);

/// Where a server listens, and with which certificate.
pub struct Serving {
    /// The socket that clients connect to.
    pub listener: TcpListener,
    /// The server certificate and its key.
    pub identity: ClientIdentity,
}

/// Why a server does not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It could not be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The main server cannot be used.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// The server has no main server to authenticate and authorize requests.
    #[error("the server has no main API server: Builder::upstream sets it")]
    NoUpstream,
}

impl Server {
    /// Serves behind the main server until `stop` resolves, then waits for the requests in flight. Client certificates are
    /// verified against the main server's authorities, which are followed, as are its namespaces, policies and webhooks.
    ///
    /// ```no_run
    /// # async fn run(registry: mizzen_registry::Registry, identity: mizzen_apiserver::ClientIdentity)
    /// # -> Result<(), Box<dyn std::error::Error>> {
    /// use mizzen_apiserver::Server;
    /// use mizzen_apiserver::delegate::{Serving, Upstream};
    ///
    /// let upstream = Upstream::load("/etc/kubernetes/things.kubeconfig".as_ref(), &registry)?;
    /// let listener = tokio::net::TcpListener::bind("0.0.0.0:443").await?;
    /// Server::builder(registry)
    ///     .definition("…")
    ///     .upstream(&upstream)
    ///     .run(Serving { listener, identity }, std::future::pending())
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run(
        self,
        serving: Serving,
        stop: impl Future<Output = ()>,
    ) -> Result<(), RunError> {
        let upstream = self.0.extensions.upstream().cloned();
        let upstream = upstream.ok_or(RunError::NoUpstream)?;
        let registry = self.registry().clone();
        let trusted = upstream.trusted().await?;
        let authorities = Authorities::new(&registry, &trusted);
        upstream.proxy_headers().replace(trusted.headers);
        let Serving { listener, identity } = serving;
        let tls = trust::server_config(authorities.clone(), &identity)?;
        let serving = SecureServing {
            listener,
            tls,
            identify: authorities.identify(),
            grace: GRACE,
        };
        // They end when the set is dropped.
        let mut background = JoinSet::new();
        let followed = upstream.clone();
        background.spawn(async move { followed.follow().await });
        background.spawn(async move { trust::follow_trusted(&upstream, &authorities).await });
        background.spawn(async move { registry.compact_periodically(COMPACTION_INTERVAL).await });
        listen(self.clone(), serving, stop).await;
        self.close().await;
        Ok(())
    }
}
