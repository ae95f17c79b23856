//! What a space holds at one moment: its records and the ways to find them.
//!
//! All parts are persistent trees: a clone is O(1) and shares everything, and a change to the clone copies
//! only the path it touches. So a snapshot is consistent across map, index and counts for free.
//!
//! Invariant: `terms`, `counts` and `expiries` say exactly what can be derived from `records`.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::ops::Bound;
use std::ptr;
use std::sync::Arc;

use equivalent::{Comparable, Equivalent};
use foldhash::fast::RandomState;
use imbl::{OrdMap, OrdSet};

use crate::{Record, Revision};

#[derive(Clone, Debug, Default)]
pub(crate) struct KeyspaceState {
    /// The last transaction that changed this space.
    pub(crate) revision: Revision,
    /// The live values' bytes.
    pub(crate) bytes: u64,
    /// About what the records take when they are written to a disk, at most.
    pub(crate) disk_bytes: u64,
    /// The bytes of all values that were ever replaced or deleted: what keeping an old state may cost.
    pub(crate) superseded: u64,
    /// How many changes there ever were: each leaves behind a few nodes of the trees below.
    pub(crate) n_changes: u64,
    // Keyed by the record's own key, not a set of records: inner nodes keep copies of keys, and would keep
    // superseded records alive.
    records: OrdMap<Arc<str>, Arc<Record>>,
    terms: OrdSet<Posting>,
    expiries: OrdSet<(u64, Arc<str>)>,
    counts: OrdMap<Arc<str>, usize>,
}

impl KeyspaceState {
    /// The state of a space that holds nothing, last changed at `revision`.
    pub(crate) fn empty(revision: Revision) -> KeyspaceState {
        KeyspaceState {
            revision,
            ..KeyspaceState::default()
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Arc<Record>> {
        self.records.get(key)
    }

    /// Records whose key begins with `prefix`, from after the key `after`, in byte order.
    pub(crate) fn range<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
    ) -> impl Iterator<Item = &'a Arc<Record>> {
        self.records
            .range::<_, str>((start(prefix, after), Bound::Unbounded))
            .map(|(_, record)| record)
            .take_while(move |record| record.key.starts_with(prefix))
    }

    /// As `range`, but only records that carry `term`.
    pub(crate) fn with_term<'a>(
        &'a self,
        term: &'a str,
        prefix: &'a str,
        after: Option<&'a str>,
    ) -> impl Iterator<Item = &'a Arc<Record>> {
        let from = start(prefix, after).map(|key| PostingRef { term, key });
        self.terms
            .range::<_, PostingRef<'_>>((from, Bound::Unbounded))
            .take_while(move |posting| &*posting.term == term && posting.key.starts_with(prefix))
            .filter_map(|posting| self.get(&posting.key))
    }

    pub(crate) fn count(&self, prefix: &str) -> usize {
        match prefix {
            "" => self.records.len(),
            _ if prefix.ends_with('/') => self.counts.get(prefix).copied().unwrap_or_default(),
            _ => self.range(prefix, None).count(),
        }
    }

    /// Records that expire at or before `now`, those that expire first first.
    pub(crate) fn expired(&self, now: u64) -> impl Iterator<Item = &Arc<Record>> {
        self.expiries
            .iter()
            .take_while(move |(at, _)| *at <= now)
            .filter_map(|(_, key)| self.get(key))
    }

    /// The index's own copies of `terms`, so that many records share one.
    pub(crate) fn intern(&self, terms: &[Arc<str>]) -> Arc<[Arc<str>]> {
        terms
            .iter()
            .map(|term| self.known(term).unwrap_or_else(|| term.clone()))
            .collect()
    }

    fn known(&self, term: &str) -> Option<Arc<str>> {
        let place = PostingRef { term, key: "" };
        let posting = self.terms.range::<_, PostingRef<'_>>(&place..).next()?;
        (&*posting.term == term).then(|| posting.term.clone())
    }

    pub(crate) fn insert(&mut self, record: Arc<Record>) -> Option<Arc<Record>> {
        let previous = self.records.insert(record.key.clone(), record.clone());
        self.bytes += record.value.len() as u64;
        self.disk_bytes += record.disk_bytes();
        match &previous {
            Some(previous) => {
                self.bytes -= previous.value.len() as u64;
                self.disk_bytes -= previous.disk_bytes();
            }
            None => self.count_key(&record.key, |n| n + 1),
        }
        self.index(&record, previous.as_deref());
        previous
    }

    pub(crate) fn remove(&mut self, key: &str) -> Option<Arc<Record>> {
        let record = self.records.remove(key)?;
        self.bytes -= record.value.len() as u64;
        self.disk_bytes -= record.disk_bytes();
        self.count_key(key, |n| n - 1);
        self.unindex(&record);
        Some(record)
    }

    /// Most updates leave terms and expiry as they were, and then the indexes are not touched.
    fn index(&mut self, record: &Record, previous: Option<&Record>) {
        let same = |previous: &Record| {
            previous.terms == record.terms && previous.expires == record.expires
        };
        if previous.is_some_and(same) {
            return;
        }
        if let Some(previous) = previous {
            self.unindex(previous);
        }
        for term in record.terms.iter() {
            self.terms.insert(Posting {
                term: term.clone(),
                key: record.key.clone(),
            });
        }
        if let Some(at) = record.expires {
            self.expiries.insert((at, record.key.clone()));
        }
    }

    fn unindex(&mut self, record: &Record) {
        for term in record.terms.iter() {
            self.terms.remove(&PostingRef {
                term,
                key: &record.key,
            });
        }
        if let Some(at) = record.expires {
            self.expiries.remove(&(at, record.key.clone()));
        }
    }

    fn count_key(&mut self, key: &str, change: impl Fn(usize) -> usize) {
        for (slash, _) in key.match_indices('/') {
            let prefix = &key[..=slash];
            match change(self.counts.get(prefix).copied().unwrap_or_default()) {
                0 => drop(self.counts.remove(prefix)),
                n => drop(self.counts.insert(prefix.into(), n)),
            }
        }
    }
}

/// Builds a state of records that come in the order of their keys, which costs less than inserting each.
#[derive(Default)]
pub(crate) struct StateBuilder {
    state: KeyspaceState,
    /// The keys that carry a term, in their order. Those of one term are inserted together: neighbours share a node of
    /// the tree.
    by_term: HashMap<Arc<str>, Vec<Arc<str>>, RandomState>,
    counts: HashMap<Arc<str>, usize, RandomState>,
}

impl StateBuilder {
    /// Appends `record`, whose key comes after those of all earlier ones.
    pub(crate) fn push(&mut self, record: Arc<Record>) {
        let state = &mut self.state;
        state.bytes += record.value.len() as u64;
        state.disk_bytes += record.disk_bytes();
        for (slash, _) in record.key.match_indices('/') {
            let prefix = &record.key[..=slash];
            match self.counts.get_mut(prefix) {
                Some(count) => *count += 1,
                None => drop(self.counts.insert(prefix.into(), 1)),
            }
        }
        if let Some(at) = record.expires {
            state.expiries.insert((at, record.key.clone()));
        }
        for term in record.terms.iter() {
            match self.by_term.get_mut(term) {
                Some(keys) => keys.push(record.key.clone()),
                None => drop(self.by_term.insert(term.clone(), vec![record.key.clone()])),
            }
        }
        state.records.insert(record.key.clone(), record);
    }

    pub(crate) fn len(&self) -> usize {
        self.state.len()
    }

    pub(crate) fn last_key(&self) -> Option<&Arc<str>> {
        self.state.records.get_max().map(|(key, _)| key)
    }

    /// The records so far, in the order of their keys.
    pub(crate) fn records(&self) -> impl Iterator<Item = &Arc<Record>> {
        self.state.records.values()
    }

    /// The state, last changed at `revision`.
    pub(crate) fn finish(self, revision: Revision) -> KeyspaceState {
        let mut by_term: Vec<_> = self.by_term.into_iter().collect();
        by_term.sort_unstable();
        let postings = by_term.into_iter().flat_map(|(term, keys)| {
            keys.into_iter().map(move |key| Posting {
                term: term.clone(),
                key,
            })
        });
        KeyspaceState {
            revision,
            terms: postings.collect(),
            counts: self.counts.into_iter().collect(),
            ..self.state
        }
    }
}

/// Where a range begins: after the key of the last page, but never before the prefix.
fn start<'a>(prefix: &'a str, after: Option<&'a str>) -> Bound<&'a str> {
    match after {
        Some(after) if after >= prefix => Bound::Excluded(after),
        _ => Bound::Included(prefix),
    }
}

/// That the record of `key` carries `term`. It names the key, not the record, so an update that keeps its terms
/// leaves it alone.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Posting {
    term: Arc<str>,
    key: Arc<str>,
}

impl Posting {
    fn place(&self) -> PostingRef<'_> {
        PostingRef {
            term: &self.term,
            key: &self.key,
        }
    }
}

impl Ord for Posting {
    fn cmp(&self, other: &Posting) -> Ordering {
        self.place().cmp(&other.place())
    }
}

impl PartialOrd for Posting {
    fn partial_cmp(&self, other: &Posting) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A borrowed [`Posting`], to look one up.
struct PostingRef<'a> {
    term: &'a str,
    key: &'a str,
}

impl PostingRef<'_> {
    /// By term, then by key. Terms are shared, so most that are equal are the same, and need no look at their bytes.
    fn cmp(&self, other: &PostingRef<'_>) -> Ordering {
        let terms = if ptr::eq(self.term, other.term) {
            Ordering::Equal
        } else {
            self.term.cmp(other.term)
        };
        terms.then_with(|| self.key.cmp(other.key))
    }
}

impl Equivalent<Posting> for PostingRef<'_> {
    fn equivalent(&self, posting: &Posting) -> bool {
        self.cmp(&posting.place()).is_eq()
    }
}

impl Comparable<Posting> for PostingRef<'_> {
    fn compare(&self, posting: &Posting) -> Ordering {
        self.cmp(&posting.place())
    }
}

#[cfg(test)]
impl KeyspaceState {
    /// Compares records, indexes and sizes.
    #[track_caller]
    pub(crate) fn assert_same(&self, expected: &KeyspaceState) {
        let content = |state: &KeyspaceState| {
            let content = |record: &Arc<Record>| {
                let (terms, value) = (record.terms.clone(), record.value.clone());
                (
                    record.key.clone(),
                    record.revision,
                    value,
                    terms,
                    record.expires,
                )
            };
            state.records.values().map(content).collect::<Vec<_>>()
        };
        assert_eq!(content(self), content(expected));
        assert_eq!(self.terms, expected.terms);
        assert_eq!(self.expiries, expected.expiries);
        assert_eq!(self.counts, expected.counts);
        let sizes = |state: &KeyspaceState| (state.bytes, state.disk_bytes, state.revision);
        assert_eq!(sizes(self), sizes(expected));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Draft;

    fn record(n: usize) -> Arc<Record> {
        let draft = Draft {
            value: "x".repeat(n % 7).into(),
            expires: n.is_multiple_of(5).then_some(n as u64 % 11),
            ..Draft::default()
        };
        // Equal terms are not always the same allocation.
        let terms = [format!("a={}", n % 3), format!("b={}", n % 101)].map(Arc::from);
        let key = format!("ns-{:02}/{n:06}", n % 40);
        let revision = Revision(n as u64);
        Arc::new(Record::stamped(key.into(), revision, terms.into(), draft))
    }

    #[test]
    fn a_state_that_is_built_of_sorted_records_is_that_of_single_inserts() {
        let mut records: Vec<_> = (0..10_000).map(record).collect();
        records.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        let mut inserted = KeyspaceState::empty(Revision(7));
        let mut builder = StateBuilder::default();
        for record in records {
            inserted.insert(record.clone());
            builder.push(record);
        }
        let built = builder.finish(Revision(7));
        built.assert_same(&inserted);
        assert_eq!(built.count("ns-07/"), inserted.count("ns-07/"));
    }
}
