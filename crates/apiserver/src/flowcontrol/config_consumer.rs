//! Flow schemas and priority levels as of now.
//!
//! Like the index of roles this follows the store: before it is read it takes in what was written since.
//!
//! Invariant: whoever is classified is so by every schema that was acknowledged before.

use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mizzen_registry::{Changed, Changes, Follower, Resource};
use mizzen_value::{Str, Value};

use super::flows::{FlowConfiguration, FlowSchema};
use super::server_concurrency::ServerConcurrency;
use crate::authorization::Attributes;
use crate::catalog::Catalog;

/// A revision at which nothing has been read yet.
const NEVER: u64 = u64::MAX;
const GROUP: &str = "flowcontrol.apiserver.k8s.io";

/// Where schemas and levels are kept.
#[derive(Clone)]
pub(super) struct ConfigSources {
    pub levels: Resource,
    pub schemas: Resource,
}

impl ConfigSources {
    /// None if they are not served.
    pub(super) fn find(catalog: &Catalog) -> Option<ConfigSources> {
        let get = |plural: &str| catalog.get(GROUP, "v1", plural);
        Some(ConfigSources {
            levels: get("prioritylevelconfigurations")?,
            schemas: get("flowschemas")?,
        })
    }

    /// When something of it last changed.
    fn last_change(&self) -> u64 {
        Follower::last_change(&self.levels)
            .0
            .max(Follower::last_change(&self.schemas).0)
    }
}

/// The objects of a resource by name, as they were when last looked at.
struct ConfigObjects {
    follower: Follower,
    objects: BTreeMap<Str, Value>,
}

impl ConfigObjects {
    fn new(resource: &Resource) -> ConfigObjects {
        ConfigObjects {
            follower: Follower::new(resource.clone()),
            objects: BTreeMap::new(),
        }
    }

    /// Takes in what has changed. Returns whether it matters: the status does not.
    fn catch_up(&mut self) -> bool {
        match self.follower.changes() {
            Changes::All(objects) => {
                self.objects = objects
                    .into_iter()
                    .map(|object| (name(&object), object))
                    .collect();
                true
            }
            Changes::Some(changed) => changed
                .into_iter()
                .fold(false, |matters, change| self.apply_change(change) | matters),
        }
    }

    fn apply_change(&mut self, Changed { before, after }: Changed) -> bool {
        let said = |object: &Option<Value>| {
            object
                .as_ref()
                .map(|it| (it["spec"].clone(), it.at("metadata.uid").clone()))
        };
        let matters = said(&before) != said(&after);
        before
            .iter()
            .for_each(|object| drop(self.objects.remove(&name(object))));
        self.objects
            .extend(after.map(|object| (name(&object), object)));
        matters
    }
}

fn name(object: &Value) -> Str {
    object.at("metadata.name").str().into()
}

/// The configuration as of now.
pub(super) struct ConfigConsumer {
    pub sources: ConfigSources,
    pub house: Arc<ServerConcurrency>,
    flows: RwLock<Arc<FlowConfiguration>>,
    /// Levels and schemas. Held by whoever changes the flows.
    followed: Mutex<[ConfigObjects; 2]>,
    /// The last change that they show.
    shown: AtomicU64,
}

impl ConfigConsumer {
    pub(super) fn new(sources: ConfigSources, limit: usize) -> ConfigConsumer {
        let followed = [&sources.levels, &sources.schemas].map(ConfigObjects::new);
        ConfigConsumer {
            sources,
            house: Arc::new(ServerConcurrency::new(limit)),
            flows: RwLock::default(),
            followed: Mutex::new(followed),
            shown: AtomicU64::new(NEVER),
        }
    }

    /// The schema that a request is of.
    pub(super) fn classify(&self, asked: &Attributes) -> Arc<FlowSchema> {
        self.catch_up();
        self.flows.read().find_schema(asked).clone()
    }

    /// All that is configured now.
    pub(super) fn flows(&self) -> Arc<FlowConfiguration> {
        self.catch_up();
        self.shown_flows()
    }

    /// Lets levels lend and borrow, and forgets those that are no longer configured once they are empty.
    pub(super) fn update_borrowing(&self) {
        let followed = self.followed.lock();
        let flows = self.shown_flows();
        match flows.has_idle_quiescing_level() {
            true => self.digest_config(&followed),
            false => flows.update_borrowing(),
        }
    }

    fn catch_up(&self) {
        let last = self.sources.last_change();
        if self.shown.load(Ordering::Acquire) == last {
            return;
        }
        let mut followed = self.followed.lock();
        // Whoever held the lock before may have done the work.
        if self.shown.load(Ordering::Acquire) == last {
            return;
        }
        let matters = followed.each_mut().map(ConfigObjects::catch_up);
        if matters.contains(&true) {
            self.digest_config(&followed);
        }
        self.shown.store(last, Ordering::Release);
    }

    /// All objects together: they are few, and depend on one another.
    fn digest_config(&self, [levels, schemas]: &[ConfigObjects; 2]) {
        let (levels, schemas) = (levels.objects.values(), schemas.objects.values());
        let flows = FlowConfiguration::new(&self.shown_flows(), levels, schemas, &self.house);
        *self.flows.write() = Arc::new(flows);
    }

    fn shown_flows(&self) -> Arc<FlowConfiguration> {
        self.flows.read().clone()
    }
}
