//! Records in etcd, encrypted as upstream encrypts them.
//!
//! The bytes of another codec are encrypted by the first provider of their resource; ciphers that can authenticate data
//! authenticate the whole etcd key. What was read is decrypted by the first provider that can; plain text needs an
//! identity provider, or a resource without rules.
//!
//! Kubernetes: storage/value/transformer.go, storage/value/encrypt/identity/identity.go.

use std::sync::Arc;

use bytes::Bytes;
use mizzen_object::Status;
use mizzen_registry::undecodable;
use mizzen_store::{Codec, Draft, EncodedRecord, EncryptionError, KeyMark};

use super::Encryption;

/// What encrypted records begin with, and no plain text does.
const ENCRYPTED: &[u8] = b"k8s:enc:";

/// Encrypts what another codec encodes.
#[derive(Debug)]
pub struct EncryptedCodec {
    plain: Arc<dyn Codec>,
    encryption: Arc<Encryption>,
}

impl EncryptedCodec {
    /// Encrypts what `plain` encodes as `encryption` configures it.
    pub fn new(plain: Arc<dyn Codec>, encryption: Arc<Encryption>) -> EncryptedCodec {
        EncryptedCodec { plain, encryption }
    }

    /// The etcd key of a record.
    fn path(&self, space: &str, key: &str) -> Vec<u8> {
        (self.plain.prefix(space) + key).into_bytes()
    }

    fn decrypt(
        &self,
        space: &str,
        key: &str,
        bytes: &Bytes,
    ) -> Result<(Bytes, KeyMark), EncryptionError> {
        let rules = self.encryption.rules();
        if !bytes.starts_with(ENCRYPTED) {
            rules.admit_plain(ruled_as(space))?;
            return Ok((bytes.clone(), KeyMark::PLAIN));
        }
        let (plain, mark) = rules.decrypt(ruled_as(space), &self.path(space, key), bytes)?;
        Ok((plain.into(), mark))
    }
}

impl Codec for EncryptedCodec {
    fn prefix(&self, space: &str) -> String {
        self.plain.prefix(space)
    }

    fn encode(
        &self,
        space: &str,
        key: &str,
        draft: &Draft,
    ) -> Result<EncodedRecord, EncryptionError> {
        let plain = self.plain.encode(space, key, draft)?;
        let rules = self.encryption.rules();
        let encrypted = rules.encrypt(ruled_as(space), &self.path(space, key), &plain.bytes)?;
        Ok(encrypted.map_or(plain, |encrypted| EncodedRecord {
            bytes: encrypted.bytes,
            mark: encrypted.mark,
        }))
    }

    /// Blocks while a KMS plug-in decrypts a seed that is not cached.
    fn decode(&self, space: &str, key: &str, bytes: &Bytes) -> (Draft, KeyMark) {
        match self.decrypt(space, key, bytes) {
            Ok((plain, mark)) => (self.plain.decode(space, key, &plain).0, mark),
            Err(problem) => {
                // Kubernetes: other than a decoder's error, it has a reason (storage/etcd3/store.go).
                let draft = undecodable(space, key, bytes, Status::internal(problem));
                // It is not stale: there is nothing that could be written again.
                (draft, self.mark(space))
            }
        }
    }

    fn may_block(&self) -> bool {
        true
    }

    fn mark(&self, space: &str) -> KeyMark {
        self.encryption.rules().mark(ruled_as(space))
    }
}

/// The resource whose rules apply to a keyspace. Kubernetes: the bitmaps of allocated ports are encrypted as services
/// are (registry/core/rest/storage_core.go), and the leases of servers as a resource of their own
/// (controlplane/instance.go).
fn ruled_as(space: &str) -> &str {
    match space {
        "ranges" => "services",
        "masterleases" => "apiServerIPInfo",
        _ => space,
    }
}

#[cfg(test)]
mod tests;
