//! The stored APIServices, indexed by group and version.

use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mizzen_object::{Status, condition};
use mizzen_outgoing::{OutgoingClient, ServiceReference, Target, Trust};
use mizzen_registry::{ListOptions, Registry, Resource, Revision};
use mizzen_value::{Str, Value};

use crate::catalog::Catalog;

/// The index of the stored APIServices, updated on demand.
pub(super) struct ApiServiceCache {
    pub resource: Option<Resource>,
    kept: RwLock<Arc<ApiServiceTable>>,
}

impl ApiServiceCache {
    pub(super) fn new(catalog: &Catalog) -> ApiServiceCache {
        let resource = catalog.get("apiregistration.k8s.io", "v1", "apiservices");
        ApiServiceCache {
            resource,
            kept: RwLock::default(),
        }
    }

    /// The current APIServices. The first call after a change reads them from the store.
    pub(super) fn table(&self, registry: &Registry) -> Arc<ApiServiceTable> {
        let Some(resource) = &self.resource else {
            return Arc::default();
        };
        let revision = resource.space().snapshot().revision();
        let kept = self.kept.read().clone();
        if kept.revision == revision {
            return kept;
        }
        // If one cannot be decoded, which is logged, the previous index stays in use.
        let Ok(stored) = registry.list(resource, &ListOptions::default()) else {
            return kept;
        };
        let entries = stored
            .items
            .iter()
            .map(|object| Arc::new(ApiService::parse(object.value())))
            .collect();
        let table = Arc::new(ApiServiceTable::new(revision, entries));
        *self.kept.write() = table.clone();
        table
    }
}

/// An index of APIServices.
#[derive(Default)]
pub(super) struct ApiServiceTable {
    /// Indexes of the same revision are equal.
    pub revision: Revision,
    pub entries: Vec<Arc<ApiService>>,
    remote: HashMap<(Str, Str), Arc<ApiService>>,
}

impl ApiServiceTable {
    fn new(revision: Revision, entries: Vec<Arc<ApiService>>) -> ApiServiceTable {
        let remote = entries.iter().filter(|entry| entry.service.is_some());
        let remote =
            remote.map(|entry| ((entry.group.clone(), entry.version.clone()), entry.clone()));
        ApiServiceTable {
            revision,
            remote: remote.collect(),
            entries,
        }
    }

    /// Whether there is any aggregated server.
    pub(super) fn has_remote(&self) -> bool {
        !self.remote.is_empty()
    }

    /// The aggregated server of a version.
    pub(super) fn remote(&self, group: &str, version: &str) -> Option<Arc<ApiService>> {
        if self.remote.is_empty() {
            return None;
        }
        self.remote.get(&(group.into(), version.into())).cloned()
    }

    /// The APIService of this name.
    pub(super) fn named(&self, name: &str) -> Option<&Arc<ApiService>> {
        self.entries.iter().find(|entry| entry.name == name)
    }
}

/// One APIService.
pub(crate) struct ApiService {
    pub name: Str,
    pub group: Str,
    pub version: Str,
    pub group_priority: i64,
    pub version_priority: i64,
    /// The Service of the server; `None` if this server serves it.
    pub service: Option<ServiceReference>,
    trust: Trust,
    /// Its `Available` condition.
    pub available: bool,
    pub object: Value,
}

impl ApiService {
    fn parse(object: Value) -> ApiService {
        let spec = &object["spec"];
        let available = condition::is_true(&object["status"]["conditions"], "Available");
        let reference = &spec["service"];
        let trust = match spec["insecureSkipTLSVerify"].bool() {
            true => Trust::Anyone,
            false => Trust::bundle(STANDARD.decode(spec["caBundle"].str()).unwrap_or_default()),
        };
        ApiService {
            name: object["metadata"]["name"].str().into(),
            group: spec["group"].str().into(),
            version: spec["version"].str().into(),
            group_priority: spec["groupPriorityMinimum"].int(),
            version_priority: spec["versionPriority"].int(),
            service: (!reference.is_null()).then(|| ServiceReference::parse(reference)),
            trust,
            available,
            object,
        }
    }

    /// The path of its discovery document.
    pub(crate) fn path(&self) -> String {
        format!("/apis/{}/{}", self.group, self.version)
    }

    /// Resolves the address of the server. Without HTTP/2 the connection can be upgraded.
    pub(crate) fn target(&self, client: &OutgoingClient, http2: bool) -> Result<Target, Status> {
        let service = self.service.clone().unwrap_or_default();
        let address = client.services().resolve(&service)?;
        let (server_name, trust) = (service.host(), self.trust.clone());
        Ok(Target {
            address,
            server_name,
            trust,
            as_front_proxy: true,
            http2,
        })
    }
}
