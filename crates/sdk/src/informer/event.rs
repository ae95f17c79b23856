//! Events of informers.

use crate::cache::Entry;
use crate::key::Key;

/// A change of an object.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use mizzen_sdk::informer::Event;
///
/// fn describe(event: &Event<Pod>) -> String {
///     match event {
///         Event::Added { object, initial: true } => format!("{} exists", object.key()),
///         Event::Added { object, .. } => format!("{} was created", object.key()),
///         Event::Updated { old, new } => format!("{}: {} to {}", new.key(), old.version(), new.version()),
///         Event::Deleted { last, .. } => format!("{} was deleted", last.key()),
///     }
/// }
/// # let object = mizzen_sdk::cache::Entry::new(*br#"{"metadata":{"name":"web"}}"#)?;
/// # assert_eq!(describe(&Event::Added { object, initial: true }), "web exists");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug)]
pub enum Event<K> {
    /// It was added.
    Added {
        /// The object.
        object: Entry<K>,
        /// Whether it existed when the handler was added.
        initial: bool,
    },
    /// It was updated, or resynced: then `old` and `new` are the same.
    Updated {
        /// The last state that the handler got.
        old: Entry<K>,
        /// The new state.
        new: Entry<K>,
    },
    /// It was deleted.
    Deleted {
        /// Its last known state.
        last: Entry<K>,
        /// Whether the final state is unknown because the watch was interrupted; `last` may then be
        /// out of date (upstream: DeletedFinalStateUnknown).
        final_state_unknown: bool,
    },
}

impl<K> Clone for Event<K> {
    fn clone(&self) -> Event<K> {
        match self {
            Event::Added { object, initial } => Event::Added {
                object: object.clone(),
                initial: *initial,
            },
            Event::Updated { old, new } => Event::Updated {
                old: old.clone(),
                new: new.clone(),
            },
            Event::Deleted {
                last,
                final_state_unknown,
            } => Event::Deleted {
                last: last.clone(),
                final_state_unknown: *final_state_unknown,
            },
        }
    }
}

impl<K> Event<K> {
    /// The current or last state of the object.
    pub fn object(&self) -> &Entry<K> {
        match self {
            Event::Added { object, .. } => object,
            Event::Updated { new, .. } => new,
            Event::Deleted { last, .. } => last,
        }
    }

    /// The key of the object.
    pub fn key(&self) -> &Key {
        self.object().key()
    }

    /// Merges two consecutive events of one object; empty if they cancel out.
    pub(super) fn then(self, next: Event<K>) -> Vec<Event<K>> {
        match (self, next) {
            (Event::Added { initial, .. }, Event::Updated { new, .. }) => {
                vec![Event::Added {
                    object: new,
                    initial,
                }]
            }
            (Event::Added { .. }, Event::Deleted { .. }) => Vec::new(),
            (Event::Updated { old, .. }, Event::Updated { new, .. }) => {
                vec![Event::Updated { old, new }]
            }
            (Event::Updated { .. }, deleted @ Event::Deleted { .. }) => vec![deleted],
            // A deletion and a new object stay separate.
            (first, next) => vec![first, next],
        }
    }
}
