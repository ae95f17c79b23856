//! One call of a webhook: request, timeout and response.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mizzen_object::Status;
use mizzen_outgoing::CallLimit;
use mizzen_value::clock::uuid;
use mizzen_value::json;
use tokio::time::Instant;

use super::attributes::VersionedAttributes;
use super::matching::WebhookInvocation;
use super::rejection::no_dry_run;
use super::review::{self, WebhookResponse};
use crate::admission::metrics::WebhookOutcome;
use crate::server::ServerParts;

/// The largest response of a webhook: enough for a patch that replaces the largest object, encoded twice.
const MAX_RESPONSE: usize = 8 * 1024 * 1024;

/// Why a webhook gave no response.
#[derive(Debug)]
pub(super) enum CallFailure {
    /// The call failed or the response is invalid; `failurePolicy` decides.
    Call(String),
    /// The webhook denies the request.
    Denied(Status),
    /// The request is rejected whatever the `failurePolicy`.
    Refused(Status),
}

impl CallFailure {
    /// 500, with upstream's message.
    pub(super) fn into_status(self, name: &str) -> Status {
        match self {
            CallFailure::Call(why) => Status::internal(format!(
                "failed calling webhook {}: {why}",
                json::quote(name)
            )),
            CallFailure::Denied(status) | CallFailure::Refused(status) => status,
        }
    }

    /// The outcome in metrics.
    pub(super) fn outcome(&self, ignored: bool) -> WebhookOutcome {
        match self {
            CallFailure::Call(_) => WebhookOutcome::Failed { ignored },
            CallFailure::Denied(status) => WebhookOutcome::Denied(status.code),
            CallFailure::Refused(_) => WebhookOutcome::Internal,
        }
    }
}

/// A call that is ready to be sent.
pub(super) struct PreparedCall {
    server: Arc<ServerParts>,
    invocation: Arc<WebhookInvocation>,
    version: &'static str,
    uid: String,
    body: Bytes,
    until: Instant,
}

/// Builds the review for a webhook.
pub(super) async fn prepare(
    attributes: &VersionedAttributes<'_>,
    invocation: &Arc<WebhookInvocation>,
) -> Result<PreparedCall, CallFailure> {
    let (_, dry_run) = attributes.options().map_err(CallFailure::Refused)?;
    if dry_run && !invocation.webhook.allows_dry_run {
        return Err(CallFailure::Refused(no_dry_run(&invocation.webhook.name)));
    }
    let version = review::version(invocation)
        .map_err(|why| CallFailure::Call(format!("could not create admission objects: {why}")))?;
    let server = attributes.call.server.clone();
    let uid = uuid(server.registry.random());
    let review = review::question(version, &uid, attributes, invocation)
        .await
        .map_err(CallFailure::Refused)?;
    Ok(PreparedCall {
        server,
        invocation: invocation.clone(),
        version,
        uid,
        body: json::to_string(&review).into(),
        until: attributes.call.until,
    })
}

impl PreparedCall {
    /// Calls the webhook and decodes its response.
    pub(super) async fn call(&self, mutating: bool) -> Result<WebhookResponse, CallFailure> {
        let webhook = &self.invocation.webhook;
        let now = Instant::now();
        let until = self.until.min(now + Duration::from_secs(webhook.timeout));
        // Kubernetes: fractions of a second are rounded up.
        let left = until.saturating_duration_since(now);
        let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
        let query = format!("timeout={seconds}s");
        let limit = CallLimit {
            until,
            bytes: MAX_RESPONSE,
        };
        let failed = |why: String| CallFailure::Call(format!("failed to call webhook: {why}"));
        let body = webhook
            .hook
            .post(&self.server.client, &query, self.body.clone(), limit)
            .await;
        let body = body.map_err(|error| failed(error.0))?;
        let review = review::read(&self.server.types.admission_review, self.version, &body)
            .map_err(failed)?;
        review::verify(&review, self.version, &self.uid, mutating)
            .map_err(|why| CallFailure::Call(format!("received invalid webhook response: {why}")))
    }
}

/// 504: the request has timed out.
pub(super) fn out_of_time() -> Status {
    let message = "Timeout: request did not complete within requested timeout";
    Status {
        details: Some(Box::default()),
        ..Status::failure(504, "Timeout", message)
    }
}
