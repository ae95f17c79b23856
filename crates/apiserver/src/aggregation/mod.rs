//! Which API server serves what? Other servers serve versions of groups under our name, as APIServices say.
//!
//! `table` is what is stored, ready to be asked; `proxy` passes requests on; `available` finds out in the background
//! who is there, and asks those who are what they serve (`learn`); `documents` adds that to discovery and OpenAPI;
//! `register` keeps an APIService for each version that this server serves itself. `local` has the servers that are in this
//! process.
//!
//! Invariant: no request but the one for a server waits for that server. Documents show what was learned last.

mod available;
mod documents;
pub mod hop;
mod learn;
mod local;
mod proxy;
mod register;
mod table;
mod upgrade;

use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;

use mizzen_value::Str;
use tokio::sync::Notify;

use crate::catalog::Catalog;
use crate::request::{RequestInfo, Target};
use crate::server::Inner;
use crate::{Server, health};
pub(crate) use documents::{group, groups, openapi_index, openapi_v2, stale};
use learn::Learned;
use local::{LocalServer, local_server};
pub(crate) use proxy::pass_on;
use table::{Configured, Entry};
pub use upgrade::{Arriving, Streams, join};

/// What is known of other API servers.
pub(crate) struct Aggregation {
    configured: Configured,
    /// What those who were there said, by the name of their APIService.
    learned: RwLock<HashMap<Str, Arc<Learned>>>,
    documents: documents::Cache,
    /// The API servers of this process.
    local: RwLock<Vec<LocalServer>>,
    /// Rung when this server serves other versions than before.
    changed: Notify,
}

impl Aggregation {
    pub(crate) fn new(catalog: &Catalog) -> Aggregation {
        Aggregation {
            configured: Configured::new(catalog),
            learned: RwLock::default(),
            documents: documents::Cache::default(),
            local: RwLock::default(),
            changed: Notify::new(),
        }
    }

    /// To be called whenever this server itself serves other versions of groups than before, so that their
    /// APIServices come and go with them.
    pub(crate) fn served_changed(&self) {
        self.changed.notify_one();
    }
}

/// A server that serves a version instead of this one.
pub(crate) enum OtherServer {
    /// It is reached over the network.
    Remote(Arc<Entry>),
    /// It is in this process.
    Local(Server),
}

/// The other server that a request is for, if it is for one.
pub(crate) fn other_server(server: &Inner, info: &RequestInfo) -> Option<OtherServer> {
    let (group, version) = match info.target() {
        Target::Resource(path) if path.unrouted => return None,
        Target::Resource(path) => (path.group.as_str(), path.version.as_str()),
        Target::Page(path) => {
            let mut parts = path.strip_prefix("/apis/")?.split('/');
            (parts.next()?, parts.next()?)
        }
    };
    server_of_version(server, group, version)
}

/// The other server that has an OpenAPI document, if one has it.
pub(crate) fn document_server(server: &Inner, name: &str) -> Option<OtherServer> {
    let (group, version) = name.strip_prefix("apis/")?.split_once('/')?;
    server_of_version(server, group, version)
}

fn server_of_version(server: &Inner, group: &str, version: &str) -> Option<OtherServer> {
    let table = server.aggregation.configured.table(&server.registry);
    if let Some(entry) = table.remote(group, version) {
        return Some(OtherServer::Remote(entry));
    }
    local_server(server, group, version).map(OtherServer::Local)
}

impl Server {
    /// Makes the APIServices of what this server serves, and from now on looks after other API servers until this one
    /// stops.
    pub async fn aggregate(&self) -> Result<(), String> {
        register::built_in(self).await?;
        tokio::spawn(available::run(self.clone()));
        self.complete(&health::AGGREGATE);
        Ok(())
    }
}
