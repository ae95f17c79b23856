//! The stored form: encrypted data, and the encrypted seed to decrypt it (`v2.EncryptedObject`, kmsv2/v2/api.proto).

use std::collections::BTreeMap;
use std::sync::Arc;

use mizzen_object::proto::ProtoError;
use mizzen_object::proto::wire::{WireReader, put_bytes, put_int, put_message};
use mizzen_value::clock::Random;

use crate::cipher::{Cipher, Derived, Method};

/// The DEK source is an AES-GCM key.
const KEY: u8 = 0;
/// The DEK source is a seed, from which a key is derived for each record. Only seeds are written.
pub(super) const SEED_KIND: u8 = 1;

/// The maximum sizes of an encrypted seed, a key ID and annotations, in bytes.
const MAX_SOURCE: usize = 1024;
const MAX_KEY_ID: usize = 1024;
const MAX_ANNOTATIONS: usize = 32 * 1024;

/// A stored object.
pub(super) struct Envelope {
    pub(super) data: Vec<u8>,
    pub(super) source: DekSource,
}

/// A seed or key that the plug-in has encrypted, with everything that it needs to decrypt it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct DekSource {
    pub(super) kind: u8,
    pub(super) encrypted: Vec<u8>,
    pub(super) key_id: String,
    pub(super) annotations: BTreeMap<String, Vec<u8>>,
}

impl Envelope {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(1, &self.data, out);
        put_bytes(2, self.source.key_id.as_bytes(), out);
        put_bytes(3, &self.source.encrypted, out);
        put_annotations(4, &self.source.annotations, out);
        if self.source.kind != KEY {
            put_int(5, self.source.kind.into(), out);
        }
    }

    pub(super) fn decode(message: &[u8]) -> Result<Envelope, String> {
        let envelope = Envelope::read(message).map_err(|error| error.to_string())?;
        if envelope.data.is_empty() {
            return Err("encrypted data is empty".into());
        }
        envelope.source.check()?;
        Ok(envelope)
    }

    fn read(message: &[u8]) -> Result<Envelope, ProtoError> {
        let source = DekSource {
            kind: KEY,
            encrypted: Vec::new(),
            key_id: String::new(),
            annotations: BTreeMap::new(),
        };
        let mut envelope = Envelope {
            data: Vec::new(),
            source,
        };
        let source = &mut envelope.source;
        let mut reader = WireReader::new(message);
        while let Some((tag, content)) = reader.field()? {
            match tag {
                1 => envelope.data = content.bytes("encryptedData")?.to_vec(),
                2 => source.key_id = String::from_utf8_lossy(content.bytes("keyID")?).into_owned(),
                3 => source.encrypted = content.bytes("encryptedDEKSource")?.to_vec(),
                4 => add_annotation(content.bytes("annotations")?, &mut source.annotations)?,
                5 => {
                    source.kind =
                        u8::try_from(content.varint("encryptedDEKSourceType")?).unwrap_or(u8::MAX)
                }
                _ => {}
            }
        }
        Ok(envelope)
    }
}

impl DekSource {
    /// Rejects a response of a plug-in, or a stored object, that upstream would not store.
    pub(super) fn check(&self) -> Result<(), String> {
        if ![KEY, SEED_KIND].contains(&self.kind) {
            return Err(format!("unknown encryptedDEKSourceType: {}", self.kind));
        }
        let n_encrypted = self.encrypted.len();
        if n_encrypted == 0 {
            return Err(
                "failed to validate encrypted DEK source: encrypted DEK source is empty".into(),
            );
        }
        if n_encrypted > MAX_SOURCE {
            return Err(format!(
                "failed to validate encrypted DEK source: encrypted DEK source is {n_encrypted} bytes, which exceeds the \
                 max size of {MAX_SOURCE}"
            ));
        }
        check_key_id(&self.key_id)
            .map_err(|error| format!("failed to validate key id: {error}"))?;
        self.check_annotations()
            .map_err(|error| format!("failed to validate annotations: {error}"))
    }

    fn check_annotations(&self) -> Result<(), String> {
        let n_bytes: usize = self
            .annotations
            .iter()
            .map(|(key, value)| key.len() + value.len())
            .sum();
        let is_inner =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_label = |label: &str| {
            let is_edged = label.starts_with('-') || label.ends_with('-');
            !label.is_empty() && !is_edged && label.bytes().all(is_inner)
        };
        let is_domain = |name: &&String| {
            name.len() <= 253 && name.contains('.') && name.split('.').all(is_label)
        };
        if let Some(key) = self.annotations.keys().find(|key| !is_domain(key)) {
            return Err(format!(
                "annotations: Invalid value: {key:?}: should be a domain with at least two segments separated by dots"
            ));
        }
        if n_bytes > MAX_ANNOTATIONS {
            return Err(format!(
                "total size of annotations is {n_bytes}, which exceeds the max size of {MAX_ANNOTATIONS}"
            ));
        }
        Ok(())
    }

    /// The cipher of the data, by the decrypted seed or key.
    pub(super) fn cipher(
        &self,
        decrypted: &[u8],
        random: &Arc<dyn Random>,
    ) -> Result<Arc<dyn Cipher>, String> {
        let invalid = || {
            format!(
                "invalid seed length {} used for key generation",
                decrypted.len()
            )
        };
        if self.kind == SEED_KIND {
            let derived = Derived::from_seed(decrypted, random).ok_or_else(invalid)?;
            return Ok(Arc::new(derived));
        }
        Method::AesGcm
            .with_key(decrypted, random)
            .map(Arc::from)
            .ok_or_else(invalid)
    }
}

/// Rejects an invalid key ID.
pub(super) fn check_key_id(key_id: &str) -> Result<(), String> {
    match key_id.len() {
        0 => Err("keyID is empty".into()),
        n if n > MAX_KEY_ID => Err(format!(
            "keyID is {n} bytes, which exceeds the max size of {MAX_KEY_ID}"
        )),
        _ => Ok(()),
    }
}

/// Appends a map of bytes as field `tag`.
fn put_annotations(tag: u32, annotations: &BTreeMap<String, Vec<u8>>, out: &mut Vec<u8>) {
    for (key, value) in annotations {
        put_message(tag, out, |out| {
            put_bytes(1, key.as_bytes(), out);
            put_bytes(2, value, out);
        });
    }
}

/// Adds the entry of a map of bytes.
fn add_annotation(
    entry: &[u8],
    annotations: &mut BTreeMap<String, Vec<u8>>,
) -> Result<(), ProtoError> {
    let (mut key, mut value) = (String::new(), Vec::new());
    let mut reader = WireReader::new(entry);
    while let Some((tag, content)) = reader.field()? {
        match tag {
            1 => key = String::from_utf8_lossy(content.bytes("key")?).into_owned(),
            2 => value = content.bytes("value")?.to_vec(),
            _ => {}
        }
    }
    annotations.insert(key, value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> DekSource {
        let annotations = BTreeMap::from([("a.example.com".to_string(), b"note".to_vec())]);
        DekSource {
            kind: SEED_KIND,
            encrypted: vec![1; 32],
            key_id: "key".into(),
            annotations,
        }
    }

    /// Checks the error for an object whose source was changed.
    #[track_caller]
    fn check(change: impl FnOnce(&mut DekSource), expected: &str) {
        let mut source = source();
        change(&mut source);
        let mut bytes = Vec::new();
        Envelope {
            data: b"data".to_vec(),
            source: source.clone(),
        }
        .encode(&mut bytes);
        let (envelope, problem) = match Envelope::decode(&bytes) {
            Ok(envelope) => (Some(envelope), String::new()),
            Err(problem) => (None, problem),
        };
        assert_eq!(problem, expected);
        if let Some(envelope) = envelope {
            assert_eq!(
                (envelope.data.as_slice(), &envelope.source),
                (&b"data"[..], &source)
            );
        }
    }

    #[test]
    fn an_object_is_decoded_within_its_limits() {
        check(|_| {}, "");
        check(|source| source.kind = KEY, "");
        check(
            |source| source.kind = 7,
            "unknown encryptedDEKSourceType: 7",
        );
        let encrypted = "failed to validate encrypted DEK source: encrypted DEK source is";
        check(
            |source| source.encrypted.clear(),
            &format!("{encrypted} empty"),
        );
        let long = format!("{encrypted} 1025 bytes, which exceeds the max size of 1024");
        check(|source| source.encrypted = vec![1; 1025], &long);
        check(
            |source| source.key_id.clear(),
            "failed to validate key id: keyID is empty",
        );
        let large = "failed to validate annotations: total size of annotations is 32781, which exceeds the max size of \
                     32768";
        check(
            |source| {
                drop(
                    source
                        .annotations
                        .insert("a.example.com".into(), vec![0; 32768]),
                )
            },
            large,
        );
        let domain = "failed to validate annotations: annotations: Invalid value: \"note\": should be a domain with at \
                      least two segments separated by dots";
        check(
            |source| drop(source.annotations.insert("note".into(), vec![])),
            domain,
        );
    }

    #[test]
    fn malformed_objects_are_rejected() {
        assert_eq!(
            Envelope::decode(b"").err().unwrap(),
            "encrypted data is empty"
        );
        assert_eq!(
            Envelope::decode(b"\x0a\xff").err().unwrap(),
            "unexpected EOF"
        );
        assert!(
            Envelope::decode(b"\x08\x01")
                .err()
                .unwrap()
                .contains("encryptedData")
        );
    }
}
