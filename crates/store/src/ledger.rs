//! The store's one counter, and the gate through which a batch becomes visible.
//!
//! Invariant: the revision moves only while the gate is held for writing, together with the states of all spaces
//! that the batch changed. So a reader that holds the gate sees every space exactly at the revision, and a
//! reader that loads revision R and then takes a snapshot sees every write up to R.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

use crate::Revision;

#[derive(Debug)]
pub(crate) struct RevisionLedger {
    gate: RwLock<()>,
    revision: AtomicU64,
    /// What was before this revision cannot be read any more, in any space.
    compacted: AtomicU64,
    /// Notified when the revision has moved.
    bell: watch::Sender<()>,
    /// Nothing before this is remembered, in any space.
    pub(crate) opened: Revision,
}

impl RevisionLedger {
    pub(crate) fn new(revision: Revision, opened: Revision) -> RevisionLedger {
        RevisionLedger {
            gate: RwLock::default(),
            revision: AtomicU64::new(revision.0),
            compacted: AtomicU64::default(),
            bell: watch::Sender::default(),
            opened,
        }
    }

    /// Waits until readers can see `revision`.
    pub(crate) async fn reached(&self, revision: Revision) {
        // Subscribed before reading, so that a notification in between is not missed.
        let mut bell = self.bell.subscribe();
        while self.revision() < revision {
            bell.changed()
                .await
                .expect("the bell is held by this ledger");
        }
    }

    pub(crate) fn compact(&self, revision: Revision) {
        self.compacted.fetch_max(revision.0, Ordering::AcqRel);
    }

    /// The oldest revision that can be read.
    pub(crate) fn compacted(&self) -> Revision {
        Revision(self.compacted.load(Ordering::Acquire))
    }

    /// The latest revision that readers can see.
    pub(crate) fn revision(&self) -> Revision {
        Revision(self.revision.load(Ordering::Acquire))
    }

    /// Moves on to `revision`, if it is later. For a ledger that no state belongs to.
    pub(crate) fn advance_to(&self, revision: Revision) {
        if self.revision.fetch_max(revision.0, Ordering::AcqRel) < revision.0 {
            self.bell.send_replace(());
        }
    }

    /// Blocks publishing.
    pub(crate) fn still(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read()
    }

    /// Blocks readers while a few pointers are swapped.
    pub(crate) fn turn(&self) -> PublishGuard<'_> {
        PublishGuard {
            ledger: self,
            gate: self.gate.write(),
        }
    }
}

/// The gate, held for publishing.
pub(crate) struct PublishGuard<'a> {
    ledger: &'a RevisionLedger,
    gate: RwLockWriteGuard<'a, ()>,
}

impl PublishGuard<'_> {
    /// Publishes `revision`.
    pub(crate) fn advance(self, revision: Revision) {
        self.ledger.revision.store(revision.0, Ordering::Release);
        drop(self.gate);
        self.ledger.bell.send_replace(());
    }
}
