//! What stands around a message: its kind, the list it is in, the event that it is news of.

use super::encode_message;
use super::wire::{ProtoError, Reader, put_bytes, put_header, put_message, varint_len};
use crate::names::GroupVersionKind;
use crate::schema::Struct;
use mizzen_value::{Str, Value};

/// How every enveloped object begins.
const PREFIX: &[u8] = b"k8s\0";

/// An object that says of which kind it is: the prefix, its kind, its message.
pub fn encode_object(gvk: &GroupVersionKind, ty: &Struct, value: &Value) -> Vec<u8> {
    let mut message = Vec::with_capacity(1024);
    encode_message(ty, value, &mut message);
    envelope(gvk, &message)
}

/// An object from its message.
pub fn envelope(gvk: &GroupVersionKind, message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + 64);
    open(gvk, message.len(), &mut out);
    out.extend_from_slice(message);
    close(&mut out);
    out
}

/// What stands before and behind the items of a list, which take so many bytes with their headers. `metadata` is a message.
pub fn list_ends(gvk: &GroupVersionKind, metadata: &[u8], items: usize) -> (Vec<u8>, Vec<u8>) {
    let (mut head, mut tail) = (Vec::with_capacity(metadata.len() + 96), Vec::new());
    open(
        gvk,
        1 + varint_len(metadata.len() as u64) + metadata.len() + items,
        &mut head,
    );
    put_bytes(1, metadata, &mut head);
    close(&mut tail);
    (head, tail)
}

/// Appends what stands before an item of a list whose message has so many bytes.
pub fn item_header(length: usize, out: &mut Vec<u8>) {
    put_header(2, length, out);
}

/// Everything before a message of `length` bytes.
fn open(gvk: &GroupVersionKind, length: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(PREFIX);
    put_message(1, out, |out| {
        put_bytes(1, gvk.api_version().as_bytes(), out);
        put_bytes(2, gvk.kind.as_bytes(), out);
    });
    put_header(2, length, out);
}

/// Everything after it: it has no encoding and no content type of its own.
fn close(out: &mut Vec<u8>) {
    put_bytes(3, b"", out);
    put_bytes(4, b"", out);
}

/// One event of a watch, with its length in front: the stream's next frame. `object` is enveloped; the
/// event itself is not.
pub fn watch_frame(event: &str, object: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(object.len() + 32);
    out.extend_from_slice(&[0; 4]);
    put_bytes(1, event.as_bytes(), &mut out);
    let raw_len = 1 + varint_len(object.len() as u64) + object.len();
    put_header(2, raw_len, &mut out);
    put_bytes(1, object, &mut out);
    let length = u32::try_from(out.len() - 4).expect("an object has a bounded size");
    out[..4].copy_from_slice(&length.to_be_bytes());
    out
}

/// An object whose message is still to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown<'a> {
    /// `v1`, `apps/v1`.
    pub api_version: Str,
    /// Its kind's name.
    pub kind: Str,
    /// Its message.
    pub raw: &'a [u8],
}

/// Opens an envelope.
pub fn decode_object(bytes: &[u8]) -> Result<Unknown<'_>, ProtoError> {
    match bytes.strip_prefix(PREFIX) {
        _ if bytes.is_empty() => Err(ProtoError::Empty),
        None => Err(ProtoError::Prefix),
        Some([]) => Err(ProtoError::NoBody),
        Some(message) => unknown(message),
    }
}

fn unknown(message: &[u8]) -> Result<Unknown<'_>, ProtoError> {
    let mut unknown = Unknown {
        api_version: Str::default(),
        kind: Str::default(),
        raw: &[],
    };
    let mut reader = Reader::new(message);
    while let Some((tag, content)) = reader.field()? {
        match tag {
            1 => type_meta(content.bytes("TypeMeta")?, &mut unknown)?,
            2 => unknown.raw = content.bytes("Raw")?,
            3 => drop(content.bytes("ContentEncoding")?),
            4 => drop(content.bytes("ContentType")?),
            _ => {}
        }
    }
    Ok(unknown)
}

fn type_meta(message: &[u8], unknown: &mut Unknown) -> Result<(), ProtoError> {
    let mut reader = Reader::new(message);
    while let Some((tag, content)) = reader.field()? {
        match tag {
            1 => unknown.api_version = String::from_utf8_lossy(content.bytes("APIVersion")?).into(),
            2 => unknown.kind = String::from_utf8_lossy(content.bytes("Kind")?).into(),
            _ => {}
        }
    }
    Ok(())
}
