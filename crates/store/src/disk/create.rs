//! A new journal of records that have their revisions already: those of another store.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::Disk;
use crate::state::KeyspaceState;
use crate::{AppendError, Draft, Journal as _, LiveRecords, OpenError, Options, Record, Revision};

/// A record of a new journal.
#[derive(Debug)]
pub struct CreatedRecord {
    /// The name of its space.
    pub space: Arc<str>,
    /// The key within the space.
    pub key: Arc<str>,
    /// The revision that wrote it.
    pub revision: Revision,
    /// The record.
    pub draft: Draft,
}

/// Creates the journal of `records` in `dir`, which is created if need be and must have no journal yet. The store in it is at
/// `revision`, or at that of the latest record. Of a key that occurs twice the later entry counts.
pub fn create(
    dir: &Path,
    options: &Options,
    revision: Revision,
    records: Vec<CreatedRecord>,
) -> Result<(), OpenError> {
    let failed = |source| OpenError::Io {
        path: dir.into(),
        source,
    };
    let mut disk = Disk::open(dir, options)?;
    if disk.replay(&mut |_| {})?.is_some() {
        return Err(failed(io::ErrorKind::AlreadyExists.into()));
    }
    let latest = records.iter().map(|record| record.revision).max();
    let revision = revision.max(latest.unwrap_or_default());
    let live = LiveRecords {
        revision,
        spaces: spaces(revision, records),
    };
    let started = disk.compact(live);
    started.map_err(|error| match error {
        AppendError::NotWritten(source) | AppendError::Unknown(source) => failed(source),
    })?;
    let compaction = disk.compaction.take();
    compaction
        .map_or(Ok(0), super::Compaction::finish)
        .map(drop)
        .map_err(failed)
}

/// The states of the spaces, by name.
fn spaces(revision: Revision, records: Vec<CreatedRecord>) -> Vec<(Arc<str>, Arc<KeyspaceState>)> {
    let mut states: BTreeMap<Arc<str>, KeyspaceState> = BTreeMap::new();
    let mut interned: HashSet<Arc<str>> = HashSet::new();
    for record in records {
        let CreatedRecord {
            space,
            key,
            revision: written,
            mut draft,
        } = record;
        draft.terms.sort_unstable();
        draft.terms.dedup();
        let terms = draft.terms.iter().map(|term| match interned.get(term) {
            Some(term) => term.clone(),
            None => {
                interned.insert(term.clone());
                term.clone()
            }
        });
        let terms = terms.collect();
        let record = Record::stamped(key, written, terms, draft);
        let state = states
            .entry(space)
            .or_insert_with(|| KeyspaceState::empty(revision));
        state.insert(Arc::new(record));
    }
    states
        .into_iter()
        .map(|(name, state)| (name, Arc::new(state)))
        .collect()
}
