//! The secure port of a component that serves no API: health, metrics, configuration, status and flags over HTTPS.
//!
//! Kubernetes: authentication and authorization are delegated to the API server, by TokenReviews and SubjectAccessReviews
//! (cmd/kube-controller-manager, cmd/kube-scheduler).
//!
//! | part | the question it answers |
//! |---|---|
//! | `status` | What is known of the running component? |
//! | `endpoints` | What is served at `/metrics` and `/configz`? |
//! | `debug` | What is served below `/debug`? |
//! | `pprof` | Which functions use the CPU? |
//! | `paths` | Which paths need no authorization? |

mod debug;
mod endpoints;
mod paths;
mod pprof;
mod process_metrics;
mod status;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mizzen_apiserver::access::Authorizer;
use mizzen_apiserver::authenticate::{Authenticator, Authorities, ProxyHeaders};
use mizzen_apiserver::listen::listen;
use mizzen_apiserver::seams::{SystemRandom, WallClock};
use mizzen_apiserver::{ComponentHealth, NonResourceHandler, Server, Zpages};
use mizzen_registry::{Registry, Store};
use mizzen_value::Value;
use tokio::net::TcpListener;

use crate::command::flags;
use crate::compose::ComposeError;
use crate::pki::{self, Certificates, Protocol};
pub(crate) use debug::DebugHandler;
use endpoints::Endpoints;
pub(crate) use paths::AlwaysAllowPaths;
pub(crate) use process_metrics::ProcessMetrics;
pub(crate) use status::{ComponentStatus, LeaderElectionCheck, Ping, ShutdownCheck, SyncedCheck};

/// How long requests under way may take when the component stops.
const GRACE: Duration = Duration::from_secs(5);

/// What a component serves, and how it authenticates and authorizes clients.
pub(crate) struct ComponentServer {
    /// Its name.
    pub name: &'static str,
    /// What it shows.
    pub status: ComponentStatus,
    /// What `/configz` shows, by the name of the configuration.
    pub configuration: Value,
    /// The health endpoints.
    pub health: ComponentHealth,
    /// What is served below `/debug`.
    pub debug: DebugHandler,
    /// Who knows tokens.
    pub authenticator: Option<Arc<dyn Authenticator>>,
    /// Who decides what users may do, in the order in which they are asked.
    pub authorizers: Vec<Arc<dyn Authorizer>>,
    /// The headers in which front proxies name users.
    pub proxy_headers: ProxyHeaders,
    /// How many requests an HTTP/2 connection may have under way.
    pub max_streams: u32,
}

/// How a component speaks TLS.
pub(crate) struct Tls {
    /// Whose client certificates count.
    pub authorities: Arc<Authorities>,
    /// The versions and ciphers.
    pub protocol: Protocol,
    /// The certificates that are shown.
    pub certificates: Arc<Certificates>,
}

/// A registry that holds nothing: it has the clock and the random numbers of a server.
pub(crate) fn empty_registry() -> Registry {
    Registry::new(
        Store::in_memory(Default::default()),
        Arc::new(WallClock),
        Arc::new(SystemRandom),
    )
}

/// Listens at an address.
pub(crate) async fn bind(address: SocketAddr) -> Result<TcpListener, ComposeError> {
    let port = address.port();
    TcpListener::bind(address)
        .await
        .map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => ComposeError::SecurePortInUse { port },
            _ => ComposeError::Listen { address, source },
        })
}

impl ComponentServer {
    /// Serves until the process ends.
    pub(crate) fn spawn(
        self,
        registry: &Registry,
        listener: TcpListener,
        tls: Tls,
    ) -> Result<(), ComposeError> {
        let status = self.status.clone();
        let server = self.build(registry)?;
        let Tls {
            authorities,
            protocol,
            certificates,
        } = tls;
        let config = pki::server_config(authorities.clone(), protocol, certificates.clone())?;
        tokio::spawn(certificates.follow());
        tokio::spawn(async move {
            listen(
                server,
                listener,
                config,
                authorities.identify(),
                status.stopped(),
                GRACE,
            )
            .await;
        });
        Ok(())
    }

    fn build(self, registry: &Registry) -> Result<Server, ComposeError> {
        let endpoints = Endpoints {
            status: self.status,
            configuration: self.configuration,
        };
        let handlers: Vec<Arc<dyn NonResourceHandler>> =
            vec![Arc::new(self.debug), Arc::new(endpoints)];
        let server = Server::builder(registry.clone()).options(|options| {
            options.http.max_streams = self.max_streams;
            options.authentication.others = self.authenticator.into_iter().collect();
            options.authentication.proxy_headers = self.proxy_headers;
            options.authorizers = self.authorizers;
            options.non_resource_handlers = handlers;
            options.component = Some(self.health);
            options.zpages = Some(Zpages {
                component: self.name,
                flags: flags(),
            });
        });
        server
            .build()
            .map_err(|error| ComposeError::Bootstrap(error.to_string()))
    }
}
