//! Which objects are rewritten, and what the responses mean.

use std::time::Duration;

use kube::Error;
use mizzen_sdk::write::{is_conflict, is_not_found, message};
use mizzen_sdk::{Object, ResourceType};
use mizzen_value::{Value, value};

/// What a response means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RewriteOutcome {
    Done,
    /// Retry after this time, or with back-off.
    Retry(Option<Duration>),
    Failed(String),
}

/// Whether an object at `version` was last written up to `noted`; an error if the versions are not
/// comparable.
pub(super) fn is_due(version: &str, noted: &str) -> Result<bool, String> {
    check_version(version)?;
    check_version(noted)?;
    Ok((version.len(), version) <= (noted.len(), noted))
}

/// Rejects opaque resourceVersions: those of other servers may not be ordered.
pub(super) fn check_version(version: &str) -> Result<(), String> {
    let is_number = !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit());
    match is_number && !version.starts_with('0') {
        true => Ok(()),
        false => Err(format!("resource version is not well formed: {version}")),
    }
}

/// A patch without changes, with uid and resourceVersion as preconditions.
///
/// It contains the name, because without it a deleted object would be invalid instead of a
/// conflict.
pub(super) fn empty_patch(of: &ResourceType, object: &Object) -> Value {
    value!({
        "apiVersion": (of.api_version()),
        "kind": (of.kind.to_string()),
        "metadata": { "name": (object.name()), "uid": (object.uid()), "resourceVersion": (object.version()) }
    })
}

/// What an error response to the patch means.
pub(super) fn classify_error(error: &Error) -> RewriteOutcome {
    // A concurrent write stored the object in the current version, and a deleted object needs
    // nothing.
    if is_conflict(error) || is_not_found(error) {
        return RewriteOutcome::Done;
    }
    let Error::Api(status) = error else {
        return RewriteOutcome::Retry(None);
    };
    match &*status.reason {
        "ServerTimeout" | "TooManyRequests" | "ServiceUnavailable" | "InternalError"
        | "Timeout" => RewriteOutcome::Retry(wait(error)),
        _ if status.code == 429 => RewriteOutcome::Retry(wait(error)),
        _ => RewriteOutcome::Failed(message(error)),
    }
}

/// The Retry-After of a response.
fn wait(error: &Error) -> Option<Duration> {
    let Error::Api(status) = error else {
        return None;
    };
    let seconds = status
        .details
        .as_ref()
        .map_or(0, |details| details.retry_after_seconds);
    (seconds > 0).then(|| Duration::from_secs(seconds.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;
    use kube::core::response::StatusDetails;
    use mizzen_value::json;

    #[test]
    fn objects_up_to_the_recorded_version_are_due() {
        for (version, noted, expected) in
            [("9", "10", true), ("10", "10", true), ("11", "10", false)]
        {
            assert_eq!(is_due(version, noted), Ok(expected), "{version} {noted}");
        }
        for version in ["", "0", "012", "1a", "-1"] {
            let why = format!("resource version is not well formed: {version}");
            assert_eq!(is_due(version, "10"), Err(why.clone()));
            assert_eq!(is_due("10", version), Err(why));
        }
    }

    #[test]
    fn the_patch_has_uid_and_resource_version_preconditions() {
        let of = ResourceType::namespaced("a.io", "v2", "foos", "Foo");
        let metadata = value!({ "name": "f", "namespace": "shop", "uid": "u", "resourceVersion": "7", "labels": { "a": "b" } });
        let expected = r#"{"apiVersion":"a.io/v2","kind":"Foo","metadata":{"name":"f","uid":"u","resourceVersion":"7"}}"#;
        assert_eq!(
            json::to_string(&empty_patch(&of, &Object(value!({ "metadata": metadata })))),
            expected
        );
    }

    #[track_caller]
    fn check(code: u16, reason: &str, seconds: u32, expected: RewriteOutcome) {
        let details = StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: Vec::new(),
            retry_after_seconds: seconds,
        };
        let status = Status::failure("no", reason)
            .with_code(code)
            .with_details(details);
        assert_eq!(
            classify_error(&Error::Api(status.boxed())),
            expected,
            "{code} {reason}"
        );
    }

    #[test]
    fn a_conflict_means_done() {
        check(409, "Conflict", 0, RewriteOutcome::Done);
        check(404, "NotFound", 0, RewriteOutcome::Done);
    }

    #[test]
    fn an_overloaded_server_is_retried() {
        check(500, "InternalError", 0, RewriteOutcome::Retry(None));
        check(500, "ServerTimeout", 0, RewriteOutcome::Retry(None));
        check(503, "ServiceUnavailable", 0, RewriteOutcome::Retry(None));
        check(504, "Timeout", 0, RewriteOutcome::Retry(None));
        check(429, "", 0, RewriteOutcome::Retry(None));
        check(
            429,
            "TooManyRequests",
            3,
            RewriteOutcome::Retry(Some(Duration::from_secs(3))),
        );
        assert_eq!(
            classify_error(&Error::LinesCodecMaxLineLengthExceeded),
            RewriteOutcome::Retry(None)
        );
    }

    #[test]
    fn a_rejection_is_final() {
        check(403, "Forbidden", 0, RewriteOutcome::Failed("no".into()));
        check(422, "Invalid", 0, RewriteOutcome::Failed("no".into()));
    }
}
