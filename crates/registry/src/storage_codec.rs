//! Objects as upstream's API server writes them to etcd and reads them from there.
//!
//! [`StorageCodec`] writes JSON: the canonical text without its resourceVersion, in the version in which upstream writes
//! the kind, and a newline. It reads JSON and protobuf of every version of a built-in kind, drops unknown fields, applies
//! defaults and converts to the storage version, as upstream's decoder does. A custom object stays as it is: its schema is
//! applied when it is read.
//!
//! Besides objects, upstream v1.36 keeps under the prefix of `--etcd-prefix`:
//!
//! - `ranges/servicenodeports`: one RangeAllocation (v1), the bitmap of all allocated node ports. Every allocation of
//!   a port is a compare-and-swap of it, so a server beside upstream's has to update it, too. It is encrypted as
//!   `services` are (registry/core/rest/storage_core.go).
//! - `ranges/serviceips` and `ranges/secondaryserviceips`: neither read nor written since v1.35. The feature gates
//!   MultiCIDRServiceAllocator and DisableAllocatorDualWrite are locked on, and an address is an IPAddress object.
//! - `masterleases/IP`: an Endpoints object (v1) for each server, without a name; only
//!   `subsets[0].addresses[0].ip` is read. Each renewal increments `metadata.generation` and has a new lease of 15
//!   seconds. It is encrypted as the resource `apiServerIPInfo`, which no rule but `*.*` and `*.` matches
//!   (controlplane/reconcilers/lease.go).
//! - `peerserverleases/ID`: the same with a port, for the address at which peers reach a server with that identity
//!   (apiserver/pkg/reconcilers/peer_endpoint_lease.go).
//!
//! `compact_rev_key` has no prefix at all, and its value is the decimal number of the last compacted revision as text
//! (storage/etcd3/compact.go).
//!
//! Invariant: what is written without a resourceVersion is decoded to the draft from which it was encoded.

use std::collections::HashMap;
use std::fmt;

use bytes::Bytes;
use mizzen_object::{GroupVersionKind, Kind, Status, decode, default, proto, schema};
use mizzen_store::{Codec, Draft, EncodedRecord, EncryptionError, KeyMark};
use mizzen_value::json;
use tracing::error;

use crate::decode::{Attached, missing_kind, parse};
use crate::encode::{draft, located, plain};
use crate::header::label_terms;
use crate::resource::set_type_meta;
use crate::storage_prefix::{key_prefix, resource_prefix};

/// Upstream's form of objects in etcd.
pub struct StorageCodec {
    /// The prefix of all keys.
    prefix: String,
    /// The versions in which objects of a built-in kind can be stored, by keyspace.
    spaces: HashMap<String, Vec<StoredVersion>>,
    /// The versions in which objects are written, for keyspaces where that is not the storage version.
    encodings: HashMap<String, Kind>,
}

/// One version of a kind, and the version in which this server keeps its objects.
struct StoredVersion {
    kind: Kind,
    stored: Kind,
}

impl StorageCodec {
    /// The codec for keys below `etcd_prefix`. `kinds` has every version of every built-in kind, each with the kind in
    /// its storage version.
    pub fn new(etcd_prefix: &str, kinds: impl IntoIterator<Item = (Kind, Kind)>) -> StorageCodec {
        let mut spaces: HashMap<String, Vec<StoredVersion>> = HashMap::new();
        let mut encodings = HashMap::new();
        for (kind, stored) in kinds {
            let is_encoding = stored.storage_encoding.as_ref() == Some(&kind.gvk.version);
            if is_encoding && kind.gvk.group == stored.gvk.group {
                encodings.insert(kind.space(), kind.clone());
            }
            let versions = spaces.entry(kind.space()).or_default();
            versions.push(StoredVersion { kind, stored });
        }
        StorageCodec {
            prefix: key_prefix(etcd_prefix),
            spaces,
            encodings,
        }
    }

    /// The same, with objects of `kind` in a keyspace that is no resource: `masterleases`, `ranges`.
    pub fn with_keyspace(mut self, space: &str, kind: &Kind) -> StorageCodec {
        let version = StoredVersion {
            kind: kind.clone(),
            stored: kind.clone(),
        };
        self.spaces.insert(space.into(), vec![version]);
        self
    }
}

impl Codec for StorageCodec {
    fn prefix(&self, space: &str) -> String {
        let is_custom = !self.spaces.contains_key(space);
        format!("{}{}/", self.prefix, resource_prefix(space, is_custom))
    }

    fn encode(
        &self,
        space: &str,
        _key: &str,
        draft: &Draft,
    ) -> Result<EncodedRecord, EncryptionError> {
        let text = text_without_version(draft);
        let text = match (self.encodings.get(space), draft.stamp) {
            (Some(encoding), Some(_)) => converted(encoding, &text)?,
            // What could not be decoded is written as it was found.
            _ => text,
        };
        Ok(EncodedRecord {
            bytes: text.into(),
            mark: KeyMark::PLAIN,
        })
    }

    fn decode(&self, space: &str, key: &str, bytes: &Bytes) -> (Draft, KeyMark) {
        let decoded = match self.spaces.get(space) {
            Some(versions) => decode_typed(versions, bytes),
            None => decode_custom(bytes),
        };
        let draft = decoded.unwrap_or_else(|problem| {
            // Kubernetes: the decoder's error has no reason.
            undecodable(space, key, bytes, Status::unknown(problem))
        });
        (draft, KeyMark::PLAIN)
    }

    fn mark(&self, _space: &str) -> KeyMark {
        KeyMark::PLAIN
    }
}

impl fmt::Debug for StorageCodec {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "StorageCodec({})", self.prefix)
    }
}

/// The draft of bytes that cannot be decoded: each of its readers gets `error`, which is logged.
pub fn undecodable(space: &str, key: &str, bytes: &Bytes, error: Status) -> Draft {
    error!(resource = %space, %key, error = error.message, "stored object cannot be decoded");
    Draft {
        value: bytes.clone(),
        attachment: Some(Box::new(Attached::Err(Box::new(error)))),
        ..Draft::default()
    }
}

/// The text of an object without its resourceVersion, and a newline.
fn text_without_version(draft: &Draft) -> Vec<u8> {
    const MEMBER: &[u8] = br#""resourceVersion":""#;
    let value = &draft.value;
    let (start, end) = match draft.stamp {
        Some(stamp) => {
            let (mut start, mut end) = (stamp - MEMBER.len(), stamp + 1);
            debug_assert!(value[..stamp].ends_with(MEMBER), "{value:?}");
            // One of the commas around it goes, too.
            if value[start - 1] == b',' {
                start -= 1;
            } else if value[end] == b',' {
                end += 1;
            }
            (start, end)
        }
        None => (value.len(), value.len()),
    };
    let mut text = Vec::with_capacity(value.len() + 1);
    text.extend_from_slice(&value[..start]);
    text.extend_from_slice(&value[end..]);
    // Kubernetes: Go's JSON encoder ends every value with a newline.
    text.push(b'\n');
    text
}

/// The text of an object of the storage version, in another one.
fn converted(encoding: &Kind, text: &[u8]) -> Result<Vec<u8>, EncryptionError> {
    let mut value = parse(text).map_err(EncryptionError)?;
    encoding.hooks.from_stored(&mut value);
    set_type_meta(encoding, &mut value);
    schema::canonical(&encoding.root, &mut value);
    let mut text = plain(encoding, &mut value);
    text.push(b'\n');
    Ok(text)
}

/// Decodes an object of a built-in kind, in any version, as the draft of its storage version.
fn decode_typed(versions: &[StoredVersion], bytes: &[u8]) -> Result<Draft, String> {
    let (version, mut value) = match bytes.starts_with(b"k8s\0") {
        true => {
            let unknown = proto::decode_object(bytes).map_err(|error| error.to_string())?;
            let version = find(versions, &unknown.api_version, &unknown.kind)?;
            let value = proto::decode_message(&version.kind.root, unknown.raw);
            (version, value.map_err(|error| error.to_string())?)
        }
        false => {
            let stated = decode::type_meta(bytes)?;
            if stated.kind.is_empty() {
                return Err(missing_kind(bytes));
            }
            let version = find(versions, &stated.api_version, &stated.kind)?;
            let decoded = decode::decode(&version.kind.root, bytes);
            (version, decoded.map_err(|error| error.to_string())?.value)
        }
    };
    let StoredVersion { kind, stored } = version;
    kind.hooks.normalize(&mut value)?;
    default::apply(&kind.root, &mut value);
    kind.hooks.default(&mut value);
    schema::canonical(&kind.root, &mut value);
    if kind.gvk != stored.gvk {
        kind.hooks.to_stored(&mut value);
        set_type_meta(stored, &mut value);
        schema::canonical(&stored.root, &mut value);
    }
    value.entry("metadata").remove("selfLink");
    Ok(Draft {
        // The object expires with its lease, which its bytes do not show.
        expires: None,
        ..draft(stored, &mut value, 0)
    })
}

/// The version of an object that states these.
fn find<'a>(
    versions: &'a [StoredVersion],
    api_version: &str,
    kind: &str,
) -> Result<&'a StoredVersion, String> {
    let is_stated = |gvk: &GroupVersionKind| gvk.kind == kind && gvk.api_version() == api_version;
    let found = versions.iter().find(|version| is_stated(&version.kind.gvk));
    found.ok_or_else(|| {
        let (kind, api_version) = (json::quote(kind), json::quote(api_version));
        format!("no kind {kind} is registered for version {api_version}")
    })
}

/// Decodes a custom object: whatever JSON it is, in the order in which custom objects are stored. Its header is made by
/// the first reader, who knows its kind.
fn decode_custom(bytes: &[u8]) -> Result<Draft, String> {
    let mut value = parse(bytes)?;
    if let Some(literal) = json::overflow(&value) {
        return Err(json::overflow_error(literal));
    }
    let metadata = value.entry("metadata");
    metadata.remove("selfLink");
    metadata.set("resourceVersion", "");
    json::normalize(&mut value);
    let (text, version) = located(&value);
    Ok(Draft {
        value: text.into(),
        stamp: Some(version.start),
        terms: label_terms(&value).collect(),
        ..Draft::default()
    })
}

#[cfg(test)]
mod tests;
