//! Admission plug-ins of custom API servers.

use mizzen_object::Status;
use mizzen_object::schema::CanonicalObject;
use mizzen_registry::BoxFuture;
use mizzen_value::Value;

use super::RequestContext;
use crate::verbs::ResourceCall;

/// Mutates or rejects writes. Every plug-in runs for every write, so it checks the resource first.
///
/// ```
/// use mizzen_apiserver::extend::{AdmissionPlugin, RequestContext};
/// use mizzen_object::Status;
/// use mizzen_registry::BoxFuture;
/// use mizzen_value::Value;
///
/// /// Every thing has an owner.
/// struct Owned;
///
/// impl AdmissionPlugin for Owned {
///     fn mutate<'a>(&'a self, context: &'a RequestContext, object: &'a mut Value) -> BoxFuture<'a, Result<(), Status>> {
///         Box::pin(async move {
///             if context.verb == "create" && context.is("things") {
///                 object.entry("spec").set("owner", &context.user.name);
///             }
///             Ok(())
///         })
///     }
/// }
/// ```
pub trait AdmissionPlugin: Send + Sync {
    /// Mutates an object before validation, in the version of the request.
    fn mutate<'a>(
        &'a self,
        _context: &'a RequestContext<'a>,
        _object: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async { Ok(()) })
    }

    /// Validates an object after the validation of its kind, in its storage version; none for a deletion.
    fn validate<'a>(
        &'a self,
        _context: &'a RequestContext<'a>,
        _object: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async { Ok(()) })
    }
}

/// Runs the mutating part of all plug-ins.
pub(crate) async fn mutate(
    call: &ResourceCall<'_>,
    old: Option<&Value>,
    object: &mut CanonicalObject,
) -> Result<(), Status> {
    for admission in &call.server.extensions.admission {
        admission
            .mutate(&RequestContext::new(call, old), object)
            .await?;
    }
    Ok(())
}

/// Runs the validating part of all plug-ins.
pub(crate) async fn validate(
    call: &ResourceCall<'_>,
    old: Option<&Value>,
    object: Option<&Value>,
) -> Result<(), Status> {
    for admission in &call.server.extensions.admission {
        admission
            .validate(&RequestContext::new(call, old), object)
            .await?;
    }
    Ok(())
}
