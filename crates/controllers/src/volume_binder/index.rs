//! Indexes and event handlers: which claims and volumes are enqueued for an event.

use std::sync::Arc;

use mizzen_sdk::cache::{Entry, IndexFunction, by_field};
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;

use super::names::{claim_key, class};
use super::{PersistentVolumeController, RECYCLERS};
use crate::{Error, pod_index};

/// Claims by volume.
const OF_VOLUME: &str = "spec.volumeName";
/// Unbound claims by class.
const WAITING: &str = "waiting";
/// Volumes by claim.
const OF_CLAIM: &str = "claim";
/// Unclaimed volumes by class.
const FREE: &str = "free";
/// Volumes that are neither Available nor Bound.
const UNSETTLED: &str = "unsettled";
/// The name prefix of recycler pods.
const RECYCLER: &str = "recycler-for-";

impl PersistentVolumeController {
    /// Registers the event handlers.
    pub(super) fn register(self: &Arc<Self>) {
        pod_index::add_claim_index(&self.pods);
        self.claims.add_index(OF_VOLUME, by_field(OF_VOLUME));
        self.claims.add_index(
            WAITING,
            by(|claim| {
                let is_waiting = claim["status"]["phase"].str() != "Bound";
                is_waiting.then(|| class(claim).into())
            }),
        );
        self.volumes.add_index(OF_CLAIM, by(claim_key));
        self.volumes.add_index(
            FREE,
            by(|volume| claim_key(volume).is_none().then(|| class(volume).into())),
        );
        self.volumes.add_index(
            UNSETTLED,
            by(|volume| {
                let phase = volume["status"]["phase"].str();
                (!matches!(phase, "Available" | "Bound")).then(|| "yes".into())
            }),
        );
        let binder = self.clone();
        self.claims
            .add_handler(move |event: Event<Object>| binder.on_claim_event(&event));
        let binder = self.clone();
        self.volumes
            .add_handler(move |event: Event<Object>| binder.on_volume_event(&event));
        let binder = self.clone();
        self.classes.add_handler(move |event: Event<Object>| {
            binder.enqueue_waiting(&[event.key().name(), ""])
        });
        let binder = self.clone();
        self.pods
            .add_handler(move |event: Event<Object>| binder.on_pod_event(event.key()));
    }

    /// Enqueues everything that waits, so that its events are recorded again.
    pub(super) fn resync(&self) {
        let snapshot = self.claims.store().snapshot();
        let classes = snapshot.index_values(WAITING).into_iter().flatten();
        for class in classes {
            self.enqueue_waiting(&[class]);
        }
        self.enqueue_index(&self.volumes, UNSETTLED, "yes");
    }

    /// The volumes that may match a claim: those with a claimRef to it, and those of its class
    /// without a claimRef.
    pub(super) fn candidates(&self, claim: &Object) -> Result<Vec<Object>, Error> {
        let lister = self.volumes.lister();
        let mut volumes = Vec::new();
        for (index, value) in [
            (OF_CLAIM, claim.key().to_string()),
            (FREE, class(claim).to_string()),
        ] {
            let found = lister.by_index(index, &value).unwrap_or(Ok(Vec::new()))?;
            volumes.extend(found.iter().map(|volume| Object::clone(volume)));
        }
        Ok(volumes)
    }

    fn on_claim_event(&self, event: &Event<Object>) {
        self.queue.add(event.key().clone());
        if let Event::Deleted { last, .. } = event {
            let volume = last
                .object()
                .map(|claim| claim["spec"]["volumeName"].str().to_string());
            volume
                .into_iter()
                .filter(|name| !name.is_empty())
                .for_each(|name| self.queue.add(Key::cluster(name)));
            self.enqueue_index(&self.volumes, OF_CLAIM, &event.key().to_string());
        }
    }

    fn on_volume_event(&self, event: &Event<Object>) {
        self.queue.add(event.key().clone());
        let Ok(volume) = event.object().object() else {
            return;
        };
        match claim_key(&volume) {
            Some(claim) => claim
                .parse()
                .into_iter()
                .for_each(|claim| self.queue.add(claim)),
            None => self.enqueue_waiting(&[class(&volume)]),
        }
        self.enqueue_index(&self.claims, OF_VOLUME, volume.name());
    }

    fn on_pod_event(&self, pod: &Key) {
        let volume = pod
            .name()
            .strip_prefix(RECYCLER)
            .filter(|_| pod.namespace() == RECYCLERS);
        volume
            .into_iter()
            .for_each(|volume| self.queue.add(Key::cluster(volume)));
    }

    fn enqueue_waiting(&self, classes: &[&str]) {
        for class in classes {
            self.enqueue_index(&self.claims, WAITING, class);
        }
    }

    fn enqueue_index(&self, informer: &Informer<Object>, index: &str, value: &str) {
        for entry in informer
            .store()
            .by_index(index, value)
            .into_iter()
            .flatten()
        {
            self.queue.add(entry.key().clone());
        }
    }
}

fn by(value: impl Fn(&Value) -> Option<String> + Send + Sync + 'static) -> IndexFunction<Object> {
    Arc::new(move |entry: &Entry<Object>| {
        entry
            .object()
            .ok()
            .and_then(|object| value(&object))
            .into_iter()
            .collect()
    })
}
