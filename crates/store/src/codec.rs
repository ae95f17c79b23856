//! The codec of an engine whose data other programs read, too.

use std::fmt;

use bytes::Bytes;

use crate::{Draft, EncryptionError, KeyMark};

/// How records lie where other programs read them: their keys, and their bytes without a revision.
pub trait Codec: fmt::Debug + Send + Sync {
    /// The prefix of the keys of a keyspace, with a slash at its end: `/registry/pods/`.
    fn prefix(&self, space: &str) -> String;

    /// The bytes of a record that is to be written.
    fn encode(
        &self,
        space: &str,
        key: &str,
        draft: &Draft,
    ) -> Result<EncodedRecord, EncryptionError>;

    /// The record of bytes that any program wrote. What cannot be decoded becomes a draft whose readers get the error.
    fn decode(&self, space: &str, key: &str, bytes: &Bytes) -> (Draft, KeyMark);

    /// Whether `decode` may block, so that no task may call it.
    fn may_block(&self) -> bool {
        false
    }

    /// The mark with which a record of `space` is written now, as that of an [`Encryptor`](crate::Encryptor).
    fn mark(&self, space: &str) -> KeyMark;
}

/// A record as it is written.
#[derive(Clone, Debug)]
pub struct EncodedRecord {
    /// The bytes.
    pub bytes: Bytes,
    /// Provider and key, if they are encrypted.
    pub mark: KeyMark,
}
