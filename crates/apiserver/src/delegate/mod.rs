//! Delegated authentication and authorization: an aggregated API server asks the main one.
//!
//! Most requests come through the main server, which is a front proxy: its certificate proves it,
//! and its headers name the user. Direct clients show a certificate of the main server's client
//! authorities, or a token, which is authenticated by a TokenReview. Requests are authorized by a
//! SubjectAccessReview. Both results are cached for some seconds.
//!
//! Namespaces, admission policies and admission webhooks of the main server apply to the kinds of the
//! aggregated one, also if both are in one process (`main_server`): `follow` lists and watches them, `mirror` keeps them, `admission` has the plug-ins,
//! `params` reads the parameters of policies. [`Server::run`](crate::Server::run) runs all of it.

mod admission;
mod authorization;
mod follow;
mod main_server;
mod mirror;
mod params;
mod run;
mod token;
mod trust;

pub(crate) use admission::ADMISSION_PLUGINS;
pub(crate) use main_server::{InProcessMain, MainAuthorizer, MainServer};
pub(crate) use mirror::{ClusterMirror, wait_for_main_server};
pub use run::{RunError, Serving};

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use mizzen_authentication::{SharedProxyHeaders, TokenCache, TrustedAuthorities};
use mizzen_object::GroupVersionKind;
use mizzen_outgoing::{
    LruCache, OutgoingClient, Target, WebhookKubeconfig, WebhookKubeconfigError, whole,
};
use mizzen_registry::Registry;
use mizzen_value::{Value, json};
use params::ParamResource;
use tokio::time::timeout;

/// The time limit of a request to the main server.
const PATIENCE: Duration = Duration::from_secs(10);
/// Kubernetes: how long results are cached (apiserver/pkg/server/options).
const KEPT: Duration = Duration::from_secs(10);
/// The capacity of each cache.
const ROOM: usize = 4096;
/// The largest response that is read: a page of a list.
const MAX_RESPONSE: usize = 64 * 1024 * 1024;

/// The main API server, as seen by an aggregated one. Cheap to clone.
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
    /// The resources of parameters, by version and kind.
    resources: LruCache<ParamResource>,
    /// Made for a server whose writes need it.
    mirror: OnceLock<ClusterMirror>,
    /// The headers in which the main server names users.
    proxy_headers: SharedProxyHeaders,
    /// `host:port`.
    address: String,
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
            address: address.clone(),
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
            resources: LruCache::new(ROOM),
            mirror: OnceLock::new(),
            proxy_headers: SharedProxyHeaders::default(),
            address,
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
        let answer = async {
            let response = self.send(method, path, body).await?;
            let code = response.status().as_u16();
            let body = Limited::new(response.into_body(), MAX_RESPONSE);
            let body = body.collect().await.map_err(|error| error.to_string())?;
            let value = json::parse(&body.to_bytes()).map_err(|error| error.to_string())?;
            Ok((code, value))
        };
        match timeout(PATIENCE, answer).await {
            Ok(outcome) => outcome.map_err(unreachable),
            Err(_) => Err(unreachable("it takes too long".into())),
        }
    }

    /// The headers in which the main server names users; they are followed.
    pub(crate) fn proxy_headers(&self) -> SharedProxyHeaders {
        self.0.proxy_headers.clone()
    }

    /// The address, as `host:port`.
    pub(crate) fn address(&self) -> &str {
        &self.0.address
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<http::Response<Incoming>, String> {
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
        let sent = self.0.client.send(&self.0.target, request).await;
        sent.map_err(|error| error.to_string())
    }

    /// The trusted client authorities, as the main server publishes them.
    pub async fn trusted(&self) -> Result<TrustedAuthorities, UpstreamError> {
        trust::fetch_trusted(self).await
    }
}

/// The path of a version: `/apis/apps/v1`.
fn version_path(kind: &GroupVersionKind) -> String {
    match kind.group.as_str() {
        "" => format!("/api/{}", kind.version),
        group => format!("/apis/{group}/{}", kind.version),
    }
}

/// Tokens are not for logs.
impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upstream({})", self.0.url)
    }
}
