//! The only place where a store error becomes a Status.

use mizzen_object::{Kind, Status};
use mizzen_store::{ReadError, WriteError};

/// Kubernetes: the message of an update conflict.
pub(crate) const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// Retry-After for a write on a full disk.
const NO_SPACE_RETRY_SECONDS: u32 = 5;

/// The Status for a write error.
pub(crate) fn write_status(kind: &Kind, name: &str, error: WriteError) -> Status {
    let is_outcome_unknown = matches!(
        error,
        WriteError::Remote {
            is_known: false,
            ..
        } | WriteError::Unknown(_)
    );
    let status = match error {
        WriteError::Exists { .. } => Status::already_exists(&kind.resource(), name),
        WriteError::Missing { .. } => Status::not_found(&kind.resource(), name),
        WriteError::Conflict { .. } => Status::conflict(&kind.resource(), name, MODIFIED),
        WriteError::NotWritten(_) => unavailable(&error),
        WriteError::Remote { message, .. } => remote(message),
        other => Status::internal(chain(&other)),
    };
    Status {
        is_outcome_unknown,
        ..status
    }
}

/// The Status for a read that the engine did not answer.
pub(crate) fn read_status(error: ReadError) -> Status {
    match error {
        ReadError::Unavailable(message) => remote(message),
        // Kubernetes: etcd's error is answered as it is (storage/etcd3/errors.go, interpretListError).
        ReadError::Expired(_) => {
            Status::expired("The resourceVersion for the provided list is too old.")
        }
    }
}

/// Kubernetes: an error of etcd has no reason; one that it did not answer in time is a timeout
/// (apiserver/pkg/endpoints/handlers/responsewriters/status.go).
fn remote(message: String) -> Status {
    match message.contains("context deadline exceeded") {
        true => Status::failure(
            504,
            "Timeout",
            format!("Timeout: request did not complete within requested timeout - {message}"),
        ),
        false => Status::unknown(message),
    }
}

/// 503 with Retry-After: nothing was stored, and a retry is safe.
fn unavailable(error: &WriteError) -> Status {
    let status = Status::failure(503, "ServiceUnavailable", chain(error));
    Status {
        retry_after: Some(NO_SPACE_RETRY_SECONDS),
        ..status
    }
}

/// An error with its causes, for the administrator.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}
