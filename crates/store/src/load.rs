//! Opening: from what a journal kept to the spaces of a store.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::spaces::Spaces;
use crate::state::State;
use crate::{Bounds, EventKind, Journal, OpenError, Record, Revision, Saved};

/// Brings back what the journal kept.
pub(crate) fn load(journal: &mut dyn Journal, bounds: Bounds) -> Result<Spaces, OpenError> {
    let mut loading = Loading::default();
    let opened = journal.replay(&mut |saved| loading.take(saved))?;
    let revision = opened.unwrap_or(Revision::FIRST);
    let spaces = Spaces::new(revision, opened.unwrap_or(Revision::ZERO), bounds);
    for (name, records) in loading.spaces {
        spaces.add(name, settle(records, revision));
    }
    Ok(spaces)
}

/// Records by key, in no order: most are replaced a few times before the state is settled.
type Records = HashMap<Arc<str>, Arc<Record>>;

#[derive(Default)]
struct Loading {
    spaces: BTreeMap<Arc<str>, Records>,
    /// One copy of each term.
    terms: HashSet<Arc<str>>,
}

impl Loading {
    fn take(&mut self, saved: Saved<'_>) {
        match saved.kind {
            EventKind::Put => self.put(saved),
            EventKind::Delete => self.delete(saved),
        }
    }

    fn put(&mut self, saved: Saved<'_>) {
        let terms = saved.terms.iter().map(|term| self.intern(term)).collect();
        if !self.spaces.contains_key(saved.space) {
            self.spaces.insert(saved.space.into(), Records::new());
        }
        let records = self.spaces.get_mut(saved.space).expect("it was just put there");
        let record = Arc::new(Record::saved(saved, terms));
        records.insert(record.key.clone(), record);
    }

    fn delete(&mut self, saved: Saved<'_>) {
        if let Some(records) = self.spaces.get_mut(saved.space) {
            records.remove(saved.key);
        }
    }

    fn intern(&mut self, term: &str) -> Arc<str> {
        if let Some(known) = self.terms.get(term) {
            return known.clone();
        }
        let term: Arc<str> = term.into();
        self.terms.insert(term.clone());
        term
    }
}

/// The state of a space that holds `records`. When it changed last is not known if that was a delete; that it did not
/// change after `revision` is.
fn settle(records: Records, revision: Revision) -> State {
    let mut records: Vec<_> = records.into_values().collect();
    records.sort_unstable_by(|one, other| one.key.cmp(&other.key));
    let mut state = State::empty(revision);
    records.into_iter().for_each(|record| drop(state.insert(record)));
    state
}
