//! Versions without a hub: who turns one into another.
//!
//! Built-in kinds are kept, prepared and judged in one version, and their hooks lead there and back. The versions
//! of a custom kind are equals: an object is prepared and judged in the version that the client speaks, kept in the
//! one that its definition names, and what turns one into the other may be far away, slow or broken. So it is asked
//! for many objects at once, and may refuse.

use mizzen_object::{Kind, Status};
use mizzen_store::Record;
use mizzen_value::Value;

use crate::Future;

/// Turns objects into other versions of themselves.
pub trait Convert: Send + Sync {
    /// The kind in the version in which objects are stored now.
    fn stored(&self) -> &Kind;

    /// Whether a record's text is the object in `kind`'s version, as it would be stored today.
    fn is_current(&self, record: &Record, kind: &Kind) -> bool;

    /// Stored objects, whatever version each is in, as objects of `kind`'s version, in the same order.
    fn read<'a>(
        &'a self,
        objects: Vec<Value>,
        kind: &'a Kind,
    ) -> Future<'a, Result<Vec<Value>, Status>>;

    /// An object of `kind`'s version as it is to be stored.
    fn write<'a>(&'a self, object: Value, kind: &'a Kind) -> Future<'a, Result<Value, Status>>;

    /// Objects of any versions as objects of `kind`'s version, in the same order, with everything that they have.
    fn translate<'a>(
        &'a self,
        objects: Vec<Value>,
        kind: &'a Kind,
    ) -> Future<'a, Result<Vec<Value>, Status>>;

    /// Whether an object is the same in all its versions, but for what their schemas know of.
    fn only_renames(&self) -> bool;
}
