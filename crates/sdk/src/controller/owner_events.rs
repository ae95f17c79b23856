//! Which owners are enqueued for an event of a dependent.
//!
//! The owner is the controller in the owner references, by group, kind and uid. For an orphan those
//! that may adopt it are enqueued, where a controller has a selector.

use std::collections::HashMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::selector_index::{ReadSelector, objects_selecting};
use crate::accessor::Accessor;
use crate::cache::{Entry, Store, field};
use crate::informer::Event;
use crate::key::Key;
use crate::resource::ResourceType;

/// Finds the owners of a kind.
pub(super) struct Owners<K> {
    pub resource: ResourceType,
    /// The owners. Not their informer: a handler that keeps an informer would never end.
    pub store: Store<K>,
    /// Reads the selectors of owners that adopt orphans; their store has the selector index.
    pub selector: Option<ReadSelector<K>>,
}

/// The metadata by which owners are found.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct OwnedMetadata {
    labels: HashMap<String, String>,
    owner_references: Vec<OwnerRef>,
    deletion_timestamp: Option<String>,
}

#[derive(Deserialize, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
struct OwnerRef {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
    controller: bool,
}

impl OwnedMetadata {
    fn read<D>(entry: &Entry<D>) -> OwnedMetadata {
        field::read(entry.text(), &["metadata"])
            .ok()
            .flatten()
            .unwrap_or_default()
    }

    fn controller(&self) -> Option<&OwnerRef> {
        self.owner_references.iter().find(|owner| owner.controller)
    }
}

impl<K: Accessor + DeserializeOwned> Owners<K> {
    /// The keys of the owners for an event of a dependent. After an update the previous owner is
    /// enqueued, too.
    pub(super) fn for_event<D>(&self, event: &Event<D>) -> Vec<Key> {
        let namespace = event.key().namespace();
        match event {
            Event::Added { object, .. } => {
                self.of_dependent(namespace, &OwnedMetadata::read(object), true)
            }
            Event::Deleted { last, .. } => {
                let metadata = OwnedMetadata::read(last);
                self.controller(namespace, &metadata).into_iter().collect()
            }
            Event::Updated { old, new } if old.version() == new.version() => {
                self.of_dependent(namespace, &OwnedMetadata::read(new), false)
            }
            Event::Updated { old, new } => {
                let (old, new) = (OwnedMetadata::read(old), OwnedMetadata::read(new));
                let is_changed =
                    old.labels != new.labels || old.owner_references != new.owner_references;
                let mut keys = self.of_dependent(namespace, &new, is_changed);
                keys.extend(
                    self.controller(namespace, &old)
                        .filter(|key| !keys.contains(key)),
                );
                keys
            }
        }
    }

    fn of_dependent(&self, namespace: &str, metadata: &OwnedMetadata, is_new: bool) -> Vec<Key> {
        match (self.selector, metadata.controller()) {
            (Some(selector), None) if is_new && metadata.deletion_timestamp.is_none() => {
                let labels = metadata.labels.iter();
                let labels: Vec<(&str, &str)> = labels.map(|(k, v)| (&**k, &**v)).collect();
                let owners = objects_selecting(&self.store, namespace, &labels, selector);
                owners.iter().map(|owner| owner.key()).collect()
            }
            _ => self.controller(namespace, metadata).into_iter().collect(),
        }
    }

    /// The key of the controller, if it is of this kind. The cache may lack it: then it is enqueued
    /// nevertheless. Another object of the same name is not the owner.
    fn controller(&self, namespace: &str, metadata: &OwnedMetadata) -> Option<Key> {
        let owner = metadata.controller()?;
        let group = owner
            .api_version
            .split_once('/')
            .map_or("", |(group, _)| group);
        if owner.kind != self.resource.kind || group != self.resource.group {
            return None;
        }
        let namespace = if self.resource.namespaced {
            namespace
        } else {
            ""
        };
        let key = Key::new(namespace, &*owner.name);
        let is_other = self
            .store
            .get(&key)
            .is_some_and(|known| known.uid() != owner.uid);
        (!is_other).then_some(key)
    }
}

#[cfg(test)]
mod tests {
    use mizzen_object::select::LabelSelector;

    use super::super::selector_index::index_selectors;
    use super::*;
    use crate::object::Object;
    use crate::resource::STATEFUL_SETS;

    fn entry(text: &str) -> Entry<Object> {
        Entry::new(text.as_bytes()).expect("JSON")
    }

    /// A pod with labels that `web` of namespace `a` selects.
    fn pod(owner: &str, version: u64) -> Entry<Object> {
        let owners = match owner.split_once('/') {
            None => String::new(),
            Some((kind, name)) => {
                format!(
                    r#"{{"apiVersion": "apps/v1", "kind": "{kind}", "name": "{name}", "uid": "u-{name}", "controller": true}}"#
                )
            }
        };
        entry(&format!(
            r#"{{"metadata": {{"name": "p", "namespace": "a", "resourceVersion": "{version}", "labels": {{"app": "web"}}, "ownerReferences": [{owners}]}}}}"#
        ))
    }

    #[track_caller]
    fn check(event: Event<Object>, expect: &[&str]) {
        let store = Store::new();
        for (namespace, name, app) in [("a", "web", "web"), ("a", "db", "db"), ("b", "web", "web")]
        {
            let selector = format!(r#"{{"matchLabels": {{"app": "{app}"}}}}"#);
            let metadata =
                format!(r#"{{"namespace": "{namespace}", "name": "{name}", "uid": "u-{name}"}}"#);
            store.insert(entry(&format!(
                r#"{{"metadata": {metadata}, "spec": {{"selector": {selector}}}}}"#
            )));
        }
        let selector: ReadSelector<Object> =
            |set| LabelSelector::from_value(&set["spec"]["selector"]);
        index_selectors(&store, selector);
        let owners = Owners {
            resource: STATEFUL_SETS,
            store,
            selector: Some(selector),
        };
        let keys = owners.for_event(&event);
        assert_eq!(keys.iter().map(Key::to_string).collect::<Vec<_>>(), expect);
    }

    fn added(owner: &str) -> Event<Object> {
        Event::Added {
            object: pod(owner, 1),
            initial: false,
        }
    }

    fn updated(old: &str, new: &str) -> Event<Object> {
        Event::Updated {
            old: pod(old, 1),
            new: pod(new, 2),
        }
    }

    fn deleted(owner: &str) -> Event<Object> {
        Event::Deleted {
            last: pod(owner, 1),
            final_state_unknown: false,
        }
    }

    #[test]
    fn the_controller_is_enqueued_by_kind_and_uid() {
        check(added("StatefulSet/x"), &["a/x"]);
        check(added("DaemonSet/x"), &[]);
        check(deleted("StatefulSet/x"), &["a/x"]);
        let text = r#"{"metadata":{"name":"p","namespace":"a","ownerReferences":[{"apiVersion":"apps/v1","kind":"StatefulSet","name":"web","uid":"old","controller":true}]}}"#;
        let object = entry(text);
        check(
            Event::Added {
                object,
                initial: true,
            },
            &[],
        );
        let text = r#"{"metadata":{"name":"p","namespace":"a","ownerReferences":[{"apiVersion":"example.com/v1","kind":"StatefulSet","name":"web","uid":"u-web","controller":true}]}}"#;
        let object = entry(text);
        check(
            Event::Added {
                object,
                initial: true,
            },
            &[],
        );
    }

    #[test]
    fn an_orphan_enqueues_its_adopters_unless_it_was_deleted_or_is_unchanged() {
        check(added(""), &["a/web"]);
        check(deleted(""), &[]);
        check(updated("", ""), &[]);
    }

    #[test]
    fn the_previous_controller_is_enqueued_too() {
        check(updated("StatefulSet/x", "StatefulSet/y"), &["a/y", "a/x"]);
        check(updated("StatefulSet/x", ""), &["a/web", "a/x"]);
    }
}
