//! The order of everything that happens to a request. It is here and nowhere else.
//!
//! who asks → what is it about → (it is remembered from here on) → as whom → is it their turn → may they → is it for another
//! server → the verb → the form of the answer → what we count.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use mizzen_object::Status;
use mizzen_object::seam::uuid;
use tokio::time::{Instant, timeout};

use crate::aggregation::{self, Streams};
use crate::answer::{self, Accept, Answer};
use crate::audit;
use crate::authenticate::{Caller, authenticate};
use crate::fairness::Turn;
use crate::identity::User;
use crate::metrics::Observed;
use crate::request::{Query, Request, Target, is_readable};
use crate::server::Inner;
use crate::{access, pages, verbs};

/// By which a request can be found again.
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

pub(crate) async fn answer(
    server: &Arc<Inner>,
    caller: Caller,
    method: Method,
    uri: Uri,
    mut headers: HeaderMap,
    body: Bytes,
    streams: Streams,
) -> Answer {
    if !is_readable(&uri) {
        return answer::text(400, "400 Bad Request");
    }
    let started = Instant::now();
    let Caller { claim, address } = caller;
    give_name(server, &mut headers);
    let (user, refused) = match authenticate(server, claim, uri.path(), &headers).await {
        Ok(user) => (user, None),
        Err(status) => (User::anonymous(), Some(status)),
    };
    let (target, query) = (Target::parse(&uri), Query::parse(&uri));
    let (record, turn) = (Default::default(), Turn::default());
    let mut request =
        Request { method, target, query, headers, body, user, uri, streams, address, record, turn };
    if let Some(mut answer) = audit::begin(server, &mut request, refused.is_none(), started).await {
        mark(&request, &mut answer);
        return answer;
    }
    let refused = match refused {
        None => access::impersonate::impersonate(server, &mut request).await.err(),
        refused => refused,
    };
    let observed = Observed::new(&request);
    server.metrics.begin(&observed);
    let answer = match refused {
        Some(status) => answer::status(&server.types, &status, plain_accept(&request)),
        None => request.record.during(within_time(server, &request)).await,
    };
    let answer = request.record.answered(&server.types, answer).await;
    let mut answer = answer::compress(&request.headers, answer);
    mark(&request, &mut answer);
    server.metrics.end(&observed, answer.status().as_u16(), started.elapsed(), &answer);
    answer
}

/// A request that has no name to be found again by gets one.
fn give_name(server: &Inner, headers: &mut HeaderMap) {
    if headers.get(AUDIT_ID).is_none_or(HeaderValue::is_empty)
        && let Ok(name) = HeaderValue::from_str(&uuid(server.registry.random()))
    {
        headers.insert(AUDIT_ID, name);
    }
}

/// What every answer says besides: which request it belongs to, and that nobody may keep it.
fn mark(request: &Request, answer: &mut Answer) {
    let name = request.headers.get(AUDIT_ID).cloned();
    answer.headers_mut().extend(name.map(|name| (AUDIT_ID, name)));
    let private = HeaderValue::from_static("no-cache, private");
    answer.headers_mut().entry(http::header::CACHE_CONTROL).or_insert(private);
    request.turn.mark(answer);
}

/// A request that takes too long is given up; nothing that it had not finished is stored.
async fn within_time(server: &Arc<Inner>, request: &Request) -> Answer {
    let limit = Duration::from_secs(server.options.request_timeout);
    let outcome = match timeout(limit, pass(server, request)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(too_slow(request)),
    };
    outcome.unwrap_or_else(|status| answer::status(&server.types, &status, plain_accept(request)))
}

async fn pass(server: &Arc<Inner>, request: &Request) -> Result<Answer, Status> {
    if let Err(turned_away) = server.fairness.admit(server, request).await {
        return Ok(turned_away);
    }
    if let Err(refusal) = access::check(server, request).await {
        return refusal.answer(request);
    }
    if let Some(other) = server.aggregation.elsewhere(&request.uri) {
        return Ok(aggregation::pass_on(server, request, &other).await);
    }
    match &request.target {
        Target::Page(path) => pages::answer(server, request, path).await,
        Target::Resource(path) => verbs::answer(server, request, path).await,
    }
}

/// The form of a Status: what was asked for if that can be, JSON otherwise.
fn plain_accept(request: &Request) -> Accept {
    let accept =
        answer::negotiate(&request.headers, &request.query, false).map_or(Accept::JSON, Accept::whole);
    Accept { kept: request.record.wants_response(), ..accept }
}

fn too_slow(request: &Request) -> Status {
    let message = format!("request did not complete within the allotted timeout: {}", request.method);
    Status::failure(504, "Timeout", message)
}
