//! Following many kinds: each begins when the server has it, and ends when the server has it no more.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mizzen_sdk::cache::{Entry, Version};
use mizzen_sdk::fifo::Delta;
use mizzen_sdk::watch::{ListWatch, Reflector, Sink};
use mizzen_sdk::{Object, Resource};
use mizzen_value::{Value, json};
use tokio::task::{AbortHandle, JoinSet};

use super::{Inner, Served};

/// What is never followed: there is much of it, nobody owns it, and it goes by itself.
const IGNORED: [(&str, &str); 2] = [("", "events"), ("events.k8s.io", "events")];
/// Kinds of which new ones may mean that there are new kinds.
const MAKES_KINDS: [(&str, &str); 2] = [
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("apiregistration.k8s.io", "apiservices"),
];
/// Parts of metadata in which nobody who listens is interested.
const UNINTERESTING: [&str; 3] = ["managedFields", "annotations", "labels"];

/// The kinds that are followed.
#[derive(Default)]
pub(super) struct Following {
    kinds: HashMap<Resource, Followed>,
    tasks: JoinSet<()>,
}

struct Followed {
    task: AbortHandle,
    is_known: Arc<AtomicBool>,
}

impl Following {
    /// Begins and ends to follow kinds, so that all those are followed that there are.
    pub(super) fn adjust(&mut self, census: &Arc<Inner>, served: &Served) {
        let wanted: HashSet<&Resource> = served
            .preferred(&["delete", "list", "watch"])
            .map(|kind| &kind.resource)
            .filter(|resource| !IGNORED.contains(&(&resource.group, &resource.plural)))
            .collect();
        // A group of which nothing can be said now may still be there.
        let is_lost = |resource: &Resource| {
            !wanted.contains(resource) && !served.failures.contains_key(&resource.api_version())
        };
        let lost: Vec<Resource> = self
            .kinds
            .keys()
            .filter(|resource| is_lost(resource))
            .cloned()
            .collect();
        lost.iter().for_each(|resource| self.end(census, resource));
        wanted
            .into_iter()
            .for_each(|resource| self.begin(census, resource));
    }

    fn begin(&mut self, census: &Arc<Inner>, resource: &Resource) {
        if self.kinds.contains_key(resource) {
            return;
        }
        let mut source: ListWatch<Object> = ListWatch::at(census.client.clone(), resource.path(""));
        source.forget_managed_fields = true;
        source.metadata_only = true;
        let is_known = Arc::new(AtomicBool::new(false));
        let teller = Teller {
            census: census.clone(),
            of: resource.clone(),
            is_known: is_known.clone(),
        };
        let reflector = Reflector::new(source, teller);
        let task = self.tasks.spawn(async move {
            reflector.run().await;
        });
        census
            .progress
            .send_modify(|progress| progress.n_followed += 1);
        self.kinds
            .insert(resource.clone(), Followed { task, is_known });
    }

    fn end(&mut self, census: &Arc<Inner>, resource: &Resource) {
        let Some(followed) = self.kinds.remove(resource) else {
            return;
        };
        followed.task.abort();
        census.progress.send_modify(|progress| {
            progress.n_followed -= 1;
            progress.n_known -= usize::from(followed.is_known.load(Ordering::Acquire));
        });
        census.tell(|listener| listener.forgotten(resource));
    }
}

/// All objects of a kind. They are read one after the other: there may be very many.
#[derive(Clone, Copy)]
pub(crate) struct Listed<'a>(&'a [Entry<Object>]);

impl<'a> Listed<'a> {
    /// What is known of each.
    pub(crate) fn iter(self) -> impl Iterator<Item = Value> + 'a {
        self.0.iter().filter_map(read)
    }
}

/// Tells listeners of the objects of one kind.
struct Teller {
    census: Arc<Inner>,
    of: Resource,
    is_known: Arc<AtomicBool>,
}

impl Teller {
    fn wake(&self) {
        if MAKES_KINDS.contains(&(&self.of.group, &self.of.plural)) {
            self.census.wake.notify_one();
        }
    }
}

impl Sink<Object> for Teller {
    fn replace(&mut self, entries: Vec<Entry<Object>>, _version: Version) {
        self.census
            .tell(|listener| listener.replaced(&self.of, Listed(&entries)));
        if !self.is_known.swap(true, Ordering::AcqRel) {
            self.census
                .progress
                .send_modify(|progress| progress.n_known += 1);
        }
        self.wake();
    }

    fn change(&mut self, delta: Delta<Object>) {
        let Some(object) = read(delta.entry()) else {
            return;
        };
        match delta.is_gone() {
            true => self
                .census
                .tell(|listener| listener.gone(&self.of, &object)),
            false => self
                .census
                .tell(|listener| listener.changed(&self.of, &object)),
        }
        self.wake();
    }

    fn bookmark(&mut self, _version: Version) {}
}

fn read(entry: &Entry<Object>) -> Option<Value> {
    let read = json::outline(entry.text(), &UNINTERESTING);
    read.inspect_err(|error| tracing::debug!(key = %entry.key(), %error, "cannot be read"))
        .ok()
}
