//! The index of watches: which of them an event concerns.
//!
//! Watches of one scope share a [`WatchGroup`]: the revisions of the events in the window that concern the scope, and a
//! notification. A published event looks up the groups of its key, of the prefixes of its key, and of its terms before and
//! after the change. So it costs the watches that it concerns, however many others there are.
//!
//! Kubernetes: watchers by scope and by trigger value (apiserver/pkg/storage/cacher/cacher.go, `indexedWatchers`).
//!
//! Invariant: a group has the revision of every event that concerns its scope and was published after its first watch
//! joined, but for those up to `forgotten`. A watch that has seen `forgotten` misses nothing, however far the window has moved
//! on because of other events.
//! Invariant: a group has at most as many revisions as the window had events; it goes with its last watch.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};
use std::sync::Arc;

use tokio::sync::Notify;

use crate::{Event, Expired, Revision};

/// What a watch is limited to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WatchScope {
    /// All events.
    Everything,
    /// Events of one key.
    Key(Arc<str>),
    /// Events of keys that begin with this, which ends with a slash.
    Prefix(Arc<str>),
    /// Events of records that carry this term after the change, or carried it before.
    Term(Arc<str>),
}

/// The watches of one scope.
#[derive(Debug, Default)]
pub(crate) struct WatchGroup {
    notify: Notify,
    history: Mutex<GroupHistory>,
}

/// What a group knows of the window.
#[derive(Debug, Default)]
struct GroupHistory {
    /// Oldest first, each once.
    revisions: VecDeque<Revision>,
    /// The newest revision that was dropped from `revisions`.
    forgotten: Revision,
    n_watches: usize,
    /// Whether the group waits for [`WatchIndex::take_concerned`].
    is_concerned: bool,
}

/// The groups of a keyspace.
#[derive(Debug, Default)]
pub(crate) struct WatchIndex {
    /// Notified of every event. Its watches read the window itself.
    everything: Arc<WatchGroup>,
    keys: HashMap<Arc<str>, Arc<WatchGroup>>,
    prefixes: HashMap<Arc<str>, Arc<WatchGroup>>,
    terms: HashMap<Arc<str>, Arc<WatchGroup>>,
    /// Groups that have not been notified of their latest events.
    concerned: Vec<Arc<WatchGroup>>,
    n_watches: usize,
}

impl WatchScope {
    /// Whether a watch of this scope sees `event`.
    pub fn concerns(&self, event: &Event) -> bool {
        let key = &event.record.key;
        let carries = |term| event.terms().any(|own| own == term);
        match self {
            WatchScope::Everything => true,
            WatchScope::Key(wanted) => key == wanted,
            WatchScope::Prefix(prefix) => key.starts_with(&**prefix),
            WatchScope::Term(term) => carries(term),
        }
    }
}

impl WatchIndex {
    pub(crate) fn n_watches(&self) -> usize {
        self.n_watches
    }

    /// The group of `scope`, with one more watch.
    pub(crate) fn join(&mut self, scope: &WatchScope) -> Arc<WatchGroup> {
        self.n_watches += 1;
        let (groups, name) = match scope {
            WatchScope::Everything => return self.everything.clone(),
            WatchScope::Key(key) => (&mut self.keys, key),
            WatchScope::Prefix(prefix) => (&mut self.prefixes, prefix),
            WatchScope::Term(term) => (&mut self.terms, term),
        };
        let group = groups.entry(name.clone()).or_default().clone();
        group.history.lock().n_watches += 1;
        group
    }

    /// Takes a watch out of the group of `scope`.
    pub(crate) fn leave(&mut self, scope: &WatchScope) {
        self.n_watches -= 1;
        let (groups, name) = match scope {
            WatchScope::Everything => return,
            WatchScope::Key(key) => (&mut self.keys, key),
            WatchScope::Prefix(prefix) => (&mut self.prefixes, prefix),
            WatchScope::Term(term) => (&mut self.terms, term),
        };
        if let Entry::Occupied(group) = groups.entry(name.clone())
            && group.get().remove_watch()
        {
            group.remove();
        }
    }

    /// Adds `event` to the groups that it concerns. The window has forgotten everything up to `floor`.
    pub(crate) fn push(&mut self, event: &Event, floor: Revision) {
        let key = &*event.record.key;
        let concerned = &mut self.concerned;
        let mut push = |groups: &HashMap<Arc<str>, Arc<WatchGroup>>, name: &str| {
            if let Some(group) = groups.get(name)
                && group.push(event.revision, floor)
            {
                concerned.push(group.clone());
            }
        };
        push(&self.keys, key);
        if !self.prefixes.is_empty() {
            for (slash, _) in key.match_indices('/') {
                push(&self.prefixes, &key[..=slash]);
            }
        }
        if !self.terms.is_empty() {
            event.terms().for_each(|term| push(&self.terms, term));
        }
    }

    /// Forgets everything up to `revision`: what happened until then is not known.
    pub(crate) fn restart(&mut self, revision: Revision) {
        let groups = [&self.keys, &self.prefixes, &self.terms];
        for group in groups.into_iter().flat_map(HashMap::values) {
            if group.restart(revision) {
                self.concerned.push(group.clone());
            }
        }
    }

    /// The groups that are to be notified.
    pub(crate) fn take_concerned(&mut self) -> Vec<Arc<WatchGroup>> {
        let mut concerned = std::mem::take(&mut self.concerned);
        for group in &concerned {
            group.history.lock().is_concerned = false;
        }
        concerned.push(self.everything.clone());
        concerned
    }
}

impl WatchGroup {
    /// What is notified when there is something to read.
    pub(crate) fn notify(&self) -> &Notify {
        &self.notify
    }

    /// The revisions in `(seen, until]`, at most `limit`. The window has forgotten everything up to `floor`.
    pub(crate) fn between(
        &self,
        seen: Revision,
        until: Revision,
        floor: Revision,
        limit: usize,
    ) -> Result<Vec<Revision>, Expired> {
        let history = self.history.lock();
        let start = history.position(seen);
        let first = history.revisions.get(start);
        if seen < history.forgotten || first.is_some_and(|first| *first <= floor) {
            return Err(Expired {
                requested: seen,
                oldest: floor,
            });
        }
        let unseen = history.revisions.range(start..).copied();
        Ok(unseen
            .take_while(|revision| *revision <= until)
            .take(limit)
            .collect())
    }

    /// Adds a revision. Returns whether the group was not concerned before.
    fn push(&self, revision: Revision, floor: Revision) -> bool {
        let mut history = self.history.lock();
        let n_forgotten = history.position(floor);
        let forgotten = history.revisions.drain(..n_forgotten).next_back();
        history.forgotten = forgotten.unwrap_or(history.forgotten);
        if history.revisions.back() != Some(&revision) {
            history.revisions.push_back(revision);
        }
        !std::mem::replace(&mut history.is_concerned, true)
    }

    fn restart(&self, revision: Revision) -> bool {
        let mut history = self.history.lock();
        history.revisions = VecDeque::new();
        history.forgotten = revision;
        !std::mem::replace(&mut history.is_concerned, true)
    }

    /// Returns whether it was the last one.
    fn remove_watch(&self) -> bool {
        let mut history = self.history.lock();
        history.n_watches -= 1;
        history.n_watches == 0
    }
}

impl GroupHistory {
    /// The index of the first revision after `revision`.
    fn position(&self, revision: Revision) -> usize {
        self.revisions.partition_point(|known| *known <= revision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Draft, EventKind, Record};

    fn event(revision: u64) -> Event {
        let (key, terms) = ("n/a".into(), ["t=1".into()].into());
        let record = Record::stamped(key, Revision(revision), terms, Draft::default());
        Event {
            revision: Revision(revision),
            kind: EventKind::Put,
            record: Arc::new(record),
            previous: None,
        }
    }

    fn scopes() -> [WatchScope; 4] {
        [
            WatchScope::Everything,
            WatchScope::Key("n/a".into()),
            WatchScope::Prefix("n/".into()),
            WatchScope::Term("t=1".into()),
        ]
    }

    #[test]
    fn a_group_has_no_more_revisions_than_the_window_has_events() {
        let mut index = WatchIndex::default();
        let groups = scopes().map(|scope| index.join(&scope));
        for revision in 1..1000 {
            index.push(&event(revision), Revision(revision.saturating_sub(10)));
        }
        let lengths = groups.map(|group| group.history.lock().revisions.len());
        assert_eq!(lengths, [0, 10, 10, 10]);
    }

    #[test]
    fn a_group_goes_with_its_last_watch() {
        let mut index = WatchIndex::default();
        for scope in scopes().iter().chain(&scopes()) {
            index.join(scope);
        }
        index.push(&event(1), Revision::ZERO);
        scopes().iter().for_each(|scope| index.leave(scope));
        assert_eq!((index.keys.len(), index.n_watches()), (1, 4));
        scopes().iter().for_each(|scope| index.leave(scope));
        let n_groups = index.keys.len() + index.prefixes.len() + index.terms.len();
        assert_eq!((n_groups, index.n_watches()), (0, 0));
    }

    #[test]
    fn a_group_is_notified_once_for_a_batch() {
        let mut index = WatchIndex::default();
        let group = index.join(&WatchScope::Key("n/a".into()));
        index.push(&event(1), Revision::ZERO);
        index.push(&event(2), Revision::ZERO);
        let concerned = index.take_concerned();
        assert_eq!(
            concerned
                .iter()
                .filter(|one| Arc::ptr_eq(one, &group))
                .count(),
            1
        );
        index.push(&event(3), Revision::ZERO);
        assert!(
            index
                .take_concerned()
                .iter()
                .any(|one| Arc::ptr_eq(one, &group))
        );
    }
}
