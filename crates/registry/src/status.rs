//! The only place where a store's refusal becomes an API answer.

use mizzen_object::{Kind, Status};
use mizzen_store::WriteError;

/// What Kubernetes says when the version that an update starts from is not the latest.
pub(crate) const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// The answer to a write that the store refused.
pub(crate) fn refused(kind: &Kind, name: &str, error: WriteError) -> Status {
    match error {
        WriteError::Exists { .. } => Status::already_exists(&kind.resource(), name),
        WriteError::Missing { .. } => Status::not_found(&kind.resource(), name),
        WriteError::Conflict { .. } => Status::conflict(&kind.resource(), name, MODIFIED),
        other => Status::internal(chain(&other)),
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
