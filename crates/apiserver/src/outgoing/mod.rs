//! Outgoing requests to webhooks, aggregated API servers and kubelets, over HTTPS.
//!
//! `mizzen-transport` makes the connections. `WebhookClient` posts a review to a webhook and reads its response as
//! client-go would, [`KubeconfigWebhook`] does so for the server of a kubeconfig file, [`ServiceResolver`] finds the addresses of
//! Services.
//!
//! Invariant: every request has limits: on dialling, on the TLS handshake, on the whole (the caller's), and on the response.

mod get;
mod hook;
mod remote;
mod service;
#[cfg(test)]
mod tests;

use std::ops::Deref;
use std::sync::Arc;

use mizzen_registry::Registry;
use mizzen_transport as transport;
use mizzen_value::clock::Clock;

use crate::catalog::Catalog;
pub(crate) use hook::WebhookClient;
pub(crate) use remote::jittered;
pub use remote::{KubeconfigWebhook, PostError};
pub use service::{ServiceReference, ServiceResolver};
pub use transport::{AnyServerCertificate, ClientIdentity};
pub(crate) use transport::{CallLimit, Outgoing, SendError, Target, Trust, clean_path, whole};

/// An HTTPS client that can resolve Services. Cheap to clone.
#[derive(Clone)]
pub struct OutgoingClient {
    transport: transport::Client,
    services: Arc<ServiceResolver>,
}

impl OutgoingClient {
    /// A client with `identity` as its client certificate for aggregated servers; `own` is the address of this server.
    pub(crate) fn new(
        registry: &Registry,
        catalog: &Catalog,
        identity: Option<ClientIdentity>,
        own: &str,
    ) -> OutgoingClient {
        OutgoingClient::with(
            registry,
            identity,
            ServiceResolver::new(registry, catalog, own),
        )
    }

    /// A client without Services.
    pub fn plain(registry: &Registry, identity: Option<ClientIdentity>) -> OutgoingClient {
        OutgoingClient::with(registry, identity, ServiceResolver::empty(registry))
    }

    fn with(
        registry: &Registry,
        identity: Option<ClientIdentity>,
        services: ServiceResolver,
    ) -> OutgoingClient {
        let clock = Arc::new(RegistryClock(registry.clone()));
        OutgoingClient {
            transport: transport::Client::new(clock, identity),
            services: Arc::new(services),
        }
    }

    /// Resolves Services.
    pub fn services(&self) -> &ServiceResolver {
        &self.services
    }
}

impl Deref for OutgoingClient {
    type Target = transport::Client;

    fn deref(&self) -> &transport::Client {
        &self.transport
    }
}

/// The clock for the validity of certificates.
struct RegistryClock(Registry);

impl Clock for RegistryClock {
    fn now(&self) -> (i64, u32) {
        (self.0.now(), 0)
    }
}
