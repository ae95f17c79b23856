//! One call of one webhook: what is sent, how long it may take, what comes of it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mizzen_object::Status;
use mizzen_value::clock::uuid;
use mizzen_value::json;
use tokio::time::Instant;

use super::attributes::Attributes;
use super::matching::Invocation;
use super::rejection::no_dry_run;
use super::review::{self, Verdict};
use crate::outgoing::Limit;
use crate::server::Inner;

/// The largest answer of a webhook: room for a patch that replaces the largest object, encoded twice.
const MAX_ANSWER: usize = 8 * 1024 * 1024;

/// Why a webhook gave no verdict.
#[derive(Debug)]
pub(super) enum Failure {
    /// It could not be called, or its answer makes no sense; its configuration says what follows from that.
    Call(String),
    /// The request is refused whatever the configuration says.
    Refused(Status),
}

impl Failure {
    /// 500, in upstream's words.
    pub(super) fn into_status(self, name: &str) -> Status {
        match self {
            Failure::Call(why) => Status::internal(format!(
                "failed calling webhook {}: {why}",
                json::quote(name)
            )),
            Failure::Refused(status) => status,
        }
    }
}

/// A call that is ready to be made, wherever and whenever.
pub(super) struct Prepared {
    server: Arc<Inner>,
    invocation: Arc<Invocation>,
    version: &'static str,
    uid: String,
    body: Bytes,
    until: Instant,
}

/// Writes the review for a webhook.
pub(super) async fn prepare(
    attributes: &Attributes<'_>,
    invocation: &Arc<Invocation>,
) -> Result<Prepared, Failure> {
    let (version, uid, body) = written(attributes, invocation).await?;
    let (server, until) = (attributes.call.server.clone(), attributes.call.until);
    Ok(Prepared {
        server,
        invocation: invocation.clone(),
        version,
        uid,
        body,
        until,
    })
}

async fn written(
    attributes: &Attributes<'_>,
    invocation: &Invocation,
) -> Result<(&'static str, String, Bytes), Failure> {
    let (_, dry_run) = attributes.options().map_err(Failure::Refused)?;
    if dry_run && !invocation.webhook.allows_dry_run {
        return Err(Failure::Refused(no_dry_run(&invocation.webhook.name)));
    }
    let version = review::version(invocation)
        .map_err(|why| Failure::Call(format!("could not create admission objects: {why}")))?;
    let uid = uuid(attributes.call.server.registry.random());
    let question = review::question(version, &uid, attributes, invocation)
        .await
        .map_err(Failure::Refused)?;
    Ok((version, uid, json::to_string(&question).into()))
}

impl Prepared {
    /// Calls the webhook and reads its verdict.
    pub(super) async fn call(&self, mutating: bool) -> Result<Verdict, Failure> {
        let webhook = &self.invocation.webhook;
        let now = Instant::now();
        let until = self.until.min(now + Duration::from_secs(webhook.timeout));
        let query = format!(
            "timeout={}s",
            seconds_left(until.saturating_duration_since(now))
        );
        let limit = Limit {
            until,
            bytes: MAX_ANSWER,
        };
        let failed = |why: String| Failure::Call(format!("failed to call webhook: {why}"));
        let body = webhook
            .hook
            .post(&self.server.client, &query, self.body.clone(), limit)
            .await;
        let body = body.map_err(|error| failed(error.0))?;
        let review = review::read(&self.server.types.admission_review, self.version, &body)
            .map_err(failed)?;
        review::verify(&review, self.version, &self.uid, mutating)
            .map_err(|why| Failure::Call(format!("received invalid webhook response: {why}")))
    }
}

/// Kubernetes: a part of a second counts as a whole one.
fn seconds_left(left: Duration) -> u64 {
    left.as_secs() + u64::from(left.subsec_nanos() > 0)
}

/// 504: the request's time is over.
pub(super) fn out_of_time() -> Status {
    let message = "Timeout: request did not complete within requested timeout";
    Status {
        details: Some(Box::default()),
        ..Status::failure(504, "Timeout", message)
    }
}
