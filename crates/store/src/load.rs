//! Builds the keyspaces of a store from its journal.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::mem;
use std::sync::Arc;

use crate::disk::content;
use crate::encryption::EncryptionError;
use crate::keyspaces::Keyspaces;
use crate::state::KeyspaceState;
use crate::{Draft, Encryptor, EventKind, Journal, OpenError, Options, Record, Revision, Saved};

/// Brings back what the journal kept.
pub(crate) fn load(journal: &mut dyn Journal, options: &Options) -> Result<Keyspaces, OpenError> {
    let mut loading = Loading::default();
    let opened = journal.replay(&mut |saved| loading.take(saved))?;
    let revision = opened.unwrap_or(Revision::FIRST);
    let spaces = Keyspaces::new(revision, opened.unwrap_or(Revision::ZERO), options.window);
    let encryptor = options.encryptor.as_deref();
    for (name, kept) in mem::take(&mut loading.spaces) {
        let records = loading.open(&name, kept, encryptor)?;
        spaces.add(name, settle(records, revision));
    }
    Ok(spaces)
}

/// Records by key, in no order: most are replaced a few times before the state is settled.
type Records = HashMap<Arc<str>, LoadedRecord>;

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
        if saved.is_encrypted {
            let Saved {
                key,
                revision,
                expires,
                value,
                ..
            } = saved;
            let encrypted = EncryptedRecord {
                revision,
                expires,
                content: value.into(),
            };
            records.insert(key.into(), LoadedRecord::Encrypted(encrypted));
            return;
        }
        let record = Arc::new(Record::saved(saved, terms));
        records.insert(record.key.clone(), LoadedRecord::Plain(record));
    }

    fn delete(&mut self, saved: Saved<'_>) {
        if let Some(records) = self.spaces.get_mut(saved.space) {
            records.remove(saved.key);
        }
    }

    fn intern(&mut self, term: &str) -> Arc<str> {
        if let Some(interned) = self.terms.get(term) {
            return interned.clone();
        }
        let term: Arc<str> = term.into();
        self.terms.insert(term.clone());
        term
    }

    /// All records of a space, decrypted, in the order of their keys.
    fn open(
        &mut self,
        space: &Arc<str>,
        kept: Records,
        encryptor: Option<&dyn Encryptor>,
    ) -> Result<Vec<Arc<Record>>, OpenError> {
        let plain = encryptor.map_or(Ok(()), |encryptor| encryptor.allow_plain_text(space));
        let mut kept: Vec<_> = kept.into_iter().collect();
        kept.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let open = |(key, kept): (Arc<str>, LoadedRecord)| {
            let opened = match kept {
                LoadedRecord::Plain(record) => plain.clone().map(|()| record),
                LoadedRecord::Encrypted(encrypted) => {
                    self.decrypt(space, &key, &encrypted, encryptor)
                }
            };
            opened.map_err(|source| OpenError::Decrypt {
                space: space.clone(),
                key,
                source,
            })
        };
        kept.into_iter().map(open).collect()
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

/// The state of a space that holds `records`, which are in order. When it changed last is not known if that was a
/// delete; that it did not change after `revision` is.
fn settle(records: Vec<Arc<Record>>, revision: Revision) -> KeyspaceState {
    let mut state = KeyspaceState::empty(revision);
    records
        .into_iter()
        .for_each(|record| drop(state.insert(record)));
    state
}
