//! Error messages as client-go writes them, because they appear in conditions and events.

use kube::Error;
use mizzen_sdk::write::message;

/// The server's message, or client-go's message if the server sent only a code. `resource` and
/// `name` are what was requested.
///
/// Kubernetes: NewGenericServerResponse of apimachinery's errors.go.
pub(crate) fn go_message(error: &Error, resource: &str, name: &str) -> String {
    let Error::Api(status) = error else {
        return error.to_string();
    };
    // kube's client sets this reason if the response was not a Status.
    if status.reason != "Failed to parse error data" {
        return message(error);
    }
    let text = generic_server_response(status.code, &status.message);
    match (resource, name) {
        ("", _) => text,
        (resource, "") => format!("{text} (get {resource})"),
        (resource, name) => format!("{text} (get {resource} {name})"),
    }
}

fn generic_server_response(code: u16, text: &str) -> String {
    let message = match code {
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        403 | 415 => text,
        404 => "the server could not find the requested resource",
        405 => "the server does not allow this method on the requested resource",
        409 => "the server reported a conflict",
        422 => "the server rejected our request due to an error in our request",
        429 => "the server has received too many requests and has asked us to try again later",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
        }
        500.. => {
            return format!(
                "an error on the server ({text:?}) has prevented the request from succeeding"
            );
        }
        _ => {
            return format!(
                "the server responded with the status code {code} but did not return more information"
            );
        }
    };
    message.into()
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[track_caller]
    fn check(reason: &str, code: u16, name: &str, expect: &str) {
        let error = Error::Api(Status::failure("said", reason).with_code(code).boxed());
        assert_eq!(go_message(&error, "pods.metrics.k8s.io", name), expect);
    }

    #[test]
    fn a_status_has_its_message_and_a_code_gets_client_gos() {
        check("NotFound", 404, "", "said");
        let unparsed = "Failed to parse error data";
        check(
            unparsed,
            404,
            "",
            "the server could not find the requested resource (get pods.metrics.k8s.io)",
        );
        check(
            unparsed,
            503,
            "*",
            "the server is currently unable to handle the request (get pods.metrics.k8s.io *)",
        );
        check(
            unparsed,
            502,
            "",
            "an error on the server (\"said\") has prevented the request from succeeding (get pods.metrics.k8s.io)",
        );
    }
}
