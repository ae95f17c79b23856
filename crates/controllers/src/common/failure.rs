//! What did the API say when it refused?

use kube::Error;
pub(crate) use mizzen_sdk::write::message;

/// Whether nothing can be made any more because the whole namespace goes.
pub(crate) fn is_namespace_going(error: &Error) -> bool {
    let Error::Api(status) = error else {
        return false;
    };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes
        .into_iter()
        .any(|cause| cause.reason == "NamespaceTerminating")
}

/// Whether what was sent makes no sense to the server.
pub(crate) fn is_invalid(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 422)
}
