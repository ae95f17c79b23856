//! From value to bytes: the canonical text with a gap where the store writes the revision.

use mizzen_object::{Kind, Map, Value, json, schema};
use mizzen_store::{Draft, Record};

use crate::header::{Header, terms};
use crate::resource::name_it;

/// The draft of a stored object, with its index terms and its header.
pub(crate) fn draft(kind: &Kind, value: &mut Value, now: i64) -> Draft {
    let (text, stamp) = text(kind, value);
    let expires = kind.rules.ttl.map(|seconds| u64::try_from(now).unwrap_or_default() + u64::from(seconds));
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
