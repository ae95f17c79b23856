//! How do we call other servers? Webhooks, aggregated API servers and kubelets, over HTTPS.
//!
//! A [`Target`] says what is dialled and who must answer there; connections to it are kept and used again. [`Hook`]
//! posts a review to a webhook and reads its answer as client-go would, [`Remote`] does so to the server that a kubeconfig
//! file names, [`Client::send`] streams any request.
//! What goes wrong is said in the words of Go's HTTP client (`go.rs`), because upstream shows them to people.
//!
//! Invariant: every call has a limit: on dialling, on shaking hands, on the whole (the caller's), and on the answer.

mod connect;
mod get;
mod go;
mod hook;
mod redirect;
mod remote;
mod service;
#[cfg(test)]
mod tests;
mod trust;
mod verify;

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use mizzen_registry::Registry;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::catalog::Catalog;
use connect::Connector;
pub(crate) use connect::dial;
pub(crate) use hook::{Hook, Limit};
pub(crate) use redirect::clean_path;
pub(crate) use remote::{PostError, Remote, jittered};
pub(crate) use service::{Service, Services};
pub(crate) use trust::Trust;
pub use trust::{Anyone, Identity};

/// A request body that is sent while it comes.
pub(crate) type Outgoing = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// Kubernetes: how many targets upstream keeps connections to (apiserver/pkg/util/webhook/client.go).
const MAX_TARGETS: usize = 200;
/// How long a connection may be of no use, as Go's transport has it.
const IDLE: Duration = Duration::from_secs(90);
/// How many connections to a target may be of no use, as client-go has it.
const MAX_IDLE: usize = 25;

/// What is dialled, and who must answer there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    /// `host:port` that is dialled.
    pub address: String,
    /// The name that the server's certificate must have.
    pub server_name: String,
    /// Who may have signed that.
    pub trust: Trust,
    /// Whether we show our certificate: that of a front proxy, or of the client that kubelets know.
    pub as_front_proxy: bool,
    /// Whether HTTP/2 will do. One such connection goes to one backend only, and it cannot be upgraded.
    pub http2: bool,
}

/// Calls other servers. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Client(Arc<Inner>);

struct Inner {
    registry: Registry,
    services: Services,
    identity: Option<Identity>,
    targets: Mutex<HashMap<Target, Kept>>,
}

struct Kept {
    client: legacy::Client<Connector, Outgoing>,
    used: Instant,
}

/// Why a request got no answer, in the words of Go's HTTP client.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub(crate) struct SendError(pub String);

impl Client {
    /// A client that shows `identity` where the target wants a front proxy, and reaches this server at `own`.
    pub(crate) fn new(
        registry: &Registry,
        catalog: &Catalog,
        identity: Option<Identity>,
        own: &str,
    ) -> Client {
        let services = Services::new(registry, catalog, own);
        let registry = registry.clone();
        Client(Arc::new(Inner {
            registry,
            services,
            identity,
            targets: Mutex::default(),
        }))
    }

    /// A client that knows no services and shows `identity`.
    pub(crate) fn plain(registry: &Registry, identity: Option<Identity>) -> Client {
        let services = Services::unknown(registry);
        Client(Arc::new(Inner {
            registry: registry.clone(),
            services,
            identity,
            targets: Mutex::default(),
        }))
    }

    /// Where services are.
    pub(crate) fn services(&self) -> &Services {
        &self.0.services
    }

    /// Sends one request; its URI must be absolute. The answer's body comes as the server sends it.
    pub(crate) async fn send(
        &self,
        target: &Target,
        request: Request<Outgoing>,
    ) -> Result<Response<Incoming>, SendError> {
        let client = self.kept(target)?;
        client
            .request(request)
            .await
            .map_err(|error| SendError(go::says(&error)))
    }

    /// Shakes hands over a connection with a server that need not prove who it is.
    pub(crate) async fn secure<C>(
        &self,
        host: &str,
        connection: C,
    ) -> Result<TlsStream<C>, SendError>
    where
        C: AsyncRead + AsyncWrite + Unpin,
    {
        let config =
            trust::config(&Trust::Anyone, None, false, &self.0.registry).map_err(SendError)?;
        connect::secure(
            &TlsConnector::from(Arc::new(config)),
            connect::server_name(host)?,
            connection,
        )
        .await
    }

    /// The connections to a target. The target that was not used for the longest time makes room.
    fn kept(&self, target: &Target) -> Result<legacy::Client<Connector, Outgoing>, SendError> {
        let mut targets = self.0.targets.lock();
        if let Some(kept) = targets.get_mut(target) {
            kept.used = Instant::now();
            return Ok(kept.client.clone());
        }
        if targets.len() >= MAX_TARGETS {
            let oldest = targets
                .iter()
                .min_by_key(|(_, kept)| kept.used)
                .map(|(target, _)| target.clone());
            oldest.and_then(|oldest| targets.remove(&oldest));
        }
        let client = self.connections(target)?;
        targets.insert(
            target.clone(),
            Kept {
                client: client.clone(),
                used: Instant::now(),
            },
        );
        Ok(client)
    }

    fn connections(
        &self,
        target: &Target,
    ) -> Result<legacy::Client<Connector, Outgoing>, SendError> {
        let identity = self.0.identity.as_ref().filter(|_| target.as_front_proxy);
        let config = trust::config(&target.trust, identity, target.http2, &self.0.registry)
            .map_err(SendError)?;
        let connector = Connector::new(target, config)?;
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        builder
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new());
        builder
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(MAX_IDLE);
        // Kubernetes: how client-go finds out that an HTTP/2 connection is dead.
        builder.http2_keep_alive_interval(Duration::from_secs(30));
        builder.http2_keep_alive_timeout(Duration::from_secs(15));
        Ok(builder.build(connector))
    }
}

/// A body of which all is there.
pub(crate) fn whole(bytes: Bytes) -> Outgoing {
    http_body_util::Full::new(bytes)
        .map_err(|never| match never {})
        .boxed_unsync()
}
