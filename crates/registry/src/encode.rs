//! Encodes an object: canonical JSON with a gap where the store writes the revision.

use std::ops::Range;

use mizzen_object::{Kind, Status, proto, schema};
use mizzen_store::{Draft, Record, Revision};
use mizzen_value::{Map, Value, json};

use crate::decode::Attached;
use crate::header::{Header, terms};
use crate::resource::set_type_meta;

/// Kubernetes: etcd's limit on a request (server/embed/config.go, DefaultMaxRequestBytes).
const MAX_REQUEST_BYTES: usize = 3 * 512 * 1024;

/// Kubernetes: the limit of etcd's client on what it sends (client/v3/options.go, defaultMaxCallSendMsgSize).
const MAX_SEND_BYTES: usize = 2 * 1024 * 1024;

/// What etcd adds to a request when it proposes it: a header with a number of ten bytes, and the request's own length.
const PROPOSAL_BYTES: usize = 19;

/// Encodes a written object. If it is too large and `owners` allows it, its managed fields are dropped.
pub(crate) fn bounded(
    kind: &Kind,
    value: &mut Value,
    now: i64,
    owners: ManagedFieldsLimit,
    place: &StorageLocation,
) -> Result<Draft, Status> {
    let whole = draft(kind, value, now);
    let Err(refusal) = check_size(kind, value, &whole, place) else {
        return Ok(whole);
    };
    if owners == ManagedFieldsLimit::Kept {
        return Err(refusal);
    }
    value.entry("metadata").remove("managedFields");
    let lighter = draft(kind, value, now);
    check_size(kind, value, &lighter, place)?;
    Ok(lighter)
}

/// The etcd key under which upstream would store the object.
pub(crate) struct StorageLocation {
    /// The key there.
    pub key: String,
    /// The version that is replaced, if the object is not new.
    pub replaces: Option<Revision>,
}

/// What happens to the managed fields of an object that is too large with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ManagedFieldsLimit {
    /// They are dropped.
    Forgettable,
    /// They are kept: the write is an apply.
    Kept,
}

impl ManagedFieldsLimit {
    /// `Keep` for an apply.
    pub(crate) fn of(applies: bool) -> ManagedFieldsLimit {
        if applies {
            ManagedFieldsLimit::Kept
        } else {
            ManagedFieldsLimit::Forgettable
        }
    }
}

/// Rejects an object that upstream could not store. JSON is mostly longer than protobuf, so only long objects are
/// measured twice.
fn check_size(
    kind: &Kind,
    value: &Value,
    draft: &Draft,
    place: &StorageLocation,
) -> Result<(), Status> {
    const SLACK: usize = 4096;
    if draft.value.len() + SLACK <= MAX_REQUEST_BYTES {
        return Ok(());
    }
    let has_protobuf = kind
        .root
        .field("metadata")
        .is_some_and(|field| field.tag > 0);
    let stored = match has_protobuf {
        true => proto::encode_object(&kind.gvk, &kind.root, value).len(),
        // It ends with a newline, and has no version.
        false => draft.value.len() + 1 - r#""resourceVersion":"","#.len(),
    };
    let request = transaction_bytes(stored, place);
    if request > MAX_SEND_BYTES {
        return Err(Status::unknown(format!(
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max ({request} vs. \
             {MAX_SEND_BYTES})"
        )));
    }
    if request + PROPOSAL_BYTES > MAX_REQUEST_BYTES {
        return Err(Status::unknown("etcdserver: request is too large"));
    }
    Ok(())
}

/// The length of the transaction that writes a value: a comparison of the key's revision, the write, and the read that
/// that is executed if the comparison fails.
fn transaction_bytes(value: usize, place: &StorageLocation) -> usize {
    let key = field_bytes(place.key.len());
    let revision = place.replaces.map_or(0, |revision| revision.0);
    let comparison = 2 + key + 1 + varint_bytes(revision);
    let put = key + field_bytes(value);
    let read = if place.replaces.is_some() {
        field_bytes(field_bytes(key))
    } else {
        0
    };
    field_bytes(comparison) + field_bytes(field_bytes(put)) + read
}

/// The length of a field of protobuf with a small number and so many bytes.
fn field_bytes(content: usize) -> usize {
    1 + varint_bytes(content as u64) + content
}

fn varint_bytes(number: u64) -> usize {
    (64 - number.leading_zeros() as usize).div_ceil(7).max(1)
}

/// The draft of a stored object, with its index terms and its header.
pub(crate) fn draft(kind: &Kind, value: &mut Value, now: i64) -> Draft {
    let (text, stamp) = text(kind, value);
    let ttl = kind.rules.ttl.filter(|seconds| *seconds > 0);
    let expires = ttl.map(|seconds| u64::try_from(now).unwrap_or_default() + u64::from(seconds));
    Draft {
        value: text.into(),
        stamp: Some(stamp),
        terms: terms(kind, value),
        expires,
        attachment: Some(Box::new(Attached::Ok(Header::new(kind, value)))),
    }
}

/// The draft of a stored object that is as `record` has it.
pub(crate) fn redraft(kind: &Kind, value: &Value, record: &Record) -> Draft {
    Draft {
        attachment: Some(Box::new(Attached::Ok(Header::new(kind, value)))),
        ..record.redraft()
    }
}

/// The canonical text of an object without its version, and where the version goes.
pub(crate) fn text(kind: &Kind, value: &mut Value) -> (Vec<u8>, usize) {
    set_type_meta(kind, value);
    // Anything but empty, so that the field is there and in its place.
    value.entry("metadata").set("resourceVersion", "?");
    let mut out = Vec::with_capacity(1024);
    let version = schema::write_stored(&kind.root, value, &mut out);
    let version = version.expect("the resourceVersion was set");
    out.drain(version.clone());
    value.entry("metadata").remove("resourceVersion");
    (out, version.start)
}

/// The text of an object as it stands, and where in it the digits of its version are.
pub(crate) fn located(value: &Value) -> (Vec<u8>, Range<usize>) {
    let Value::Map(object) = value else {
        unreachable!("an object is a map")
    };
    let mut out = Vec::with_capacity(1024);
    let mut version = 0..0;
    members(object, &mut out, |name, member, out| match (name, member) {
        ("metadata", Value::Map(metadata)) => members(metadata, out, |name, member, out| {
            let start = out.len() + 1;
            json::write(member, out);
            if name == "resourceVersion" {
                version = start..out.len() - 1;
            }
        }),
        _ => json::write(member, out),
    });
    (out, version)
}

/// Whether a draft equals the stored object, except for the resourceVersion.
pub(crate) fn same(draft: &Draft, record: &Record) -> bool {
    let (Some(at), Some(digits)) = (draft.stamp, record.digits()) else {
        return false;
    };
    draft.value[..at] == record.value[..digits.start]
        && draft.value[at..] == record.value[digits.end..]
}

/// Encodes an object that is not stored.
pub(crate) fn plain(kind: &Kind, value: &mut Value) -> Vec<u8> {
    set_type_meta(kind, value);
    let mut out = Vec::with_capacity(1024);
    schema::write_stored(&kind.root, value, &mut out);
    out
}

fn members(map: &Map, out: &mut Vec<u8>, mut write: impl FnMut(&str, &Value, &mut Vec<u8>)) {
    out.push(b'{');
    for (index, (name, member)) in map.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        json::write_string(name, out);
        out.push(b':');
        write(name, member, out);
    }
    out.push(b'}');
}
