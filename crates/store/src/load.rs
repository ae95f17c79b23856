//! Builds the keyspaces of a store from its journal.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::mem;
use std::sync::Arc;

use crate::disk::content;
use crate::seal::SealError;
use crate::spaces::Spaces;
use crate::state::State;
use crate::{Draft, EventKind, Journal, OpenError, Options, Record, Revision, Saved, Sealer};

/// Brings back what the journal kept.
pub(crate) fn load(journal: &mut dyn Journal, options: &Options) -> Result<Spaces, OpenError> {
    let mut loading = Loading::default();
    let opened = journal.replay(&mut |saved| loading.take(saved))?;
    let revision = opened.unwrap_or(Revision::FIRST);
    let spaces = Spaces::new(revision, opened.unwrap_or(Revision::ZERO), options.window);
    let sealer = options.sealer.as_deref();
    for (name, kept) in mem::take(&mut loading.spaces) {
        let records = loading.open(&name, kept, sealer)?;
        spaces.add(name, settle(records, revision));
    }
    Ok(spaces)
}

/// Records by key, in no order: most are replaced a few times before the state is settled.
type Records = HashMap<Arc<str>, Kept>;

/// A record as far as it is known. What is sealed is only opened once it is sure to be live.
enum Kept {
    Plain(Arc<Record>),
    Sealed(Unopened),
}

struct Unopened {
    revision: Revision,
    expires: Option<u64>,
    content: Box<[u8]>,
}

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
        let records = self
            .spaces
            .get_mut(saved.space)
            .expect("it was just put there");
        if saved.sealed {
            let Saved {
                key,
                revision,
                expires,
                value,
                ..
            } = saved;
            let unopened = Unopened {
                revision,
                expires,
                content: value.into(),
            };
            records.insert(key.into(), Kept::Sealed(unopened));
            return;
        }
        let record = Arc::new(Record::saved(saved, terms));
        records.insert(record.key.clone(), Kept::Plain(record));
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

    /// All records of a space, opened, by their keys.
    fn open(
        &mut self,
        space: &Arc<str>,
        kept: Records,
        sealer: Option<&dyn Sealer>,
    ) -> Result<Vec<Arc<Record>>, OpenError> {
        let plain = sealer.map_or(Ok(()), |sealer| sealer.admit_plain(space));
        let mut kept: Vec<_> = kept.into_iter().collect();
        kept.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let open = |(key, kept): (Arc<str>, Kept)| {
            let opened = match kept {
                Kept::Plain(record) => plain.clone().map(|()| record),
                Kept::Sealed(sealed) => self.unseal(space, &key, &sealed, sealer),
            };
            opened.map_err(|source| OpenError::Sealed {
                space: space.clone(),
                key,
                source,
            })
        };
        kept.into_iter().map(open).collect()
    }

    fn unseal(
        &mut self,
        space: &str,
        key: &Arc<str>,
        sealed: &Unopened,
        sealer: Option<&dyn Sealer>,
    ) -> Result<Arc<Record>, SealError> {
        let sealer = sealer.ok_or_else(|| SealError("it is sealed, and there is no key".into()))?;
        let (plain, mark) = sealer.open(space, key, &sealed.content)?;
        let draft = content::unpack(&plain, |term| self.intern(term));
        let draft = draft.ok_or_else(|| SealError("what was sealed makes no sense".into()))?;
        let draft = Draft {
            expires: sealed.expires,
            ..draft
        };
        let terms = draft.terms.clone().into();
        Ok(Arc::new(
            Record::stamped(key.clone(), sealed.revision, terms, draft).marked(mark),
        ))
    }
}

/// The state of a space that holds `records`, which are in order. When it changed last is not known if that was a
/// delete; that it did not change after `revision` is.
fn settle(records: Vec<Arc<Record>>, revision: Revision) -> State {
    let mut state = State::empty(revision);
    records
        .into_iter()
        .for_each(|record| drop(state.insert(record)));
    state
}
