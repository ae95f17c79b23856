//! From value to bytes: the canonical text with a gap where the store writes the revision.

use mizzen_object::{Kind, Map, Status, Value, json, proto, schema};
use mizzen_store::{Draft, Record};

use crate::header::{Header, terms};
use crate::resource::name_it;

/// The largest object that is kept, measured as upstream keeps it.
/// Kubernetes: etcd's limit on a request (server/embed/config.go, DefaultMaxRequestBytes).
const MAX_BYTES: usize = 3 * 512 * 1024;

/// The draft of an object that somebody has written. If it is too large and `owners` can be forgotten, they are.
pub(crate) fn bounded(kind: &Kind, value: &mut Value, now: i64, owners: Owners) -> Result<Draft, Status> {
    let whole = draft(kind, value, now);
    if !is_too_large(kind, value, &whole) {
        return Ok(whole);
    }
    let lighter = (owners == Owners::Forgettable).then(|| {
        value.entry("metadata").remove("managedFields");
        draft(kind, value, now)
    });
    let fits = lighter.filter(|lighter| !is_too_large(kind, value, lighter));
    fits.ok_or_else(|| Status::unknown("etcdserver: request is too large"))
}

/// What becomes of an object's owners when it is too large with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owners {
    /// They go.
    Forgettable,
    /// They stay: they are what the write is about.
    Kept,
}

impl Owners {
    /// As a write is an apply or not.
    pub fn of(applies: bool) -> Owners {
        if applies { Owners::Kept } else { Owners::Forgettable }
    }
}

/// Text is mostly longer than protobuf, so only what is long is measured twice.
fn is_too_large(kind: &Kind, value: &Value, draft: &Draft) -> bool {
    if draft.value.len() <= MAX_BYTES {
        return false;
    }
    let mut message = Vec::new();
    proto::encode_message(&kind.root, value, &mut message);
    let has_protobuf = kind.root.field("metadata").is_some_and(|field| field.tag > 0);
    !has_protobuf || message.len() > MAX_BYTES
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
        attachment: Some(Box::new(Header::new(kind, value))),
    }
}

/// The canonical text of an object without its version, and where the version goes.
pub(crate) fn text(kind: &Kind, value: &mut Value) -> (Vec<u8>, usize) {
    name_it(kind, value);
    // Anything but empty, so that the field is there and in its place.
    value.entry("metadata").set("resourceVersion", "?");
    schema::canonical_stored(&kind.root, value);
    let Value::Map(object) = value else { unreachable!("an object is a map") };
    let mut out = Vec::with_capacity(1024);
    let mut stamp = 0;
    members(object, &mut out, |name, member, out| match (name, member) {
        ("metadata", Value::Map(metadata)) => members(metadata, out, |name, member, out| match name {
            "resourceVersion" => {
                out.push(b'"');
                stamp = out.len();
                out.push(b'"');
            }
            _ => json::write(member, out),
        }),
        _ => json::write(member, out),
    });
    value.entry("metadata").remove("resourceVersion");
    (out, stamp)
}

/// Whether a draft has the stored object's content, whatever its version.
pub(crate) fn same(draft: &Draft, record: &Record) -> bool {
    let (Some(at), Some(digits)) = (draft.stamp, record.digits()) else { return false };
    draft.value[..at] == record.value[..digits.start] && draft.value[at..] == record.value[digits.end..]
}

/// The text of an object as it stands, for what is never stored.
pub(crate) fn plain(kind: &Kind, value: &mut Value) -> Vec<u8> {
    name_it(kind, value);
    schema::canonical_stored(&kind.root, value);
    let mut out = Vec::with_capacity(1024);
    json::write(value, &mut out);
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
