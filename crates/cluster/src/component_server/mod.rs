//! The secure port of a component that serves no API: health, metrics, configuration, status and flags over HTTPS.
//!
//! Kubernetes: authentication and authorization are delegated to the API server, by TokenReviews and SubjectAccessReviews
//! (cmd/kube-controller-manager, cmd/kube-scheduler).
//!
//! | module | content |
//! |---|---|
//! | `status` | the state of the component and its health checks |
//! | `endpoints` | `/metrics`, `/metrics/resources` and `/configz` |
//! | `debug`, `pprof` | `/debug`, and CPU profiles |
//! | `paths` | paths that need no authorization |

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

use mizzen_apiserver::clock::{SystemRandom, WallClock};
use mizzen_apiserver::listen::{SecureServing, listen};
use mizzen_apiserver::{ComponentHealth, Server, Zpages};
use mizzen_authentication::{Authenticator, Authorities, ProxyHeaders};
use mizzen_authorization::Authorizer;
use mizzen_bootstrap::pki::{self, Protocol, ServingCertificates};
use mizzen_registry::{Registry, Store};
use mizzen_value::Value;
use tokio::net::TcpListener;

use crate::command::flags;
use crate::compose::ComposeError;
pub(crate) use debug::DebugHandler;
use endpoints::ComponentEndpoints;
pub(crate) use paths::AlwaysAllowPaths;
pub(crate) use process_metrics::ProcessMetrics;
pub(crate) use status::{ComponentStatus, LeaderElectionCheck, Ping, ShutdownCheck, SyncedCheck};

/// The grace period for requests in flight when the component stops.
const GRACE: Duration = Duration::from_secs(5);

/// The server of a component.
pub(crate) struct ComponentServer {
    /// Its name.
    pub name: &'static str,
    /// Its state.
    pub status: ComponentStatus,
    /// The content of `/configz`, by name of the configuration.
    pub configuration: Value,
    /// The health endpoints.
    pub health: ComponentHealth,
    /// The handler of `/debug`.
    pub debug: DebugHandler,
    /// Authenticates tokens.
    pub authenticator: Option<Arc<dyn Authenticator>>,
    /// The authorizers, in order.
    pub authorizers: Vec<Arc<dyn Authorizer>>,
    /// The headers in which front proxies name users.
    pub proxy_headers: ProxyHeaders,
    /// The limit of concurrent streams per HTTP/2 connection.
    pub max_streams: u32,
}

/// The TLS of a component.
pub(crate) struct ServingTls {
    /// The client certificate authorities.
    pub authorities: Arc<Authorities>,
    /// The versions and cipher suites.
    pub protocol: Protocol,
    /// The serving certificates.
    pub certificates: Arc<ServingCertificates>,
}

/// An empty registry, for its clock and random numbers.
pub(crate) fn empty_registry() -> Registry {
    Registry::new(
        Store::in_memory(Default::default()),
        Arc::new(WallClock),
        Arc::new(SystemRandom),
    )
}

/// Binds the secure port.
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
        tls: ServingTls,
    ) -> Result<(), ComposeError> {
        let status = self.status.clone();
        let server = self.build(registry)?;
        let ServingTls {
            authorities,
            protocol,
            certificates,
        } = tls;
        let config = pki::server_config(authorities.clone(), protocol, certificates.clone())?;
        tokio::spawn(certificates.reload_on_change());
        tokio::spawn(async move {
            let serving = SecureServing {
                listener,
                tls: config,
                identify: authorities.identify(),
                grace: GRACE,
            };
            listen(server, serving, status.stopped()).await;
        });
        Ok(())
    }

    fn build(self, registry: &Registry) -> Result<Server, ComposeError> {
        let endpoints = ComponentEndpoints {
            status: self.status,
            configuration: self.configuration,
            // Kubernetes: only the scheduler has them (cmd/kube-scheduler/app/server.go).
            has_resource_metrics: self.name == "kube-scheduler",
        };
        let server = Server::builder(registry.clone())
            .non_resource(self.debug)
            .non_resource(endpoints)
            .options(|options| {
                options.http.max_streams = self.max_streams;
                options.authentication.authenticators = self.authenticator.into_iter().collect();
                options.authentication.proxy_headers = self.proxy_headers.into();
                options.authorizers = self.authorizers;
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
