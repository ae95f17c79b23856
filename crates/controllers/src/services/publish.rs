//! Writes planned EndpointSlices, and tracks the own writes.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mizzen_object::select::{LabelSelector, Requirement, SelectorOperator};
use mizzen_sdk::cache::{Entry, Version};
use mizzen_sdk::controller::{index_labels, select_objects};
use mizzen_sdk::dynamic::DeleteOptions;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::queue::Queue;
use mizzen_sdk::resource::ENDPOINT_SLICES;
use mizzen_sdk::write::{is_namespace_terminating, is_not_found, message};
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;

use super::slice::{MANAGED_BY, SERVICE_NAME, SliceChanges};
use crate::{ControllerContext, Error};

/// How long to wait for a write to reach the cache.
const PATIENCE: Duration = Duration::from_secs(30);

/// Writes the slices of one controller.
pub(crate) struct SlicePublisher {
    context: ControllerContext,
    slices: Informer<Object>,
    manager: &'static str,
    own: Arc<SliceTracker>,
}

impl SlicePublisher {
    /// Writes slices with the managed-by label `manager`. When another client changes one, the event
    /// handler enqueues its service after `delay`.
    pub(crate) fn new(
        context: &ControllerContext,
        manager: &'static str,
        delay: Duration,
    ) -> (
        SlicePublisher,
        impl FnMut(&Event<Object>, &Queue<Key>) + Send + use<>,
    ) {
        let slices = context.informer(&ENDPOINT_SLICES);
        index_labels(&slices);
        let own = Arc::<SliceTracker>::default();
        let known = own.clone();
        let handler = move |event: &Event<Object>, queue: &Queue<Key>| {
            for key in services_of_foreign_change(event, manager, &known) {
                queue.add_after(key, delay);
            }
        };
        let publisher = SlicePublisher {
            context: context.clone(),
            slices,
            manager,
            own,
        };
        (publisher, handler)
    }

    /// The slices of a service that are not being deleted.
    pub(crate) fn slices(&self, key: &Key) -> Result<Vec<Arc<Object>>, Error> {
        let is = |label: &str, value: &str| Requirement {
            key: label.into(),
            operator: SelectorOperator::In(vec![value.into()]),
        };
        let requirements = vec![is(SERVICE_NAME, key.name()), is(MANAGED_BY, self.manager)];
        let mut slices = select_objects(
            &self.slices,
            key.namespace(),
            &LabelSelector { requirements },
        )?;
        slices.retain(|slice| !slice.is_terminating() && !self.own.is_gone(slice.uid()));
        Ok(slices)
    }

    /// Applies the changes for `owner`. Creates nothing for an owner that is being deleted.
    pub(crate) async fn publish(
        &self,
        (kind, owner): (&str, &Object),
        changes: SliceChanges<'_>,
    ) -> Result<(), Error> {
        let of = format!("EndpointSlice for {kind} {}", owner.key());
        let failed = |what: String, error: &kube::Error| {
            Error::other(format!("failed to {what}: {}", message(error)))
        };
        for slice in changes.create.iter().filter(|_| !owner.is_terminating()) {
            match self.context.api.create(&ENDPOINT_SLICES, slice).await {
                Ok(slice) => self.track_and_wait(&slice).await?,
                Err(error) if is_namespace_terminating(&error) => return Ok(()),
                Err(error) => return Err(failed(format!("create {of}"), &error)),
            }
        }
        for slice in changes.update.into_iter().map(Object) {
            match self.context.api.update(&ENDPOINT_SLICES, &slice).await {
                Ok(slice) => self.track_and_wait(&slice).await?,
                Err(error) => return Err(failed(format!("update {} {of}", slice.name()), &error)),
            }
        }
        for slice in changes.delete {
            let name = slice["metadata"]["name"].str();
            let deleted = self.delete(slice).await;
            deleted.map_err(|error| failed(format!("delete {name} {of}"), &error))?;
        }
        Ok(())
    }

    /// Deletes a slice. It counts as deleted from then on, even while the cache has it.
    pub(crate) async fn delete(&self, slice: &Value) -> Result<(), kube::Error> {
        let metadata = &slice["metadata"];
        let key = Key::new(metadata["namespace"].str(), metadata["name"].str());
        let uid = metadata["uid"].str();
        self.own.note(uid, None);
        let api = &self.context.api;
        match api
            .delete(&ENDPOINT_SLICES, &key, &DeleteOptions::default())
            .await
        {
            Ok(_) => Ok(()),
            Err(error) => {
                // It was not deleted, or was gone before: no event of our own deletion will come.
                self.own.forget(uid);
                if is_not_found(&error) {
                    Ok(())
                } else {
                    Err(error)
                }
            }
        }
    }

    /// Waits until the cache has the write, so that it is not repeated.
    async fn track_and_wait(&self, slice: &Object) -> Result<(), Error> {
        let version = Version::parse(slice.version());
        self.own.note(slice.uid(), Some(version));
        match self.slices.has_write_within(PATIENCE, slice).await {
            true => Ok(()),
            false => Err(Error::other("EndpointSlice informer cache is out of date")),
        }
    }
}

/// The controller's own writes by uid: the written resourceVersion, or none for a deletion.
#[derive(Default)]
struct SliceTracker(Mutex<HashMap<String, Option<Version>>>);

impl SliceTracker {
    fn note(&self, uid: &str, version: Option<Version>) {
        self.0.lock().insert(uid.into(), version);
    }

    fn is_gone(&self, uid: &str) -> bool {
        self.0.lock().get(uid).is_some_and(Option::is_none)
    }

    fn has_written(&self, slice: &Entry<Object>) -> bool {
        self.0.lock().get(slice.uid()) == Some(&Some(slice.version()))
    }

    /// Forgets a slice; whether the controller deleted it.
    fn forget(&self, uid: &str) -> bool {
        self.0
            .lock()
            .remove(uid)
            .is_some_and(|version| version.is_none())
    }
}

/// The services of slices that another client changed.
fn services_of_foreign_change(
    event: &Event<Object>,
    manager: &str,
    own: &SliceTracker,
) -> Vec<Key> {
    let read = |entry: &Entry<Object>| entry.object().unwrap_or_default();
    let is_managed = |slice: &Object| slice.label(MANAGED_BY) == Some(manager);
    let service = |slice: &Object| {
        let name = slice.label(SERVICE_NAME).filter(|name| !name.is_empty());
        name.map(|name| Key::new(slice.namespace(), name))
    };
    let found = match event {
        Event::Added { object, .. } if !own.has_written(object) => {
            let slice = read(object);
            vec![service(&slice).filter(|_| is_managed(&slice))]
        }
        Event::Updated { old, new } => {
            let (old, slice) = (read(old), read(new));
            let is_ours = is_managed(&slice) && !own.has_written(new);
            match service(&old) == service(&slice) {
                false => vec![service(&old), service(&slice)],
                true => vec![
                    service(&slice).filter(|_| is_ours || is_managed(&old) != is_managed(&slice)),
                ],
            }
        }
        Event::Deleted { last, .. } if !own.forget(last.uid()) => {
            let slice = read(last);
            vec![service(&slice).filter(|_| is_managed(&slice))]
        }
        _ => Vec::new(),
    };
    found.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use mizzen_value::{json, value};

    use super::*;

    const MANAGER: &str = "me";

    fn slice(service: &str, manager: &str, version: &str) -> Entry<Object> {
        let labels = value!({"kubernetes.io/service-name": (service), "endpointslice.kubernetes.io/managed-by": (manager)});
        let metadata = value!({
            "namespace": "a", "name": "s-1", "uid": "u", "resourceVersion": (version), "labels": (labels)
        });
        Entry::new(json::to_string(&value!({"metadata": (metadata)})).into_bytes())
            .expect("it is JSON")
    }

    /// The enqueued services, if the controller wrote version 7.
    #[track_caller]
    fn check(event: Event<Object>, expect: &[&str]) {
        let own = SliceTracker::default();
        own.note("u", Some(Version(7)));
        let keys: Vec<String> = services_of_foreign_change(&event, MANAGER, &own)
            .iter()
            .map(Key::to_string)
            .collect();
        assert_eq!(keys, expect);
    }

    #[test]
    fn own_writes_enqueue_nothing() {
        let added = |version: &str| Event::Added {
            object: slice("web", MANAGER, version),
            initial: false,
        };
        check(added("7"), &[]);
        check(added("8"), &["a/web"]);
        let updated = |old: Entry<Object>, new: Entry<Object>| Event::Updated { old, new };
        check(
            updated(slice("web", MANAGER, "6"), slice("web", MANAGER, "7")),
            &[],
        );
        check(
            updated(slice("web", MANAGER, "7"), slice("web", MANAGER, "8")),
            &["a/web"],
        );
    }

    #[test]
    fn slices_of_other_controllers_are_ignored_unless_they_were_ours() {
        let updated = |old: Entry<Object>, new: Entry<Object>| Event::Updated { old, new };
        check(
            Event::Added {
                object: slice("web", "other", "8"),
                initial: false,
            },
            &[],
        );
        check(
            updated(slice("web", "other", "7"), slice("web", "other", "8")),
            &[],
        );
        check(
            updated(slice("web", MANAGER, "7"), slice("web", "other", "8")),
            &["a/web"],
        );
        check(
            updated(slice("web", MANAGER, "7"), slice("shop", MANAGER, "8")),
            &["a/web", "a/shop"],
        );
    }

    #[test]
    fn a_deletion_by_another_client_enqueues_the_service() {
        let deleted = || Event::Deleted {
            last: slice("web", MANAGER, "8"),
            final_state_unknown: false,
        };
        check(deleted(), &["a/web"]);
        let own = SliceTracker::default();
        own.note("u", None);
        assert!(own.is_gone("u"));
        assert!(services_of_foreign_change(&deleted(), MANAGER, &own).is_empty());
        assert!(!own.is_gone("u"), "then it is forgotten");
    }
}
