//! Mutating webhooks: in order, each on the result of the previous one.

use std::collections::HashSet;
use std::sync::Arc;

use mizzen_audit::Layer;
use mizzen_object::Status;
use mizzen_object::decode::decode;
use mizzen_object::patch::JsonPatch;
use mizzen_object::schema::CanonicalObject;
use mizzen_registry::Resource;
use mizzen_value::{Str, Value, json};
use tokio::time::Instant;

use super::annotations;
use super::attributes::VersionedAttributes;
use super::call::{CallFailure, out_of_time, prepare};
use super::matching::{WebhookInvocation, candidates, invocation};
use super::rejection::rejection;
use super::review::WebhookResponse;
use crate::admission::metrics::{CalledWebhook, WebhookOutcome};
use crate::decode;
use crate::verbs::patch;

/// The rounds of mutating webhooks: all once, then those with `reinvocationPolicy: IfNeeded` again.
#[derive(Default)]
pub(crate) struct WebhookRounds {
    /// Webhooks that want to be called again if the object changes after them.
    waiting: HashSet<Str>,
    /// Webhooks after which the object changed.
    due: HashSet<Str>,
    /// The object after the webhooks.
    last: Value,
}

impl WebhookRounds {
    /// Calls the webhooks. Returns whether one changed `object`, so that all plug-ins run again.
    pub(crate) async fn mutate(
        &mut self,
        attributes: &VersionedAttributes<'_>,
        object: Option<&mut CanonicalObject>,
        second: bool,
    ) -> Result<bool, Status> {
        let server = attributes.call.server;
        let candidates = candidates(&server.webhooks.mutating, attributes)?;
        if candidates.is_empty() {
            return Ok(false);
        }
        let Some(object) = object else {
            for webhook in candidates {
                if let Some(invocation) = invocation(&webhook, attributes).await? {
                    self.call(attributes, invocation, second).await?;
                }
            }
            return Ok(false);
        };
        // Plug-ins may have changed the object since the first round.
        if second && self.last != **object {
            self.changed();
        }
        let mut any = false;
        for webhook in candidates {
            let now = attributes.with(object);
            let Some(invocation) = invocation(&webhook, &now).await? else {
                continue;
            };
            if second && !self.due.contains(&webhook.id) {
                continue;
            }
            if let Some(changed) = self.call(&now, invocation, second).await? {
                self.changed();
                any = true;
                **object = changed;
            }
            if webhook.reinvoked {
                self.waiting.insert(webhook.id.clone());
            }
        }
        self.last = Value::clone(object);
        Ok(any)
    }

    fn changed(&mut self) {
        self.due.extend(self.waiting.drain());
    }

    /// Calls one webhook; returns the changed object.
    async fn call(
        &self,
        attributes: &VersionedAttributes<'_>,
        invocation: WebhookInvocation,
        second: bool,
    ) -> Result<Option<Value>, Status> {
        let invocation = Arc::new(invocation);
        let webhook = &invocation.webhook;
        let (started, round) = (Instant::now(), usize::from(second));
        let outcome = match prepare(attributes, &invocation).await {
            Ok(prepared) => prepared.call(true).await,
            Err(failure) => Err(failure),
        };
        let outcome = match outcome {
            Ok(response) => apply_response(attributes, &invocation, &response, round).await,
            Err(failure) => Err(failure),
        };
        attributes
            .call
            .request
            .record
            .add_latency_since(Layer::MutatingWebhook, started);
        let called = CalledWebhook {
            name: &webhook.name,
            step: "admit",
            operation: attributes.operation,
        };
        let result = match &outcome {
            Ok(_) => WebhookOutcome::Allowed,
            Err(failure) => failure.outcome(webhook.ignores_failure),
        };
        let metrics = &attributes.call.server.metrics.admission;
        metrics.observe_webhook(called, result, started.elapsed());
        annotations::mutated(attributes, webhook, round, matches!(outcome, Ok(Some(_))));
        match outcome {
            Err(CallFailure::Call(why)) if webhook.ignores_failure => {
                annotations::failed_open(attributes, "mutation", round, webhook.index, webhook);
                attributes
                    .call
                    .server
                    .webhooks
                    .failing_open
                    .log(webhook, &why);
                match Instant::now() < attributes.call.until {
                    true => Ok(None),
                    false => Err(out_of_time()),
                }
            }
            outcome => outcome.map_err(|failure| failure.into_status(&webhook.name)),
        }
    }
}

/// Applies the response of a webhook; `None` if the object does not change.
async fn apply_response(
    attributes: &VersionedAttributes<'_>,
    invocation: &WebhookInvocation,
    response: &WebhookResponse,
    round: usize,
) -> Result<Option<Value>, CallFailure> {
    let name = &invocation.webhook.name;
    annotations::note(attributes, &invocation.webhook, response);
    if !response.allowed {
        return Err(CallFailure::Denied(rejection(name, &response.status)));
    }
    if response.patch.is_empty() {
        return Ok(None);
    }
    let patch = JsonPatch::parse(&response.patch).map_err(|error| {
        let problem = patch::undecoded(&error.to_string());
        CallFailure::Call(format!(
            "received undecodable patch in webhook response: {problem}"
        ))
    })?;
    if patch.is_empty() {
        return Ok(None);
    }
    let Some(object) = attributes.object else {
        let why = "attempted to modify the object, which is not supported for this operation";
        return Err(internal(format!(
            "admission webhook {} {why}",
            json::quote(name)
        )));
    };
    if response.patch_type != "JSONPatch" {
        return Err(CallFailure::Call(format!(
            "unsupported patch type {}",
            json::quote(&response.patch_type)
        )));
    }
    let mut shown = attributes
        .shown(Some(object), &invocation.resource)
        .await
        .map_err(CallFailure::Refused)?;
    patch
        .apply(&mut shown)
        .map_err(|error| internal(error.to_string()))?;
    let taken = attributes.taken_back(&shown, &invocation.resource).await;
    let patched = taken.map_err(CallFailure::Refused)?;
    annotations::patched(attributes, &invocation.webhook, round, &response.patch);
    Ok((patched != *object).then_some(patched))
}

fn internal(why: String) -> CallFailure {
    CallFailure::Refused(Status::internal(why))
}

impl VersionedAttributes<'_> {
    /// Decodes a patched object in the request's version again: pruned and defaulted.
    pub(crate) async fn taken_back(
        &self,
        patched: &Value,
        resource: &Resource,
    ) -> Result<Value, Status> {
        let (text, kind) = (json::to_string(patched), resource.kind());
        let root = self.other_root().unwrap_or(&kind.root);
        let object = decode(root, text.as_bytes())
            .map_err(Status::internal)?
            .value;
        if self.other_root().is_some() {
            return Ok(object);
        }
        let object = decode::apply_defaults(kind, object).map_err(Status::internal)?;
        match kind.gvk == self.call.resource.kind().gvk {
            true => Ok(object.into_value()),
            false => self.call.resource.convert_from(&object, resource).await,
        }
    }
}
