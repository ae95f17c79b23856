//! How does an aggregated API server know who asks, and what they may do? It asks the main one.
//!
//! Most requests come through the main server, which is a front proxy: its certificate proves it, and its headers say
//! for whom it asks. Who comes directly shows a certificate of the main server's clients, or a token, which a TokenReview
//! is made of. What they may do a SubjectAccessReview tells. Both answers are kept for some seconds.

mod authorization;
pub(crate) mod cache;
pub(crate) mod kubeconfig;
mod token;
mod trust;

pub use kubeconfig:: { WebhookKubeconfig, WebhookKubeconfigError } ;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt as _, Limited};
use mizzen_registry::Registry;
use mizzen_value::{Value, json};
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::Server;
use crate::authentication::{Authorities, TokenCache, Trusted};
use crate::listen::{SecureServing, listen};
use crate::outgoing::{Client, Identity, Target, whole};
use crate::receive::MAX_BODY;
pub use cache::LruCache;
pub(crate) use token::user as reviewed_user;

/// How long the main server may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Kubernetes: how long answers are kept (apiserver/pkg/server/options).
const KEPT: Duration = Duration::from_secs(10);
/// How many answers are kept.
const ROOM: usize = 4096;
/// How long requests under way may take when the server stops.
const GRACE: Duration = Duration::from_secs(60);

/// The main API server, as a server behind it sees it. Cheap to clone.
///
/// ```no_run
/// # async fn run(registry: mizzen_registry::Registry, identity: mizzen_apiserver::Identity)
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
    client: Client,
    target: Target,
    /// `https://host:port`.
    url: String,
    token: Option<String>,
    users: TokenCache,
    decisions: LruCache<(bool, String)>,
}

/// Why the main server is of no help.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// Nobody says where it is, or who we are.
    #[error(transparent)]
    Kubeconfig(#[from] WebhookKubeconfigError),
    /// It does not answer.
    #[error("the API server at {url} does not answer: {problem}")]
    Unreachable {
        /// Where it should be.
        url: String,
        /// What happened.
        problem: String,
    },
    /// It refuses.
    #[error("the API server refuses {what}: {message}")]
    Refused {
        /// What was asked.
        what: String,
        /// Why.
        message: String,
    },
    /// Certificates do not fit.
    #[error("certificates: {0}")]
    Certificates(String),
}

impl Upstream {
    /// The server that the current context of a kubeconfig file names, asked as the user that it names.
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
        // Whatever identity there is, it is shown.
        let target = Target {
            address,
            server_name,
            trust,
            as_front_proxy: true,
            http2: true,
        };
        Ok(Upstream(Arc::new(UpstreamState {
            registry: registry.clone(),
            client: Client::plain(registry, identity),
            target,
            url,
            token,
            users: TokenCache::new(registry, KEPT),
            decisions: LruCache::new(ROOM),
        })))
    }

    /// Asks it something, and returns the code and what the answer says.
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

    /// Whose client certificates count, as the main server publishes it.
    pub async fn trusted(&self) -> Result<Trusted, UpstreamError> {
        trust::fetch_trusted(self).await
    }

    /// Serves on a network until `stop` is done, as `identity`, to whom the main server says may come.
    pub async fn serve(
        &self,
        server: Server,
        listener: TcpListener,
        identity: &Identity,
        stop: impl Future<Output = ()>,
    ) -> Result<(), UpstreamError> {
        let authorities = Authorities::new(&self.0.registry, &self.trusted().await?);
let tls=trust::server_config(authorities.clone(), identity)?; let serving=SecureServing { listener, tls, identify:authorities.identify(), grace:GRACE, } ; listen(server, serving, stop).await;
        Ok(())
    }
}

/// Tokens are not for logs.
impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upstream({})", self.0.url)
    }
}
