//! The error of plug-ins, storages and handlers.

use std::error::Error as StdError;
use std::fmt;

use mizzen_object::Status;

/// Why a request fails. Any error becomes one with `?`: a [`Status`] is sent as it is, any other error is a 500 with the
/// messages of the error and of its sources.
///
/// ```
/// use mizzen_apiserver::extend::Error;
/// use mizzen_object::Status;
///
/// fn parse(port: &str) -> Result<u16, Error> {
///     if port.is_empty() {
///         return Err(Status::bad_request("the port is missing").into());
///     }
///     Ok(port.parse()?)
/// }
///
/// assert_eq!(parse("").unwrap_err().status().code, 400);
/// assert_eq!(parse("x").unwrap_err().status().code, 500);
/// ```
pub struct Error(Box<Status>);

impl Error {
    /// The Status that the client gets.
    pub fn status(&self) -> &Status {
        &self.0
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for Error {
    fn from(error: E) -> Error {
        let error: Box<dyn StdError + Send + Sync> = Box::new(error);
        let error = match error.downcast::<Status>() {
            Ok(status) => return Error(status),
            Err(error) => error,
        };
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            message += &format!(": {error}");
            source = error.source();
        }
        Error(Box::new(Status::internal(message)))
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Status {
        *error.0
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
