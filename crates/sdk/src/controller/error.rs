//! Why a reconcile failed.

use crate::cache::DecodeError;
use crate::owner::OwnError;
use crate::write::{is_conflict, message};

/// Any error of a reconciler.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a reconcile failed. The key is requeued with back-off, except after a
/// [terminal](Error::terminal) error.
///
/// ```
/// use mizzen_sdk::controller::Error;
///
/// #[derive(Debug, thiserror::Error)]
/// enum BackupError {
///     #[error("the bucket is not reachable")]
///     Unreachable,
///     #[error("no such bucket: {0}")]
///     Bucket(String),
/// }
///
/// // `?` converts: a wrong name in the spec stays wrong until the spec changes.
/// impl From<BackupError> for Error {
///     fn from(error: BackupError) -> Error {
///         match error {
///             BackupError::Bucket(_) => Error::terminal(error),
///             BackupError::Unreachable => Error::other(error),
///         }
///     }
/// }
///
/// assert!(!Error::from(BackupError::Unreachable).is_terminal());
/// let error = Error::from(BackupError::Bucket("b".into()));
/// assert!(error.is_terminal());
/// assert_eq!(error.to_string(), "terminal error: no such bucket: b");
///
/// // The text of a failed request is the message of the server.
/// let status = kube::core::Status::failure("pods \"web\" not found", "NotFound").with_code(404);
/// let error = Error::from(kube::Error::Api(status.boxed()));
/// assert_eq!(error.to_string(), "pods \"web\" not found");
/// ```
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API request failed. The text is the message of the server.
    #[error("{}", message(.0))]
    Api(#[from] kube::Error),
    /// An object could not be decoded.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// An object could not be owned.
    #[error(transparent)]
    Own(#[from] OwnError),
    /// Any other reason; the key is retried.
    #[error(transparent)]
    Other(BoxError),
    /// A retry would fail, too: the key is reconciled again when an event enqueues it.
    #[error("terminal error: {0}")]
    Terminal(#[source] BoxError),
}

impl Error {
    /// An error that may not occur on the next try. Text is an error, too.
    pub fn other(error: impl Into<BoxError>) -> Error {
        Error::Other(error.into())
    }

    /// An error that a retry cannot repair, such as an invalid spec.
    pub fn terminal(error: impl Into<BoxError>) -> Error {
        Error::Terminal(error.into())
    }

    /// Whether the key is not retried.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Error::Terminal(_))
    }

    /// Whether the write conflicted; then nothing needs to be reported.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Error::Api(error) if is_conflict(error))
    }
}
