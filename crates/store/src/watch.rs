//! What happens from here on: a cursor into a space's window.
//!
//! A watcher has no queue. It remembers the last revision it was told, sleeps on the space's bell and copies what
//! the window has since then. Writers ring the bell and never wait.
//!
//! Invariant: a watcher sees each event after its start once and in order, or `Expired`; never a gap.

use tokio::sync::watch;

use crate::{Event, Revision, Space};

/// How many events a watcher is given at once; a transaction is never split, so it may be a few more.
const BATCH: usize = 512;

/// A reader of a space's events. Forgetting one costs nothing, keeping one costs a few words.
#[derive(Debug)]
pub struct Watch {
    space: Space,
    bell: watch::Receiver<()>,
    seen: Revision,
}

/// The past that was asked for is forgotten: list again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("revision {asked} is too old, history begins at {oldest}")]
pub struct Expired {
    /// The revision that was asked for.
    pub asked: Revision,
    /// The oldest revision that would have done.
    pub oldest: Revision,
}

impl Watch {
    pub(crate) fn new(space: Space, bell: watch::Receiver<()>, after: Revision) -> Watch {
        Watch {
            space,
            bell,
            seen: after,
        }
    }

    /// The next events, at least one: waits until there are some. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Vec<Event>, Expired> {
        loop {
            // Marked as heard before looking, so that a ring during the look is not missed.
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

    /// A revision up to which this watcher was surely told everything: what a bookmark may promise.
    pub fn progress(&self) -> Revision {
        self.space.quiet_until(self.seen)
    }
}
