//! What a handler hears.

use crate::cache::Entry;
use crate::key::Key;

/// Something that happened to an object.
#[derive(Debug)]
pub enum Event<K> {
    /// It is there.
    Added {
        /// The object.
        object: Entry<K>,
        /// Whether it was there when the handler began to listen.
        initial: bool,
    },
    /// It changed, or is to be looked at again: then `old` and `new` are the same.
    Updated {
        /// As the handler heard of it last.
        old: Entry<K>,
        /// As it is.
        new: Entry<K>,
    },
    /// It is gone.
    Deleted {
        /// As it was last, as far as anybody saw.
        last: Entry<K>,
        /// Whether nobody saw how it went; `last` may then be out of date.
        unseen: bool,
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
            Event::Deleted { last, unseen } => Event::Deleted {
                last: last.clone(),
                unseen: *unseen,
            },
        }
    }
}

impl<K> Event<K> {
    /// The object as it is, or was last.
    pub fn object(&self) -> &Entry<K> {
        match self {
            Event::Added { object, .. } => object,
            Event::Updated { new, .. } => new,
            Event::Deleted { last, .. } => last,
        }
    }

    /// Which object.
    pub fn key(&self) -> &Key {
        self.object().key()
    }

    /// This and what happened next to the same object as one event; none if nothing is left of both.
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
            // It went and another came: only together do they say so.
            (first, next) => vec![first, next],
        }
    }
}
