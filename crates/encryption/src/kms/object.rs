//! What is stored: sealed data, and the sealed seed that opens it (`v2.EncryptedObject`, kmsv2/v2/api.proto).

use std::collections::BTreeMap;
use std::sync::Arc;

use mizzen_object::proto::ProtoError;
use mizzen_object::proto::wire::{Reader, put_bytes, put_int, put_message};
use mizzen_value::clock::Random;

use crate::cipher::{Cipher, Derived, Method};

/// The plug-in was given a key.
const KEY: u8 = 0;
/// The plug-in was given a seed, from which a key is derived for each text. This is what we write.
pub(super) const SEED_KIND: u8 = 1;

/// The most bytes that a sealed seed, a key's name and annotations may have.
const MAX_SOURCE: usize = 1024;
const MAX_KEY_ID: usize = 1024;
const MAX_ANNOTATIONS: usize = 32 * 1024;

/// A stored object.
pub(super) struct Envelope {
    pub(super) data: Vec<u8>,
    pub(super) source: Source,
}

/// What a plug-in made of a seed or key, with all that it needs to open it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Source {
    pub(super) kind: u8,
    pub(super) sealed: Vec<u8>,
    pub(super) key_id: String,
    pub(super) annotations: BTreeMap<String, Vec<u8>>,
}

impl Envelope {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(1, &self.data, out);
        put_bytes(2, self.source.key_id.as_bytes(), out);
        put_bytes(3, &self.source.sealed, out);
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
        let source = Source {
            kind: KEY,
            sealed: Vec::new(),
            key_id: String::new(),
            annotations: BTreeMap::new(),
        };
        let mut envelope = Envelope {
            data: Vec::new(),
            source,
        };
        let source = &mut envelope.source;
        let mut reader = Reader::new(message);
        while let Some((tag, content)) = reader.field()? {
            match tag {
                1 => envelope.data = content.bytes("encryptedData")?.to_vec(),
                2 => source.key_id = String::from_utf8_lossy(content.bytes("keyID")?).into_owned(),
                3 => source.sealed = content.bytes("encryptedDEKSource")?.to_vec(),
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

impl Source {
    /// Refuses what no plug-in may answer, and so nobody has stored.
    pub(super) fn check(&self) -> Result<(), String> {
        if ![KEY, SEED_KIND].contains(&self.kind) {
            return Err(format!("unknown encryptedDEKSourceType: {}", self.kind));
        }
        let n_sealed = self.sealed.len();
        if n_sealed == 0 {
            return Err(
                "failed to validate encrypted DEK source: encrypted DEK source is empty".into(),
            );
        }
        if n_sealed > MAX_SOURCE {
            return Err(format!(
                "failed to validate encrypted DEK source: encrypted DEK source is {n_sealed} bytes, which exceeds the \
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

    /// What opens data, once the plug-in has opened the seed or key.
    pub(super) fn cipher(
        &self,
        opened: &[u8],
        random: &Arc<dyn Random>,
    ) -> Result<Arc<dyn Cipher>, String> {
        let invalid = || {
            format!(
                "invalid seed length {} used for key generation",
                opened.len()
            )
        };
        if self.kind == SEED_KIND {
            let derived = Derived::from_seed(opened, random).ok_or_else(invalid)?;
            return Ok(Arc::new(derived));
        }
        Method::AesGcm
            .with_key(opened, random)
            .map(Arc::from)
            .ok_or_else(invalid)
    }
}

/// Refuses what is no name of a key.
pub(super) fn check_key_id(key_id: &str) -> Result<(), String> {
    match key_id.len() {
        0 => Err("keyID is empty".into()),
        n if n > MAX_KEY_ID => Err(format!(
            "keyID is {n} bytes, which exceeds the max size of {MAX_KEY_ID}"
        )),
        _ => Ok(()),
    }
}

/// Two labels or more, of small letters, digits and inner dashes.
fn is_domain(name: &str) -> bool {
    let is_label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty()
            && label.bytes().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= 253 && name.contains('.') && name.split('.').all(is_label)
}

/// Appends a map of bytes as field `tag`.
pub(super) fn put_annotations(
    tag: u32,
    annotations: &BTreeMap<String, Vec<u8>>,
    out: &mut Vec<u8>,
) {
    for (key, value) in annotations {
        put_message(tag, out, |out| {
            put_bytes(1, key.as_bytes(), out);
            put_bytes(2, value, out);
        });
    }
}

/// Adds the entry of a map of bytes.
pub(super) fn add_annotation(
    entry: &[u8],
    annotations: &mut BTreeMap<String, Vec<u8>>,
) -> Result<(), ProtoError> {
    let (mut key, mut value) = (String::new(), Vec::new());
    let mut reader = Reader::new(entry);
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

    fn source() -> Source {
        let annotations = BTreeMap::from([("a.example.com".to_string(), b"note".to_vec())]);
        Source {
            kind: SEED_KIND,
            sealed: vec![1; 32],
            key_id: "key".into(),
            annotations,
        }
    }

    /// What is said of an object whose source was changed.
    #[track_caller]
    fn check(change: impl FnOnce(&mut Source), expected: &str) {
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
    fn an_object_comes_back_within_its_limits() {
        check(|_| {}, "");
        check(|source| source.kind = KEY, "");
        check(
            |source| source.kind = 7,
            "unknown encryptedDEKSourceType: 7",
        );
        let sealed = "failed to validate encrypted DEK source: encrypted DEK source is";
        check(|source| source.sealed.clear(), &format!("{sealed} empty"));
        let long = format!("{sealed} 1025 bytes, which exceeds the max size of 1024");
        check(|source| source.sealed = vec![1; 1025], &long);
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
    fn what_is_no_object_is_refused() {
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
