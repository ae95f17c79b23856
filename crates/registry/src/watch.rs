//! Watches an object or a collection.
//!
//! A watch has no queue: it is a cursor into the watch window of the store, which it reads when its client has
//! room. A watch that falls out of the window ends with an error. A watch of one object, of one namespace, or of objects
//! with one label or indexed field is notified of events that concern it only.

use std::collections::VecDeque;
use std::sync::Arc;

use mizzen_object::Status;
use mizzen_store::{EventKind, Record, Revision, WatchScope};

use crate::fresh::Freshness;
use crate::get::converter_required;
use crate::header::{matches, matches_object};
use crate::list::select_any;
use crate::{Key, Object, Registry, Resource, Selection, parse_version};

/// The options of a watch.
#[derive(Debug, Clone, Default)]
pub struct WatchOptions {
    /// The selection of objects.
    pub selection: Selection,
    /// The version to start after, as text.
    pub version: String,
    /// Whether to begin with everything that is there; unless said, that depends on the version.
    pub initial: Option<bool>,
}

/// The type of a watch event, as seen through the selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchEventType {
    /// ADDED: it exists now, or matches now.
    Added,
    /// MODIFIED.
    Modified,
    /// DELETED: it is gone, or no longer matches.
    Deleted,
}

impl WatchEventType {
    /// The word in a watch event.
    pub fn word(self) -> &'static str {
        match self {
            WatchEventType::Added => "ADDED",
            WatchEventType::Modified => "MODIFIED",
            WatchEventType::Deleted => "DELETED",
        }
    }
}

/// A watch event.
pub enum WatchEvent {
    /// A change of an object.
    Object(WatchEventType, Object),
    /// The end of the initial events, with the version so far.
    Initial(Revision),
}

/// A started watch.
pub struct ResourceWatch {
    resource: Resource,
    selection: Selection,
    inner: mizzen_store::Watch,
    /// Initial events that have not been sent yet.
    initial: VecDeque<WatchEvent>,
}

impl Registry {
    /// Begins a watch.
    pub async fn watch(
        &self,
        resource: &Resource,
        options: WatchOptions,
    ) -> Result<ResourceWatch, Status> {
        let WatchOptions {
            selection,
            version,
            initial,
        } = options;
        let wanted = parse_version(&version).map_err(|error| Status::unknown(error.named()))?;
        let freshness = match initial {
            Some(true) => Freshness::of(&version),
            _ => Freshness::Any,
        };
        let prefix = selection.prefix(resource.kind());
        let snapshot = self.snapshot(resource, &prefix, freshness).await?;
        let tell_all = initial.unwrap_or(wanted == 0);
        let now = snapshot.at();
        let mut queue = VecDeque::new();
        if tell_all {
            let (objects, _) =
                select_any(resource, &snapshot, &selection, None, usize::MAX).await?;
            queue.extend(
                objects
                    .into_iter()
                    .map(|object| WatchEvent::Object(WatchEventType::Added, object)),
            );
            queue.push_back(WatchEvent::Initial(now));
        }
        let after = if tell_all || wanted == 0 {
            now
        } else {
            Revision(wanted)
        };
        let inner = resource
            .space()
            .watch_scope(after, scope(resource, &selection))
            .map_err(|expired| too_old(expired.requested, expired.oldest))?;
        Ok(ResourceWatch {
            resource: resource.clone(),
            selection,
            inner,
            initial: queue,
        })
    }
}

impl ResourceWatch {
    /// The next events, at least one. An error ends the watch.
    pub async fn next(&mut self) -> Result<Vec<WatchEvent>, Status> {
        if !self.initial.is_empty() {
            let count = self.initial.len().min(256);
            return Ok(self.initial.drain(..count).collect());
        }
        loop {
            let events = self
                .inner
                .next()
                .await
                .map_err(|expired| too_old(expired.requested, expired.oldest))?;
            let seen = self.view(events).await.map_err(in_stream)?;
            if !seen.is_empty() {
                return Ok(seen);
            }
        }
    }

    /// The version up to which all events were returned.
    pub fn progress(&self) -> Option<Revision> {
        self.initial.is_empty().then(|| self.inner.progress())
    }

    /// The watch events for changes of the store.
    async fn view(&self, events: Vec<mizzen_store::Event>) -> Result<Vec<WatchEvent>, Status> {
        if self.resource.is_custom() {
            return self.view_converted(events).await;
        }
        let Selection { labels, fields, .. } = &self.selection;
        let selects = |record: &&Arc<Record>| matches(&self.resource, record, labels, fields);
        let object = |record: &Arc<Record>| {
            self.resource
                .render_without_converter(record)?
                .ok_or_else(converter_required)
        };
        let mut seen = Vec::new();
        for event in events.iter().filter(|event| self.is_inside(&event.record)) {
            let states = (&event.record, event.previous.as_ref());
            seen.extend(view_one(event, states, selects, object)?);
        }
        Ok(seen)
    }

    /// The same for objects that must be converted before they can be selected.
    async fn view_converted(
        &self,
        mut events: Vec<mizzen_store::Event>,
    ) -> Result<Vec<WatchEvent>, Status> {
        events.retain(|event| self.is_inside(&event.record));
        let records = events
            .iter()
            .flat_map(|event| std::iter::once(&event.record).chain(&event.previous));
        let mut objects = self
            .resource
            .render_all(records.cloned().collect())
            .await?
            .into_iter();
        let Selection { labels, fields, .. } = &self.selection;
        let mut seen = Vec::with_capacity(events.len());
        for event in &events {
            let object = objects.next().expect("an object for each record");
            let previous = event.previous.as_ref().and_then(|_| objects.next());
            let selects =
                |object: &Object| Ok(matches_object(&self.resource, object, labels, fields));
            seen.extend(view_one(event, (object, previous), selects, Ok)?);
        }
        Ok(seen)
    }

    fn is_inside(&self, record: &Record) -> bool {
        let namespace = &self.selection.namespace;
        namespace.is_empty()
            || record
                .key
                .strip_prefix(namespace.as_str())
                .is_some_and(|rest| rest.starts_with('/'))
    }
}

/// What has every object that can be selected, as narrow as the store can tell. Kubernetes: a watch has one scope or one
/// trigger value (apiserver/pkg/storage/cacher/cacher.go, `Watch`).
fn scope(resource: &Resource, selection: &Selection) -> WatchScope {
    if let Some(key) = selection.only(resource.kind()) {
        return WatchScope::Key(key.stored());
    }
    if let Some(term) = selection.index_term(resource) {
        return WatchScope::Term(term);
    }
    match selection.namespace.as_str() {
        "" => WatchScope::Everything,
        namespace => WatchScope::Prefix(Key::prefix(namespace).into()),
    }
}

/// The watch event for one change, as seen through a selector. `states` are the object after it and before it.
fn view_one<T>(
    event: &mizzen_store::Event,
    states: (T, Option<T>),
    selects: impl Fn(&T) -> Result<bool, Status>,
    object: impl Fn(T) -> Result<Object, Status>,
) -> Result<Option<WatchEvent>, Status> {
    let (after, before) = states;
    let now = event.kind == EventKind::Put && selects(&after)?;
    let before = match before {
        Some(before) if selects(&before)? => Some(before),
        _ => None,
    };
    Ok(Some(match (before, now) {
        (None, false) => return Ok(None),
        (None, true) => WatchEvent::Object(WatchEventType::Added, object(after)?),
        (Some(_), true) => WatchEvent::Object(WatchEventType::Modified, object(after)?),
        (Some(_), false) if event.kind == EventKind::Delete => {
            WatchEvent::Object(WatchEventType::Deleted, object(after)?)
        }
        // It left the selection: the watcher gets its last matching state, with the new resourceVersion.
        (Some(before), false) => WatchEvent::Object(
            WatchEventType::Deleted,
            object(before)?.restamped(event.revision),
        ),
    }))
}

/// Kubernetes: in a stream an error that is no Status is an internal one (storage/etcd3/watcher.go, transformErrorToEvent).
fn in_stream(status: Status) -> Status {
    match status.reason.is_empty() {
        true => Status::internal(status.message),
        false => status,
    }
}

fn too_old(requested: Revision, oldest: Revision) -> Status {
    Status::expired(format!("too old resource version: {requested} ({oldest})"))
}
