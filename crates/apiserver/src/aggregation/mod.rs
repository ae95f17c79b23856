//! Which API server serves what? Other servers serve versions of groups under our name, as APIServices say.
//!
//! `table` is what is stored, ready to be asked; `proxy` passes requests on; `available` finds out in the background
//! who is there, and asks those who are what they serve (`learn`); `documents` adds that to discovery and OpenAPI;
//! `register` keeps an APIService for each version that this server serves itself.
//!
//! Invariant: no request but the one for a server waits for that server. Documents show what was learned last.

mod available;
mod documents;
pub(crate) mod hop;
mod learn;
mod proxy;
mod register;
mod table;
mod upgrade;

use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;

use mizzen_object::Str;
use mizzen_registry::Registry;
use tokio::sync::Notify;

use crate::catalog::Catalog;
use crate::request::{RequestInfo, Target};
use crate::{Server, health};
pub(crate) use documents::{group, groups, openapi_index, openapi_v2, stale};
use learn::Learned;
pub(crate) use proxy::pass_on;
use table::{Configured, Entry};
pub(crate) use upgrade::{Streams, join};

/// What is known of other API servers.
pub(crate) struct Aggregation {
    registry: Registry,
    configured: Configured,
    /// What those who were there said, by the name of their APIService.
    learned: RwLock<HashMap<Str, Arc<Learned>>>,
    documents: documents::Cache,
    /// Rung when this server serves other versions than before.
    changed: Notify,
}

impl Aggregation {
    pub(crate) fn new(registry: &Registry, catalog: &Catalog) -> Aggregation {
        Aggregation {
            registry: registry.clone(),
            configured: Configured::new(catalog),
            learned: RwLock::default(),
            documents: documents::Cache::default(),
            changed: Notify::new(),
        }
    }

    /// The other server that a path belongs to, if it is one's.
    pub(crate) fn elsewhere(&self, info: &RequestInfo) -> Option<Arc<Entry>> {
        let table = self.configured.table(&self.registry);
        if !table.has_remote() {
            return None;
        }
        match info.target() {
            Target::Resource(path) if path.unrouted => None,
            Target::Resource(path) => table.remote(&path.group, &path.version),
            Target::Page(path) => {
                let mut parts = path.strip_prefix("/apis/")?.split('/');
                table.remote(parts.next()?, parts.next()?)
            }
        }
    }

    /// To be called whenever this server itself serves other versions of groups than before, so that their
    /// APIServices come and go with them.
    pub(crate) fn served_changed(&self) {
        self.changed.notify_one();
    }

    /// The other server that has an OpenAPI document, if it is one's.
    pub(crate) fn document_elsewhere(&self, name: &str) -> Option<Arc<Entry>> {
        let (group, version) = name.strip_prefix("apis/")?.split_once('/')?;
        self.configured.table(&self.registry).remote(group, version)
    }
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
