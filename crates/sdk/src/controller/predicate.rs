//! Predicates: which events of a source enqueue keys.

use std::collections::HashMap;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::cache::{Entry, field};
use crate::informer::Event;

/// Decides which events of a [`Source`](super::Source) enqueue keys. Events that are filtered out
/// still change the cache.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use mizzen_sdk::cache::Entry;
/// use mizzen_sdk::controller::{Predicate, generation_changed, labels_changed};
/// use mizzen_sdk::informer::Event;
///
/// let entry = |text: &str| Entry::<ConfigMap>::new(text.as_bytes()).unwrap();
/// let labelled = Event::Updated {
///     old: entry(r#"{"metadata":{"name":"a","generation":1}}"#),
///     new: entry(r#"{"metadata":{"name":"a","generation":1,"labels":{"app":"web"}}}"#),
/// };
/// assert!(!generation_changed().accepts(&labelled));
/// assert!(generation_changed().or(labels_changed()).accepts(&labelled));
/// assert!(labels_changed().not().or(Predicate::new(|event| event.key().name() == "a")).accepts(&labelled));
/// ```
pub struct Predicate<K>(Arc<AcceptsFn<K>>);

type AcceptsFn<K> = dyn Fn(&Event<K>) -> bool + Send + Sync;

impl<K> Clone for Predicate<K> {
    fn clone(&self) -> Predicate<K> {
        Predicate(self.0.clone())
    }
}

impl<K: 'static> Predicate<K> {
    /// Accepts what `accepts` accepts.
    pub fn new(accepts: impl Fn(&Event<K>) -> bool + Send + Sync + 'static) -> Predicate<K> {
        Predicate(Arc::new(accepts))
    }

    /// Accepts additions and deletions, and the updates that `accepts` accepts.
    ///
    /// ```
    /// use mizzen_sdk::Object;
    /// use mizzen_sdk::controller::{Predicate, dynamic};
    /// use mizzen_sdk::resource::PODS;
    ///
    /// let phase = ["status", "phase"];
    /// let phase_changed = Predicate::<Object>::updates(move |old, new| old.text_at(&phase) != new.text_at(&phase));
    /// let pods = dynamic(&PODS).filter(phase_changed);
    /// # drop(pods);
    /// ```
    pub fn updates(
        accepts: impl Fn(&Entry<K>, &Entry<K>) -> bool + Send + Sync + 'static,
    ) -> Predicate<K> {
        Predicate::new(move |event| match event {
            Event::Updated { old, new } => accepts(old, new),
            Event::Added { .. } | Event::Deleted { .. } => true,
        })
    }

    /// Whether an event is accepted.
    pub fn accepts(&self, event: &Event<K>) -> bool {
        (self.0)(event)
    }

    /// Accepts what both accept.
    ///
    /// ```
    /// use mizzen_sdk::Object;
    /// use mizzen_sdk::controller::{Predicate, annotations_changed, generation_changed, labels_changed};
    ///
    /// let spec_or_labels: Predicate<Object> = generation_changed().or(labels_changed());
    /// let both = spec_or_labels.and(annotations_changed().not());
    /// # drop(both);
    /// ```
    pub fn and(self, other: Predicate<K>) -> Predicate<K> {
        Predicate::new(move |event| self.accepts(event) && other.accepts(event))
    }

    /// Accepts what one of both accepts.
    pub fn or(self, other: Predicate<K>) -> Predicate<K> {
        Predicate::new(move |event| self.accepts(event) || other.accepts(event))
    }

    /// Accepts what this one does not.
    #[expect(
        clippy::should_implement_trait,
        reason = "a predicate is combined by methods, as and, or"
    )]
    pub fn not(self) -> Predicate<K> {
        Predicate::new(move |event| !self.accepts(event))
    }
}

/// Ignores updates that leave `metadata.generation` as it is: changes of status or metadata, and
/// resyncs.
///
/// ```
/// use mizzen_sdk::Object;
/// use mizzen_sdk::cache::Entry;
/// use mizzen_sdk::controller::generation_changed;
/// use mizzen_sdk::informer::Event;
///
/// let entry = |text: &'static str| Entry::<Object>::new(text.as_bytes());
/// let before = entry(r#"{"metadata":{"name":"web","generation":1}}"#)?;
/// let after = entry(r#"{"metadata":{"name":"web","generation":2}}"#)?;
/// let update = Event::Updated { old: before.clone(), new: after };
/// let resync = Event::Updated { old: before.clone(), new: before };
/// assert!(generation_changed().accepts(&update) && !generation_changed().accepts(&resync));
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn generation_changed<K: 'static>() -> Predicate<K> {
    metadata_changed::<K, i64>("generation")
}

/// Ignores updates that leave the labels as they are.
///
/// ```
/// use mizzen_sdk::Object;
/// use mizzen_sdk::cache::Entry;
/// use mizzen_sdk::controller::labels_changed;
/// use mizzen_sdk::informer::Event;
///
/// let entry = |text: &'static str| Entry::<Object>::new(text.as_bytes());
/// let before = entry(r#"{"metadata":{"name":"web","labels":{"app":"a"}}}"#)?;
/// let after = entry(r#"{"metadata":{"name":"web","labels":{"app":"b"}}}"#)?;
/// let update = Event::Updated { old: before.clone(), new: after };
/// let resync = Event::Updated { old: before.clone(), new: before };
/// assert!(labels_changed().accepts(&update) && !labels_changed().accepts(&resync));
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn labels_changed<K: 'static>() -> Predicate<K> {
    metadata_changed::<K, HashMap<String, String>>("labels")
}

/// Ignores updates that leave the annotations as they are.
///
/// ```
/// use mizzen_sdk::Object;
/// use mizzen_sdk::cache::Entry;
/// use mizzen_sdk::controller::annotations_changed;
/// use mizzen_sdk::informer::Event;
///
/// let entry = |text: &'static str| Entry::<Object>::new(text.as_bytes());
/// let before = entry(r#"{"metadata":{"name":"web","annotations":{"app":"a"}}}"#)?;
/// let after = entry(r#"{"metadata":{"name":"web","annotations":{"app":"b"}}}"#)?;
/// let update = Event::Updated { old: before.clone(), new: after };
/// let resync = Event::Updated { old: before.clone(), new: before };
/// assert!(annotations_changed().accepts(&update) && !annotations_changed().accepts(&resync));
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn annotations_changed<K: 'static>() -> Predicate<K> {
    metadata_changed::<K, HashMap<String, String>>("annotations")
}

/// Ignores resyncs.
///
/// ```
/// use mizzen_sdk::Object;
/// use mizzen_sdk::cache::Entry;
/// use mizzen_sdk::controller::resource_version_changed;
/// use mizzen_sdk::informer::Event;
///
/// let entry = |text: &'static str| Entry::<Object>::new(text.as_bytes());
/// let before = entry(r#"{"metadata":{"name":"web","resourceVersion":"1"}}"#)?;
/// let after = entry(r#"{"metadata":{"name":"web","resourceVersion":"2"}}"#)?;
/// let update = Event::Updated { old: before.clone(), new: after };
/// let resync = Event::Updated { old: before.clone(), new: before };
/// assert!(resource_version_changed().accepts(&update) && !resource_version_changed().accepts(&resync));
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn resource_version_changed<K: 'static>() -> Predicate<K> {
    Predicate::updates(|old, new| old.version() != new.version())
}

/// Reads one field of the metadata from the text, so that typed, dynamic and metadata-only objects
/// are alike and none is decoded.
fn metadata_changed<K: 'static, T: DeserializeOwned + PartialEq>(
    name: &'static str,
) -> Predicate<K> {
    let value = move |entry: &Entry<K>| {
        let found: Option<Option<T>> = field::read(entry.text(), &["metadata", name])
            .ok()
            .flatten();
        found.flatten()
    };
    Predicate::updates(move |old, new| value(old) != value(new))
}
