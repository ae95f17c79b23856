//! The flow schemas and priority levels as stored now.
//!
//! Like the RBAC index, it follows the store: each read applies the writes since the last one.
//!
//! Invariant: a request is classified by every schema whose write was acknowledged before.

use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mizzen_registry::{Changed, FollowedChanges, Follower, Resource};
use mizzen_request::Attributes;
use mizzen_value::{Str, Value};

use super::flows::{FlowConfiguration, FlowSchema};
use super::server_concurrency::ServerConcurrency;

/// A revision before anything has been read.
const NEVER: u64 = u64::MAX;

/// The resources of the configuration objects.
#[derive(Clone)]
pub struct ConfigSources {
    pub(super) levels: Resource,
    pub(super) schemas: Resource,
}

impl ConfigSources {
    /// None if they are not served.
    pub(super) fn find(resource: impl Fn(&str) -> Option<Resource>) -> Option<ConfigSources> {
        Some(ConfigSources {
            levels: resource("prioritylevelconfigurations")?,
            schemas: resource("flowschemas")?,
        })
    }

    /// The revision of the last change.
    fn last_change(&self) -> u64 {
        Follower::last_change(&self.levels)
            .0
            .max(Follower::last_change(&self.schemas).0)
    }
}

/// The objects of a resource by name, as of the last read.
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

    /// Applies changes. Returns whether the configuration changed; a status does not count.
    fn catch_up(&mut self) -> bool {
        match self.follower.changes() {
            FollowedChanges::All(objects) => {
                self.objects = objects
                    .into_iter()
                    .map(|object| (name(&object), object))
                    .collect();
                true
            }
            FollowedChanges::Some(changed) => changed
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

/// The current configuration.
pub(super) struct ConfigConsumer {
    pub sources: ConfigSources,
    pub server: Arc<ServerConcurrency>,
    flows: RwLock<Arc<FlowConfiguration>>,
    /// Levels and schemas. The lock is held while the configuration changes.
    followed: Mutex<[ConfigObjects; 2]>,
    /// The last change that is included.
    shown: AtomicU64,
}

impl ConfigConsumer {
    pub(super) fn new(sources: ConfigSources, limit: usize) -> ConfigConsumer {
        let followed = [&sources.levels, &sources.schemas].map(ConfigObjects::new);
        ConfigConsumer {
            sources,
            server: Arc::new(ServerConcurrency::new(limit)),
            flows: RwLock::default(),
            followed: Mutex::new(followed),
            shown: AtomicU64::new(NEVER),
        }
    }

    /// The flow schema of a request.
    pub(super) fn classify(&self, attributes: &Attributes) -> Arc<FlowSchema> {
        self.catch_up();
        self.flows.read().find_schema(attributes).clone()
    }

    pub(super) fn flows(&self) -> Arc<FlowConfiguration> {
        self.catch_up();
        self.shown_flows()
    }

    /// Adjusts borrowing, and removes quiescing levels that are idle.
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
        // The previous holder of the lock may have applied the changes.
        if self.shown.load(Ordering::Acquire) == last {
            return;
        }
        let matters = followed.each_mut().map(ConfigObjects::catch_up);
        if matters.contains(&true) {
            self.digest_config(&followed);
        }
        self.shown.store(last, Ordering::Release);
    }

    /// Digests all objects together: they are few, and depend on one another.
    fn digest_config(&self, [levels, schemas]: &[ConfigObjects; 2]) {
        let (levels, schemas) = (levels.objects.values(), schemas.objects.values());
        let flows = FlowConfiguration::new(&self.shown_flows(), levels, schemas, &self.server);
        *self.flows.write() = Arc::new(flows);
    }

    fn shown_flows(&self) -> Arc<FlowConfiguration> {
        self.flows.read().clone()
    }
}
