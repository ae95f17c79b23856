//! Kubernetes' protobuf, driven by the schema: every struct is a message.
//!
//! `wire` has varints and field headers, `encode` and `decode` convert between values and messages,
//! `envelope` has what surrounds a message.
//!
//! Invariant: the bytes equal upstream's. Fields are in ascending order; a plain field is encoded
//! even if it is zero, an optional one if it is set, a list or map if it is not empty.

mod decode;
mod encode;
mod envelope;
pub mod wire;

pub use decode::decode_message;
pub use encode::encode_message;
pub use envelope::{
    Unknown, decode_object, encode_object, envelope, item_header, list_ends, watch_frame,
};
pub use wire::ProtoError;

use crate::schema::{FieldType, Presence};

/// The maximum nesting depth of messages, map entries included.
const MAX_DEPTH: usize = 300;

/// The maximum number of messages of an object: an empty one costs a client two bytes and the
/// server far more.
const MAX_MESSAGES: usize = 250_000;

/// Kubernetes: a list type with one of these names is a message around the list, since protobuf has
/// neither lists of lists nor unset lists (`+protobuf.nullable` in upstream's types).
fn is_wrapped(ty: &FieldType) -> bool {
    ["ExtraValue", "Verbs"].contains(&ty.go.rsplit('.').next().unwrap_or_default())
}

/// Whether the field is a pointer in Go, which may be nil.
fn is_pointer(presence: Presence) -> bool {
    matches!(presence, Presence::Set | Presence::Nullable)
}

#[cfg(test)]
mod tests;
