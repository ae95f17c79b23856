//! Event handlers: which ReplicaSet is enqueued for an event of a pod, and which expectations it
//! fulfils.

use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::cache::DecodeError;
use mizzen_sdk::expectations::Expectations;
use mizzen_sdk::informer::{Event, HandlerOptions, Informer};
use mizzen_sdk::queue::Queue;
use mizzen_sdk::{Key, Object};

use super::SetKind;
use super::facts::{ControllerRef, PodFacts, PodFactsCache};
use crate::select;

/// The state that event handlers share with the controller.
#[derive(Clone)]
pub(super) struct ReplicaSetEventHandlers {
    pub set_kind: &'static SetKind,
    pub sets: Informer<Object>,
    pub known: Arc<PodFactsCache>,
    pub expectations: Arc<Expectations<Key>>,
    pub queue: Queue<Key>,
}

/// Expectations expire after this time.
pub(super) const EXPECTATIONS_TIMEOUT: Duration = Duration::from_secs(300);

impl ReplicaSetEventHandlers {
    /// Registers handlers for sets and pods.
    pub(super) fn register(&self, pods: &Informer<Object>) {
        let handlers = self.clone();
        self.sets
            .add_handler(move |event: Event<Object>| handlers.on_set(&event));
        let handlers = self.clone();
        let handler = move |event: Event<Object>| {
            if let Err(error) = handlers.on_pod(&event) {
                tracing::warn!(%error, "pod not decoded");
            }
        };
        // Events are not coalesced: a pod that was added and deleted must fulfil two expectations.
        pods.add_handler_with(
            handler,
            HandlerOptions {
                limit: 1_000_000,
                ..HandlerOptions::default()
            },
        );
    }

    fn on_set(&self, event: &Event<Object>) {
        let is_another = match event {
            Event::Added { .. } => false,
            Event::Updated { old, new } => old.uid() != new.uid(),
            Event::Deleted { .. } => true,
        };
        if is_another {
            self.expectations.forget(event.key());
        }
        self.queue.add(event.key().clone());
    }

    fn on_pod(&self, event: &Event<Object>) -> Result<(), DecodeError> {
        match event {
            Event::Added { object, .. } => self.on_pod_added(&*self.known.insert(object)?),
            Event::Updated { old, new } => {
                let old = self.known.get(old)?;
                self.on_pod_updated(&old, &*self.known.insert(new)?);
            }
            Event::Deleted { last, .. } => {
                let facts = self.known.get(last)?;
                self.known.remove(last.key());
                self.on_pod_deleted(&facts);
            }
        }
        Ok(())
    }

    fn on_pod_added(&self, pod: &PodFacts) {
        match &pod.controller {
            _ if pod.is_going => self.on_pod_deleted(pod),
            Some(owner) => {
                if let Some(set) = self.resolve_controller_ref(pod, owner) {
                    self.expectations.creation_observed(&set);
                    self.queue.add(set);
                }
            }
            None => self.enqueue_adopters(pod),
        }
    }

    fn on_pod_updated(&self, old: &PodFacts, new: &PodFacts) {
        if old == new {
            return;
        }
        if new.is_going {
            self.on_pod_deleted(new);
        }
        if old.controller != new.controller {
            self.enqueue_owner(old);
        }
        match &new.controller {
            Some(_) => self.enqueue_owner(new),
            None if old.controller.is_some() || old.labels != new.labels => {
                self.enqueue_adopters(new)
            }
            None => {}
        }
    }

    /// A deletionTimestamp counts as a deletion: the set creates a replacement without waiting for
    /// the end.
    fn on_pod_deleted(&self, pod: &PodFacts) {
        let set = pod
            .controller
            .as_ref()
            .and_then(|owner| self.resolve_controller_ref(pod, owner));
        if let Some(set) = set {
            self.expectations
                .deletion_observed(&set, &pod.key.to_string());
            self.queue.add(set);
        }
    }

    fn enqueue_owner(&self, pod: &PodFacts) {
        let set = pod
            .controller
            .as_ref()
            .and_then(|owner| self.resolve_controller_ref(pod, owner));
        set.into_iter().for_each(|set| self.queue.add(set));
    }

    /// The set of a controller reference, if it is of this kind and its uid matches.
    fn resolve_controller_ref(&self, pod: &PodFacts, owner: &ControllerRef) -> Option<Key> {
        if owner.kind != self.set_kind.kind.kind {
            return None;
        }
        let key = Key::new(pod.key.namespace(), owner.name.as_str());
        self.sets
            .store()
            .get(&key)
            .filter(|set| set.uid() == owner.uid)
            .map(|_| key)
    }

    /// Enqueues every set that may adopt an orphan.
    fn enqueue_adopters(&self, orphan: &PodFacts) {
        let (namespace, read) = (orphan.key.namespace(), self.set_kind.selector);
        let sets = select::objects_selecting(&self.sets, namespace, &orphan.labels, read);
        sets.into_iter().for_each(|set| self.queue.add(set.key()));
    }
}
