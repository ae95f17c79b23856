//! The store's one counter, and the gate through which a batch becomes visible.
//!
//! Invariant: the revision moves only while the gate is held for writing, together with the states of all spaces
//! that the batch changed. So whoever holds the gate for reading sees every space exactly at the revision, and
//! whoever loads revision R and then takes a snapshot sees every write up to R.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

use crate::Revision;

#[derive(Debug)]
pub(crate) struct Ledger {
    gate: RwLock<()>,
    revision: AtomicU64,
    /// What was before this revision cannot be read any more, in any space.
    compacted: AtomicU64,
    /// Rings when the revision has moved.
    bell: watch::Sender<()>,
    /// Nothing before this is remembered, in any space.
    pub(crate) opened: Revision,
}

impl Ledger {
    pub(crate) fn new(revision: Revision, opened: Revision) -> Ledger {
        Ledger {
            gate: RwLock::default(),
            revision: AtomicU64::new(revision.0),
            compacted: AtomicU64::default(),
            bell: watch::Sender::default(),
            opened,
        }
    }

    /// Waits until readers can see `revision`.
    pub(crate) async fn reached(&self, revision: Revision) {
        // Subscribed before looking, so that a ring during the look is not missed.
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

    /// Holds off publishing.
    pub(crate) fn still(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read()
    }

    /// Holds off readers, for as long as it takes to swap a few pointers.
    pub(crate) fn turn(&self) -> Turn<'_> {
        Turn {
            ledger: self,
            gate: self.gate.write(),
        }
    }
}

/// The gate, held for publishing.
pub(crate) struct Turn<'a> {
    ledger: &'a Ledger,
    gate: RwLockWriteGuard<'a, ()>,
}

impl Turn<'_> {
    /// Everything up to `revision` is in place.
    pub(crate) fn advance(self, revision: Revision) {
        self.ledger.revision.store(revision.0, Ordering::Release);
        drop(self.gate);
        self.ledger.bell.send_replace(());
    }
}
