//! Admission by the server's author: what is written may depend on what else is there.

use mizzen_object::Status;
use mizzen_registry::BoxFuture;
use mizzen_value::Value;

use super::RequestInfo;
use crate::verbs::ResourceCall;

/// Changes what is written, or refuses it. Each is asked about every write, so it looks first whether it is concerned.
///
/// ```
/// use mizzen_apiserver::extend::{Admit, Asked};
/// use mizzen_object::Status;
/// use mizzen_registry::Future;
/// use mizzen_value::Value;
///
/// /// Every thing has an owner.
/// struct Owned;
///
/// impl Admit for Owned {
///     fn mutate<'a>(&'a self, asked: &'a Asked, object: &'a mut Value) -> Future<'a, Result<(), Status>> {
///         Box::pin(async move {
///             if asked.verb == "create" && asked.is("things") {
///                 object.entry("spec").set("owner", &asked.user.name);
///             }
///             Ok(())
///         })
///     }
/// }
/// ```
pub trait AdmissionPlugin: Send + Sync {
    /// Changes an object before it is validated. It is in the version that the client speaks.
    fn mutate<'a>(
        &'a self,
        _asked: &'a RequestInfo<'a>,
        _object: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async { Ok(()) })
    }

    /// Refuses an object, or does not, when its kind has validated it. It is in the version in which it is stored;
    /// none is a deletion.
    fn validate<'a>(
        &'a self,
        _asked: &'a RequestInfo<'a>,
        _object: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async { Ok(()) })
    }
}

/// Lets everybody change an object.
pub(crate) async fn mutate(
    call: &ResourceCall<'_>,
    old: Option<&Value>,
    object: &mut Value,
) -> Result<(), Status> {
    for admission in &call.server.extensions.admission {
        admission
            .mutate(&RequestInfo::new(call, old), object)
            .await?;
    }
    Ok(())
}

/// Lets everybody refuse an object, or its deletion.
pub(crate) async fn validate(
    call: &ResourceCall<'_>,
    old: Option<&Value>,
    object: Option<&Value>,
) -> Result<(), Status> {
    for admission in &call.server.extensions.admission {
        admission
            .validate(&RequestInfo::new(call, old), object)
            .await?;
    }
    Ok(())
}
