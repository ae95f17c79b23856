//! What clients and auditors are told of webhooks.

use mizzen_value::{json, value};

use super::attributes::Attributes;
use super::configuration::Webhook;
use super::review::Verdict;
use crate::admission::annotate;
use crate::audit::Level;

/// Passes on what a webhook has to say besides its verdict.
pub(super) fn note(attributes: &Attributes, webhook: &Webhook, verdict: &Verdict) {
    for warning in &verdict.warnings {
        attributes.call.notes.warn(warning);
    }
    for (key, text) in verdict.annotations.entries() {
        annotate(
            attributes.call,
            &format!("{}/{key}", webhook.name),
            text.str(),
        );
    }
}

/// Notes that a webhook could not be called, and that the request went on.
pub(super) fn failed_open(
    attributes: &Attributes,
    what: &str,
    round: usize,
    index: usize,
    webhook: &Webhook,
) {
    let key = format!(
        "failed-open.{what}.webhook.admission.k8s.io/{}",
        place(round, index)
    );
    annotate(attributes.call, &key, &webhook.name);
}

/// Notes whether a webhook has changed the object.
pub(super) fn mutated(attributes: &Attributes, webhook: &Webhook, round: usize, mutated: bool) {
    if attributes.call.request.record.is_open() {
        let Webhook {
            configuration,
            name,
            index,
            ..
        } = webhook;
        let said = value!({ "configuration": configuration, "webhook": name, "mutated": mutated });
        let key = format!("mutation.webhook.admission.k8s.io/{}", place(round, *index));
        annotate(attributes.call, &key, &json::to_string(&said));
    }
}

/// Notes how a webhook has changed the object, for those who remember objects.
pub(super) fn patched(attributes: &Attributes, webhook: &Webhook, round: usize, patch: &[u8]) {
    if attributes.call.request.record.is_open() {
        let Webhook {
            configuration,
            name,
            index,
            ..
        } = webhook;
        let patch = json::parse(patch).unwrap_or_default();
        let mut said = value!({ "configuration": configuration, "webhook": name });
        said.set("patch", patch);
        said.set("patchType", "JSONPatch");
        let key = format!("patch.webhook.admission.k8s.io/{}", place(round, *index));
        attributes
            .call
            .request
            .record
            .annotate_from(Level::Request, &key, json::to_string(&said));
    }
}

fn place(round: usize, index: usize) -> String {
    format!("round_{round}_index_{index}")
}
