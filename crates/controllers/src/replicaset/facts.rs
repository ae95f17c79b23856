//! What must be known of a pod? Little of it, so that counting a hundred pods does not mean reading a hundred pods.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;

use mizzen_sdk::cache::{DecodeError, Entry, Version};
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;

use crate::common::claim::Claimable;
use crate::common::pod;
use crate::common::rank::Standing;

/// What matters of a pod to those that count pods.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Facts {
    /// Its namespace and name.
    pub key: Key,
    /// Who controls it.
    pub owner: Option<Owner>,
    /// Its labels.
    pub labels: Value,
    /// Its node, if it has one.
    pub node: String,
    /// Whether it is being deleted.
    pub is_going: bool,
    /// Whether it counts.
    pub is_active: bool,
    /// Whether it is on its way out, but may still run.
    pub is_terminating: bool,
    /// How early it goes when there are too many.
    pub standing: Standing,
}

/// A reference to who controls a pod.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Owner {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

impl Facts {
    /// The facts about a pod.
    pub(super) fn of(pod: &Object) -> Facts {
        let text = |value: &Value| value.str().to_string();
        let owner = pod.controller().map(|owner| Owner {
            kind: text(&owner["kind"]),
            name: text(&owner["name"]),
            uid: text(&owner["uid"]),
        });
        Facts {
            key: pod.key(),
            owner,
            labels: pod["metadata"]["labels"].clone(),
            node: text(&pod["spec"]["nodeName"]),
            is_going: pod.is_going(),
            is_active: pod::is_active(pod),
            is_terminating: pod::is_terminating(pod),
            standing: Standing::of(pod),
        }
    }

    /// The value of a label.
    pub(super) fn label(&self, name: &str) -> Option<&str> {
        self.labels[name].as_str()
    }
}

impl Claimable for Facts {
    fn key(&self) -> Key {
        self.key.clone()
    }

    fn uid(&self) -> &str {
        &self.standing.uid
    }

    fn controller(&self) -> Option<&str> {
        self.owner.as_ref().map(|owner| owner.uid.as_str())
    }

    fn is_going(&self) -> bool {
        self.is_going
    }
}

/// The facts about all pods, noted when a handler hears of them.
///
/// Invariant: what is not noted, or is out of date, is read again; so nobody has to wait for a handler.
#[derive(Default)]
pub(super) struct Known(Mutex<HashMap<Key, Noted>>);

type Noted = (Version, Arc<Facts>);

impl Known {
    /// The facts about a pod as the cache has it.
    pub(super) fn of(&self, entry: &Entry<Object>) -> Result<Arc<Facts>, DecodeError> {
        let noted = self
            .lock()
            .get(entry.key())
            .filter(|(version, _)| *version == entry.version())
            .cloned();
        match noted {
            Some((_, facts)) => Ok(facts),
            None => Ok(Arc::new(Facts::of(&*entry.object()?))),
        }
    }

    /// Notes the facts about a pod that came or changed.
    pub(super) fn note(&self, entry: &Entry<Object>) -> Result<Arc<Facts>, DecodeError> {
        let facts = self.of(entry)?;
        self.lock()
            .insert(entry.key().clone(), (entry.version(), facts.clone()));
        Ok(facts)
    }

    /// Forgets a pod that is gone.
    pub(super) fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Noted>> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(version: u32, app: &str) -> Entry<Object> {
        let text = format!(
            r#"{{"metadata":{{"name":"p","resourceVersion":"{version}","labels":{{"app":"{app}"}},
                "ownerReferences":[{{"kind":"ReplicaSet","name":"web","uid":"u","controller":true}}]}}}}"#
        );
        Entry::new(text.into_bytes()).expect("JSON")
    }

    #[test]
    fn facts_are_those_of_the_version_that_is_asked_for() {
        let known = Known::default();
        let first = known.note(&entry(1, "a")).expect("a pod");
        assert!(Arc::ptr_eq(
            &first,
            &known.of(&entry(1, "a")).expect("a pod")
        ));
        assert_eq!(
            known.of(&entry(2, "b")).expect("a pod").label("app"),
            Some("b")
        );
        known.forget(&"p".parse().expect("a key"));
        assert!(!Arc::ptr_eq(
            &first,
            &known.of(&entry(1, "a")).expect("a pod")
        ));
    }

    #[test]
    fn who_controls_a_pod_is_a_fact() {
        let facts = Facts::of(&entry(1, "a").object().expect("a pod"));
        assert_eq!(facts.controller(), Some("u"));
        assert!(facts.is_active && !facts.is_terminating);
    }
}
