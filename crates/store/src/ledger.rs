//! The store's one counter, and the gate through which a batch becomes visible.
//!
//! Invariant: the revision moves only while the gate is held for writing, together with the states of all spaces
//! that the batch changed. So whoever holds the gate for reading sees every space exactly at the revision, and
//! whoever loads revision R and then takes a snapshot sees every write up to R.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::{Revision, lock};

#[derive(Debug)]
pub(crate) struct Ledger {
    gate: RwLock<()>,
    revision: AtomicU64,
    /// Nothing before this is remembered, in any space.
    pub(crate) opened: Revision,
}

impl Ledger {
    pub(crate) fn new(revision: Revision, opened: Revision) -> Ledger {
        Ledger { gate: RwLock::default(), revision: AtomicU64::new(revision.0), opened }
    }

    /// The latest revision that readers can see.
    pub(crate) fn revision(&self) -> Revision {
        Revision(self.revision.load(Ordering::Acquire))
    }

    /// Holds off publishing.
    pub(crate) fn still(&self) -> RwLockReadGuard<'_, ()> {
        lock::read(&self.gate)
    }

    /// Holds off readers, for as long as it takes to swap a few pointers.
    pub(crate) fn turn(&self) -> Turn<'_> {
        Turn { ledger: self, _gate: lock::write(&self.gate) }
    }
}

/// The gate, held for publishing.
pub(crate) struct Turn<'a> {
    ledger: &'a Ledger,
    _gate: RwLockWriteGuard<'a, ()>,
}

impl Turn<'_> {
    /// Everything up to `revision` is in place.
    pub(crate) fn advance(self, revision: Revision) {
        self.ledger.revision.store(revision.0, Ordering::Release);
    }
}
