//! `Status`: the response for errors, and for success without an object.
//!
//! Internal errors are small and free of HTTP; this is the form in which clients see them.

use std::fmt;

use crate::names::{GroupResource, GroupVersionKind};
use crate::violation::Violations;
use mizzen_value::{Map, Str, Value};

/// A `Status` object.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    /// The HTTP status code.
    pub code: u16,
    /// The machine-readable reason; may be empty.
    pub reason: Str,
    /// The human-readable message.
    pub message: String,
    /// The details.
    pub details: Option<Box<Details>>,
    /// Seconds to wait before a retry, also sent as `Retry-After`.
    pub retry_after: Option<u32>,
    /// A continue token for an inconsistent continuation of a list.
    pub token: Option<String>,
    /// Whether the write may be stored although it failed: the store did not say whether it was. Clients are not told.
    pub is_outcome_unknown: bool,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

/// The details of a Status.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Details {
    /// The object's name.
    pub name: Str,
    /// The API group.
    pub group: Str,
    /// The kind or resource.
    pub kind: Str,
    /// The object's uid.
    pub uid: Str,
    /// The causes.
    pub causes: Vec<Cause>,
}

/// A cause of a failure.
#[derive(Debug, Clone, PartialEq)]
pub struct Cause {
    /// The machine-readable reason.
    pub reason: Str,
    /// The human-readable message.
    pub message: String,
    /// The field.
    pub field: String,
}

impl Status {
    /// A failure with nothing but its message.
    pub fn failure(code: u16, reason: &'static str, message: impl Into<String>) -> Status {
        let reason = Str::new_static(reason);
        Status {
            code,
            reason,
            message: message.into(),
            details: None,
            retry_after: None,
            token: None,
            is_outcome_unknown: false,
        }
    }

    /// 400: the request is invalid.
    pub fn bad_request(message: impl Into<String>) -> Status {
        Status::failure(400, "BadRequest", message)
    }

    /// 401: authentication failed.
    pub fn unauthorized() -> Status {
        Status::failure(401, "Unauthorized", "Unauthorized")
    }

    /// 403: the user is not authorized.
    pub fn forbidden(resource: &GroupResource, name: &str, why: &str) -> Status {
        let message = match (resource.to_string().as_str(), name) {
            ("", _) => format!("forbidden: {why}"),
            (resource, "") => format!("{resource} is forbidden: {why}"),
            (resource, name) => format!(
                "{resource} {} is forbidden: {why}",
                mizzen_value::json::quote(name)
            ),
        };
        Status {
            details: Some(about(resource, name)),
            ..Status::failure(403, "Forbidden", message)
        }
    }

    /// 404: there is no such object.
    pub fn not_found(resource: &GroupResource, name: &str) -> Status {
        let message = format!("{resource} {} not found", mizzen_value::json::quote(name));
        Status {
            details: Some(about(resource, name)),
            ..Status::failure(404, "NotFound", message)
        }
    }

    /// 405: the resource exists, but does not support the method.
    pub fn no_such_method() -> Status {
        Status::method_not_allowed(
            "the server does not allow this method on the requested resource",
        )
    }

    /// 404: there is no such resource.
    pub fn no_such_resource() -> Status {
        Status {
            details: Some(Box::default()),
            ..Status::failure(
                404,
                "NotFound",
                "the server could not find the requested resource",
            )
        }
    }

    /// 405: the resource does not support the operation.
    pub fn method_not_allowed(message: impl Into<String>) -> Status {
        Status {
            details: Some(Box::default()),
            ..Status::failure(405, "MethodNotAllowed", message)
        }
    }

    /// 409: the name exists.
    pub fn already_exists(resource: &GroupResource, name: &str) -> Status {
        let message = format!(
            "{resource} {} already exists",
            mizzen_value::json::quote(name)
        );
        Status {
            details: Some(about(resource, name)),
            ..Status::failure(409, "AlreadyExists", message)
        }
    }

    /// 409: a concurrent write came first, or a precondition failed.
    pub fn conflict(resource: &GroupResource, name: &str, why: &str) -> Status {
        let message = format!(
            "Operation cannot be fulfilled on {resource} {}: {why}",
            mizzen_value::json::quote(name)
        );
        Status {
            details: Some(about(resource, name)),
            ..Status::failure(409, "Conflict", message)
        }
    }

    /// 410: the resource version is compacted.
    pub fn expired(message: impl Into<String>) -> Status {
        Status::failure(410, "Expired", message)
    }

    /// 422: validation failed.
    pub fn invalid(gvk: &GroupVersionKind, name: &str, violations: &Violations) -> Status {
        let GroupVersionKind { group, kind, .. } = gvk;
        let qualified = if group.is_empty() {
            kind.to_string()
        } else {
            format!("{kind}.{group}")
        };
        let all = violations
            .aggregate()
            .map(|all| format!(": {all}"))
            .unwrap_or_default();
        let message = format!(
            "{qualified} {} is invalid{all}",
            mizzen_value::json::quote(name)
        );
        let causes = violations
            .0
            .iter()
            .map(|violation| Cause {
                reason: violation.reason.word().into(),
                message: violation.message.clone(),
                field: violation.field.clone(),
            })
            .collect();
        let details = Details {
            name: name.into(),
            group: group.clone(),
            kind: kind.clone(),
            causes,
            ..Details::default()
        };
        Status {
            details: Some(Box::new(details)),
            ..Status::failure(422, "Invalid", message)
        }
    }

    /// 500: an internal error.
    pub fn internal(message: impl std::fmt::Display) -> Status {
        let cause = Cause {
            reason: Str::default(),
            message: message.to_string(),
            field: String::new(),
        };
        let details = Details {
            causes: vec![cause],
            ..Details::default()
        };
        Status {
            details: Some(Box::new(details)),
            ..Status::failure(
                500,
                "InternalError",
                format!("Internal error occurred: {message}"),
            )
        }
    }

    /// 500 with only a message, as upstream responds to an error without a reason.
    pub fn unknown(message: impl Into<String>) -> Status {
        Status::failure(500, "", message)
    }

    /// 200: success.
    pub fn success(details: Details) -> Value {
        let mut value = head("Success", "", "");
        value.set("details", details_value(&details));
        value
    }

    /// The object that the client receives.
    pub fn to_value(&self) -> Value {
        let mut value = head("Failure", &self.message, &self.reason);
        if let Some(token) = &self.token {
            value.entry("metadata").set("continue", token);
        }
        if self.details.is_some() || self.retry_after.is_some() {
            let mut details = self
                .details
                .as_deref()
                .map_or_else(Value::object, details_value);
            if let Some(seconds) = self.retry_after {
                details.set("retryAfterSeconds", seconds);
            }
            value.set("details", details);
        }
        value.set("code", i64::from(self.code));
        value
    }
}

/// Kubernetes: the aggregate message lists duplicate violations once, the causes keep both.
fn about(resource: &GroupResource, name: &str) -> Box<Details> {
    Box::new(Details {
        name: name.into(),
        group: resource.group.clone(),
        kind: resource.resource.clone(),
        ..Details::default()
    })
}

fn head(status: &str, message: &str, reason: &str) -> Value {
    let mut value = mizzen_value::value!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": status });
    for (key, text) in [("message", message), ("reason", reason)] {
        if !text.is_empty() {
            value.set(key, text);
        }
    }
    value
}

fn details_value(details: &Details) -> Value {
    let mut map = Map::default();
    let texts = [
        ("name", &details.name),
        ("group", &details.group),
        ("kind", &details.kind),
        ("uid", &details.uid),
    ];
    for (key, text) in texts {
        if !text.is_empty() {
            map.insert(key, text);
        }
    }
    if !details.causes.is_empty() {
        map.insert(
            "causes",
            Value::List(details.causes.iter().map(Cause::to_value).collect()),
        );
    }
    Value::Map(map)
}

impl Cause {
    fn to_value(&self) -> Value {
        let mut map = Map::default();
        for (key, text) in [
            ("reason", self.reason.as_str()),
            ("message", &self.message),
            ("field", &self.field),
        ] {
            if !text.is_empty() {
                map.insert(key, text);
            }
        }
        Value::Map(map)
    }
}
