//! Encryption at rest: the trait behind which records are encrypted.
//!
//! Memory, snapshots and watches are plain text; the journal may be encrypted, per keyspace. The content of a record
//! (value and terms) is encrypted as one piece, without its revision, by the task that writes it: writers encrypt in
//! parallel, and a failure rejects only its own write. Records are decrypted when the store is opened.
//!
//! Invariant: only live records are decrypted. A key can be removed once no live record needs it, whatever the log
//! still contains.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::disk::content;
use crate::{Draft, Record};

/// Encrypts content on its way to disk and decrypts it at start.
pub trait Encryptor: fmt::Debug + Send + Sync {
    /// The mark with which content of `space` is written now.
    fn mark(&self, space: &str) -> KeyMark;

    /// Encrypts `plain`; none if it is stored in plain text. The cipher text must not decrypt under another key of the
    /// store.
    fn encrypt(
        &self,
        space: &str,
        key: &str,
        plain: &[u8],
    ) -> Result<Option<EncryptedContent>, EncryptionError>;

    /// Decrypts content and returns the mark with which it was written. May block.
    fn decrypt(
        &self,
        space: &str,
        key: &str,
        ciphertext: &[u8],
    ) -> Result<(Vec<u8>, KeyMark), EncryptionError>;

    /// Rejects plain text in `space` where all content must be encrypted.
    fn allow_plain_text(&self, space: &str) -> Result<(), EncryptionError>;

    /// Whether content on disk, encrypted or not, has the form in which it would be written now.
    fn is_current(&self, space: &str, ciphertext: Option<&[u8]>) -> bool;

    /// Changes whenever a mark changes; the files are rewritten then.
    fn generation(&self) -> u64;
}

/// Identifies an encryption provider and key; equal for content of the same provider and key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyMark(pub u32);

impl KeyMark {
    /// Plain text.
    pub const PLAIN: KeyMark = KeyMark(0);
}

/// Encrypted content.
#[derive(Clone, Debug)]
pub struct EncryptedContent {
    /// The bytes that go to disk.
    pub bytes: Bytes,
    /// Provider and key.
    pub mark: KeyMark,
}

/// Why content cannot be encrypted or decrypted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EncryptionError(pub String);

/// The encryption of a store, if it has one.
pub(crate) type MaybeEncryptor = Option<Arc<dyn Encryptor>>;

/// Encrypts the content of a draft, if `space` is encrypted.
pub(crate) fn encrypt_draft(
    encryptor: &dyn Encryptor,
    space: &str,
    key: &str,
    draft: &Draft,
) -> Result<Option<EncryptedContent>, EncryptionError> {
    if encryptor.mark(space) == KeyMark::PLAIN {
        return Ok(None);
    }
    encryptor.encrypt(space, key, &content::pack(draft))
}

/// Encrypts the content of a record again, with the current provider and key.
pub(crate) fn encrypt_record(
    encryptor: &dyn Encryptor,
    space: &str,
    record: &Record,
) -> Result<Option<EncryptedContent>, EncryptionError> {
    if encryptor.mark(space) == KeyMark::PLAIN {
        return Ok(None);
    }
    encryptor.encrypt(space, &record.key, &content::pack(&record.redraft()))
}
