//! Mutating webhooks: one after the other, each on what the one before has made of the object.

use std::collections::HashSet;
use std::sync::Arc;

use mizzen_object::Status;
use mizzen_object::decode::decode;
use mizzen_object::patch::JsonPatch;
use mizzen_registry::Resource;
use mizzen_value::{Str, Value, json};
use tokio::time::Instant;

use super::attributes::Attributes;
use super::call::{Failure, out_of_time, prepare};
use super::matching::{Invocation, candidates, invocation};
use super::rejection::rejection;
use super::remember;
use super::review::Verdict;
use crate::audit::Layer;
use crate::decode;
use crate::verbs::patch;

/// Calls the webhooks that a write concerns, and once more those that want to see what others made of it.
#[derive(Default)]
pub(crate) struct Rounds {
    /// Webhooks that were called and want to know what is changed after them.
    waiting: HashSet<Str>,
    /// Webhooks after which something was changed.
    due: HashSet<Str>,
    /// What the webhooks left behind.
    last: Value,
}

impl Rounds {
    /// Lets the webhooks change `object`, which is none for a delete. Returns whether one did, so that all should
    /// have their say a second time.
    pub(crate) async fn mutate(
        &mut self,
        attributes: &Attributes<'_>,
        object: Option<&mut Value>,
        second: bool,
    ) -> Result<bool, Status> {
        let server = attributes.call.server;
        let hooks = server.webhooks.mutating.hooks(&server.registry)?;
        let candidates = candidates(&hooks, attributes);
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
        // The plug-ins that came between may have changed the object too.
        if second && self.last != *object {
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
                *object = changed;
            }
            if webhook.reinvoked {
                self.waiting.insert(webhook.id.clone());
            }
        }
        self.last = object.clone();
        Ok(any)
    }

    fn changed(&mut self) {
        self.due.extend(self.waiting.drain());
    }

    /// Calls one webhook; returns the object as it has changed it.
    async fn call(
        &self,
        attributes: &Attributes<'_>,
        invocation: Invocation,
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
            Ok(verdict) => judge(attributes, &invocation, &verdict, round).await,
            Err(failure) => Err(failure),
        };
        attributes
            .call
            .request
            .record
            .took(Layer::MutatingWebhook, started);
        remember::mutated(attributes, webhook, round, matches!(outcome, Ok(Some(_))));
        match outcome {
            Err(Failure::Call(why)) if webhook.ignores_failure => {
                remember::failed_open(attributes, "mutation", round, webhook.index, webhook);
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

/// What a verdict makes of the object; none if it stays as it is.
async fn judge(
    attributes: &Attributes<'_>,
    invocation: &Invocation,
    verdict: &Verdict,
    round: usize,
) -> Result<Option<Value>, Failure> {
    let name = &invocation.webhook.name;
    remember::note(attributes, &invocation.webhook, verdict);
    if !verdict.allowed {
        return Err(Failure::Refused(rejection(name, &verdict.status)));
    }
    if verdict.patch.is_empty() {
        return Ok(None);
    }
    let patch =
        JsonPatch::parse(&verdict.patch).map_err(|error| undecodable(&error.to_string()))?;
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
    if verdict.patch_type != "JSONPatch" {
        return Err(Failure::Call(format!(
            "unsupported patch type {}",
            json::quote(&verdict.patch_type)
        )));
    }
    let mut shown = attributes
        .shown(Some(object), &invocation.resource)
        .await
        .map_err(Failure::Refused)?;
    patch
        .apply(&mut shown)
        .map_err(|error| internal(error.to_string()))?;
    let taken = attributes.taken_back(&shown, &invocation.resource).await;
    let patched = taken.map_err(Failure::Refused)?;
    remember::patched(attributes, &invocation.webhook, round, &verdict.patch);
    Ok((patched != *object).then_some(patched))
}

fn undecodable(problem: &str) -> Failure {
    let problem = patch::undecoded(problem);
    Failure::Call(format!(
        "received undecodable patch in webhook response: {problem}"
    ))
}

fn internal(why: String) -> Failure {
    Failure::Refused(Status::internal(why))
}

impl Attributes<'_> {
    /// A patched object as one of the request's version: read again, pruned, defaulted.
    pub(crate) async fn taken_back(
        &self,
        patched: &Value,
        resource: &Resource,
    ) -> Result<Value, Status> {
        let (text, kind) = (json::to_string(patched), resource.kind());
        let root = self.other_root().unwrap_or(&kind.root);
        let mut object = decode(root, text.as_bytes())
            .map_err(Status::internal)?
            .value;
        if self.other_root().is_some() {
            return Ok(object);
        }
        decode::apply_defaults(kind, &mut object).map_err(Status::internal)?;
        match kind.gvk == self.call.resource.kind().gvk {
            true => Ok(object),
            false => self.call.resource.turned(&object, resource).await,
        }
    }
}
