//! Conversion between versions of custom kinds.
//!
//! Built-in kinds are prepared, validated and stored in their hub version, and hooks convert. Objects of a custom kind
//! are prepared and validated in the version of the request and stored in the storage version of the definition. The
//! converter may be a webhook that is slow or fails, so it is async, converts many objects per call, and may fail.

use mizzen_object::{Kind, Status};
use mizzen_store::Record;
use mizzen_value::Value;

use crate::BoxFuture;

/// Converts objects between versions of a custom kind.
pub trait Convert: Send + Sync {
    /// The kind in its current storage version.
    fn stored(&self) -> &Kind;

    /// Whether a record is stored in the version of `kind`, in its current form.
    fn is_current(&self, record: &Record, kind: &Kind) -> bool;

    /// Converts stored objects, each of any version, to the version of `kind`, in the same order.
    fn read<'a>(
        &'a self,
        objects: Vec<Value>,
        kind: &'a Kind,
    ) -> BoxFuture<'a, Result<Vec<Value>, Status>>;

    /// Converts an object of the version of `kind` to the storage version.
    fn write<'a>(&'a self, object: Value, kind: &'a Kind) -> BoxFuture<'a, Result<Value, Status>>;

    /// Converts objects of any versions to the version of `kind`, in the same order, without pruning.
    fn translate<'a>(
        &'a self,
        objects: Vec<Value>,
        kind: &'a Kind,
    ) -> BoxFuture<'a, Result<Vec<Value>, Status>>;

    /// Whether conversion only changes apiVersion (strategy None).
    fn only_renames(&self) -> bool;
}
