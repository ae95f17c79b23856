//! Which APIServices are there? What is stored, found by group and version.

use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mizzen_object::{Status, condition};
use mizzen_registry::{ListOptions, Registry, Resource, Revision};
use mizzen_value::{Str, Value};

use crate::catalog::Catalog;
use crate::outgoing::{Client, Service, Target, Trust};

/// The APIServices as they are stored.
pub(super) struct Configured {
    pub resource: Option<Resource>,
    kept: RwLock<Arc<Table>>,
}

impl Configured {
    pub(super) fn new(catalog: &Catalog) -> Configured {
        let resource = catalog.get("apiregistration.k8s.io", "v1", "apiservices");
        Configured {
            resource,
            kept: RwLock::default(),
        }
    }

    /// The APIServices at this moment. Only who comes first after a change reads them.
    pub(super) fn table(&self, registry: &Registry) -> Arc<Table> {
        let Some(resource) = &self.resource else {
            return Arc::default();
        };
        let revision = resource.space().snapshot().revision();
        let kept = self.kept.read().clone();
        if kept.revision == revision {
            return kept;
        }
        // With one that cannot be decoded, which is logged, the others are served as they were.
        let Ok(stored) = registry.list(resource, &ListOptions::default()) else {
            return kept;
        };
        let entries = stored
            .items
            .iter()
            .map(|object| Arc::new(Entry::parse(object.value())))
            .collect();
        let table = Arc::new(Table::new(revision, entries));
        *self.kept.write() = table.clone();
        table
    }
}

/// APIServices, by what they say.
#[derive(Default)]
pub(super) struct Table {
    /// Two tables with the same one are equal.
    pub revision: Revision,
    pub entries: Vec<Arc<Entry>>,
    remote: HashMap<(Str, Str), Arc<Entry>>,
}

impl Table {
    fn new(revision: Revision, entries: Vec<Arc<Entry>>) -> Table {
        let remote = entries.iter().filter(|entry| entry.service.is_some());
        let remote =
            remote.map(|entry| ((entry.group.clone(), entry.version.clone()), entry.clone()));
        Table {
            revision,
            remote: remote.collect(),
            entries,
        }
    }

    /// Whether anything is served by others.
    pub(super) fn has_remote(&self) -> bool {
        !self.remote.is_empty()
    }

    /// Who else serves a version of a group.
    pub(super) fn remote(&self, group: &str, version: &str) -> Option<Arc<Entry>> {
        if self.remote.is_empty() {
            return None;
        }
        self.remote.get(&(group.into(), version.into())).cloned()
    }

    /// The APIService of this name.
    pub(super) fn named(&self, name: &str) -> Option<&Arc<Entry>> {
        self.entries.iter().find(|entry| entry.name == name)
    }
}

/// One APIService.
pub(crate) struct Entry {
    pub name: Str,
    pub group: Str,
    pub version: Str,
    pub group_priority: i64,
    pub version_priority: i64,
    /// Who serves it; none if it is this server.
    pub service: Option<Service>,
    trust: Trust,
    /// Whether it was there when it was last looked for.
    pub available: bool,
    /// The object itself.
    pub object: Value,
}

impl Entry {
    fn parse(object: Value) -> Entry {
        let spec = &object["spec"];
        let available = condition::is_true(&object["status"]["conditions"], "Available");
        let reference = &spec["service"];
        let trust = match spec["insecureSkipTLSVerify"].bool() {
            true => Trust::Anyone,
            false => Trust::bundle(STANDARD.decode(spec["caBundle"].str()).unwrap_or_default()),
        };
        Entry {
            name: object["metadata"]["name"].str().into(),
            group: spec["group"].str().into(),
            version: spec["version"].str().into(),
            group_priority: spec["groupPriorityMinimum"].int(),
            version_priority: spec["versionPriority"].int(),
            service: (!reference.is_null()).then(|| Service::parse(reference)),
            trust,
            available,
            object,
        }
    }

    /// Where its discovery document is.
    pub(crate) fn path(&self) -> String {
        format!("/apis/{}/{}", self.group, self.version)
    }

    /// Where the server is now. Without HTTP/2 the connection can be upgraded.
    pub(crate) fn target(&self, client: &Client, http2: bool) -> Result<Target, Status> {
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
