//! A webhook of a `clientConfig`: posts reviews, with the errors of client-go.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header};
use hyper::body::Incoming;
use mizzen_transport::{RedirectingCall, read_body};
use mizzen_value::percent::decode;
use mizzen_value::{Value, json};
use tokio::time::timeout_at;

use super::{CallLimit, OutgoingClient, SendError, ServiceReference, Target, Trust, clean_path};

/// How much of a response that is no object is shown in an error.
const MAX_SHOWN: usize = 2048;
/// Kubernetes: how often client-go retries after `Retry-After`.
const MAX_RETRIES: u32 = 10;

/// A webhook of a `clientConfig`.
#[derive(Debug, Clone, PartialEq)]
pub struct WebhookClient {
    location: WebhookLocation,
    trust: Trust,
}

#[derive(Debug, Clone, PartialEq)]
enum WebhookLocation {
    Url(String),
    Service(ServiceReference, String),
    Unset,
}

impl WebhookClient {
    /// Reads `{url | service: {namespace, name, path, port}, caBundle}`.
    pub fn parse(config: &Value) -> WebhookClient {
        let trust = Trust::bundle(
            STANDARD
                .decode(config["caBundle"].str())
                .unwrap_or_default(),
        );
        let service = &config["service"];
        let location = match config["url"].as_str() {
            _ if !service.is_null() => WebhookLocation::Service(
                ServiceReference::parse(service),
                service["path"].str().into(),
            ),
            Some(url) if !url.is_empty() => WebhookLocation::Url(url.into()),
            _ => WebhookLocation::Unset,
        };
        WebhookClient { location, trust }
    }

    /// Its URL as client-go requests it, without query.
    fn url(&self) -> Result<String, SendError> {
        Ok(match &self.location {
            WebhookLocation::Url(url) => {
                let uri: Uri = url
                    .parse()
                    .map_err(|error| SendError(format!("Unparsable URL: {error}")))?;
                let authority = uri
                    .authority()
                    .map(|authority| authority.as_str())
                    .unwrap_or_default();
                let authority = authority.rsplit('@').next().unwrap_or_default();
                let path = clean_path(&decode(uri.path()));
                format!(
                    "{}://{authority}{path}",
                    uri.scheme_str().unwrap_or("https")
                )
            }
            WebhookLocation::Service(service, path) => {
                format!(
                    "https://{}:{}{}",
                    service.host(),
                    service.port,
                    clean_path(path)
                )
            }
            WebhookLocation::Unset => {
                return Err(SendError(
                    "webhook configuration must have either service or URL".into(),
                ));
            }
        })
    }

    /// Posts a review and returns the body of a successful response. `query` is added to the URL and may be empty.
    pub async fn post(
        &self,
        client: &OutgoingClient,
        query: &str,
        body: Bytes,
        limit: CallLimit,
    ) -> Result<Bytes, SendError> {
        let mut url = self.url()?;
        if !query.is_empty() {
            url = format!("{url}?{query}");
        }
        let call = json_post(url, "kube-apiserver-admission", None, body)?;
        if let Some(answered) = intercept(client, &call, limit).await {
            return answered;
        }
        let response = exchange(client, limit, call, |uri| self.target(client, uri)).await?;
        read_response(response, limit).await.1
    }

    /// The server of a URL: the webhook, or one that it redirects to.
    fn target(&self, client: &OutgoingClient, uri: &Uri) -> Result<Target, SendError> {
        let called = address(uri)?;
        let (address, server_name, http2) = match &self.location {
            WebhookLocation::Service(service, _)
                if called == format!("{}:{}", service.host(), service.port) =>
            {
                let address = client.services().resolve(service);
                (
                    address.map_err(|status| SendError(status.message))?,
                    service.host(),
                    false,
                )
            }
            WebhookLocation::Service(service, _) => (called, service.host(), false),
            _ => {
                let host = uri.host().unwrap_or_default().to_owned();
                let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
                // Kubernetes: HTTP/2 is used only for loopback addresses, because a connection sticks to one backend.
                let is_local = host.eq_ignore_ascii_case("localhost")
                    || address.is_ok_and(|address| address.is_loopback());
                (called, host, is_local)
            }
        };
        Ok(Target {
            address,
            server_name,
            trust: self.trust.clone(),
            as_front_proxy: false,
            http2,
        })
    }
}

/// The outcome of a call that does not go over the network.
async fn intercept(
    client: &OutgoingClient,
    call: &RedirectingCall,
    limit: CallLimit,
) -> Option<Result<Bytes, SendError>> {
    let interceptor = client.interceptor.as_ref()?;
    let mut request = Request::new(call.body.clone());
    *request.method_mut() = call.method.clone();
    *request.uri_mut() = call.url.parse().ok()?;
    *request.headers_mut() = call.headers.clone();
    let outcome = match timeout_at(limit.until, interceptor.intercept(request)).await {
        Ok(outcome) => outcome?,
        Err(_) => Err(SendError("context deadline exceeded".into())),
    };
    let response = match outcome {
        Ok(response) => response,
        Err(error) => return Some(Err(error.of_post(&call.url))),
    };
    let (head, body) = response.into_parts();
    Some(success(&head, body))
}

/// The `host:port` of a URL. Only HTTPS is supported.
pub(super) fn address(uri: &Uri) -> Result<String, SendError> {
    match uri.scheme_str() {
        Some("https") => Ok(format!(
            "{}:{}",
            uri.host().unwrap_or_default(),
            uri.port_u16().unwrap_or(443)
        )),
        scheme => {
            let scheme = json::quote(scheme.unwrap_or_default());
            Err(SendError(format!("unsupported protocol scheme {scheme}")))
        }
    }
}

/// Sends a request, and retries while the server responds with `Retry-After`. The target is resolved each time.
pub(super) async fn exchange(
    client: &OutgoingClient,
    limit: CallLimit,
    call: RedirectingCall,
    target: impl Fn(&Uri) -> Result<Target, SendError>,
) -> Result<Response<Incoming>, SendError> {
    let mut retries = 0;
    loop {
        let response = call.clone().send(client, limit.until, &target).await?;
        let Some(pause) = retry_after(&response).filter(|_| retries < MAX_RETRIES) else {
            return Ok(response);
        };
        retries += 1;
        timeout_at(limit.until, tokio::time::sleep(pause))
            .await
            .map_err(|_| SendError("context deadline exceeded".into()).of_post(&call.url))?;
    }
}

/// A POST request with JSON as client-go sends it, optionally with a bearer token.
pub(super) fn json_post(
    url: String,
    agent: &'static str,
    token: Option<&str>,
    body: Bytes,
) -> Result<RedirectingCall, SendError> {
    let mut headers = HeaderMap::new();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    headers.insert(
        header::ACCEPT,
        HeaderValue::from_static("application/json, */*"),
    );
    headers.insert(header::USER_AGENT, HeaderValue::from_static(agent));
    if let Some(token) = token {
        let bearer = HeaderValue::from_str(&format!("Bearer {token}"));
        headers.insert(
            header::AUTHORIZATION,
            bearer.map_err(|error| SendError(error.to_string()))?,
        );
    }
    Ok(RedirectingCall {
        method: Method::POST,
        url,
        headers,
        body,
        stays_on_host: false,
    })
}

/// How long to wait before a retry, if the server asks for one.
fn retry_after(response: &Response<Incoming>) -> Option<Duration> {
    let busy = response.status() == 429 || response.status().is_server_error();
    let seconds = response
        .headers()
        .get(header::RETRY_AFTER)?
        .to_str()
        .ok()?
        .parse()
        .ok()?;
    busy.then(|| Duration::from_secs(seconds))
}

/// The code of a response, and its body if it is successful.
pub(super) async fn read_response(
    response: Response<Incoming>,
    limit: CallLimit,
) -> (u16, Result<Bytes, SendError>) {
    let (head, body) = response.into_parts();
    let read = read(body, limit).await;
    let outcome = read.and_then(|body| success(&head, body));
    (head.status.as_u16(), outcome)
}

/// The body of a successful response.
fn success(head: &Parts, body: Bytes) -> Result<Bytes, SendError> {
    match head.status.as_u16() {
        // Kubernetes: 200 to 206 are successful.
        code @ 200..=206 if body.is_empty() => {
            let content_type = head.headers.get(header::CONTENT_TYPE);
            let content_type = content_type.and_then(|value| value.to_str().ok());
            Err(SendError(format!(
                "0-length response with status code: {code} and content type: {}",
                content_type.unwrap_or("application/json")
            )))
        }
        200..=206 => Ok(body),
        code => Err(SendError(error_message(code, &head.headers, &body))),
    }
}

/// The whole body, within the limit.
pub(super) async fn read(body: Incoming, limit: CallLimit) -> Result<Bytes, SendError> {
    read_body(body, limit).await.map_err(|error| {
        SendError(format!(
            "unexpected error when reading response body. Please retry. Original error: {error}"
        ))
    })
}

/// client-go's message for a response that is no success.
fn error_message(code: u16, headers: &HeaderMap, body: &[u8]) -> String {
    let status = json::parse(body).unwrap_or_default();
    let is_status = matches!(status["kind"].str(), "" | "Status")
        && matches!(status["apiVersion"].str(), "" | "v1");
    if is_status && status["status"].str() == "Failure" {
        return status["message"].str().into();
    }
    let shown = String::from_utf8_lossy(&body[..body.len().min(MAX_SHOWN)]);
    let content_type = headers
        .get(header::CONTENT_TYPE)
        .map(|value| value.to_str().unwrap_or_default());
    let is_text =
        content_type.is_none_or(|kind| kind.trim_start().to_ascii_lowercase().starts_with("text/"));
    let shown = if is_text { shown.trim() } else { "unknown" };
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
