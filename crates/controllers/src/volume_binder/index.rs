//! Who is to be looked at when something changes? Nobody else.

use std::sync::Arc;

use mizzen_sdk::cache::{Entry, IndexFunction, by_field};
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;

use super::names::{claim_key, class};
use super::{Binder, RECYCLERS};
use crate::{Error, pod_index};

/// Claims by the volume that they name.
const OF_VOLUME: &str = "spec.volumeName";
/// Claims that wait, by class.
const WAITING: &str = "waiting";
/// Volumes by the claim that they name.
const OF_CLAIM: &str = "claim";
/// Volumes that name no claim, by class.
const FREE: &str = "free";
/// Volumes that are neither free nor bound.
const UNSETTLED: &str = "unsettled";
/// What pods that empty volumes are called.
const RECYCLER: &str = "recycler-for-";

impl Binder {
    /// Learns of changes.
    pub(super) fn listen(self: &Arc<Self>) {
        pod_index::add_claim(&self.pods);
        self.claims.add_index(OF_VOLUME, by_field(OF_VOLUME));
        self.claims.add_index(
            WAITING,
            by(|claim| is_waiting(claim).then(|| class(claim).into())),
        );
        self.volumes.add_index(OF_CLAIM, by(claim_key));
        self.volumes.add_index(
            FREE,
            by(|volume| claim_key(volume).is_none().then(|| class(volume).into())),
        );
        self.volumes.add_index(
            UNSETTLED,
            by(|volume| is_unsettled(volume).then(|| "yes".into())),
        );
        let binder = self.clone();
        self.claims
            .add_handler(move |event: Event<Object>| binder.claim_changed(&event));
        let binder = self.clone();
        self.volumes
            .add_handler(move |event: Event<Object>| binder.volume_changed(&event));
        let binder = self.clone();
        self.classes.add_handler(move |event: Event<Object>| {
            binder.wake_waiting(&[event.key().name(), ""])
        });
        let binder = self.clone();
        self.pods
            .add_handler(move |event: Event<Object>| binder.pod_changed(event.key()));
    }

    /// Looks again at whatever waits: it is told again that it does.
    pub(super) fn look_again(&self) {
        let snapshot = self.claims.store().snapshot();
        let classes = snapshot.index_values(WAITING).into_iter().flatten();
        for class in classes {
            self.wake_waiting(&[class]);
        }
        self.wake(&self.volumes, UNSETTLED, "yes");
    }

    /// The volumes that a claim could have: those that name it, and those of its class that name nobody.
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

    fn claim_changed(&self, event: &Event<Object>) {
        self.queue.add(event.key().clone());
        if let Event::Deleted { last, .. } = event {
            let volume = last
                .object()
                .map(|claim| claim["spec"]["volumeName"].str().to_string());
            volume
                .into_iter()
                .filter(|name| !name.is_empty())
                .for_each(|name| self.queue.add(Key::cluster(name)));
            self.wake(&self.volumes, OF_CLAIM, &event.key().to_string());
        }
    }

    fn volume_changed(&self, event: &Event<Object>) {
        self.queue.add(event.key().clone());
        let Ok(volume) = event.object().object() else {
            return;
        };
        match claim_key(&volume) {
            Some(claim) => claim
                .parse()
                .into_iter()
                .for_each(|claim| self.queue.add(claim)),
            None => self.wake_waiting(&[class(&volume)]),
        }
        self.wake(&self.claims, OF_VOLUME, volume.name());
    }

    fn pod_changed(&self, pod: &Key) {
        let volume = pod
            .name()
            .strip_prefix(RECYCLER)
            .filter(|_| pod.namespace() == RECYCLERS);
        volume
            .into_iter()
            .for_each(|volume| self.queue.add(Key::cluster(volume)));
    }

    fn wake_waiting(&self, classes: &[&str]) {
        for class in classes {
            self.wake(&self.claims, WAITING, class);
        }
    }

    fn wake(&self, informer: &Informer<Object>, index: &str, value: &str) {
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

fn is_waiting(claim: &Value) -> bool {
    claim["status"]["phase"].str() != "Bound"
}

fn is_unsettled(volume: &Value) -> bool {
    !matches!(volume["status"]["phase"].str(), "Available" | "Bound")
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
