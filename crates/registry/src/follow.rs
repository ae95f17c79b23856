//! What has changed since somebody last looked, for those who keep an index of objects.
//!
//! A follower holds a place in the window of recent events and never waits: it is asked when the index is needed, so
//! that the index shows every write that was acknowledged before. When it has not looked for so long that the window
//! has moved on, it starts again from everything there is.

use std::sync::Arc;

use mizzen_store::{EventKind, Record, Revision, Watch};
use mizzen_value::Value;

use crate::Resource;
use crate::decode::decode_outline;

/// What has changed since the last look.
pub enum Changes {
    /// These objects, in order.
    Some(Vec<Changed>),
    /// Too much to tell: these are all objects that there are now.
    All(Vec<Value>),
}

/// One object before and after.
pub struct Changed {
    /// None if it is new.
    pub before: Option<Value>,
    /// None if it is gone.
    pub after: Option<Value>,
}

/// A place in the history of a resource.
pub struct Follower {
    resource: Resource,
    uninteresting: &'static [&'static str],
    watch: Option<Watch>,
}

impl Follower {
    /// A follower that has seen nothing yet.
    pub fn new(resource: Resource) -> Follower {
        Follower::skimming(resource, &[])
    }

    /// The same for somebody who wants nothing of objects but what they need: members of these names are not read.
    pub fn skimming(resource: Resource, uninteresting: &'static [&'static str]) -> Follower {
        Follower {
            resource,
            uninteresting,
            watch: None,
        }
    }

    /// What is followed.
    pub fn resource(&self) -> &Resource {
        &self.resource
    }

    /// When the resource last changed: while this stays the same, there is nothing new to see.
    pub fn last_change(resource: &Resource) -> Revision {
        resource.space().snapshot().revision()
    }

    /// What has changed since the last call.
    pub fn changes(&mut self) -> Changes {
        let (resource, uninteresting) = (&self.resource, self.uninteresting);
        // An object that cannot be decoded, which is logged and counted, is not there for an index.
        let read = |record: &Arc<Record>| decode_outline(resource, record, uninteresting).ok();
        let mut changed = Vec::new();
        let Some(watch) = &mut self.watch else {
            return self.restart();
        };
        loop {
            match watch.ready() {
                Ok(events) if events.is_empty() => return Changes::Some(changed),
                Ok(events) => changed.extend(events.into_iter().map(|event| Changed {
                    before: event.previous.as_ref().and_then(&read),
                    after: match event.kind {
                        EventKind::Put => read(&event.record),
                        EventKind::Delete => None,
                    },
                })),
                Err(_) => return self.restart(),
            }
        }
    }

    fn restart(&mut self) -> Changes {
        let snapshot = self.resource.space().snapshot();
        // The snapshot shows its revision, so the window reaches back to it unless it moves on this very moment; then
        // the next look starts again.
        self.watch = self.resource.space().watch(snapshot.at()).ok();
        Changes::All(
            snapshot
                .range("", None)
                .filter_map(|record| {
                    decode_outline(&self.resource, record, self.uninteresting).ok()
                })
                .collect(),
        )
    }
}
