//! Validating webhooks: all at once, and one that refuses is enough.

use mizzen_object::Status;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::attributes::Attributes;
use super::call::{Failure, Prepared, out_of_time, prepare};
use super::matching::{candidates, invocation};
use super::rejection::rejection;
use super::review::Verdict;

/// Asks the webhooks that a write concerns. Of several refusals the client gets that of the first webhook.
pub(crate) async fn validate(attributes: &Attributes<'_>) -> Result<(), Status> {
    let server = attributes.call.server;
    let hooks = server.webhooks.validating.hooks(&server.registry);
    let mut calls = Vec::new();
    for webhook in candidates(&hooks, attributes) {
        if let Some(invocation) = invocation(&webhook, attributes)? {
            calls.push(invocation);
        }
    }
    if calls.is_empty() {
        return Ok(());
    }
    if Instant::now() >= attributes.call.until {
        return Err(out_of_time());
    }
    let mut outcomes: Vec<Option<Result<(), Status>>> = Vec::new();
    let mut running = JoinSet::new();
    for (at, invocation) in calls.into_iter().enumerate() {
        outcomes.push(None);
        match prepare(attributes, invocation) {
            Ok(prepared) => drop(running.spawn(called(at, prepared))),
            Err((invocation, failure)) => {
                let webhook = &invocation.webhook;
                outcomes[at] = Some(settle(&webhook.name, webhook.ignores_failure, Err(failure)));
            }
        }
    }
    while let Some(done) = running.join_next().await {
        let (at, prepared, verdict) = done.map_err(Status::internal)?;
        for warning in verdict.as_ref().map_or(&[][..], |verdict| &verdict.warnings) {
            attributes.call.notes.warn(warning);
        }
        let webhook = &prepared.invocation.webhook;
        outcomes[at] = Some(settle(&webhook.name, webhook.ignores_failure, verdict));
    }
    outcomes.into_iter().flatten().collect()
}

async fn called(at: usize, prepared: Prepared) -> (usize, Prepared, Result<Verdict, Failure>) {
    let verdict = prepared.call(false).await;
    (at, prepared, verdict)
}

/// What follows from a verdict, or from there being none.
fn settle(name: &str, ignores_failure: bool, verdict: Result<Verdict, Failure>) -> Result<(), Status> {
    match verdict {
        Ok(verdict) if verdict.allowed => Ok(()),
        Ok(verdict) => Err(rejection(name, &verdict.status)),
        Err(Failure::Call(why)) if ignores_failure => {
            tracing::warn!(webhook = %name, %why, "failed calling webhook, failing open");
            Ok(())
        }
        Err(failure) => Err(failure.into_status(name)),
    }
}
