//! Protobuf as Kubernetes speaks it, driven by the schema: no message is known here, every struct is one.
//!
//! `wire` has the bytes of numbers and lengths, `encode` and `decode` the way between values and messages,
//! `envelope` what stands around a message so that a reader knows its kind.
//!
//! Invariant: bytes are upstream's, to the bit. Fields go by ascending number; a plain field is written even
//! when it is zero, an optional one when it is set, a list or map when it is not empty.

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

use crate::schema::{Presence, Type};

/// How deep messages may nest, entries of maps counted too. Nothing real comes near.
const MAX_DEPTH: usize = 300;

/// How many messages one object may have: an empty one costs a client two bytes and us far more.
const MAX_MESSAGES: usize = 250_000;

/// Kubernetes: a list with one of these names is a message around the list, since protobuf has no list of
/// lists and no list that is unset (`+protobuf.nullable` in upstream's types).
fn is_wrapped(ty: &Type) -> bool {
    ["ExtraValue", "Verbs"].contains(&ty.go.rsplit('.').next().unwrap_or_default())
}

/// Whether Go keeps a pointer to the field's value, which may be nil.
fn is_pointer(presence: Presence) -> bool {
    matches!(presence, Presence::Set | Presence::Nullable)
}

#[cfg(test)]
mod tests;
