//! The garbage collector: deletes objects whose owners are gone, and completes foreground and
//! orphan deletions.
//!
//! The dependency `graph` handles all events and says which objects may have to be deleted. Workers
//! run `attempt_to_delete` and `attempt_to_orphan` on the live objects (`live`), and `decide` chooses the
//! action.
//!
//! Invariant: nothing is deleted because of the graph alone. An object is read before, and its uid
//! and resourceVersion are preconditions of the delete.

mod absent_owner_cache;
mod attempt_to_delete;
mod attempt_to_orphan;
mod decide;
mod graph;
mod identity;
mod live;
mod observed;

#[cfg(test)]
mod tests;

use parking_lot::Mutex;
use std::borrow::Cow;
use std::collections::HashSet;
use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::event::Note;
use mizzen_sdk::failure_log::FailureLog;
use mizzen_sdk::queue::Queue;
use mizzen_sdk::{Object, ResourceType};
use mizzen_value::{Value, value};

use crate::metadata_informers::{MetadataHandler, MetadataInformers, ObjectMetadataList};
use crate::{Controller, ControllerContext};
use attempt_to_delete::AttemptResult;
use graph::{Effect, Graph};
use identity::{ObjectIdentity, Uid};
use live::{CollectError, LiveObjects};

const N_DELETE_WORKERS: usize = 20;
const N_ORPHAN_WORKERS: usize = 5;
/// How long failures may last before they are logged at warn: some objects wait for the kinds of
/// their owners.
const WARN_AFTER: Duration = Duration::from_secs(60);

struct GarbageCollector {
    context: ControllerContext,
    live: LiveObjects,
    graph: Mutex<Graph>,
    to_delete: Queue<Uid>,
    to_orphan: Queue<Uid>,
    /// Objects with an owner of an unknown kind.
    unresolved: Mutex<HashSet<Uid>>,
    failures: FailureLog,
}

pub(crate) fn start(context: &ControllerContext) -> Controller {
    let context = context.named("generic-garbage-collector");
    let metadata_informers = context.metadata_informers().clone();
    let collector = Arc::new(GarbageCollector {
        live: LiveObjects::new(&context.api, &metadata_informers),
        context: context.named("garbage-collector-controller"),
        graph: Mutex::default(),
        to_delete: Queue::new("garbage_collector_attempt_to_delete"),
        to_orphan: Queue::new("garbage_collector_attempt_to_orphan"),
        unresolved: Mutex::default(),
        failures: FailureLog::after(WARN_AFTER),
    });
    metadata_informers.add_handler(Arc::new(Arc::downgrade(&collector)));
    let work = Controller::new(&context)
        .with_task(metadata_informers.clone().run())
        .with_metrics(collector.to_delete.clone())
        .with_metrics(collector.to_orphan.clone());
    let work = (0..N_DELETE_WORKERS).fold(work, |work, _| {
        work.with_task(
            collector
                .clone()
                .run_attempt_to_delete_worker(metadata_informers.clone()),
        )
    });
    (0..N_ORPHAN_WORKERS).fold(work, |work, _| {
        work.with_task(
            collector
                .clone()
                .run_attempt_to_orphan_worker(metadata_informers.clone()),
        )
    })
}

impl GarbageCollector {
    async fn run_attempt_to_delete_worker(
        self: Arc<GarbageCollector>,
        metadata_informers: MetadataInformers,
    ) {
        metadata_informers.wait_for_sync().await;
        while let Some(uid) = self.to_delete.get().await {
            match self.attempt_to_delete(&uid).await {
                Ok(AttemptResult::Done) | Err(CollectError::Misplaced) => {
                    self.failures.recovered();
                    self.to_delete.forget(&uid);
                }
                Ok(AttemptResult::Requeue) => self.to_delete.add_rate_limited(uid.clone()),
                Err(error) => self.requeue(&uid, &error),
            }
            self.to_delete.done(&uid);
        }
    }

    fn requeue(&self, uid: &Uid, error: &CollectError) {
        self.log_failure(uid, error, "attempt to delete failed");
        if matches!(error, CollectError::UnknownKind(_)) {
            self.unresolved.lock().insert(uid.clone());
        }
        self.to_delete.add_rate_limited(uid.clone());
    }

    /// Logs a failure: at warn if failures have lasted for a while, at most now and then.
    fn log_failure(&self, uid: &Uid, error: &CollectError, what: &str) {
        match self.failures.failed() {
            Some(unlogged) => tracing::warn!(%uid, %error, unlogged, "{what}"),
            None => tracing::debug!(%uid, %error, "{what}"),
        }
    }

    async fn run_attempt_to_orphan_worker(
        self: Arc<GarbageCollector>,
        metadata_informers: MetadataInformers,
    ) {
        metadata_informers.wait_for_sync().await;
        while let Some(uid) = self.to_orphan.get().await {
            match self.attempt_to_orphan(&uid).await {
                Ok(()) => self.to_orphan.forget(&uid),
                Err(error) => {
                    self.log_failure(&uid, &error, "attempt to orphan failed");
                    self.to_orphan.add_rate_limited(uid.clone());
                }
            }
            self.to_orphan.done(&uid);
        }
    }

    fn enqueue_effects(&self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::AttemptToDelete(uid) => self.to_delete.add(uid),
                Effect::AttemptToDeleteLater(uid) => self.to_delete.add_rate_limited(uid),
                Effect::AttemptToOrphan(uid) => self.to_orphan.add(uid),
                Effect::InvalidOwnerNamespace { dependent, owner } => {
                    self.record_invalid_namespace(&dependent, &owner)
                }
            }
        }
    }

    fn record_invalid_namespace(&self, dependent: &ObjectIdentity, owner: &ObjectIdentity) {
        let namespace = &dependent.namespace;
        let message = format!("ownerRef {owner} does not exist in namespace {namespace:?}");
        let (resource, object) = dependent.involved_object();
        self.context.record_event(
            &resource,
            &object,
            Note::warning("OwnerRefInvalidNamespace", "", message),
        );
    }
}

impl ObjectIdentity {
    /// The involved object of an event.
    fn involved_object(&self) -> (ResourceType, Object) {
        let api_version = &*self.kind.api_version;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let own = |text: &str| Cow::Owned(text.to_string());
        let resource = ResourceType {
            group: own(group),
            version: own(version),
            plural: own(""),
            kind: own(&self.kind.kind),
            namespaced: !self.namespace.is_empty(),
        };
        let (namespace, name) = (&*self.namespace, &*self.name);
        let uid = self.uid.to_string();
        let metadata = value!({ "namespace": namespace, "name": name, "uid": uid });
        (resource, Object(value!({ "metadata": metadata })))
    }
}

impl MetadataHandler for GarbageCollector {
    fn on_replace(&self, of: &ResourceType, objects: ObjectMetadataList) {
        let effects = {
            let mut graph = self.graph.lock();
            let kind = graph.kind(&of.api_version(), &of.kind);
            graph.on_replace(&kind, objects.iter())
        };
        self.enqueue_effects(effects);
    }

    fn on_update(&self, of: &ResourceType, object: &Value) {
        let effects = {
            let mut graph = self.graph.lock();
            let kind = graph.kind(&of.api_version(), &of.kind);
            graph.on_update(&kind, object)
        };
        self.enqueue_effects(effects);
    }

    fn on_delete(&self, _of: &ResourceType, object: &Value) {
        let effects = self
            .graph
            .lock()
            .on_delete(&object["metadata"]["uid"].str().into());
        self.enqueue_effects(effects);
    }

    fn on_watch_stopped(&self, of: &ResourceType) {
        let effects = {
            let mut graph = self.graph.lock();
            let kind = graph.kind(&of.api_version(), &of.kind);
            graph.on_watch_stopped(&kind)
        };
        self.enqueue_effects(effects);
    }

    /// An unresolved owner may be of a kind that discovery has now.
    fn on_discovery(&self) {
        for uid in take(&mut *self.unresolved.lock()) {
            self.to_delete.forget(&uid);
            self.to_delete.add(uid);
        }
    }
}
