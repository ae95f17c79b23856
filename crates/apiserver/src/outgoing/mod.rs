//! How do we call other servers? Webhooks, aggregated API servers and kubelets, over HTTPS.
//!
//! `mizzen-transport` makes the connections. [`Hook`] posts a review to a webhook and reads its answer as client-go would,
//! [`Remote`] does so to the server that a kubeconfig file names, [`Services`] finds the addresses of services.
//!
//! Invariant: every call has a limit: on dialling, on shaking hands, on the whole (the caller's), and on the answer.

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
pub(crate) use hook::Hook;
pub(crate) use remote::jittered;
pub use remote::{PostError, Remote};
pub use service::{Service, Services};
pub use transport::{Anyone, Identity};
pub(crate) use transport::{Limit, Outgoing, SendError, Target, Trust, clean_path, whole};

/// Calls other servers, and knows where services are. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    transport: transport::Client,
    services: Arc<Services>,
}

impl Client {
    /// A client that shows `identity` where the target wants a front proxy, and reaches this server at `own`.
    pub(crate) fn new(
        registry: &Registry,
        catalog: &Catalog,
        identity: Option<Identity>,
        own: &str,
    ) -> Client {
        Client::with(registry, identity, Services::new(registry, catalog, own))
    }

    /// A client that knows no services and shows `identity`.
    pub fn plain(registry: &Registry, identity: Option<Identity>) -> Client {
        Client::with(registry, identity, Services::unknown(registry))
    }

    fn with(registry: &Registry, identity: Option<Identity>, services: Services) -> Client {
        let clock = Arc::new(RegistryClock(registry.clone()));
        Client {
            transport: transport::Client::new(clock, identity),
            services: Arc::new(services),
        }
    }

    /// Where services are.
    pub fn services(&self) -> &Services {
        &self.services
    }
}

impl Deref for Client {
    type Target = transport::Client;

    fn deref(&self) -> &transport::Client {
        &self.transport
    }
}

/// The time at which certificates must be good.
struct RegistryClock(Registry);

impl Clock for RegistryClock {
    fn now(&self) -> (i64, u32) {
        (self.0.now(), 0)
    }
}
