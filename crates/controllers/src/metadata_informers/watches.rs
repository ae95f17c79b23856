//! The watches of the metadata informers: one for each kind in discovery, started and stopped as
//! discovery changes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mizzen_sdk::cache::{Entry, Version};
use mizzen_sdk::fifo::Delta;
use mizzen_sdk::watch::{ListWatch, Reflector, Sink};
use mizzen_sdk::{Object, ResourceType};
use mizzen_value::{Value, json};
use tokio::task::{AbortHandle, JoinSet};

use super::{DiscoveredKinds, MetadataInformersShared};

/// Resources that are never watched: there are many of them, they have no owners, and they expire
/// by themselves.
const IGNORED_RESOURCES: [(&str, &str); 2] = [("", "events"), ("events.k8s.io", "events")];
/// Resources whose changes may change discovery.
const CHANGES_DISCOVERY: [(&str, &str); 2] = [
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("apiregistration.k8s.io", "apiservices"),
];
/// Metadata that no handler needs.
const DROPPED_METADATA: [&str; 3] = ["managedFields", "annotations", "labels"];

/// The running watches.
#[derive(Default)]
pub(super) struct MetadataWatches {
    kinds: HashMap<ResourceType, MetadataWatch>,
    tasks: JoinSet<()>,
}

struct MetadataWatch {
    task: AbortHandle,
    is_known: Arc<AtomicBool>,
}

impl MetadataWatches {
    /// Starts and stops watches so that every discovered kind has one.
    pub(super) fn sync_watches(
        &mut self,
        metadata_informers: &Arc<MetadataInformersShared>,
        served: &DiscoveredKinds,
    ) {
        // In the order of discovery, so that a simulation starts them in the same order in every run.
        let watched: Vec<&ResourceType> = served
            .preferred(&["delete", "list", "watch"])
            .map(|kind| &kind.resource)
            .filter(|resource| !IGNORED_RESOURCES.contains(&(&resource.group, &resource.plural)))
            .collect();
        let wanted: HashSet<&ResourceType> = watched.iter().copied().collect();
        // The kinds of a group that failed discovery may still exist.
        let is_lost = |resource: &ResourceType| {
            !wanted.contains(resource) && !served.failures.contains_key(&resource.api_version())
        };
        let lost: Vec<ResourceType> = self
            .kinds
            .keys()
            .filter(|resource| is_lost(resource))
            .cloned()
            .collect();
        lost.iter()
            .for_each(|resource| self.stop_watch(metadata_informers, resource));
        watched
            .into_iter()
            .for_each(|resource| self.start_watch(metadata_informers, resource));
    }

    fn start_watch(
        &mut self,
        metadata_informers: &Arc<MetadataInformersShared>,
        resource: &ResourceType,
    ) {
        if self.kinds.contains_key(resource) {
            return;
        }
        let mut source: ListWatch<Object> =
            ListWatch::at(metadata_informers.client.clone(), resource.path(""));
        source.forget_managed_fields = true;
        source.metadata_only = true;
        let is_known = Arc::new(AtomicBool::new(false));
        let teller = HandlerSink {
            metadata_informers: metadata_informers.clone(),
            of: resource.clone(),
            is_known: is_known.clone(),
        };
        let reflector = Reflector::new(source, teller);
        let task = self.tasks.spawn(async move {
            reflector.run().await;
        });
        metadata_informers
            .progress
            .send_modify(|progress| progress.n_followed += 1);
        self.kinds
            .insert(resource.clone(), MetadataWatch { task, is_known });
    }

    fn stop_watch(
        &mut self,
        metadata_informers: &Arc<MetadataInformersShared>,
        resource: &ResourceType,
    ) {
        let Some(followed) = self.kinds.remove(resource) else {
            return;
        };
        followed.task.abort();
        metadata_informers.progress.send_modify(|progress| {
            progress.n_followed -= 1;
            progress.n_known -= usize::from(followed.is_known.load(Ordering::Acquire));
        });
        metadata_informers.notify(|listener| listener.on_watch_stopped(resource));
    }
}

/// The metadata of all objects of a kind. Objects are decoded one at a time, because there may be
/// many.
#[derive(Clone, Copy)]
pub(crate) struct ObjectMetadataList<'a>(&'a [Entry<Object>]);

impl<'a> ObjectMetadataList<'a> {
    /// The metadata of each object.
    pub(crate) fn iter(self) -> impl Iterator<Item = Value> + 'a {
        self.0.iter().filter_map(decode)
    }
}

/// Passes the events of one kind to the handlers.
struct HandlerSink {
    metadata_informers: Arc<MetadataInformersShared>,
    of: ResourceType,
    is_known: Arc<AtomicBool>,
}

impl HandlerSink {
    fn rediscover(&self) {
        if CHANGES_DISCOVERY.contains(&(&self.of.group, &self.of.plural)) {
            self.metadata_informers.rediscover.notify_one();
        }
    }
}

impl Sink<Object> for HandlerSink {
    fn replace(&mut self, entries: Vec<Entry<Object>>, _version: Version) {
        self.metadata_informers
            .notify(|listener| listener.on_replace(&self.of, ObjectMetadataList(&entries)));
        if !self.is_known.swap(true, Ordering::AcqRel) {
            self.metadata_informers
                .progress
                .send_modify(|progress| progress.n_known += 1);
        }
        self.rediscover();
    }

    fn change(&mut self, delta: Delta<Object>) {
        let Some(object) = decode(delta.entry()) else {
            return;
        };
        match delta.is_gone() {
            true => self
                .metadata_informers
                .notify(|listener| listener.on_delete(&self.of, &object)),
            false => self
                .metadata_informers
                .notify(|listener| listener.on_update(&self.of, &object)),
        }
        self.rediscover();
    }

    fn bookmark(&mut self, _version: Version) {}
}

fn decode(entry: &Entry<Object>) -> Option<Value> {
    let read = json::outline(entry.text(), &DROPPED_METADATA);
    read.inspect_err(
        |error| tracing::debug!(key = %entry.key(), %error, "object metadata not decoded"),
    )
    .ok()
}
