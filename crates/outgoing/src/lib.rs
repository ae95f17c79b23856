//! Outgoing requests of an API server to webhooks, aggregated API servers and kubelets, over HTTPS.
//!
//! `mizzen-transport` makes the connections.
//!
//! | part | the question it answers |
//! |---|---|
//! | [`OutgoingClient`] | How does the server call over HTTPS? |
//! | [`WebhookClient`] | How is a review posted to the webhook of a `clientConfig`? |
//! | [`KubeconfigWebhook`], [`WebhookKubeconfig`] | And to the server of a kubeconfig file? |
//! | [`InterceptWebhook`] | Which calls of webhooks do not go over the network? |
//! | [`ServiceResolver`] | Which address has a Service? |
//! | [`LruCache`] | Which results of calls are still valid? |
//!
//! Invariant: every request has limits: on dialling, on the TLS handshake, on the whole (the caller's), and on the response.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! use std::time::Duration;
//!
//! use mizzen_outgoing::LruCache;
//!
//! let decisions = LruCache::new(1024);
//! decisions.put("jane get pods".into(), true, Duration::from_secs(10));
//! assert_eq!(decisions.get("jane get pods"), Some(true));
//! assert_eq!(decisions.get("joe get pods"), None);
//! # }
//! ```

mod get;
mod hook;
mod intercept;
mod kubeconfig;
mod remote;
mod service;
#[cfg(test)]
mod tests;

use std::ops::Deref;
use std::sync::Arc;

use mizzen_registry::Registry;
use mizzen_transport as transport;
use mizzen_value::clock::Clock;

pub use hook::WebhookClient;
pub use intercept::InterceptWebhook;
pub use kubeconfig::{WebhookKubeconfig, WebhookKubeconfigError};
pub use remote::{KubeconfigWebhook, PostError, jittered};
pub use service::{ServiceReference, ServiceResolver};
use transport::clean_path;
pub use transport::{
    AnyServerCertificate, CallLimit, ClientIdentity, LruCache, Outgoing, SendError, Target, Trust,
    whole,
};

/// An HTTPS client that can resolve Services. Cheap to clone.
#[derive(Clone)]
pub struct OutgoingClient {
    transport: transport::Client,
    services: Arc<ServiceResolver>,
    interceptor: Option<Arc<dyn InterceptWebhook>>,
}

impl OutgoingClient {
    /// A client with `identity` as its client certificate for aggregated servers.
    pub fn new(
        registry: &Registry,
        identity: Option<ClientIdentity>,
        services: ServiceResolver,
    ) -> OutgoingClient {
        let clock = Arc::new(RegistryClock(registry.clone()));
        OutgoingClient {
            transport: transport::Client::new(clock, identity),
            services: Arc::new(services),
            interceptor: None,
        }
    }

    /// The same client, whose calls of admission and conversion webhooks `interceptor` may answer.
    #[must_use]
    pub fn intercepted_by(
        mut self,
        interceptor: Option<Arc<dyn InterceptWebhook>>,
    ) -> OutgoingClient {
        self.interceptor = interceptor;
        self
    }

    /// A client without Services.
    pub fn plain(registry: &Registry, identity: Option<ClientIdentity>) -> OutgoingClient {
        OutgoingClient::new(registry, identity, ServiceResolver::empty(registry))
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
