//! Delegated authentication and authorization: an aggregated API server asks the main one.
//!
//! Most requests come through the main server, which is a front proxy: its certificate proves it,
//! and its headers name the user. Direct clients show a certificate of the main server's client
//! authorities, or a token, which is authenticated by a TokenReview. Requests are authorized by a
//! SubjectAccessReview. Both results are cached for some seconds.

mod authorization;
mod token;
mod trust;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt as _, Limited};
use mizzen_authentication::{Authorities, TokenCache, TrustedAuthorities};
use mizzen_outgoing::{
    ClientIdentity, LruCache, OutgoingClient, Target, WebhookKubeconfig, WebhookKubeconfigError,
    whole,
};
use mizzen_registry::Registry;
use mizzen_value::{Value, json};
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::Server;
use crate::listen::{SecureServing, listen};
use crate::receive::MAX_BODY;

/// The time limit of a request to the main server.
const PATIENCE: Duration = Duration::from_secs(10);
/// Kubernetes: how long results are cached (apiserver/pkg/server/options).
const KEPT: Duration = Duration::from_secs(10);
/// The capacity of each cache.
const ROOM: usize = 4096;
/// The grace period of requests at shutdown.
const GRACE: Duration = Duration::from_secs(60);

/// The main API server, as seen by an aggregated one. Cheap to clone.
///
/// ```no_run
/// # async fn run(registry: mizzen_registry::Registry, identity: mizzen_apiserver::ClientIdentity)
/// # -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use mizzen_apiserver::Server;
/// use mizzen_apiserver::delegate::Upstream;
///
/// let upstream = Upstream::load("/etc/kubernetes/things.kubeconfig".as_ref(), &registry)?;
/// let server = Server::builder(registry)
///     .kinds("things.kinds", "…")
///     .authenticator(Arc::new(upstream.clone()))
///     .authorizer(Arc::new(upstream.clone()))
///     .build()?;
/// let listener = tokio::net::TcpListener::bind("0.0.0.0:443").await?;
/// upstream.serve(server, listener, &identity, std::future::pending()).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Upstream(Arc<UpstreamState>);

struct UpstreamState {
    registry: Registry,
    client: OutgoingClient,
    target: Target,
    /// `https://host:port`.
    url: String,
    token: Option<String>,
    users: TokenCache,
    decisions: LruCache<(bool, String)>,
}

/// Why the main server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// The kubeconfig is invalid.
    #[error(transparent)]
    Kubeconfig(#[from] WebhookKubeconfigError),
    /// It does not respond.
    #[error("the API server at {url} does not answer: {problem}")]
    Unreachable {
        /// The URL of the server.
        url: String,
        /// The error.
        problem: String,
    },
    /// It rejected a request.
    #[error("the API server refuses {what}: {message}")]
    Refused {
        /// The request.
        what: String,
        /// The message of the server.
        message: String,
    },
    /// Certificates are invalid.
    #[error("certificates: {0}")]
    Certificates(String),
}

impl Upstream {
    /// Loads the server and user of the current context of a kubeconfig file.
    pub fn load(file: &Path, registry: &Registry) -> Result<Upstream, UpstreamError> {
        let WebhookKubeconfig {
            url,
            address,
            server_name,
            trust,
            identity,
            token,
            ..
        } = WebhookKubeconfig::load(file)?;
        // The identity is shown, whatever it is.
        let target = Target {
            address,
            server_name,
            trust,
            as_front_proxy: true,
            http2: true,
        };
        Ok(Upstream(Arc::new(UpstreamState {
            registry: registry.clone(),
            client: OutgoingClient::plain(registry, identity),
            target,
            url,
            token,
            users: TokenCache::new(registry, KEPT),
            decisions: LruCache::new(ROOM),
        })))
    }

    /// Sends a request. Returns the code and the decoded body.
    pub async fn request(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value), UpstreamError> {
        let unreachable = |problem: String| UpstreamError::Unreachable {
            url: self.0.url.clone(),
            problem,
        };
        match timeout(PATIENCE, self.send(method, path, body)).await {
            Ok(outcome) => outcome.map_err(unreachable),
            Err(_) => Err(unreachable("it takes too long".into())),
        }
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value), String> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.0.url));
        request = request.header(header::CONTENT_TYPE, "application/json");
        request = request.header(header::ACCEPT, "application/json");
        if let Some(token) = &self.0.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let bytes: Bytes = body.map(json::to_string).unwrap_or_default().into();
        let request = request
            .body(whole(bytes))
            .map_err(|error| error.to_string())?;
        let response = self
            .0
            .client
            .send(&self.0.target, request)
            .await
            .map_err(|error| error.to_string())?;
        let code = response.status().as_u16();
        let body = Limited::new(response.into_body(), MAX_BODY).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        Ok((code, json::parse(&body).map_err(|error| error.to_string())?))
    }

    /// The trusted client authorities, as the main server publishes them.
    pub async fn trusted(&self) -> Result<TrustedAuthorities, UpstreamError> {
        trust::fetch_trusted(self).await
    }

    /// Serves until `stop` resolves, with the certificate `identity` and the main server's client
    /// authorities.
    pub async fn serve(
        &self,
        server: Server,
        listener: TcpListener,
        identity: &ClientIdentity,
        stop: impl Future<Output = ()>,
    ) -> Result<(), UpstreamError> {
        let authorities = Authorities::new(&self.0.registry, &self.trusted().await?);
        let tls = trust::server_config(authorities.clone(), identity)?;
        let serving = SecureServing {
            listener,
            tls,
            identify: authorities.identify(),
            grace: GRACE,
        };
        listen(server, serving, stop).await;
        Ok(())
    }
}

/// Tokens are not for logs.
impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upstream({})", self.0.url)
    }
}
