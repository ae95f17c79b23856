//! The two hooks of a write: how an update computes the new object, and validating admission.

use mizzen_object::schema::CanonicalObject;
use mizzen_object::{Status, Violations};
use mizzen_value::Value;

use crate::BoxFuture;

/// Validating admission: runs last, on the object as it would be stored.
pub trait ValidatingAdmission: Send + Sync {
    /// Admits the replacement of `old` (none for a create) by `new` (none for a delete), or rejects it.
    fn check<'a>(
        &'a self,
        new: Option<&'a Value>,
        old: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Status>>;

    /// Authorizes what `new` says beyond the verb of the request. Called after the kind's own validation, whose
    /// `violations` it sees and adds to. None where there is nothing to authorize.
    fn authorize<'a>(
        &'a self,
        new: &'a Value,
        old: Option<&'a Value>,
        violations: &'a mut Violations,
    ) -> Option<BoxFuture<'a, ()>> {
        let _ = (new, old, violations);
        None
    }
}

/// Admits everything.
pub struct NoAdmission;

impl ValidatingAdmission for NoAdmission {
    fn check<'a>(
        &'a self,
        _: Option<&'a Value>,
        _: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async { Ok(()) })
    }
}

/// Computes the new object of an update from the current one. Called again after a conflict, so it must always
/// start from its argument.
pub trait UpdateFn: Send {
    /// The new object, in the version of the request. `current` is none if nothing is stored.
    fn apply<'a>(
        &'a mut self,
        current: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<CanonicalObject, Status>>;
}
