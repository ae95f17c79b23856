//! Following what happens, from some moment on.
//!
//! A watch has no queue: it is a place in the store's window of recent events, and reads on from there when
//! its client has room. One that falls out of the window is told so and ends.

use std::collections::VecDeque;

use bytes::Bytes;
use mizzen_object::Status;
use mizzen_store::{EventKind, Record, Revision};

use crate::header::matches;
use crate::list::select;
use crate::{Object, Registry, Resource, Selection, parse_version};

/// What a watch is asked for.
#[derive(Debug, Clone, Default)]
pub struct WatchOptions {
    /// Which objects.
    pub selection: Selection,
    /// The version to start after, as text.
    pub version: String,
    /// Whether to begin with everything that is there; unless said, that depends on the version.
    pub initial: Option<bool>,
}

/// What happened to an object, as seen through a selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It came into view.
    Added,
    /// It changed.
    Modified,
    /// It is gone, or out of view.
    Deleted,
}

impl Change {
    /// The word in a watch event.
    pub fn word(self) -> &'static str {
        match self {
            Change::Added => "ADDED",
            Change::Modified => "MODIFIED",
            Change::Deleted => "DELETED",
        }
    }
}

/// Something that a watcher is told.
pub enum Event {
    /// Something happened to an object.
    Object(Change, Object),
    /// Everything that was there at the start has been told; this is the version so far.
    Initial(Revision),
}

/// A watch under way.
pub struct Watch {
    resource: Resource,
    selection: Selection,
    inner: mizzen_store::Watch,
    /// What was there at the start and has not been told yet.
    initial: VecDeque<Event>,
}

impl Registry {
    /// Begins a watch.
    pub fn watch(&self, resource: &Resource, options: WatchOptions) -> Result<Watch, Status> {
        let WatchOptions { selection, version, initial } = options;
        let wanted = parse_version(&version).map_err(|error| Status::unknown(error.named()))?;
        let tell_all = initial.unwrap_or(wanted == 0);
        let latest = self.store.revision();
        let snapshot = resource.space().snapshot();
        let now = latest.max(snapshot.revision());
        let mut queue = VecDeque::new();
        if tell_all {
            let (objects, _) = select(resource, &snapshot, &selection, None, usize::MAX);
            queue.extend(objects.into_iter().map(|object| Event::Object(Change::Added, object)));
            queue.push_back(Event::Initial(now));
        }
        let after = if tell_all || wanted == 0 { now } else { Revision(wanted) };
        let inner =
            resource.space().watch(after).map_err(|expired| too_old(expired.asked, expired.oldest))?;
        Ok(Watch { resource: resource.clone(), selection, inner, initial: queue })
    }
}

impl Watch {
    /// The next things that happened, at least one. An error ends the watch.
    pub async fn next(&mut self) -> Result<Vec<Event>, Status> {
        if !self.initial.is_empty() {
            let count = self.initial.len().min(256);
            return Ok(self.initial.drain(..count).collect());
        }
        loop {
            let events = self.inner.next().await.map_err(|expired| too_old(expired.asked, expired.oldest))?;
            let seen: Vec<Event> = events.iter().filter_map(|event| self.view(event)).collect();
            if !seen.is_empty() {
                return Ok(seen);
            }
        }
    }

    /// A version up to which everything has been told.
    pub fn progress(&self) -> Option<Revision> {
        self.initial.is_empty().then(|| self.inner.progress())
    }

    fn view(&self, event: &mizzen_store::Event) -> Option<Event> {
        let now = event.kind == EventKind::Put && self.selects(&event.record);
        let before = event.previous.as_ref().filter(|previous| self.selects(previous));
        Some(match (before, now) {
            (None, false) => return None,
            (None, true) => Event::Object(Change::Added, self.object(&event.record)),
            (Some(_), true) => Event::Object(Change::Modified, self.object(&event.record)),
            (Some(_), false) if event.kind == EventKind::Delete => {
                Event::Object(Change::Deleted, self.object(&event.record))
            }
            // It left the selection: the watcher sees it as it last saw it, in the new version.
            (Some(previous), false) => {
                let json = self.resource.present(&restamp(previous, event.revision));
                Event::Object(Change::Deleted, Object::unstored(json))
            }
        })
    }

    fn object(&self, record: &std::sync::Arc<Record>) -> Object {
        Object::stored(&self.resource, record.clone())
    }

    fn selects(&self, record: &Record) -> bool {
        let Selection { namespace, labels, fields } = &self.selection;
        let inside = namespace.is_empty()
            || record.key.strip_prefix(namespace.as_str()).is_some_and(|rest| rest.starts_with('/'));
        inside && matches(&self.resource, record, labels, fields)
    }
}

/// A record's text with another revision in it.
fn restamp(record: &Record, revision: Revision) -> Bytes {
    let Some(digits) = record.digits() else { return record.value.clone() };
    let mut text = Vec::with_capacity(record.value.len() + 4);
    text.extend_from_slice(&record.value[..digits.start]);
    text.extend_from_slice(revision.to_string().as_bytes());
    text.extend_from_slice(&record.value[digits.end..]);
    text.into()
}

fn too_old(asked: Revision, oldest: Revision) -> Status {
    Status::expired(format!("too old resource version: {asked} ({oldest})"))
}
