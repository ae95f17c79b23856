//! The only place where a store's refusal becomes an API answer.

use mizzen_object::{Kind, Status};
use mizzen_store::WriteError;

/// What Kubernetes says when the version that an update starts from is not the latest.
pub(crate) const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// How long a client waits before it tries a write again for which there was no space.
const NO_SPACE_RETRY_SECONDS: u32 = 5;

/// The answer to a write that the store refused.
pub(crate) fn refused(kind: &Kind, name: &str, error: WriteError) -> Status {
    match error {
        WriteError::Exists { .. } => Status::already_exists(&kind.resource(), name),
        WriteError::Missing { .. } => Status::not_found(&kind.resource(), name),
        WriteError::Conflict { .. } => Status::conflict(&kind.resource(), name, MODIFIED),
        WriteError::NotWritten(_) => unavailable(&error),
        other => Status::internal(chain(&other)),
    }
}

/// 503: nothing was stored, and trying again is safe. Clients wait as long as is said, then try again.
fn unavailable(error: &WriteError) -> Status {
    let status = Status::failure(503, "ServiceUnavailable", chain(error));
    Status {
        retry_after: Some(NO_SPACE_RETRY_SECONDS),
        ..status
    }
}

/// An error with its causes, for the one reader who can do something about it.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}
