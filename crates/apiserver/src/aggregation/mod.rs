//! The aggregation layer: APIServices assign versions of groups to other API servers.
//!
//! `api_services` indexes the stored APIServices; `proxy` forwards requests; `available` checks the servers in the
//! background and fetches their documents (`fetch`); `documents` adds these to discovery and OpenAPI; `autoregister` keeps
//! an APIService for each version that this server serves itself; `local` has the servers in this process.
//!
//! Invariant: only a request for an aggregated server waits for that server. Discovery and OpenAPI show its last documents.

mod api_services;
mod autoregister;
mod available;
mod documents;
mod fetch;
pub mod hop_by_hop;
mod local;
mod proxy;
mod upgrade;

use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;

use mizzen_registry::Registry;
use mizzen_value::Str;
use tokio::sync::watch;

use crate::catalog::Catalog;
use crate::request::{RequestInfo, RequestTarget};
use crate::server::ServerParts;
use crate::{Server, health};
use api_services::{ApiService, ApiServiceCache};
pub(crate) use documents::{group, groups, mark_stale, openapi_index, openapi_v2};
use fetch::RemoteDocuments;
use local::{LocalServer, local_server};
pub(crate) use proxy::{forward, proxy_request, set_auth_proxy_headers};
pub use upgrade::{RequestStreams, UnreadStreams, join};

/// The state of aggregated API servers.
pub(crate) struct Aggregation {
    configured: ApiServiceCache,
    /// The documents of the servers, by the name of their APIService.
    fetched: RwLock<HashMap<Str, Arc<RemoteDocuments>>>,
    documents: documents::DocumentCache,
    /// The API servers of this process.
    local: RwLock<Vec<LocalServer>>,
    /// Changes with the versions that this server serves.
    changed: watch::Sender<()>,
}

impl Aggregation {
    pub(crate) fn new(catalog: &Catalog) -> Aggregation {
        Aggregation {
            configured: ApiServiceCache::new(catalog),
            fetched: RwLock::default(),
            documents: documents::DocumentCache::default(),
            local: RwLock::default(),
            changed: watch::Sender::new(()),
        }
    }

    /// Called when the versions that this server serves have changed, so that their APIServices are updated.
    pub(crate) fn served_changed(&self) {
        self.changed.send_replace(());
    }

    /// Changes with the versions that this server serves.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The groups and versions of aggregated API servers outside this process.
    pub(crate) fn remote_versions(&self, registry: &Registry) -> Vec<(Str, Str)> {
        let table = self.configured.table(registry);
        let remote = table.entries.iter().filter(|entry| entry.service.is_some());
        let versions = remote.map(|entry| (entry.group.clone(), entry.version.clone()));
        versions.collect()
    }
}

/// An aggregated server.
pub(crate) enum OtherServer {
    Remote(Arc<ApiService>),
    /// A server in this process.
    Local(Server),
}

/// The aggregated server of a request, if there is one.
pub(crate) fn other_server(server: &ServerParts, info: &RequestInfo) -> Option<OtherServer> {
    let (group, version) = match info.target() {
        RequestTarget::Resource(path) if path.unrouted => return None,
        RequestTarget::Resource(path) => (path.group.as_str(), path.version.as_str()),
        RequestTarget::NonResource(path) => {
            let mut parts = path.strip_prefix("/apis/")?.split('/');
            (parts.next()?, parts.next()?)
        }
    };
    server_of_version(server, group, version)
}

/// The aggregated server of an OpenAPI document, if there is one.
pub(crate) fn document_server(server: &ServerParts, name: &str) -> Option<OtherServer> {
    let (group, version) = name.strip_prefix("apis/")?.split_once('/')?;
    server_of_version(server, group, version)
}

fn server_of_version(server: &ServerParts, group: &str, version: &str) -> Option<OtherServer> {
    let table = server.aggregation.configured.table(&server.registry);
    if let Some(entry) = table.remote(group, version) {
        return Some(OtherServer::Remote(entry));
    }
    local_server(server, group, version).map(OtherServer::Local)
}

impl Server {
    /// Creates the APIServices of this server, and runs the availability controller until the server stops.
    pub async fn aggregate(&self) -> Result<(), String> {
        autoregister::built_in(self).await?;
        tokio::spawn(available::run(self.clone()));
        self.complete(&health::AGGREGATE);
        Ok(())
    }
}
