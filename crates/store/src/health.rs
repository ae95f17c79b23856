//! Whether a store accepts writes.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

/// Whether a store accepts writes. Reads and watches always work.
#[derive(Clone, Debug, Default)]
pub enum Health {
    /// All writes are accepted.
    #[default]
    Writable,
    /// The disk is full: only deletes, and updates that lead to one, are accepted. Recovers by itself.
    Full(Arc<io::Error>),
    /// A sync failed, so the content of the disk is unknown: writes are rejected until the store is reopened.
    Failed(Arc<io::Error>),
}

/// Failures since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteFailures {
    /// Transactions that were refused or not stored because there was no space, or because a sync had failed.
    pub refused_writes: u64,
    /// Compactions of the log on disk that could not begin or not be finished.
    pub compactions: u64,
}

/// The health of a store, published by its sequencer.
#[derive(Debug, Default)]
pub(crate) struct HealthMonitor {
    health: watch::Sender<Health>,
    refused_writes: AtomicU64,
    compactions: AtomicU64,
}

impl HealthMonitor {
    pub(crate) fn health(&self) -> Health {
        self.health.borrow().clone()
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    pub(crate) fn set(&self, health: Health) {
        self.health.send_replace(health);
    }

    pub(crate) fn count_refused(&self) {
        self.refused_writes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn set_failed_compactions(&self, n_failed: u64) {
        self.compactions.store(n_failed, Ordering::Relaxed);
    }

    pub(crate) fn failures(&self) -> WriteFailures {
        WriteFailures {
            refused_writes: self.refused_writes.load(Ordering::Relaxed),
            compactions: self.compactions.load(Ordering::Relaxed),
        }
    }
}
