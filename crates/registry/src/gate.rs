//! What a caller puts into a write: how the object changes, and who must agree to the outcome.

use std::pin::Pin;

use mizzen_object::{Status, Violations};
use mizzen_value::Value;

/// A future in a box, as trait objects need it.
pub type Future<'a, T> = Pin<Box<dyn std::future::Future<Output = T> + Send + 'a>>;

/// The last word before an object is stored: validating admission. Sees the object as it would be stored.
pub trait Gate: Send + Sync {
    /// Lets `new` (none for a delete) take the place of `old` (none for a create), or refuses.
    fn check<'a>(
        &'a self,
        new: Option<&'a Value>,
        old: Option<&'a Value>,
    ) -> Future<'a, Result<(), Status>>;

    /// Authorizes what `new` says beyond the verb of the request. Called after the kind's own validation, whose
    /// `violations` it sees and adds to. None where there is nothing to authorize.
    fn authorize<'a>(
        &'a self,
        new: &'a Value,
        old: Option<&'a Value>,
        violations: &'a mut Violations,
    ) -> Option<Future<'a, ()>> {
        let _ = (new, old, violations);
        None
    }
}

/// Lets everything through.
pub struct NoGate;

impl Gate for NoGate {
    fn check<'a>(
        &'a self,
        _: Option<&'a Value>,
        _: Option<&'a Value>,
    ) -> Future<'a, Result<(), Status>> {
        Box::pin(async { Ok(()) })
    }
}

/// How an update makes the new object from the current one. Called again whenever somebody else was faster,
/// so it must always start from what it is given.
pub trait Change: Send {
    /// The object as it should be, in the caller's version. `current` is none where nothing is stored.
    fn apply<'a>(&'a mut self, current: Option<&'a Value>) -> Future<'a, Result<Value, Status>>;
}
