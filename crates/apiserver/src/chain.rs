//! The handler chain: the order of all filters that a request passes. It is here and nowhere else.
//!
//! panic recovery → audit ID → CORS → request info → authentication → audit → metrics → deadline → impersonation →
//! priority and fairness → authorization → peer proxy → aggregation → body → verb or non-resource path → compression → headers.

use std::any::Any;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use mizzen_audit::Layer;
use mizzen_authentication::{PeerClaim, RequestOrigin, warning};
use mizzen_flowcontrol::FlowTicket;
use mizzen_object::{Status, User};
use mizzen_serving::request_line;
use mizzen_value::clock::uuid;
use tokio::time::{Instant, timeout_at};
use tracing::{Instrument as _, Span};

use crate::aggregation::{self, OtherServer, RequestStreams};
use crate::deadline::Deadline;
use crate::metrics::{RequestLabels, Terminated};
use crate::receive::receive;
use crate::recover::Recover;
use crate::request::{Request, RequestInfo, RequestQuery, RequestTarget};
use crate::response::{self, Accept, Response, ResponseLease};
use crate::server::ServerParts;
use crate::{audit, authorization, flowcontrol, non_resource, peer_proxy, verbs};

/// The header with the audit ID of a request.
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// The body of the response to a request that timed out. Kubernetes: a Status without kind and apiVersion, sent as plain
/// text (server/filters/timeout.go).
const TIMEOUT_BODY: &str = "{\"metadata\":{},\"status\":\"Failure\",\"message\":\"Timeout: request did not complete within \
    the allotted timeout\",\"reason\":\"Timeout\",\"details\":{},\"code\":504}\n";

/// Kubernetes: Go's HTTP/2 server buffers this much of a response. A response that fits does not wait for its reader, and
/// its seat is released as soon as it is complete (http2/server.go, handlerChunkWriteSize).
const BUFFERED: u64 = 4 * 1024;

/// A response extension: the request was not authenticated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unauthenticated;

/// A request as it arrives, before any filter.
pub(crate) struct IncomingRequest {
    pub caller: RequestOrigin,
    pub method: Method,
    pub uri: Uri,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub streams: RequestStreams,
}

/// Serves one request. A panic in a handler becomes a 500.
///
/// A plain function: the body of an async one is compiled again in every crate that awaits it, and with it all that it
/// awaits.
pub(crate) fn serve(server: &Arc<ServerParts>, request: IncomingRequest) -> Recover<'_> {
    Recover {
        method: request.method.clone(),
        uri: request.uri.clone(),
        response: Box::pin(handle(server, request)),
    }
}

async fn handle(server: &Arc<ServerParts>, request: IncomingRequest) -> Response {
    let IncomingRequest {
        caller: RequestOrigin { claim, address },
        method,
        uri,
        mut headers,
        body,
        streams,
    } = request;
    if request_line::fault(&uri).is_some() {
        return response::text(400, "400 Bad Request");
    }
    ensure_audit_id(server, &mut headers);
    if let Some(mut answer) = server.options.http.cors.preflight(&method, &headers) {
        add_response_headers(server, &headers, &mut answer);
        return answer;
    }
    let query = RequestQuery::parse(&uri);
    let info = match RequestInfo::new(&method, &uri, &query) {
        Ok(info) => info,
        Err(error) => {
            let problem = format!("failed to create RequestInfo: {error}, {uri}");
            let mut answer = authorization::internal_error(&uri, problem);
            add_response_headers(server, &headers, &mut answer);
            return answer;
        }
    };
    let started = Instant::now();
    let route = info.resource().map(|path| server.catalog.route(path));

    let mut request = Request {
        method,
        info,
        route,
        query,
        headers,
        body,
        user: User::default(),
        uri,
        streams,
        address,
        deadline: Deadline::new(started, server.options.request_timeout),
        record: Default::default(),
        ticket: FlowTicket::default(),
    };
    let span = request.span();
    let answer = handle_in_span(server, claim, &mut request, started).instrument(span.clone());
    let answer = answer.await;
    span.record("code", answer.status().as_u16());
    let duration_us = started.elapsed().as_micros() as u64;
    span.in_scope(|| tracing::debug!(duration_us, "request served"));
    // The response holds the seat of its request until it has been written.
    let size = http_body::Body::size_hint(answer.body()).exact();
    let is_buffered = size.is_some_and(|size| size <= BUFFERED);
    let seat: Option<Box<dyn Any + Send + Sync>> = match is_buffered {
        true => None,
        false => Some(Box::new(request.ticket.take_held())),
    };
    answer.map(|body| body.leased(ResponseLease::new(request.user.name.clone(), seat)))
}

/// Authenticates, audits, counts and handles a request, and completes its response.
async fn handle_in_span(
    server: &Arc<ServerParts>,
    claim: PeerClaim,
    request: &mut Request,
    started: Instant,
) -> Response {
    let warning = warning(&claim, &request.headers);
    let user = match request.apply_timeout() {
        Ok(()) => {
            let path = request.uri.path();
            let headers = &mut request.headers;
            let authenticator = &server.authenticator;
            authenticator
                .authenticate(claim, path, headers, started)
                .await
        }
        Err(status) => Err(status),
    };
    let (user, rejected) = match user {
        Ok(user) => (user, None),
        Err(status) => (User::anonymous(), Some(status)),
    };
    request.user = user;
    Span::current().record("user", &*request.user.name);
    let stranger = request.user.is_anonymous().then_some(Unauthenticated);
    if let Some(mut answer) =
        audit::begin_record(server, request, rejected.is_none(), started).await
    {
        add_response_headers(server, &request.headers, &mut answer);
        return answer;
    }
    let observed = RequestLabels::new(request);
    let _inflight = server.metrics.begin(&observed);
    let answer = match rejected {
        Some(status) => failure(server, request, &status),
        None => {
            let record = request.record.clone();
            record
                .record_panics(handle_within_deadline(server, request))
                .await
        }
    };
    let answer = audit::record_response(&request.record, &server.types, answer).await;
    let mut answer = response::compress(&request.headers, answer);
    add_response_headers(server, &request.headers, &mut answer);
    response::warn(&mut answer, warning.as_slice());
    if answer.status() == StatusCode::NOT_FOUND {
        let hints = server.extensions.hints();
        let hint = hints.and_then(|hints| hints.not_found(request));
        response::warn(&mut answer, hint.as_slice());
    }
    request.ticket.set_response_headers(answer.headers_mut());
    server.metrics.end(&observed, started.elapsed(), &answer);
    stranger.and_then(|stranger| answer.extensions_mut().insert(stranger));
    answer
}

/// Gives a request an audit ID unless the client sent one.
fn ensure_audit_id(server: &ServerParts, headers: &mut HeaderMap) {
    if headers.get(AUDIT_ID).is_none_or(HeaderValue::is_empty)
        && let Ok(id) = HeaderValue::from_str(&uuid(server.registry.random()))
    {
        headers.insert(AUDIT_ID, id);
    }
}

/// Adds the headers of every response: the audit ID, cache control and CORS.
fn add_response_headers(server: &ServerParts, request_headers: &HeaderMap, answer: &mut Response) {
    let headers = answer.headers_mut();
    if let Some(id) = request_headers.get(AUDIT_ID) {
        headers.insert(AUDIT_ID, id.clone());
    }
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-cache, private"));
    let cors = &server.options.http.cors;
    cors.add_headers(request_headers, answer);
}

/// Ends a request at its deadline; a write that has not been committed by then is not stored. A long-running request lasts
/// as long as its client is connected (server/filters/timeout.go).
async fn handle_within_deadline(server: &Arc<ServerParts>, request: &mut Request) -> Response {
    let is_long_running = request.attributes().is_long_running();
    let deadline = request.deadline.at();
    let handled = handle_authenticated(server, request);
    let outcome = match is_long_running {
        true => handled.await,
        false => timeout_at(deadline, handled)
            .await
            .unwrap_or_else(|_| Ok(timed_out())),
    };
    outcome.unwrap_or_else(|status| failure(server, request, &status))
}

fn timed_out() -> Response {
    terminated(response::with_body(
        504,
        "text/plain; charset=utf-8",
        TIMEOUT_BODY,
    ))
}

/// Marks a response for `apiserver_request_terminations_total`: the server ended the request to protect itself.
fn terminated(mut answer: Response) -> Response {
    answer.extensions_mut().insert(Terminated);
    answer
}

async fn handle_authenticated(
    server: &Arc<ServerParts>,
    request: &mut Request,
) -> Result<Response, Status> {
    if let Err(status) = authorization::impersonate(server, request).await {
        return Ok(forbidden(server, request, &status));
    }
    let queued = Instant::now();
    let admitted = flowcontrol::admit(server, request).await;
    request.record.add_latency_since(Layer::QueueWait, queued);
    if let Err(rejected) = admitted {
        return Ok(terminated(rejected));
    }
    if let Err(denial) = authorization::authorize_request(server, request).await {
        return Ok(denial.into_response(request, |status| forbidden(server, request, status)));
    }
    if let Some(answer) = peer_proxy::proxy_request(server, request).await {
        return answer;
    }
    let local = match aggregation::other_server(server, &request.info) {
        Some(OtherServer::Remote(other)) => {
            return Ok(aggregation::proxy_request(server, request, &other).await);
        }
        Some(OtherServer::Local(local)) => Some(local),
        None => None,
    };
    let server = local.as_ref().map_or(server, |local| &local.0);
    // The body of a long-running request has a deadline, too.
    match timeout_at(request.deadline.at(), receive(request)).await {
        Ok(received) => received?,
        Err(_) => return Ok(timed_out()),
    }
    if let (Some(path), Some(route)) = (request.info.resource(), &mut request.route) {
        server.catalog.refresh(path, route);
    }
    match request.info.target() {
        RequestTarget::NonResource(path) => non_resource::serve(server, request, path).await,
        // Kubernetes: a component has no API, so every path of it is a non-resource path.
        RequestTarget::Resource(_) if server.options.component.is_some() => {
            non_resource::serve(server, request, request.uri.path()).await
        }
        RequestTarget::Resource(path) => verbs::serve(server, request, path).await,
    }
}

/// 403. Kubernetes: with `X-Content-Type-Options` (handlers/responsewriters/errors.go).
fn forbidden(server: &ServerParts, request: &Request, status: &Status) -> Response {
    let mut answer = failure(server, request, status);
    answer.headers_mut().insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    answer
}

/// The response to a request that failed. The only place where a Status becomes a response.
pub(crate) fn failure(server: &ServerParts, request: &Request, status: &Status) -> Response {
    let accept = Accept {
        audited: request.record.wants_response(),
        ..response::negotiate_status(&request.headers, &request.query)
    };
    response::status(&server.types, status, accept)
}
