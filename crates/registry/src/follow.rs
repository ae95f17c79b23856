//! Changes since the last call, for components that keep an index of objects.
//!
//! A follower is a cursor into the watch window that never waits. It is read when the index is used, so the index shows
//! every acknowledged write. A follower that has fallen out of the window starts again with a list.

use std::sync::Arc;

use mizzen_store::{EventKind, Record, Revision, Watch};
use mizzen_value::Value;

use crate::Resource;
use crate::decode::decode_outline;

/// The changes since the last call.
pub enum FollowedChanges {
    /// These objects, in order.
    Some(Vec<Changed>),
    /// The window has moved on: all objects.
    All(Vec<Value>),
}

/// One object before and after.
pub struct Changed {
    /// None if it is new.
    pub before: Option<Value>,
    /// None if it is gone.
    pub after: Option<Value>,
}

/// A cursor into the history of a resource.
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

    /// A follower that does not decode the members with these names.
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

    /// The revision of the last change of the resource.
    pub fn last_change(resource: &Resource) -> Revision {
        resource.space().snapshot().revision()
    }

    /// The changes since the last call.
    pub fn changes(&mut self) -> FollowedChanges {
        let (resource, uninteresting) = (&self.resource, self.uninteresting);
        // Indexes skip an object that cannot be decoded; it is logged and counted.
        let read = |record: &Arc<Record>| decode_outline(resource, record, uninteresting).ok();
        let mut changed = Vec::new();
        let Some(watch) = &mut self.watch else {
            return self.restart();
        };
        loop {
            match watch.ready() {
                Ok(events) if events.is_empty() => return FollowedChanges::Some(changed),
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

    fn restart(&mut self) -> FollowedChanges {
        let snapshot = self.resource.space().snapshot();
        // The window reaches back to the revision of the snapshot, unless it moves on at this moment; then the next call
        // lists again.
        self.watch = self.resource.space().watch(snapshot.at()).ok();
        FollowedChanges::All(
            snapshot
                .range("", None)
                .filter_map(|record| {
                    decode_outline(&self.resource, record, self.uninteresting).ok()
                })
                .collect(),
        )
    }
}
