//! Whose namespaces, admission policies and webhooks apply to the kinds of a server?
//!
//! Those of its main server, which is another process ([`Upstream`]: what is needed is copied) or the same one
//! ([`Server::serve_locally`]: it is read). A server without a main server has its own kinds only; unless Namespaces are
//! among them, any namespace will do.

use std::sync::Weak;

use mizzen_authorization::{Attributes, Authorizer, Decision, DecisionReason};
use mizzen_object::GroupVersionKind;
use mizzen_outgoing::OutgoingClient;
use mizzen_registry::{BoxFuture, Registry, Resource};

use super::Upstream;
use crate::Server;
use crate::server::ServerParts;

/// The main server.
pub(crate) enum MainServer {
    Remote(Upstream),
    InProcess(InProcessMain),
}

/// A main server of the same process. It owns the server behind it, so that it is referred to weakly.
pub(crate) struct InProcessMain {
    parts: Weak<ServerParts>,
    registry: Registry,
    /// Calls the webhooks.
    pub client: OutgoingClient,
}

impl InProcessMain {
    pub(crate) fn new(main: &Server) -> InProcessMain {
        let parts = &main.0;
        InProcessMain {
            parts: parts.itself.clone(),
            registry: parts.registry.clone(),
            client: parts.client.clone(),
        }
    }
}

impl MainServer {
    /// The registry of namespaces, policies and webhooks.
    pub(crate) fn registry(&self) -> &Registry {
        match self {
            MainServer::Remote(upstream) => upstream.mirror().registry(),
            MainServer::InProcess(main) => &main.registry,
        }
    }

    /// A built-in resource of the main server; none if it is not needed here.
    pub(crate) fn resource(&self, group: &str, version: &str, plural: &str) -> Option<Resource> {
        match self {
            MainServer::Remote(upstream) => upstream.mirror().resource(group, plural),
            MainServer::InProcess(main) => {
                main.parts.upgrade()?.catalog.get(group, version, plural)
            }
        }
    }
}

impl ServerParts {
    /// The resource of a policy's parameters in this process, and its registry.
    pub(crate) fn param_resource(&self, kind: &GroupVersionKind) -> Option<(Registry, Resource)> {
        match (self.catalog.of_kind(kind), &self.extensions.main) {
            (Some(own), _) => Some((self.registry.clone(), own)),
            (None, Some(MainServer::InProcess(main))) => {
                let resource = main.parts.upgrade()?.catalog.of_kind(kind)?;
                Some((main.registry.clone(), resource))
            }
            (None, _) => None,
        }
    }
}

/// The authorizers of a main server of this process: for what a server behind it authorizes beyond the verb of a request.
#[derive(Debug)]
pub(crate) struct MainAuthorizer(pub Weak<ServerParts>);

impl Authorizer for MainAuthorizer {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Decision> {
        Box::pin(async move {
            match self.0.upgrade() {
                Some(main) => main.authorize(attributes).await,
                None => Decision::NoOpinion(DecisionReason::default()),
            }
        })
    }
}
