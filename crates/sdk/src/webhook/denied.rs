//! Denials: the Status with which a webhook rejects a request.

use std::any::Any;
use std::error::Error;

use mizzen_object::{Cause, Details, Status};

/// Why a request is denied: the code, reason and message that the client of the API server gets.
///
/// Any error becomes a denial with `?`: the error of an API request keeps its code and message;
/// every other one is an internal error (500).
///
/// ```
/// use mizzen_sdk::webhook::Denied;
///
/// fn check(replicas: &str) -> Result<(), Denied> {
///     if replicas.parse::<u32>()? > 5 {
///         return Err(Denied::new("at most five replicas"));
///     }
///     Ok(())
/// }
/// assert_eq!(check("7").unwrap_err().status().code, 403);
/// assert_eq!(check("x").unwrap_err().status().code, 500);
/// assert_eq!(Denied::with_code(409, "Conflict", "try again").status().message, "try again");
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Denied(Box<Status>);

impl Denied {
    /// A denial with code 403 and reason Forbidden.
    pub fn new(message: impl Into<String>) -> Denied {
        Denied::with_code(403, "Forbidden", message)
    }

    /// A denial with any code and reason.
    pub fn with_code(code: u16, reason: &'static str, message: impl Into<String>) -> Denied {
        Denied::from_status(Status::failure(code, reason, message))
    }

    /// A denial with any Status.
    ///
    /// ```
    /// use mizzen_object::Status;
    /// use mizzen_sdk::webhook::Denied;
    ///
    /// let denied = Denied::from_status(Status::failure(429, "TooManyRequests", "later".to_owned()));
    /// assert_eq!(denied.status().code, 429);
    /// ```
    pub fn from_status(status: Status) -> Denied {
        Denied(Box::new(status))
    }

    /// Its Status.
    pub fn status(&self) -> &Status {
        &self.0
    }

    /// The denial of a request whose handler panicked. The text is for the log, not for clients.
    pub(super) fn panicked(handler: &str, panic: Box<dyn Any + Send>) -> Denied {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        let text = text.unwrap_or_default();
        tracing::error!(handler, panic = text, "a webhook handler panicked");
        Denied::from_status(Status::internal("the webhook panicked"))
    }
}

impl<E: Error + 'static> From<E> for Denied {
    fn from(error: E) -> Denied {
        let status = match (&error as &dyn Any).downcast_ref::<kube::Error>() {
            Some(kube::Error::Api(status)) => api_status(status),
            _ => Status::internal(&error),
        };
        Denied::from_status(status)
    }
}

fn api_status(status: &kube::core::Status) -> Status {
    let details = status.details.as_ref().map(|details| {
        let causes = details.causes.iter().map(|cause| Cause {
            reason: cause.reason.as_str().into(),
            message: cause.message.clone(),
            field: cause.field.clone(),
        });
        Box::new(Details {
            name: details.name.as_str().into(),
            group: details.group.as_str().into(),
            kind: details.kind.as_str().into(),
            uid: details.uid.as_str().into(),
            causes: causes.collect(),
        })
    });
    Status {
        code: status.code,
        reason: status.reason.as_str().into(),
        message: status.message.clone(),
        details,
        retry_after: None,
        token: None,
        is_outcome_unknown: false,
    }
}
