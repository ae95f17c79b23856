//! Validation of a CustomResourceDefinition's conversion.

use mizzen_object::validate::{field, names};
use mizzen_object::{Path, Violations};
use mizzen_value::Value;

use crate::pem;
use crate::{bytes, client, rules};

/// Kubernetes: messages name the fields of the internal type, which has no `webhook`.
pub(super) fn validate(
    spec: &Value,
    old: Option<&Value>,
    path: &Path,
    violations: &mut Violations,
) {
    let conversion = &spec["conversion"];
    if conversion.is_null() {
        return;
    }
    let (strategy, webhook) = (conversion["strategy"].str(), &conversion["webhook"]);
    if strategy != "None" && spec["preserveUnknownFields"].bool() {
        let detail = "must be None if spec.preserveUnknownFields is true";
        violations.invalid(path.child("strategy"), strategy, detail);
    }
    match strategy {
        "" => violations.required(path.child("strategy"), ""),
        word => field::one_of(
            word,
            &["None", "Webhook"],
            &path.child("strategy"),
            violations,
        ),
    }
    let (place, versions) = (
        path.child("webhookClientConfig"),
        path.child("conversionReviewVersions"),
    );
    let unset = "should not be set when strategy is not set to Webhook";
    if strategy == "Webhook" {
        match webhook.get("clientConfig") {
            None => violations.required(place, "required when strategy is set to Webhook"),
            Some(config) => client::validate(config, &place, violations),
        }
        let known = old.is_none_or(|old| {
            has_known(old.at("conversion.webhook.conversionReviewVersions").list())
        });
        return validate_versions(
            &webhook["conversionReviewVersions"],
            known,
            &versions,
            violations,
        );
    }
    if webhook.get("clientConfig").is_some() {
        violations.forbidden(place, unset);
    }
    if !webhook["conversionReviewVersions"].is_empty() {
        violations.forbidden(versions, unset);
    }
}

/// Once a kind is served, a webhook's authorities must be some; who had none that can be read keeps them.
/// The contents of certificates are not validated.
pub(super) fn validate_authorities(
    definition: &Value,
    old: Option<&Value>,
    violations: &mut Violations,
) {
    let conversion = |definition: &Value| definition["spec"]["conversion"].clone();
    let bundle = |conversion: &Value| {
        conversion
            .at("webhook.clientConfig.caBundle")
            .str()
            .to_string()
    };
    let (new, before) = (
        conversion(definition),
        old.map(conversion).unwrap_or_default(),
    );
    if new["strategy"].str() != "Webhook" || wrong_authorities(&bundle(&before)).is_some() {
        return;
    }
    if let Some(wrong) = wrong_authorities(&bundle(&new)) {
        let detail = format!("unable to load root certificates: {wrong}");
        violations.invalid(
            "spec.conversion.webhookClientConfig.caBundle",
            bundle(&new),
            &detail,
        );
    }
}

/// The error of a CA bundle that is not empty.
fn wrong_authorities(bundle: &str) -> Option<&'static str> {
    let bytes = bytes::decode(bundle);
    let text = String::from_utf8_lossy(&bytes);
    let mut rest = &*text;
    while !rest.is_empty() {
        let Some((block, after)) = pem::decode(rest) else {
            return Some("unable to parse bytes as PEM block");
        };
        if block.label == "CERTIFICATE" && !block.has_headers {
            return None;
        }
        rest = after;
    }
    (!text.is_empty()).then_some("no valid certificate authority data seen")
}

/// Whether one of them is a version that the server speaks, or there is none.
fn has_known(versions: &[Value]) -> bool {
    versions.is_empty()
        || versions
            .iter()
            .any(|version| matches!(version.str(), "v1" | "v1beta1"))
}

fn validate_versions(
    versions: &Value,
    demand_known: bool,
    path: &Path,
    violations: &mut Violations,
) {
    let list = versions.list();
    if list.is_empty() {
        return violations.required(path, "");
    }
    for (index, version) in list.iter().enumerate() {
        if list[..index].contains(version) {
            violations.invalid(path.index(index), version.str(), "duplicate version");
        } else {
            rules::text(
                version.str(),
                names::is_dns1035_label,
                &path.index(index),
                violations,
            );
        }
    }
    if demand_known && !has_known(list) {
        violations.invalid(
            path,
            versions.clone(),
            "must include at least one of v1, v1beta1",
        );
    }
}
