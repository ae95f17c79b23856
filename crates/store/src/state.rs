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

/// How many postings of a term go into the index together: neighbours share its nodes.
const POSTINGS: usize = if cfg!(test) { 3 } else { 64 };

/// How many postings of all terms may wait.
const ALL_POSTINGS: usize = if cfg!(test) { 100 } else { 1 << 17 };

/// Builds a state that has no readers before it is complete, which costs less than changing one. Keys that come in their order
/// cost least.
#[derive(Default)]
pub(crate) struct StateBuilder {
    state: KeyspaceState,
    /// What is not in the index of terms yet, by the address of the term: records that are loaded share their terms, and to
    /// hash the text of one would take it from the cache of the thread that loads them.
    pending: HashMap<usize, PendingPostings, RandomState>,
    n_pending: usize,
    counts: HashMap<Arc<str>, usize, RandomState>,
}

/// Keys that carry a term.
struct PendingPostings {
    term: Arc<str>,
    keys: Vec<Arc<str>>,
}

impl PendingPostings {
    /// Moves them into the index, and returns how many they were.
    fn flush(&mut self, terms: &mut OrdSet<Posting>) -> usize {
        let n_keys = self.keys.len();
        for key in self.keys.drain(..) {
            let term = self.term.clone();
            terms.insert(Posting { term, key });
        }
        n_keys
    }
}

impl StateBuilder {
    /// Puts `record`, in place of the one of its key if there is one.
    pub(crate) fn insert(&mut self, record: Arc<Record>) {
        let state = &mut self.state;
        state.bytes += record.value.len() as u64;
        state.disk_bytes += record.disk_bytes();
        let previous = state.records.insert(record.key.clone(), record.clone());
        let Some(previous) = previous else {
            self.count_key(&record.key, |n| n + 1);
            return self.index(&record);
        };
        state.bytes -= previous.value.len() as u64;
        state.disk_bytes -= previous.disk_bytes();
        // A posting waits under the very term of its record.
        let mut terms = previous.terms.iter().zip(record.terms.iter());
        let is_same = previous.terms.len() == record.terms.len()
            && terms.all(|(previous, term)| Arc::ptr_eq(previous, term))
            && previous.expires == record.expires;
        if !is_same {
            self.unindex(&previous);
            self.index(&record);
        }
    }

    /// Removes the record of `key`, if there is one.
    pub(crate) fn remove(&mut self, key: &str) {
        let state = &mut self.state;
        let Some(record) = state.records.remove(key) else {
            return;
        };
        state.bytes -= record.value.len() as u64;
        state.disk_bytes -= record.disk_bytes();
        self.count_key(key, |n| n - 1);
        self.unindex(&record);
    }

    pub(crate) fn last_key(&self) -> Option<&Arc<str>> {
        self.state.records.get_max().map(|(key, _)| key)
    }

    /// The state, last changed at `revision`.
    pub(crate) fn finish(mut self, revision: Revision) -> KeyspaceState {
        self.flush();
        let counts = self.counts.into_iter().filter(|(_, count)| *count > 0);
        KeyspaceState {
            revision,
            counts: counts.collect(),
            ..self.state
        }
    }

    fn index(&mut self, record: &Record) {
        for term in record.terms.iter() {
            let pending = self.pending.entry(address(term));
            let pending = pending.or_insert_with(|| PendingPostings {
                term: term.clone(),
                keys: Vec::new(),
            });
            pending.keys.push(record.key.clone());
            self.n_pending += 1;
            if pending.keys.len() == POSTINGS {
                self.n_pending -= pending.flush(&mut self.state.terms);
            }
        }
        if let Some(at) = record.expires {
            self.state.expiries.insert((at, record.key.clone()));
        }
        if self.n_pending >= ALL_POSTINGS {
            self.flush();
        }
    }

    fn unindex(&mut self, record: &Record) {
        for term in record.terms.iter() {
            if let Some(pending) = self.pending.get_mut(&address(term)) {
                self.n_pending -= pending.flush(&mut self.state.terms);
            }
        }
        self.state.unindex(record);
    }

    /// Moves all postings that wait into the index, in its order.
    fn flush(&mut self) {
        let mut pending: Vec<_> = self.pending.drain().map(|(_, pending)| pending).collect();
        pending.sort_unstable_by(|one, other| one.term.cmp(&other.term));
        for mut pending in pending {
            pending.flush(&mut self.state.terms);
        }
        self.n_pending = 0;
    }

    fn count_key(&mut self, key: &str, change: impl Fn(usize) -> usize) {
        for (slash, _) in key.match_indices('/') {
            let prefix = &key[..=slash];
            match self.counts.get_mut(prefix) {
                Some(count) => *count = change(*count),
                None => drop(self.counts.insert(prefix.into(), change(0))),
            }
        }
    }
}

/// Where a term lies. Another term lies there only once this one is dropped.
fn address(term: &Arc<str>) -> usize {
    Arc::as_ptr(term).cast::<()>().addr()
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
    fn a_state_that_is_built_is_that_of_single_changes() {
        let mut records: Vec<_> = (0..10_000).map(record).collect();
        records.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        let mut changed = KeyspaceState::empty(Revision(7));
        let mut builder = StateBuilder::default();
        for record in &records {
            changed.insert(record.clone());
            builder.insert(record.clone());
        }
        // Of other keys some are new; of the same keys some get other terms, and some equal ones of their own.
        for n in (0..30_000).step_by(7) {
            let other = record(n);
            let key = records[n * 13 % 10_000].key.clone();
            let terms: Arc<[Arc<str>]> = match n % 3 {
                0 => other.terms.clone(),
                1 => other.terms.iter().map(|term| Arc::from(&**term)).collect(),
                _ => Arc::new([]),
            };
            let replaced = Record::stamped(key.clone(), other.revision, terms, other.redraft());
            for record in [Arc::new(replaced), other] {
                changed.insert(record.clone());
                builder.insert(record);
            }
            if n % 5 == 0 {
                changed.remove(&key);
                builder.remove(&key);
                builder.remove("not there");
            }
        }
        let built = builder.finish(Revision(7));
        built.assert_same(&changed);
        assert_eq!(built.count("ns-07/"), changed.count("ns-07/"));
    }

    #[test]
    fn a_state_of_which_all_was_removed_is_empty() {
        let mut builder = StateBuilder::default();
        for n in 0..100 {
            builder.insert(record(n));
        }
        for n in 0..100 {
            builder.remove(&record(n).key);
        }
        let built = builder.finish(Revision(7));
        built.assert_same(&KeyspaceState::empty(Revision(7)));
    }
}
