//! A watch: a cursor into the window of a keyspace.
//!
//! A watcher has no queue. It keeps the last revision that it returned, waits for a notification of its group and copies
//! newer events of its scope from the window. Writers notify and never wait.
//!
//! Invariant: a watcher sees each event of its scope after its start once and in order, or `Expired`; never a gap.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use crate::watch_index::WatchGroup;
use crate::{Event, Keyspace, Revision, WatchScope};

/// How many events a watcher is given at once; a transaction is never split, so it may be a few more.
const BATCH: usize = 512;

/// A reader of the events of a keyspace. It takes a few words of memory.
#[derive(Debug)]
pub struct Watch {
    space: Keyspace,
    scope: WatchScope,
    group: Arc<WatchGroup>,
    /// The last revision that the group does not have, because it is from before the watch joined.
    joined: Revision,
    seen: Revision,
}

/// The requested revision is older than the window: list again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("revision {requested} is too old, history begins at {oldest}")]
pub struct Expired {
    /// The revision that was asked for.
    pub requested: Revision,
    /// The oldest revision that would have done.
    pub oldest: Revision,
}

impl Watch {
    pub(crate) fn new(
        space: Keyspace,
        scope: WatchScope,
        group: Arc<WatchGroup>,
        (joined, after): (Revision, Revision),
    ) -> Watch {
        Watch {
            space,
            scope,
            group,
            joined,
            seen: after,
        }
    }

    /// The next events, at least one: waits until there are some. Dropping the future loses nothing.
    ///
    /// While it is pending, every event up to the revision that the keyspace had when it was polled has been returned.
    pub async fn next(&mut self) -> Result<Vec<Event>, Expired> {
        let group = self.group.clone();
        loop {
            let mut notified = pin!(group.notify().notified());
            // Events are looked for with every poll, after the waker is registered: a notification may come later than
            // the revision that a caller has read.
            let found = poll_fn(|context| {
                let notified = notified.as_mut().poll(context);
                match self.ready() {
                    Ok(events) if events.is_empty() => notified.map(|()| None),
                    found => Poll::Ready(Some(found)),
                }
            });
            if let Some(found) = found.await {
                return found;
            }
        }
    }

    /// The next events that are there already, perhaps none.
    pub fn ready(&mut self) -> Result<Vec<Event>, Expired> {
        while self.is_behind() {
            let mut events = self.space.events_after(self.seen, BATCH)?;
            let last = events.last().map(|event| event.revision);
            self.seen = last.unwrap_or(self.joined);
            events.retain(|event| self.scope.concerns(event));
            if !events.is_empty() {
                return Ok(events);
            }
        }
        let events = match &self.scope {
            WatchScope::Everything => self.space.events_after(self.seen, BATCH)?,
            scope => {
                let concerns = |event: &Event| scope.concerns(event);
                self.space
                    .group_events_after(&self.group, self.seen, BATCH, concerns)?
            }
        };
        if let Some(last) = events.last() {
            self.seen = last.revision;
        }
        Ok(events)
    }

    /// The revision up to which all events were returned, for a bookmark.
    pub fn progress(&self) -> Revision {
        match self.scope == WatchScope::Everything || self.is_behind() {
            true => self.space.quiet_until(self.seen),
            false => self.space.group_quiet_until(&self.group, self.seen),
        }
    }

    /// Whether events may be unseen that the group does not have.
    fn is_behind(&self) -> bool {
        self.scope != WatchScope::Everything && self.seen < self.joined
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.space.leave(&self.scope);
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;
    use crate::keyspaces::Keyspaces;
    use crate::staged::StagedKeyspace;
    use crate::{Draft, EventKind, Record, WindowLimits};

    #[test]
    fn an_event_is_returned_by_the_first_poll_after_its_revision_is_visible() {
        let spaces = Keyspaces::new(Revision::FIRST, Revision::ZERO, WindowLimits::default());
        let (space, _) = spaces.get("things");
        for (revision, scope) in [
            (Revision(2), WatchScope::Everything),
            (Revision(3), WatchScope::Key("a".into())),
        ] {
            let mut watch = space.watch_scope(space.revision(), scope).unwrap();
            let mut next = pin!(watch.next());
            let mut context = Context::from_waker(Waker::noop());
            assert!(next.as_mut().poll(&mut context).is_pending());
            let record = Record::stamped("a".into(), revision, Arc::new([]), Draft::default());
            let mut staged = StagedKeyspace::new(&space);
            staged.apply(EventKind::Put, Arc::new(record));
            let turn = spaces.ledger().turn();
            staged.publish();
            turn.advance(revision);
            // A bookmark may name the revision now, although watches have not been notified yet.
            let Poll::Ready(Ok(events)) = next.poll(&mut context) else {
                panic!("the event is visible")
            };
            assert_eq!(events[0].revision, revision);
        }
    }
}
