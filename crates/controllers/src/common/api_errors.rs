//! Classifies errors of the API server.

use kube::Error;
use mizzen_sdk::write::is_not_found;
pub(crate) use mizzen_sdk::write::message;

/// Whether a create failed because the namespace is being deleted.
pub(crate) fn is_namespace_terminating(error: &Error) -> bool {
    let Error::Api(status) = error else {
        return false;
    };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes
        .into_iter()
        .any(|cause| cause.reason == "NamespaceTerminating")
}

/// Ignores that the object does not exist any more.
pub(crate) fn ignore_not_found<T>(outcome: Result<T, Error>) -> Result<(), crate::Error> {
    match outcome {
        Err(error) if !is_not_found(&error) => Err(error.into()),
        _ => Ok(()),
    }
}

/// Whether the request was rejected as invalid (422).
pub(crate) fn is_invalid(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 422)
}
