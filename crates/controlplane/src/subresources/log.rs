//! `pods/NAME/log`: container logs, streamed from the kubelet.

use http::Request as Outward;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use mizzen_object::{GroupVersionKind, Status, Violations};
use mizzen_value::{json, time};

use super::kubelet;
use crate::ControlPlane;
use mizzen_apiserver::request::RequestQuery;
use mizzen_apiserver::response::{self, Body, Response};
use mizzen_apiserver::verbs::ResourceCall;
use mizzen_apiserver::websocket::{StreamMessages, upgraded};
use mizzen_transport::{SendError, Trust, whole};

/// Kubernetes: how much of an error is read (registry/generic/rest/response_checker.go).
const MAX_ERROR: usize = 50_000;

pub(super) async fn get(call: &ResourceCall<'_>) -> Result<Response, Status> {
    let query = kubelet_query(&call.request.query, &call.path.name)?;
    let pod = call
        .server
        .registry
        .read(call.resource, &call.key(), "")
        .await?
        .value();
    let container = kubelet::container(&pod, call.request.query.text("container"))?;
    let node = pod["spec"]["nodeName"].str();
    if node.is_empty() {
        let mut nothing = Response::new(Body::from(""));
        *nothing.status_mut() = http::StatusCode::NO_CONTENT;
        return Ok(nothing);
    }
    let metadata = &pod["metadata"];
    let path = format!(
        "/containerLogs/{}/{}/{container}{query}",
        metadata["namespace"].str(),
        metadata["name"].str()
    );
    let address = &kubelet::address(call.server, node).await?;
    let url = format!("https://{address}{path}");
    let failed = |why: String| Status::unknown(format!("Get {}: {why}", json::quote(&url)));
    let request = Outward::get(&url)
        .body(whole(Default::default()))
        .map_err(|error| failed(error.to_string()))?;
    let mut target = kubelet::target(call.server, address);
    // Kubernetes: LogLocation (core/pod/strategy.go).
    let skips_verification = call.request.query.bool("insecureSkipTLSVerifyBackend");
    if skips_verification.unwrap_or(false) {
        target.trust = Trust::Anyone;
    }
    let answered = ControlPlane::of(call.server)
        .kubelets
        .send(&target, request)
        .await;
    let response = answered.map_err(|SendError(why)| failed(why))?;
    match response.status().as_u16() {
        200..=206 => {
            let log = response::with_body(200, "text/plain", Body::relay(response.into_body()));
            Ok(upgraded(call.request, log, StreamMessages::Bytes))
        }
        code => Err(kubelet_error(code, response.into_body(), &call.path.name).await),
    }
}

/// PodLogOptions.
#[derive(Default)]
struct LogOptions {
    limit: Option<i64>,
    since: Option<i64>,
    since_time: Option<String>,
    tail: Option<i64>,
}

/// The query for the kubelet: the client's options, validated, in the order in which Go writes them.
fn kubelet_query(query: &RequestQuery, name: &str) -> Result<String, Status> {
    let options = LogOptions::read(query).map_err(Status::bad_request)?;
    let violations = options.check(query.get("stream").is_some());
    if !violations.is_empty() {
        let gvk = GroupVersionKind {
            group: "".into(),
            version: "v1".into(),
            kind: "PodLogOptions".into(),
        };
        return Err(Status::invalid(&gvk, name, &violations));
    }
    Ok(options.into_query(query))
}

impl LogOptions {
    fn read(query: &RequestQuery) -> Result<LogOptions, String> {
        let since_time = match query.text("sinceTime") {
            "" => None,
            text => time::parse_time(text).map_err(|error| error.to_string())?,
        };
        let (limit, since) = (query.int("limitBytes")?, query.int("sinceSeconds")?);
        Ok(LogOptions {
            limit,
            since,
            since_time,
            tail: query.int("tailLines")?,
        })
    }

    fn check(&self, has_stream: bool) -> Violations {
        let mut violations = Violations::default();
        if let Some(tail) = self.tail.filter(|tail| *tail < 0) {
            violations.invalid("tailLines", tail, "must be greater than or equal to 0");
        }
        if let Some(limit) = self.limit.filter(|limit| *limit < 1) {
            violations.invalid("limitBytes", limit, "must be greater than 0");
        }
        match self.since {
            Some(_) if self.since_time.is_some() => {
                violations.forbidden(
                    "[]",
                    "at most one of `sinceTime` or `sinceSeconds` may be specified",
                );
            }
            Some(since) if since < 1 => {
                violations.invalid("sinceSeconds", since, "must be greater than 0")
            }
            _ => {}
        }
        if has_stream {
            violations.forbidden("stream", "may not be specified");
        }
        violations
    }

    fn into_query(self, query: &RequestQuery) -> String {
        let flag = |key: &str| query.bool(key).filter(|on| *on).map(|_| "true".to_string());
        let text = |number: Option<i64>| number.map(|number| number.to_string());
        let options = [
            ("follow", flag("follow")),
            ("limitBytes", text(self.limit)),
            ("previous", flag("previous")),
            ("sinceSeconds", text(self.since)),
            (
                "sinceTime",
                self.since_time.map(|time| time.replace(':', "%3A")),
            ),
            ("tailLines", text(self.tail)),
            ("timestamps", flag("timestamps")),
        ];
        let pairs = options
            .into_iter()
            .filter_map(|(key, value)| Some(format!("{key}={}", value?)));
        match pairs.collect::<Vec<_>>().join("&") {
            pairs if pairs.is_empty() => pairs,
            pairs => format!("?{pairs}"),
        }
    }
}

/// The Status for an error of the kubelet.
async fn kubelet_error(code: u16, body: Incoming, name: &str) -> Status {
    let text = match Limited::new(body, MAX_ERROR).collect().await {
        Ok(text) => String::from_utf8_lossy(&text.to_bytes()).into_owned(),
        Err(error) => return Status::internal(error),
    };
    let (reason, message) = match code {
        500 => return Status::internal(text),
        400 => return Status::bad_request(text),
        401 => (
            "Unauthorized",
            "the server has asked for the client to provide credentials".into(),
        ),
        403 => ("Forbidden", text),
        404 => (
            "NotFound",
            "the server could not find the requested resource".into(),
        ),
        422 => (
            "Invalid",
            "the server rejected our request due to an error in our request".into(),
        ),
        503 => (
            "ServiceUnavailable",
            "the server is currently unable to handle the request".into(),
        ),
        code => {
            let reason = if code > 500 { "InternalError" } else { "" };
            let shown = json::quote(&text);
            (
                reason,
                format!(
                    "an error on the server ({shown}) has prevented the request from succeeding"
                ),
            )
        }
    };
    Status::failure(code, reason, format!("{message} ( pods/log {name})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let uri = format!("/log?{text}").parse().unwrap();
        let found = kubelet_query(&RequestQuery::parse(&uri), "web")
            .unwrap_or_else(|status| status.message);
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn options_are_forwarded_in_order() {
        check("", "");
        check(
            "tailLines=5&follow=true&container=a",
            "?follow=true&tailLines=5",
        );
        check(
            "follow=false&timestamps=1&previous=true",
            "?previous=true&timestamps=true",
        );
        check(
            "sinceTime=2026-01-01T00:00:00Z&limitBytes=10",
            "?limitBytes=10&sinceTime=2026-01-01T00%3A00%3A00Z",
        );
    }

    #[test]
    fn invalid_options_are_rejected() {
        let invalid = "PodLogOptions \"web\" is invalid: ";
        check(
            "tailLines=-1",
            &format!("{invalid}tailLines: Invalid value: -1: must be greater than or equal to 0"),
        );
        check(
            "limitBytes=0",
            &format!("{invalid}limitBytes: Invalid value: 0: must be greater than 0"),
        );
        check(
            "sinceSeconds=0",
            &format!("{invalid}sinceSeconds: Invalid value: 0: must be greater than 0"),
        );
        check(
            "stream=Stdout",
            &format!("{invalid}stream: Forbidden: may not be specified"),
        );
        check(
            "tailLines=x",
            "strconv.ParseInt: parsing \"x\": invalid syntax",
        );
    }
}
