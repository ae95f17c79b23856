//! Admission plug-ins of custom API servers.

use mizzen_object::Status;
use mizzen_object::schema::CanonicalObject;
use mizzen_registry::BoxFuture;
use mizzen_value::Value;

use super::{Error, RequestContext};
use crate::verbs::ResourceCall;

/// Mutates or rejects writes, and rejects connections. Every plug-in runs for every write, so it checks the resource
/// first.
///
/// ```
/// use mizzen_apiserver::extend::{AdmissionPlugin, Error, RequestContext};
/// use mizzen_object::GroupResource;
/// use mizzen_value::Value;
///
/// const THINGS: GroupResource = GroupResource::new("example.com", "things");
///
/// /// Every thing has an owner.
/// struct Owned;
///
/// impl AdmissionPlugin for Owned {
///     async fn mutate(&self, context: &RequestContext<'_>, object: &mut Value) -> Result<(), Error> {
///         if context.verb == "create" && context.is(&THINGS) {
///             object.entry("spec").set("owner", &context.user.name);
///         }
///         Ok(())
///     }
/// }
/// ```
pub trait AdmissionPlugin: Send + Sync {
    /// Mutates an object before validation, in the version of the request.
    fn mutate(
        &self,
        _context: &RequestContext<'_>,
        _object: &mut Value,
    ) -> impl Future<Output = Result<(), Error>> + Send {
        async { Ok(()) }
    }

    /// Validates an object after the validation of its kind, in its storage version; none for a deletion.
    fn validate(
        &self,
        _context: &RequestContext<'_>,
        _object: Option<&Value>,
    ) -> impl Future<Output = Result<(), Error>> + Send {
        async { Ok(()) }
    }

    /// Rejects a CONNECT, which a [`ConnectHandler`](super::ConnectHandler) would serve. `context.old` is the object.
    fn connect(
        &self,
        _context: &RequestContext<'_>,
    ) -> impl Future<Output = Result<(), Error>> + Send {
        async { Ok(()) }
    }
}

/// An [`AdmissionPlugin`] of any type.
pub(crate) trait ErasedAdmissionPlugin: Send + Sync {
    fn mutate_boxed<'a>(
        &'a self,
        context: &'a RequestContext<'a>,
        object: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), Error>>;

    fn validate_boxed<'a>(
        &'a self,
        context: &'a RequestContext<'a>,
        object: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Error>>;

    fn connect_boxed<'a>(
        &'a self,
        context: &'a RequestContext<'a>,
    ) -> BoxFuture<'a, Result<(), Error>>;
}

impl<T: AdmissionPlugin> ErasedAdmissionPlugin for T {
    fn mutate_boxed<'a>(
        &'a self,
        context: &'a RequestContext<'a>,
        object: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.mutate(context, object))
    }

    fn validate_boxed<'a>(
        &'a self,
        context: &'a RequestContext<'a>,
        object: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.validate(context, object))
    }

    fn connect_boxed<'a>(
        &'a self,
        context: &'a RequestContext<'a>,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.connect(context))
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
            .mutate_boxed(&RequestContext::new(call, old), object)
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
            .validate_boxed(&RequestContext::new(call, old), object)
            .await?;
    }
    Ok(())
}
