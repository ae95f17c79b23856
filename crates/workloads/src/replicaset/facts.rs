//! The facts of a pod that ReplicaSets need, so that a sync does not decode every pod.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

use mizzen_sdk::cache::{DecodeError, Entry, Version};
use mizzen_sdk::{Accessor, Key, Object};
use mizzen_value::Value;

use crate::common::pod;
use crate::common::pod_rank::PodRank;

/// What a ReplicaSet needs to know of a pod.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PodFacts {
    pub key: Key,
    pub controller: Option<ControllerRef>,
    pub labels: Value,
    /// Its node, or empty.
    pub node: String,
    /// Whether it is being deleted.
    pub is_terminating: bool,
    pub is_active: bool,
    /// Whether `terminatingReplicas` counts it: it is being deleted and not finished.
    pub counts_as_terminating: bool,
    pub rank: PodRank,
}

/// The controller reference of a pod.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ControllerRef {
    pub kind: String,
    pub name: String,
    pub uid: String,
}

impl PodFacts {
    pub(super) fn from_pod(pod: &Object) -> PodFacts {
        let text = |value: &Value| value.str().to_string();
        let owner = pod.controller().map(|owner| ControllerRef {
            kind: text(&owner["kind"]),
            name: text(&owner["name"]),
            uid: text(&owner["uid"]),
        });
        PodFacts {
            key: pod.key(),
            controller: owner,
            labels: pod["metadata"]["labels"].clone(),
            node: text(&pod["spec"]["nodeName"]),
            is_terminating: pod.is_terminating(),
            is_active: pod::is_active(pod),
            counts_as_terminating: pod::is_terminating(pod),
            rank: PodRank::from_pod(pod),
        }
    }
}

impl Accessor for PodFacts {
    fn key(&self) -> Key {
        self.key.clone()
    }

    fn uid(&self) -> &str {
        &self.rank.uid
    }

    fn label(&self, name: &str) -> Option<&str> {
        self.labels[name].as_str()
    }

    fn controller_uid(&self) -> Option<&str> {
        self.controller.as_ref().map(|owner| owner.uid.as_str())
    }

    fn is_terminating(&self) -> bool {
        self.is_terminating
    }
}

/// The facts of all pods, stored by the event handlers.
///
/// Invariant: facts of another resourceVersion are computed again, so a sync never waits for a
/// handler.
#[derive(Default)]
pub(super) struct PodFactsCache(Mutex<HashMap<Key, Noted>>);

type Noted = (Version, Arc<PodFacts>);

impl PodFactsCache {
    /// The facts of a pod in the version of the entry.
    pub(super) fn get(&self, entry: &Entry<Object>) -> Result<Arc<PodFacts>, DecodeError> {
        let noted = self
            .0
            .lock()
            .get(entry.key())
            .filter(|(version, _)| *version == entry.version())
            .cloned();
        match noted {
            Some((_, facts)) => Ok(facts),
            None => Ok(Arc::new(PodFacts::from_pod(&*entry.object()?))),
        }
    }

    /// Computes and stores the facts of a pod.
    pub(super) fn insert(&self, entry: &Entry<Object>) -> Result<Arc<PodFacts>, DecodeError> {
        let facts = self.get(entry)?;
        self.0
            .lock()
            .insert(entry.key().clone(), (entry.version(), facts.clone()));
        Ok(facts)
    }

    pub(super) fn remove(&self, key: &Key) {
        self.0.lock().remove(key);
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
    fn facts_are_those_of_the_requested_version() {
        let known = PodFactsCache::default();
        let first = known.insert(&entry(1, "a")).expect("a pod");
        assert!(Arc::ptr_eq(
            &first,
            &known.get(&entry(1, "a")).expect("a pod")
        ));
        assert_eq!(
            known.get(&entry(2, "b")).expect("a pod").label("app"),
            Some("b")
        );
        known.remove(&"p".parse().expect("a key"));
        assert!(!Arc::ptr_eq(
            &first,
            &known.get(&entry(1, "a")).expect("a pod")
        ));
    }

    #[test]
    fn the_controller_of_a_pod_is_a_fact() {
        let facts = PodFacts::from_pod(&entry(1, "a").object().expect("a pod"));
        assert_eq!(facts.controller_uid(), Some("u"));
        assert!(facts.is_active && !facts.counts_as_terminating);
    }
}
