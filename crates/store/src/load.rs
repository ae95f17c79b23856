//! Builds the keyspaces of a store from its journal.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::mem;
use std::sync::{Arc, mpsc};
use std::thread;

use foldhash::fast::RandomState;

use crate::disk::content;
use crate::encryption::EncryptionError;
use crate::keyspaces::Keyspaces;
use crate::state::{KeyspaceState, StateBuilder};
use crate::{Draft, Encryptor, EventKind, Journal, OpenError, Options, Record, Revision, Saved};

/// How many changes are handed over at a time.
const BATCH: usize = 256;

/// How many batches may wait.
const N_BATCHES: usize = 16;

/// Up to this part of a space is changed in its state; if more came later, the state is built anew.
const FEW: usize = 8;

/// Brings back what the journal kept. One thread reads, verifies and decodes while another keeps what is live, so that
/// opening takes about half the time on two cores.
pub(crate) fn load(journal: &mut dyn Journal, options: &Options) -> Result<Keyspaces, OpenError> {
    let (batches, received) = mpsc::sync_channel(N_BATCHES);
    let mut decoder = RecordDecoder {
        spaces: Interner::default(),
        terms: Interner::default(),
        batch: Vec::with_capacity(BATCH),
        batches,
    };
    let encryptor = options.encryptor.as_deref();
    let (opened, mut terms, live) = thread::scope(|scope| {
        let live = scope.spawn(|| collect_live(received, encryptor));
        let opened = journal.replay(&mut |saved| decoder.take(saved));
        let terms = decoder.finish();
        let live = live.join().expect("collecting records does not panic");
        (opened, terms, live)
    });
    let opened = opened?;
    let revision = opened.unwrap_or(Revision::FIRST);
    let spaces = Keyspaces::new(revision, opened.unwrap_or(Revision::ZERO), options.window);
    for (name, space) in live {
        let open = |key, record| terms.open(&name, key, record, encryptor);
        // When it changed last is not known if that was a delete; that it did not change after `revision` is.
        let state = space.finish(revision, open)?;
        spaces.add(name, state);
    }
    Ok(spaces)
}

/// The last state of each key of a space.
///
/// A base, and a log of new keys, come in the order of their keys: the state is built of such records while the next
/// ones are read. Other changes are kept until all are known.
#[derive(Default)]
struct LiveSpace {
    built: StateBuilder,
    /// What came later, `None` for a delete. It takes precedence over `built`.
    later: HashMap<Arc<str>, Option<LoadedRecord>, RandomState>,
    /// Plain text is rejected, if it is live. So nothing is built before that is known.
    rejects_plain_text: bool,
}

impl LiveSpace {
    fn change(&mut self, key: Arc<str>, record: Option<LoadedRecord>) {
        let is_next = self.later.is_empty()
            && !self.rejects_plain_text
            && self.built.last_key().is_none_or(|last| *last < key);
        match record {
            Some(LoadedRecord::Plain(record)) if is_next => self.built.push(record),
            record => drop(self.later.insert(key, record)),
        }
    }

    /// The state of what is live.
    fn finish(
        self,
        revision: Revision,
        mut open: impl FnMut(Arc<str>, LoadedRecord) -> Result<Arc<Record>, OpenError>,
    ) -> Result<KeyspaceState, OpenError> {
        let mut later: Vec<_> = self.later.into_iter().collect();
        later.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        if later.len() < self.built.len() / FEW {
            let mut state = self.built.finish(revision);
            for (key, record) in later {
                match record {
                    Some(record) => drop(state.insert(open(key, record)?)),
                    None => drop(state.remove(&key)),
                }
            }
            return Ok(state);
        }
        let mut merged = StateBuilder::default();
        let mut earlier = self.built.records().peekable();
        for (key, record) in later {
            while let Some(record) = earlier.next_if(|record| record.key < key) {
                merged.push(record.clone());
            }
            earlier.next_if(|record| record.key == key);
            if let Some(record) = record {
                merged.push(open(key, record)?);
            }
        }
        earlier.for_each(|record| merged.push(record.clone()));
        Ok(merged.finish(revision))
    }
}

/// A record that was read. Encrypted content is only decrypted once the record is sure to be live.
enum LoadedRecord {
    Plain(Arc<Record>),
    Encrypted(EncryptedRecord),
}

struct EncryptedRecord {
    revision: Revision,
    expires: Option<u64>,
    content: Box<[u8]>,
}

/// A change as it is handed over: a delete has no record.
struct LoadedChange {
    space: Arc<str>,
    key: Arc<str>,
    record: Option<LoadedRecord>,
}

/// Keeps the last state of each key.
fn collect_live(
    batches: mpsc::Receiver<Vec<LoadedChange>>,
    encryptor: Option<&dyn Encryptor>,
) -> BTreeMap<Arc<str>, LiveSpace> {
    let mut live: BTreeMap<Arc<str>, LiveSpace> = BTreeMap::new();
    for change in batches.into_iter().flatten() {
        let space = match live.get_mut(&change.space) {
            Some(space) => space,
            None => {
                let rejects_plain_text = encryptor
                    .is_some_and(|encryptor| encryptor.allow_plain_text(&change.space).is_err());
                live.entry(change.space).or_insert(LiveSpace {
                    rejects_plain_text,
                    ..LiveSpace::default()
                })
            }
        };
        space.change(change.key, change.record);
    }
    live
}

/// Makes records of what the journal reads, and hands them over in batches.
struct RecordDecoder {
    spaces: Interner,
    terms: Interner,
    batch: Vec<LoadedChange>,
    batches: mpsc::SyncSender<Vec<LoadedChange>>,
}

impl RecordDecoder {
    fn take(&mut self, saved: Saved<'_>) {
        let space = self.spaces.intern(saved.space);
        let change = match saved.kind {
            EventKind::Delete => LoadedChange {
                space,
                key: saved.key.into(),
                record: None,
            },
            EventKind::Put if saved.is_encrypted => LoadedChange {
                space,
                key: saved.key.into(),
                record: Some(LoadedRecord::Encrypted(EncryptedRecord {
                    revision: saved.revision,
                    expires: saved.expires,
                    content: saved.value.into(),
                })),
            },
            EventKind::Put => {
                let terms = saved.terms.iter().map(|term| self.terms.intern(term));
                let terms = terms.collect();
                let record = Arc::new(Record::saved(saved, terms));
                LoadedChange {
                    space,
                    key: record.key.clone(),
                    record: Some(LoadedRecord::Plain(record)),
                }
            }
        };
        self.batch.push(change);
        if self.batch.len() == BATCH {
            let batch = mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
            self.send(batch);
        }
    }

    fn send(&self, batch: Vec<LoadedChange>) {
        // The receiver only ends early by a panic, which is reported when it is joined.
        let _ = self.batches.send(batch);
    }

    /// Hands over the last batch.
    fn finish(mut self) -> Interner {
        let batch = mem::take(&mut self.batch);
        self.send(batch);
        self.terms
    }
}

/// One copy of each text.
#[derive(Default)]
struct Interner(HashSet<Arc<str>, RandomState>);

impl Interner {
    fn intern(&mut self, text: &str) -> Arc<str> {
        if let Some(interned) = self.0.get(text) {
            return interned.clone();
        }
        let text: Arc<str> = text.into();
        self.0.insert(text.clone());
        text
    }

    /// A record that is live, decrypted.
    fn open(
        &mut self,
        space: &Arc<str>,
        key: Arc<str>,
        record: LoadedRecord,
        encryptor: Option<&dyn Encryptor>,
    ) -> Result<Arc<Record>, OpenError> {
        let opened = match record {
            LoadedRecord::Plain(record) => encryptor
                .map_or(Ok(()), |encryptor| encryptor.allow_plain_text(space))
                .map(|()| record),
            LoadedRecord::Encrypted(encrypted) => self.decrypt(space, &key, &encrypted, encryptor),
        };
        opened.map_err(|source| OpenError::Decrypt {
            space: space.clone(),
            key,
            source,
        })
    }

    fn decrypt(
        &mut self,
        space: &str,
        key: &Arc<str>,
        encrypted: &EncryptedRecord,
        encryptor: Option<&dyn Encryptor>,
    ) -> Result<Arc<Record>, EncryptionError> {
        let encryptor = encryptor
            .ok_or_else(|| EncryptionError("it is encrypted, and there is no key".into()))?;
        let (plain, mark) = encryptor.decrypt(space, key, &encrypted.content)?;
        let draft = content::unpack(&plain, |term| self.intern(term));
        let draft =
            draft.ok_or_else(|| EncryptionError("the decrypted content is invalid".into()))?;
        let draft = Draft {
            expires: encrypted.expires,
            ..draft
        };
        let terms = draft.terms.clone().into();
        Ok(Arc::new(
            Record::stamped(key.clone(), encrypted.revision, terms, draft).marked(mark),
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::{AppendError, EncryptedContent, JournalEntry, KeyMark};

    const SPACE: &str = "pods";
    const KEY: KeyMark = KeyMark(1);

    /// How a key is changed.
    #[derive(Clone, Copy, Debug)]
    enum Change {
        Plain,
        Encrypted,
        Delete,
    }

    /// An encryptor that reverses the content, and accepts plain text.
    #[derive(Debug)]
    struct Reversing;

    impl Encryptor for Reversing {
        fn mark(&self, _space: &str) -> KeyMark {
            KEY
        }

        fn encrypt(
            &self,
            _space: &str,
            _key: &str,
            _plain: &[u8],
        ) -> Result<Option<EncryptedContent>, EncryptionError> {
            unreachable!("nothing is written")
        }

        fn decrypt(
            &self,
            _space: &str,
            _key: &str,
            ciphertext: &[u8],
        ) -> Result<(Vec<u8>, KeyMark), EncryptionError> {
            Ok((ciphertext.iter().rev().copied().collect(), KEY))
        }

        fn allow_plain_text(&self, _space: &str) -> Result<(), EncryptionError> {
            Ok(())
        }

        fn is_current(&self, _space: &str, _ciphertext: Option<&[u8]>) -> bool {
            true
        }

        fn generation(&self) -> u64 {
            0
        }
    }

    /// A journal that has kept these changes of keys, at revisions from 2.
    #[derive(Debug)]
    struct Kept(Vec<(String, Change)>);

    impl Kept {
        fn changes(&self) -> impl Iterator<Item = (Revision, &str, Change)> {
            let changes = self.0.iter().zip(2..);
            changes.map(|((key, change), revision)| (Revision(revision), key.as_str(), *change))
        }

        fn revision(&self) -> Revision {
            self.changes().last().map_or(Revision::FIRST, |last| last.0)
        }

        /// The state by single changes, each as soon as it is read.
        fn model(&self) -> KeyspaceState {
            let mut state = KeyspaceState::empty(self.revision());
            for (revision, key, change) in self.changes() {
                let draft = draft(revision);
                let terms = draft.terms.clone().into();
                match change {
                    Change::Delete => drop(state.remove(key)),
                    _ => drop(state.insert(Arc::new(Record::stamped(
                        key.into(),
                        revision,
                        terms,
                        draft,
                    )))),
                }
            }
            state
        }
    }

    impl Journal for Kept {
        fn replay(
            &mut self,
            load: &mut dyn FnMut(Saved<'_>),
        ) -> Result<Option<Revision>, OpenError> {
            for (revision, key, change) in self.changes() {
                let draft = draft(revision);
                let is_encrypted = matches!(change, Change::Encrypted);
                let value: Vec<u8> = match is_encrypted {
                    true => content::pack(&draft).into_iter().rev().collect(),
                    false => draft.value.to_vec(),
                };
                load(Saved {
                    space: SPACE,
                    key,
                    kind: match change {
                        Change::Delete => EventKind::Delete,
                        _ => EventKind::Put,
                    },
                    revision,
                    value: &value,
                    is_encrypted,
                    digits: 0..0,
                    terms: match is_encrypted {
                        true => Vec::new(),
                        false => draft.terms.iter().map(|term| &**term).collect(),
                    },
                    expires: draft.expires,
                });
            }
            Ok(Some(self.revision()))
        }

        fn append(&mut self, _batch: &[JournalEntry]) -> Result<(), AppendError> {
            unreachable!("nothing is written")
        }
    }

    /// What is written at a revision.
    fn draft(Revision(n): Revision) -> Draft {
        let terms = [format!("a={}", n % 3), format!("b={}", n % 7)];
        Draft {
            value: "x".repeat(n as usize % 5).into(),
            terms: terms.map(Arc::from)[..n as usize % 3].to_vec(),
            expires: n.is_multiple_of(4).then_some(n % 11),
            ..Draft::default()
        }
    }

    fn key(n: u32) -> String {
        format!("ns-{}/{n:03}", n / 50)
    }

    /// Changes of keys in any order; deletes may be of keys that are not there.
    fn changes(n: Range<usize>) -> impl Strategy<Value = Vec<(String, Change)>> {
        let change = prop_oneof![
            3 => Just(Change::Plain),
            1 => Just(Change::Encrypted),
            2 => Just(Change::Delete)
        ];
        vec(((0u32..250).prop_map(key), change), n)
    }

    proptest! {
        /// As a base has them, sorted keys come first, plain up to one that is encrypted. Then there are few changes,
        /// or many: the limit is an eighth of what was built.
        #[test]
        fn a_journal_leads_to_the_state_of_its_changes_one_by_one(
            n_sorted in 0u32..200,
            first_encrypted in 100u32..400,
            later in prop_oneof![changes(0..20), changes(20..120)],
        ) {
            let sorted = (0..n_sorted).map(|n| match n == first_encrypted {
                true => (key(n), Change::Encrypted),
                false => (key(n), Change::Plain),
            });
            let mut journal = Kept(sorted.chain(later).collect());
            let options = Options {
                encryptor: Some(Arc::new(Reversing)),
                ..Options::default()
            };
            let spaces = load(&mut journal, &options).unwrap();
            let (space, _) = spaces.get(SPACE);
            prop_assert_eq!(spaces.ledger().revision(), journal.revision());
            if !journal.0.is_empty() {
                space.state().assert_same(&journal.model());
            }
        }
    }
}
