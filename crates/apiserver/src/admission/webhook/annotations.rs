//! Warnings and audit annotations of webhooks.

use mizzen_audit::AuditLevel;
use mizzen_value::{json, value};

use super::attributes::VersionedAttributes;
use super::configuration::AdmissionWebhook;
use super::review::WebhookResponse;
use crate::admission::annotate;

/// Adds the warnings and audit annotations of a response.
pub(super) fn note(
    attributes: &VersionedAttributes,
    webhook: &AdmissionWebhook,
    response: &WebhookResponse,
) {
    for warning in &response.warnings {
        attributes.call.notes.warn(warning);
    }
    for (key, text) in response.annotations.entries() {
        annotate(
            attributes.call,
            &format!("{}/{key}", webhook.name),
            text.str(),
        );
    }
}

/// Annotates that a webhook failed open.
pub(super) fn failed_open(
    attributes: &VersionedAttributes,
    what: &str,
    round: usize,
    index: usize,
    webhook: &AdmissionWebhook,
) {
    let key = format!(
        "failed-open.{what}.webhook.admission.k8s.io/{}",
        place(round, index)
    );
    annotate(attributes.call, &key, &webhook.name);
}

/// Annotates whether a webhook has changed the object.
pub(super) fn mutated(
    attributes: &VersionedAttributes,
    webhook: &AdmissionWebhook,
    round: usize,
    mutated: bool,
) {
    if attributes.call.request.record.is_open() {
        let AdmissionWebhook {
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

/// Annotates the patch of a webhook, if the audit level includes objects.
pub(super) fn patched(
    attributes: &VersionedAttributes,
    webhook: &AdmissionWebhook,
    round: usize,
    patch: &[u8],
) {
    if attributes.call.request.record.is_open() {
        let AdmissionWebhook {
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
        attributes.call.request.record.annotate_at_level(
            AuditLevel::Request,
            &key,
            json::to_string(&said),
        );
    }
}

fn place(round: usize, index: usize) -> String {
    format!("round_{round}_index_{index}")
}
