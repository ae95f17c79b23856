//! Event handlers: which ReplicaSet is enqueued for an event of a pod, and which expectations it
//! fulfils.

use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::cache::DecodeError;
use mizzen_sdk::controller::objects_selecting;
use mizzen_sdk::expectations::Expectations;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::queue::Queue;
use mizzen_sdk::{Key, Object};

use super::SetKind;
use super::facts::{ControllerRef, PodFacts, PodFactsCache};

/// The state that event handlers share with the controller.
#[derive(Clone)]
pub(super) struct ReplicaSetEventHandlers {
    pub set_kind: &'static SetKind,
    pub sets: Informer<Object>,
    pub known: Arc<PodFactsCache>,
    pub expectations: Arc<Expectations<Key>>,
}

/// Expectations expire after this time.
pub(super) const EXPECTATIONS_TIMEOUT: Duration = Duration::from_secs(300);

impl ReplicaSetEventHandlers {
    /// Enqueues a set.
    pub(super) fn on_set(&self, event: &Event<Object>, queue: &Queue<Key>) {
        let is_another = match event {
            Event::Added { .. } => false,
            Event::Updated { old, new } => old.uid() != new.uid(),
            Event::Deleted { .. } => true,
        };
        if is_another {
            self.expectations.forget(event.key());
        }
        queue.add(event.key().clone());
    }

    /// Enqueues the set of a pod.
    pub(super) fn on_pod(&self, event: &Event<Object>, queue: &Queue<Key>) {
        if let Err(error) = self.try_on_pod(event, queue) {
            tracing::warn!(%error, "pod not decoded");
        }
    }

    fn try_on_pod(&self, event: &Event<Object>, queue: &Queue<Key>) -> Result<(), DecodeError> {
        match event {
            Event::Added { object, .. } => self.on_pod_added(&*self.known.insert(object)?, queue),
            Event::Updated { old, new } => {
                let old = self.known.get(old)?;
                self.on_pod_updated(&old, &*self.known.insert(new)?, queue);
            }
            Event::Deleted { last, .. } => {
                let facts = self.known.get(last)?;
                self.known.remove(last.key());
                self.on_pod_deleted(&facts, queue);
            }
        }
        Ok(())
    }

    fn on_pod_added(&self, pod: &PodFacts, queue: &Queue<Key>) {
        match &pod.controller {
            _ if pod.is_terminating => self.on_pod_deleted(pod, queue),
            Some(owner) => {
                if let Some(set) = self.resolve_controller_ref(pod, owner) {
                    self.expectations.creation_observed(&set);
                    queue.add(set);
                }
            }
            None => self.enqueue_adopters(pod, queue),
        }
    }

    fn on_pod_updated(&self, old: &PodFacts, new: &PodFacts, queue: &Queue<Key>) {
        if old == new {
            return;
        }
        if new.is_terminating {
            self.on_pod_deleted(new, queue);
        }
        if old.controller != new.controller {
            self.enqueue_owner(old, queue);
        }
        match &new.controller {
            Some(_) => self.enqueue_owner(new, queue),
            None if old.controller.is_some() || old.labels != new.labels => {
                self.enqueue_adopters(new, queue)
            }
            None => {}
        }
    }

    /// A deletionTimestamp counts as a deletion: the set creates a replacement without waiting for
    /// the end.
    fn on_pod_deleted(&self, pod: &PodFacts, queue: &Queue<Key>) {
        let set = pod
            .controller
            .as_ref()
            .and_then(|owner| self.resolve_controller_ref(pod, owner));
        if let Some(set) = set {
            self.expectations
                .deletion_observed(&set, &pod.key.to_string());
            queue.add(set);
        }
    }

    fn enqueue_owner(&self, pod: &PodFacts, queue: &Queue<Key>) {
        let set = pod
            .controller
            .as_ref()
            .and_then(|owner| self.resolve_controller_ref(pod, owner));
        set.into_iter().for_each(|set| queue.add(set));
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
    fn enqueue_adopters(&self, orphan: &PodFacts, queue: &Queue<Key>) {
        let (namespace, read) = (orphan.key.namespace(), self.set_kind.selector);
        let labels = orphan.labels.entries();
        let labels: Vec<_> = labels.map(|(label, value)| (label, value.str())).collect();
        let sets = objects_selecting(self.sets.store(), namespace, &labels, read);
        sets.into_iter().for_each(|set| queue.add(set.key()));
    }
}
