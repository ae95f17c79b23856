//! A watch: a cursor into the window of a keyspace.
//!
//! A watcher has no queue. It keeps the last revision that it returned, waits for a notification of the keyspace and
//! copies newer events from the window. Writers notify and never wait.
//!
//! Invariant: a watcher sees each event after its start once and in order, or `Expired`; never a gap.

use tokio::sync::watch;

use crate::{Event, Keyspace, Revision};

/// How many events a watcher is given at once; a transaction is never split, so it may be a few more.
const BATCH: usize = 512;

/// A reader of the events of a keyspace. It takes a few words of memory.
#[derive(Debug)]
pub struct Watch {
    space: Keyspace,
    bell: watch::Receiver<()>,
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
    pub(crate) fn new(space: Keyspace, bell: watch::Receiver<()>, after: Revision) -> Watch {
        Watch {
            space,
            bell,
            seen: after,
        }
    }

    /// The next events, at least one: waits until there are some. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Vec<Event>, Expired> {
        loop {
            // Marked as seen before reading, so that a notification in between is not missed.
            self.bell.borrow_and_update();
            let events = self.ready()?;
            if !events.is_empty() {
                return Ok(events);
            }
            self.bell
                .changed()
                .await
                .expect("the space, which has the bell, is held by this watch");
        }
    }

    /// The next events that are there already, perhaps none.
    pub fn ready(&mut self) -> Result<Vec<Event>, Expired> {
        let events = self.space.events_after(self.seen, BATCH)?;
        if let Some(last) = events.last() {
            self.seen = last.revision;
        }
        Ok(events)
    }

    /// The revision up to which all events were returned, for a bookmark.
    pub fn progress(&self) -> Revision {
        self.space.quiet_until(self.seen)
    }
}
