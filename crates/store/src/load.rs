//! Builds the keyspaces of a store from its journal.

use std::collections::{HashMap, HashSet};
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

/// How many batches may wait: the reader goes on while a run is built.
const N_BATCHES: usize = 32;

/// How many changes of keys in any order are sorted, to be built in the order of their keys.
const RUN: usize = if cfg!(test) { 16 } else { 4096 };

/// Brings back what the journal kept. One thread reads, verifies and decodes while another keeps what is live, so that
/// opening takes about half the time on two cores.
pub(crate) fn load(journal: &mut dyn Journal, options: &Options) -> Result<Keyspaces, OpenError> {
    let (batches, received) = mpsc::sync_channel(N_BATCHES);
    let mut decoder = RecordDecoder {
        spaces: HashMap::default(),
        names: Vec::new(),
        n_sent_names: 0,
        last_space: 0,
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
/// It is built while the next changes are read. A base, and a log of new keys, come in the order of their keys; other changes
/// are sorted first, so many at a time. Encrypted records are kept until it is known which are live.
#[derive(Default)]
struct LiveSpace {
    built: StateBuilder,
    /// Changes that are not in `built` yet, the oldest first.
    run: Vec<(Arc<str>, Option<Arc<Record>>)>,
    /// The first encrypted record and what came later, `None` for a delete. It takes precedence over `run`.
    later: HashMap<Arc<str>, Option<LoadedRecord>, RandomState>,
    /// Plain text is rejected, if it is live. So nothing is built before that is known.
    rejects_plain_text: bool,
}

impl LiveSpace {
    fn change(&mut self, key: Arc<str>, record: Option<LoadedRecord>) {
        let is_kept = self.rejects_plain_text || !self.later.is_empty();
        let record = match record {
            None if !is_kept => None,
            Some(LoadedRecord::Plain(record)) if !is_kept => Some(record),
            record => return drop(self.later.insert(key, record)),
        };
        let is_next = self.run.is_empty() && self.built.last_key().is_none_or(|last| *last < key);
        match record {
            Some(record) if is_next => self.built.insert(record),
            record => self.run.push((key, record)),
        }
        if self.run.len() == RUN {
            self.build_run();
        }
    }

    fn build_run(&mut self) {
        // Stable: the last change of a key stays the last.
        self.run.sort_by(|(one, _), (other, _)| one.cmp(other));
        let mut changes = self.run.drain(..).peekable();
        while let Some((key, record)) = changes.next() {
            if changes.peek().is_some_and(|(next, _)| *next == key) {
                continue;
            }
            match record {
                Some(record) => self.built.insert(record),
                None => self.built.remove(&key),
            }
        }
    }

    /// The state of what is live.
    fn finish(
        mut self,
        revision: Revision,
        mut open: impl FnMut(Arc<str>, LoadedRecord) -> Result<Arc<Record>, OpenError>,
    ) -> Result<KeyspaceState, OpenError> {
        self.build_run();
        let mut later: Vec<_> = self.later.into_iter().collect();
        later.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        for (key, record) in later {
            match record {
                Some(record) => self.built.insert(open(key, record)?),
                None => self.built.remove(&key),
            }
        }
        Ok(self.built.finish(revision))
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
    /// The number of its space. A name that is shared would go back and forth between the caches of both threads.
    space: usize,
    key: Arc<str>,
    record: Option<LoadedRecord>,
}

/// Changes that are handed over together.
struct LoadedBatch {
    /// The names of the spaces that are new, in the order of their numbers.
    names: Vec<Arc<str>>,
    changes: Vec<LoadedChange>,
}

/// Keeps the last state of each key. Returns the spaces by name.
fn collect_live(
    batches: mpsc::Receiver<LoadedBatch>,
    encryptor: Option<&dyn Encryptor>,
) -> Vec<(Arc<str>, LiveSpace)> {
    let mut live = Vec::new();
    for LoadedBatch { names, changes } in batches {
        live.extend(names.into_iter().map(|name| {
            let rejects_plain_text =
                encryptor.is_some_and(|encryptor| encryptor.allow_plain_text(&name).is_err());
            let space = LiveSpace {
                rejects_plain_text,
                ..LiveSpace::default()
            };
            (name, space)
        }));
        for change in changes {
            let (_, space) = &mut live[change.space];
            space.change(change.key, change.record);
        }
    }
    live.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    live
}

/// Makes records of what the journal reads, and hands them over in batches.
struct RecordDecoder {
    /// The numbers of the spaces, by name.
    spaces: HashMap<Arc<str>, usize, RandomState>,
    /// The names of the spaces, by number.
    names: Vec<Arc<str>>,
    n_sent_names: usize,
    /// The space of the change before.
    last_space: usize,
    terms: Interner,
    batch: Vec<LoadedChange>,
    batches: mpsc::SyncSender<LoadedBatch>,
}

impl RecordDecoder {
    fn take(&mut self, saved: Saved<'_>) {
        let space = self.space(saved.space);
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
            self.send();
        }
    }

    /// The number of the space of this name.
    fn space(&mut self, name: &str) -> usize {
        let is_last = |last: &Arc<str>| **last == *name;
        if !self.names.get(self.last_space).is_some_and(is_last) {
            self.last_space = match self.spaces.get(name) {
                Some(&space) => space,
                None => {
                    let (name, space) = (Arc::<str>::from(name), self.names.len());
                    self.names.push(name.clone());
                    self.spaces.insert(name, space);
                    space
                }
            };
        }
        self.last_space
    }

    fn send(&mut self) {
        let batch = LoadedBatch {
            names: self.names[self.n_sent_names..].to_vec(),
            changes: mem::replace(&mut self.batch, Vec::with_capacity(BATCH)),
        };
        self.n_sent_names = self.names.len();
        // The receiver only ends early by a panic, which is reported when it is joined.
        let _ = self.batches.send(batch);
    }

    /// Hands over the last batch.
    fn finish(mut self) -> Interner {
        self.send();
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
        /// or many.
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
