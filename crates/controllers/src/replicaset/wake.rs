//! Which set has to look again when something happens to a pod?

use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::cache::DecodeError;
use mizzen_sdk::expectations::Expectations;
use mizzen_sdk::informer::{Event, HandlerOptions, Informer};
use mizzen_sdk::queue::Queue;
use mizzen_sdk::{Key, Object};

use super::Face;
use super::facts::{Facts, Known, Owner};
use crate::select;

/// What handlers share with the loop.
#[derive(Clone)]
pub(super) struct Wake {
    pub face: &'static Face,
    pub sets: Informer<Object>,
    pub known: Arc<Known>,
    pub expectations: Arc<Expectations<Key>>,
    pub queue: Queue<Key>,
}

/// After this time nobody waits any longer for what was expected.
pub(super) const PATIENCE: Duration = Duration::from_secs(300);

impl Wake {
    /// Listens to sets and pods.
    pub(super) fn listen(&self, pods: &Informer<Object>) {
        let wake = self.clone();
        self.sets
            .add_handler(move |event: Event<Object>| wake.on_set(&event));
        let wake = self.clone();
        let handler = move |event: Event<Object>| {
            if let Err(error) = wake.on_pod(&event) {
                tracing::warn!(%error, "cannot read a pod");
            }
        };
        // A pod that came and went must be heard of twice, or somebody waits for it: events are not joined.
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
            Event::Added { object, .. } => self.on_pod_added(&*self.known.note(object)?),
            Event::Updated { old, new } => {
                let old = self.known.of(old)?;
                self.on_pod_updated(&old, &*self.known.note(new)?);
            }
            Event::Deleted { last, .. } => {
                let facts = self.known.of(last)?;
                self.known.forget(last.key());
                self.on_pod_going(&facts);
            }
        }
        Ok(())
    }

    fn on_pod_added(&self, pod: &Facts) {
        match &pod.owner {
            _ if pod.is_going => self.on_pod_going(pod),
            Some(owner) => {
                if let Some(set) = self.set_of(pod, owner) {
                    self.expectations.creation_observed(&set);
                    self.queue.add(set);
                }
            }
            None => self.offer(pod),
        }
    }

    fn on_pod_updated(&self, old: &Facts, new: &Facts) {
        if old == new {
            return;
        }
        if new.is_going {
            self.on_pod_going(new);
        }
        if old.owner != new.owner {
            self.wake_owner(old);
        }
        match &new.owner {
            Some(_) => self.wake_owner(new),
            None if old.owner.is_some() || old.labels != new.labels => self.offer(new),
            None => {}
        }
    }

    /// To be deleted is as good as gone: the set makes another without waiting for the end.
    fn on_pod_going(&self, pod: &Facts) {
        let set = pod.owner.as_ref().and_then(|owner| self.set_of(pod, owner));
        if let Some(set) = set {
            self.expectations
                .deletion_observed(&set, &pod.key.to_string());
            self.queue.add(set);
        }
    }

    fn wake_owner(&self, pod: &Facts) {
        let set = pod.owner.as_ref().and_then(|owner| self.set_of(pod, owner));
        set.into_iter().for_each(|set| self.queue.add(set));
    }

    /// The set that an owner reference names, if it is one of ours and no other by the same name.
    fn set_of(&self, pod: &Facts, owner: &Owner) -> Option<Key> {
        if owner.kind != self.face.kind.kind {
            return None;
        }
        let key = Key::new(pod.key.namespace(), owner.name.as_str());
        self.sets
            .store()
            .get(&key)
            .filter(|set| set.uid() == owner.uid)
            .map(|_| key)
    }

    /// Wakes every set that could adopt an orphan.
    fn offer(&self, orphan: &Facts) {
        let (namespace, read) = (orphan.key.namespace(), self.face.selector);
        let sets = select::selecting(&self.sets, namespace, &orphan.labels, read);
        sets.into_iter().for_each(|set| self.queue.add(set.key()));
    }
}
