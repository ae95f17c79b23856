//! The Status of a request that a webhook denies.

use mizzen_object::{Cause, Details, Status};
use mizzen_value::Value;

/// The Status of a denial by the webhook `name`.
pub(super) fn rejection(name: &str, result: &Value) -> Status {
    let denied = format!(
        "admission webhook {} denied the request",
        mizzen_value::json::quote(name)
    );
    let (message, reason) = (result["message"].str(), result["reason"].str());
    let message = match (message, reason) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    // A denial is never a success.
    let code = u16::try_from(result["code"].int())
        .ok()
        .filter(|code| (400..1000).contains(code))
        .unwrap_or(400);
    let details = &result["details"];
    let retry = u32::try_from(details["retryAfterSeconds"].int())
        .ok()
        .filter(|seconds| *seconds > 0);
    let text = |field: &str| details[field].str().into();
    let causes = details["causes"].list().iter().map(|cause| Cause {
        reason: cause["reason"].str().into(),
        message: cause["message"].str().into(),
        field: cause["field"].str().into(),
    });
    let details = details.as_map().map(|_| {
        Box::new(Details {
            name: text("name"),
            group: text("group"),
            kind: text("kind"),
            uid: text("uid"),
            causes: causes.collect(),
        })
    });
    Status {
        code,
        reason: reason.into(),
        message,
        details,
        retry_after: retry,
        token: None,
        is_outcome_unknown: false,
    }
}

/// 400: the webhook does not support dry run.
pub(super) fn no_dry_run(name: &str) -> Status {
    let name = mizzen_value::json::quote(name);
    Status::bad_request(format!("admission webhook {name} does not support dry run"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::value;

    #[track_caller]
    fn check(result: &Value, expected: (u16, &str, &str)) {
        let status = rejection("h.example.com", result);
        let message = status.message.replace(
            "admission webhook \"h.example.com\" denied the request",
            "denied",
        );
        assert_eq!(
            (status.code, status.reason.as_str(), message.as_str()),
            expected
        );
    }

    #[test]
    fn a_rejection_has_the_message_of_the_webhook() {
        check(&Value::Null, (400, "", "denied without explanation"));
        check(
            &value!({ "message": "no", "code": 403, "reason": "Forbidden" }),
            (403, "Forbidden", "denied: no"),
        );
        check(
            &value!({ "reason": "Teapot", "code": 200 }),
            (400, "Teapot", "denied: Teapot"),
        );
    }
}
