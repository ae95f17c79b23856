//! A webhook: where it is, and what came of posting a review to it, said as client-go says it.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, Uri, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use mizzen_object::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::{Client, SendError, Service, Target, Trust, go, whole};

/// How much of an answer that is no object is shown.
const MAX_SHOWN: usize = 2048;
/// Kubernetes: client-go tries again so often when it is asked to come back later.
const MAX_RETRIES: u32 = 10;

/// A webhook as a configuration's `clientConfig` names it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Hook {
    place: Place,
    trust: Trust,
}

#[derive(Debug, Clone, PartialEq)]
enum Place {
    Url(String),
    Service(Service, String),
    Nowhere,
}

/// What a call may cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    /// When it is given up.
    pub until: Instant,
    /// The most bytes of an answer.
    pub bytes: usize,
}

impl Hook {
    /// Reads `{url | service: {namespace, name, path, port}, caBundle}`.
    pub fn parse(config: &Value) -> Hook {
        let trust = Trust::bundle(STANDARD.decode(config["caBundle"].str()).unwrap_or_default());
        let service = &config["service"];
        let place = match config["url"].as_str() {
            _ if !service.is_null() => Place::Service(Service::parse(service), service["path"].str().into()),
            Some(url) if !url.is_empty() => Place::Url(url.into()),
            _ => Place::Nowhere,
        };
        Hook { place, trust }
    }

    /// Where it is, as messages show it, without query.
    fn url(&self) -> String {
        match &self.place {
            Place::Url(url) => url.clone(),
            Place::Service(service, path) => {
                let slash = if path.starts_with('/') { "" } else { "/" };
                format!("https://{}:{}{slash}{path}", service.host(), service.port)
            }
            Place::Nowhere => String::new(),
        }
    }

    /// Posts a review and gives back the body of a good answer. `query` is added to the URL and may be empty.
    pub async fn post(
        &self,
        client: &Client,
        query: &str,
        body: Bytes,
        limit: Limit,
    ) -> Result<Bytes, SendError> {
        if self.place == Place::Nowhere {
            return Err(SendError("webhook configuration must have either service or URL".into()));
        }
        let mut url = self.url();
        let uri: Uri = url.parse().map_err(|error| SendError(format!("Unparsable URL: {error}")))?;
        if uri.path() == "/" && !url.ends_with('/') {
            url.push('/');
        }
        if !query.is_empty() {
            url = format!("{url}?{query}");
        }
        let prepared = || Ok((self.target(client, &url)?, request(&url, body.clone())?));
        let response = exchange(client, limit, prepared).await.map_err(|error| error.of_post(&url))?;
        judge(response, limit).await.1
    }

    fn target(&self, client: &Client, url: &str) -> Result<Target, SendError> {
        let trust = self.trust.clone();
        let (address, server_name, http2) = match &self.place {
            Place::Service(service, _) => {
                let address = client.services().resolve(service);
                (address.map_err(|status| SendError(status.message))?, service.host(), false)
            }
            _ => {
                let uri: Uri = url.parse().map_err(|error| SendError(format!("Unparsable URL: {error}")))?;
                let host = uri.host().unwrap_or_default().to_owned();
                let local = is_local(&host);
                (format!("{host}:{}", uri.port_u16().unwrap_or(443)), host, local)
            }
        };
        Ok(Target { address, server_name, trust, as_front_proxy: false, http2 })
    }
}

/// Sends until the server does not ask to come back later. Each time it is found out anew where and what.
pub(super) async fn exchange(
    client: &Client,
    limit: Limit,
    prepared: impl Fn() -> Result<(Target, Request<super::Outgoing>), SendError>,
) -> Result<Response<Incoming>, SendError> {
    let late = |_| SendError("context deadline exceeded".into());
    let mut retries = 0;
    loop {
        let (target, request) = prepared()?;
        let response = timeout_at(limit.until, client.send(&target, request)).await.map_err(late)??;
        let Some(pause) = pause(&response).filter(|_| retries < MAX_RETRIES) else { return Ok(response) };
        retries += 1;
        timeout_at(limit.until, tokio::time::sleep(pause)).await.map_err(late)?;
    }
}

impl SendError {
    /// As Go says it of a POST.
    pub(super) fn of_post(self, url: &str) -> SendError {
        SendError(format!("Post {}: {}", json::quote(url), self.0))
    }
}

/// Kubernetes: only a server on this machine is spoken to in HTTP/2, because such a connection sticks to one backend.
fn is_local(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

fn request(url: &str, body: Bytes) -> Result<Request<super::Outgoing>, SendError> {
    Request::post(url)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json, */*")
        .header(header::USER_AGENT, "kube-apiserver-admission")
        .body(whole(body))
        .map_err(|error| SendError(error.to_string()))
}

/// How long the server asks us to wait, if it does.
fn pause(response: &Response<Incoming>) -> Option<Duration> {
    let busy = response.status() == 429 || response.status().is_server_error();
    let seconds = response.headers().get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    busy.then(|| Duration::from_secs(seconds))
}

/// The code of an answer, and its body if it is a good one.
pub(super) async fn judge(response: Response<Incoming>, limit: Limit) -> (u16, Result<Bytes, SendError>) {
    let (head, body) = response.into_parts();
    let code = head.status.as_u16();
    let outcome = read(body, limit).await.and_then(|body| match code {
        // Kubernetes: 200 to 206 are good answers.
        200..=206 if body.is_empty() => Err(SendError(nothing(&head))),
        200..=206 => Ok(body),
        _ => Err(SendError(refusal(code, &head.headers, &body))),
    });
    (code, outcome)
}

fn nothing(head: &http::response::Parts) -> String {
    let kind = head.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or("application/json");
    format!("0-length response with status code: {} and content type: {kind}", head.status.as_u16())
}

/// The whole body, if it is not too large and comes in time.
pub(super) async fn read(body: Incoming, limit: Limit) -> Result<Bytes, SendError> {
    let why = match timeout_at(limit.until, Limited::new(body, limit.bytes).collect()).await {
        Ok(Ok(body)) => return Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            format!("the response is larger than {} bytes", limit.bytes)
        }
        Ok(Err(error)) => go::body(&*error),
        Err(_) => "context deadline exceeded".into(),
    };
    Err(SendError(format!(
        "unexpected error when reading response body. Please retry. Original error: {why}"
    )))
}

/// What client-go makes of an answer that is no success.
fn refusal(code: u16, headers: &HeaderMap, body: &[u8]) -> String {
    let status = json::parse(body).unwrap_or_default();
    let is_status =
        matches!(status["kind"].str(), "" | "Status") && matches!(status["apiVersion"].str(), "" | "v1");
    if is_status && status["status"].str() == "Failure" {
        return status["message"].str().into();
    }
    let shown = String::from_utf8_lossy(&body[..body.len().min(MAX_SHOWN)]);
    let shown = if is_text(headers) { shown.trim() } else { "unknown" };
    match code {
        409 => "the server reported a conflict".into(),
        404 => "the server could not find the requested resource".into(),
        400 => "the server rejected our request for an unknown reason".into(),
        401 => "the server has asked for the client to provide credentials".into(),
        406 if shown.is_empty() || shown == "unknown" => {
            "the server was unable to respond with a content type that the client supports".into()
        }
        403 | 406 | 415 => shown.into(),
        405 => "the server does not allow this method on the requested resource".into(),
        422 => "the server rejected our request due to an error in our request".into(),
        503 => "the server is currently unable to handle the request".into(),
        504 => "the server was unable to return a response in the time allotted, but may still be processing the request"
            .into(),
        429 => "the server has received too many requests and has asked us to try again later".into(),
        500.. => format!("an error on the server ({}) has prevented the request from succeeding", json::quote(shown)),
        _ => format!("the server responded with the status code {code} but did not return more information"),
    }
}

fn is_text(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(|kind| kind.to_str().unwrap_or_default());
    kind.is_none_or(|kind| kind.trim_start().to_ascii_lowercase().starts_with("text/"))
}
