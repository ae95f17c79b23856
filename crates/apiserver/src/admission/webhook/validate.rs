//! Validating webhooks: called concurrently; one denial is enough.

use std::sync::Arc;

use mizzen_audit::Layer;
use mizzen_object::Status;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::annotations;
use super::attributes::VersionedAttributes;
use super::call::{CallFailure, out_of_time, prepare};
use super::configuration::AdmissionWebhook;
use super::matching::{candidates, invocation};
use super::rejection::rejection;
use super::review::WebhookResponse;
use crate::admission::metrics::{CalledWebhook, WebhookOutcome};
use crate::server::ServerParts;

/// Calls the webhooks that match a write. Of several denials the client gets that of the first webhook.
pub(crate) async fn validate(attributes: &VersionedAttributes<'_>) -> Result<(), Status> {
    let server = attributes.call.server;
    let mut calls = Vec::new();
    for webhook in candidates(&server.webhooks.validating, attributes)? {
        if let Some(invocation) = invocation(&webhook, attributes).await? {
            calls.push(Arc::new(invocation));
        }
    }
    if calls.is_empty() {
        return Ok(());
    }
    if Instant::now() >= attributes.call.until {
        return Err(out_of_time());
    }
    let started = Instant::now();
    let mut outcomes = vec![Ok(()); calls.len()];
    let mut running = JoinSet::new();
    for (at, invocation) in calls.iter().enumerate() {
        match prepare(attributes, invocation).await {
            Ok(prepared) => drop(running.spawn(async move {
                let began = Instant::now();
                let response = prepared.call(false).await;
                (at, response, began.elapsed())
            })),
            Err(failure) => outcomes[at] = settle(server, &invocation.webhook, Err(failure)),
        }
    }
    while let Some(done) = running.join_next().await {
        let (at, response, took) = done.map_err(Status::internal)?;
        let called = CalledWebhook {
            name: &calls[at].webhook.name,
            step: "validating",
            operation: attributes.operation,
        };
        let result = match &response {
            Ok(response) if response.allowed => WebhookOutcome::Allowed,
            Ok(response) => WebhookOutcome::Denied(rejection(called.name, &response.status).code),
            Err(failure) => failure.outcome(calls[at].webhook.ignores_failure),
        };
        let metrics = &server.metrics.admission;
        metrics.observe_webhook(called, result, took);
        if let Ok(response) = &response {
            annotations::note(attributes, &calls[at].webhook, response);
        }
        if matches!(response, Err(CallFailure::Call(_))) && calls[at].webhook.ignores_failure {
            annotations::failed_open(attributes, "validating", 0, at, &calls[at].webhook);
        }
        outcomes[at] = settle(server, &calls[at].webhook, response);
    }
    attributes
        .call
        .request
        .record
        .add_latency_since(Layer::ValidatingWebhook, started);
    outcomes.into_iter().collect()
}

/// The result of a response or of a failed call.
fn settle(
    server: &ServerParts,
    webhook: &AdmissionWebhook,
    response: Result<WebhookResponse, CallFailure>,
) -> Result<(), Status> {
    match response {
        Ok(response) if response.allowed => Ok(()),
        Ok(response) => Err(rejection(&webhook.name, &response.status)),
        Err(CallFailure::Call(why)) if webhook.ignores_failure => {
            server.webhooks.failing_open.log(webhook, &why);
            Ok(())
        }
        Err(failure) => Err(failure.into_status(&webhook.name)),
    }
}
