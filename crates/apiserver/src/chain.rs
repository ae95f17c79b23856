//! The order of everything that happens to a request. It is here and nowhere else.
//!
//! does a browser ask → who asks → what is it about → (it is remembered from here on) → as whom → is it their turn → may
//! they → is it for another server → what do they send → the verb → the form of the answer → what we count.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use mizzen_object::{Status, User};
use mizzen_value::clock::uuid;
use tokio::time::{Instant, timeout_at};
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

use crate::aggregation::{self, OtherServer, Streams};
use crate::answer::{self, Accept, Answer, Lease};
use crate::audit::{self, Layer};
use crate::authentication::{Caller, Claim, Stranger, authenticate, warning};
use crate::authorization::request::attributes;
use crate::deadline::Deadline;
use crate::flowcontrol::{Held, Turn};
use crate::metrics::{Observed, Terminated};
use crate::receive::receive;
use crate::recover::Recover;
use crate::request::{Query, Request, RequestInfo, Target};
use crate::server::Inner;
use crate::{authorization, non_resource, request_line, verbs};

/// By which a request can be found again.
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// What somebody is told whose request took too long. Kubernetes: a Status that is no object, and says that it is text
/// (server/filters/timeout.go).
const TOO_SLOW: &str = "{\"metadata\":{},\"status\":\"Failure\",\"message\":\"Timeout: request did not complete within \
    the allotted timeout\",\"reason\":\"Timeout\",\"details\":{},\"code\":504}\n";

/// Kubernetes: Go's HTTP/2 server buffers so much of a response, so that one which is no longer does not wait for its reader,
/// and gives its seat back when it has been made (http2/server.go, handlerChunkWriteSize).
const BUFFERED: u64 = 4 * 1024;

pub(crate) async fn answer(
    server: &Arc<Inner>,
    caller: Caller,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
    streams: Streams,
) -> Answer {
    let answer = Box::pin(go(
        server,
        caller,
        method.clone(),
        uri.clone(),
        headers,
        body,
        streams,
    ));
    Recover {
        method,
        uri,
        answer,
    }
    .await
}

async fn go(
    server: &Arc<Inner>,
    caller: Caller,
    method: Method,
    uri: Uri,
    mut headers: HeaderMap,
    body: Bytes,
    streams: Streams,
) -> Answer {
    if request_line::fault(&uri).is_some() {
        return answer::text(400, "400 Bad Request");
    }
    give_name(server, &mut headers);
    if let Some(mut answer) = server.options.http.browsers.preflight(&method, &headers) {
        mark(server, &headers, &mut answer);
        return answer;
    }
    let query = Query::parse(&uri);
    let info = match RequestInfo::new(&method, &uri, &query) {
        Ok(info) => info,
        Err(error) => {
            let mut answer = authorization::internal_error(
                &uri,
                format!("failed to create RequestInfo: {error}, {uri}"),
            );
            mark(server, &headers, &mut answer);
            return answer;
        }
    };
    let started = Instant::now();
    let Caller { claim, address } = caller;
    let deadline = Deadline::new(started, server.options.request_timeout);
    let (user, record, turn) = (User::default(), Default::default(), Turn::default());
    let mut request = Request {
        method,
        info,
        query,
        headers,
        body,
        user,
        uri,
        streams,
        address,
        deadline,
        record,
        turn,
    };
    let span = request_span(&request);
    let answer = serve(server, claim, &mut request, started).instrument(span.clone());
    let answer = answer.await;
    span.record("code", answer.status().as_u16());
    let duration_us = started.elapsed().as_micros() as u64;
    span.in_scope(|| tracing::debug!(duration_us, "request served"));
    lease(&request, answer)
}

/// The span in which a request is served. `user` and `code` are recorded once they are known.
fn request_span(request: &Request) -> Span {
    tracing::debug_span!(
        "request",
        audit_id = request
            .headers
            .get(AUDIT_ID)
            .and_then(|id| id.to_str().ok()),
        user = Empty,
        verb = request.info.verb(),
        resource = match request.info.target() {
            Target::Page(_) => "",
            Target::Resource(path) => &*path.resource,
        },
        path = request.uri.path(),
        code = Empty,
    )
}

async fn serve(
    server: &Arc<Inner>,
    claim: Claim,
    request: &mut Request,
    started: Instant,
) -> Answer {
    let warning = warning(&claim, &request.headers);
    let refused = identify(server, claim, request, started).await.err();
    Span::current().record("user", &*request.user.name);
    let stranger = request.user.is_anonymous().then_some(Stranger);
    if let Some(mut answer) = audit::begin(server, request, refused.is_none(), started).await {
        mark(server, &request.headers, &mut answer);
        return answer;
    }
    let observed = Observed::new(server, request);
    let _inflight = server.metrics.begin(&observed);
    let answer = match refused {
        Some(status) => failure(server, request, &status),
        None => {
            let record = request.record.clone();
            record.during(within_time(server, request)).await
        }
    };
    let answer = request.record.answered(&server.types, answer).await;
    let mut answer = answer::compress(&request.headers, answer);
    mark(server, &request.headers, &mut answer);
    answer::warn(&mut answer, warning.as_slice());
    if answer.status() == StatusCode::NOT_FOUND {
        let hints = server.extensions.hints();
        let hint = hints.and_then(|hints| hints.not_found(request));
        answer::warn(&mut answer, hint.as_slice());
    }
    request.turn.mark(&mut answer);
    server.metrics.end(&observed, started.elapsed(), &answer);
    stranger.and_then(|stranger| answer.extensions_mut().insert(stranger));
    answer
}

/// Lets a response hold the seat of its request until it has been written.
fn lease(request: &Request, answer: Answer) -> Answer {
    let size = http_body::Body::size_hint(answer.body()).exact();
    let seat = match size.is_some_and(|size| size <= BUFFERED) {
        true => Held::default(),
        false => request.turn.take(),
    };
    answer.map(|body| body.leased(Lease::new(request.user.name.clone(), seat)))
}

/// A request that has no name to be found again by gets one.
fn give_name(server: &Inner, headers: &mut HeaderMap) {
    if headers.get(AUDIT_ID).is_none_or(HeaderValue::is_empty)
        && let Ok(name) = HeaderValue::from_str(&uuid(server.registry.random()))
    {
        headers.insert(AUDIT_ID, name);
    }
}

/// What every answer says besides: which request it belongs to, that nobody may keep it, and what browsers are told.
fn mark(server: &Inner, headers: &HeaderMap, answer: &mut Answer) {
    if let Some(name) = headers.get(AUDIT_ID) {
        answer.headers_mut().insert(AUDIT_ID, name.clone());
    }
    let private = HeaderValue::from_static("no-cache, private");
    answer
        .headers_mut()
        .entry(header::CACHE_CONTROL)
        .or_insert(private);
    server.options.http.browsers.mark(headers, answer);
}

/// Finds out how long the request may take, and whose it is.
async fn identify(
    server: &Inner,
    claim: Claim,
    request: &mut Request,
    started: Instant,
) -> Result<(), Status> {
    let user = match request.heed_timeout() {
        Ok(()) => {
            authenticate(
                server,
                claim,
                request.uri.path(),
                &mut request.headers,
                started,
            )
            .await
        }
        Err(refused) => Err(refused),
    };
    let (user, outcome) = match user {
        Ok(user) => (user, Ok(())),
        Err(status) => (User::anonymous(), Err(status)),
    };
    request.user = user;
    outcome
}

/// A request that takes too long is given up; nothing that it had not finished is stored. A long-running one lasts as long as
/// its client waits (server/filters/timeout.go).
async fn within_time(server: &Arc<Inner>, request: &mut Request) -> Answer {
    let is_long_running = attributes(request).is_long_running();
    let deadline = request.deadline.at();
    let passed = pass(server, request);
    let outcome = match is_long_running {
        true => passed.await,
        false => timeout_at(deadline, passed)
            .await
            .unwrap_or_else(|_| Ok(too_slow())),
    };
    outcome.unwrap_or_else(|status| failure(server, request, &status))
}

fn too_slow() -> Answer {
    terminated(answer::answer(504, "text/plain; charset=utf-8", TOO_SLOW))
}

/// Marks the response to a request that the server gave up to protect itself, for metrics.
fn terminated(mut answer: Answer) -> Answer {
    answer.extensions_mut().insert(Terminated);
    answer
}

async fn pass(server: &Arc<Inner>, request: &mut Request) -> Result<Answer, Status> {
    if let Err(status) = authorization::impersonate::impersonate(server, request).await {
        return Ok(refuse(server, request, &status));
    }
    let queued = Instant::now();
    let admitted = server.fairness.admit(server, request).await;
    request.record.took(Layer::QueueWait, queued);
    if let Err(turned_away) = admitted {
        return Ok(terminated(turned_away));
    }
    if let Err(refusal) = authorization::check(server, request).await {
        return Ok(refusal.answer(request, |status| refuse(server, request, status)));
    }
    let local = match aggregation::other_server(server, &request.info) {
        Some(OtherServer::Remote(other)) => {
            return Ok(aggregation::pass_on(server, request, &other).await);
        }
        Some(OtherServer::Local(local)) => Some(local),
        None => None,
    };
    let server = local.as_ref().map_or(server, |local| &local.0);
    // The body of a long-running request has a deadline, too.
    match timeout_at(request.deadline.at(), receive(request)).await {
        Ok(received) => received?,
        Err(_) => return Ok(too_slow()),
    }
    match request.info.target() {
        Target::Page(path) => non_resource::answer(server, request, path).await,
        // Kubernetes: a component has no API, so every path of it is a non-resource path.
        Target::Resource(_) if server.options.component.is_some() => {
            non_resource::answer(server, request, request.uri.path()).await
        }
        Target::Resource(path) => verbs::answer(server, request, path).await,
    }
}

/// Tells somebody that they may not. Kubernetes: with a header of its own (handlers/responsewriters/errors.go).
fn refuse(server: &Inner, request: &Request, status: &Status) -> Answer {
    let mut answer = failure(server, request, status);
    answer.headers_mut().insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    answer
}

/// The response to a request that failed: the one place where a Status becomes one.
pub(crate) fn failure(server: &Inner, request: &Request, status: &Status) -> Answer {
    let accept = Accept {
        kept: request.record.wants_response(),
        ..answer::negotiate_status(&request.headers, &request.query)
    };
    answer::status(&server.types, status, accept)
}
