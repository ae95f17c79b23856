//! Is an object to be written again, and what does the server's answer mean for its migration?

use std::time::Duration;

use kube::Error;
use mizzen_sdk::write::{is_conflict, is_not_found};
use mizzen_sdk::{Object, Resource};
use mizzen_value::{Value, value};

use crate::common::failure::message;

/// What an answer means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The object needs nothing more.
    Settled,
    /// It may go better after this time, or after a while if it does not say.
    Again(Option<Duration>),
    /// It never goes better.
    Failed(String),
}

/// Whether what was written at `version` was written until `noted`; or why nobody can say.
pub(super) fn is_due(version: &str, noted: &str) -> Result<bool, String> {
    check_version(version)?;
    check_version(noted)?;
    Ok((version.len(), version) <= (noted.len(), noted))
}

/// Refuses what is no version: other servers may have versions that are not in order.
pub(super) fn check_version(version: &str) -> Result<(), String> {
    let is_number = !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit());
    match is_number && !version.starts_with('0') {
        true => Ok(()),
        false => Err(format!("resource version is not well formed: {version}")),
    }
}

/// A change that changes nothing, and fails if the object is gone, is another, or has been written since it was read.
///
/// Without its name, one that is gone would be refused for that, and not as a conflict.
pub(super) fn no_change(of: &Resource, object: &Object) -> Value {
    value!({
        "apiVersion": (of.api_version()),
        "kind": (of.kind.to_string()),
        "metadata": { "name": (object.name()), "uid": (object.uid()), "resourceVersion": (object.version()) }
    })
}

/// What an answer to such a change means.
pub(super) fn judge(error: &Error) -> Verdict {
    // Whoever wrote, made or deleted it meanwhile did what was to be done.
    if is_conflict(error) || is_not_found(error) {
        return Verdict::Settled;
    }
    let Error::Api(status) = error else {
        return Verdict::Again(None);
    };
    match &*status.reason {
        "ServerTimeout" | "TooManyRequests" | "ServiceUnavailable" | "InternalError"
        | "Timeout" => Verdict::Again(wait(error)),
        _ if status.code == 429 => Verdict::Again(wait(error)),
        _ => Verdict::Failed(message(error)),
    }
}

/// How long the server wants to be left alone.
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
    fn what_was_written_until_then_is_due() {
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
    fn what_is_sent_names_one_object_at_one_version() {
        let of = Resource::namespaced("a.io", "v2", "foos", "Foo");
        let metadata = value!({ "name": "f", "namespace": "shop", "uid": "u", "resourceVersion": "7", "labels": { "a": "b" } });
        let expected = r#"{"apiVersion":"a.io/v2","kind":"Foo","metadata":{"name":"f","uid":"u","resourceVersion":"7"}}"#;
        assert_eq!(
            json::to_string(&no_change(&of, &Object(value!({ "metadata": metadata })))),
            expected
        );
    }

    #[track_caller]
    fn check(code: u16, reason: &str, seconds: u32, expected: Verdict) {
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
            judge(&Error::Api(status.boxed())),
            expected,
            "{code} {reason}"
        );
    }

    #[test]
    fn whoever_was_faster_did_the_work() {
        check(409, "Conflict", 0, Verdict::Settled);
        check(404, "NotFound", 0, Verdict::Settled);
    }

    #[test]
    fn a_server_that_cannot_now_is_asked_again() {
        check(500, "InternalError", 0, Verdict::Again(None));
        check(500, "ServerTimeout", 0, Verdict::Again(None));
        check(503, "ServiceUnavailable", 0, Verdict::Again(None));
        check(504, "Timeout", 0, Verdict::Again(None));
        check(429, "", 0, Verdict::Again(None));
        check(
            429,
            "TooManyRequests",
            3,
            Verdict::Again(Some(Duration::from_secs(3))),
        );
        assert_eq!(
            judge(&Error::LinesCodecMaxLineLengthExceeded),
            Verdict::Again(None)
        );
    }

    #[test]
    fn a_refusal_is_final() {
        check(403, "Forbidden", 0, Verdict::Failed("no".into()));
        check(422, "Invalid", 0, Verdict::Failed("no".into()));
    }
}
