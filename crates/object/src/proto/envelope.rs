//! Envelopes of messages: `runtime.Unknown`, lists and watch events.

use super::encode_message;
use super::wire::{
    ProtoError, WireReader, WireValue, put_bytes, put_header, put_message, varint_len,
};
use crate::names::GroupVersionKind;
use crate::schema::Struct;
use mizzen_value::{Str, Value};

/// The magic number of an encoded object.
const PREFIX: &[u8] = b"k8s\0";

/// Encodes an object with its envelope.
pub fn encode_object(gvk: &GroupVersionKind, ty: &Struct, value: &Value) -> Vec<u8> {
    let mut message = Vec::with_capacity(1024);
    encode_message(ty, value, &mut message);
    envelope(gvk, &message)
}

/// The envelope of an encoded message.
pub fn envelope(gvk: &GroupVersionKind, message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + 64);
    open(gvk, message.len(), &mut out);
    out.extend_from_slice(message);
    close(&mut out);
    out
}

/// The bytes before and after the items of a list, which take `items` bytes with their headers.
/// `metadata` is a message.
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

/// Appends the header of a list item whose message has `length` bytes.
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

/// Everything after it: content encoding and content type are empty.
fn close(out: &mut Vec<u8>) {
    put_bytes(3, b"", out);
    put_bytes(4, b"", out);
}

/// A frame of a watch stream: one event with its length in front. `object` has an envelope; the
/// event itself has none.
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

/// An object whose message is not decoded yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown<'a> {
    /// `v1`, `apps/v1`.
    pub api_version: Str,
    /// The kind.
    pub kind: Str,
    /// The message.
    pub raw: &'a [u8],
}

/// Decodes an envelope.
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
    let mut reader = WireReader::new(message);
    while let Some((tag, content)) = reader.field()? {
        match tag {
            1 => {
                let text = |content: WireValue<'_>, name| {
                    Ok::<Str, ProtoError>(String::from_utf8_lossy(content.bytes(name)?).into())
                };
                let mut type_meta = WireReader::new(content.bytes("TypeMeta")?);
                while let Some((tag, content)) = type_meta.field()? {
                    match tag {
                        1 => unknown.api_version = text(content, "APIVersion")?,
                        2 => unknown.kind = text(content, "Kind")?,
                        _ => {}
                    }
                }
            }
            2 => unknown.raw = content.bytes("Raw")?,
            3 => drop(content.bytes("ContentEncoding")?),
            4 => drop(content.bytes("ContentType")?),
            _ => {}
        }
    }
    Ok(unknown)
}
