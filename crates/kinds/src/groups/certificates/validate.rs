//! Validation of CertificateSigningRequests and of their approval.

use mizzen_object::validate::{field, names};
use mizzen_object::{Action, HookContext, Path, Violations};
use mizzen_value::Value;

use super::{conditions, pem};
use mizzen_apiextensions::bytes;

/// What a client may change; it depends on where it writes, and in which version.
#[derive(Clone, Copy, Default)]
struct Grant {
    approval: bool,
    certificate: bool,
    /// Kubernetes: v1beta1 has no rules for signer, usages, types of conditions, and what a certificate is
    /// (getValidationOptions of v1.21).
    v1beta1: bool,
}

/// Looks at a request that is made, changed, or signed through `/status`.
pub(super) fn validate(
    request: &Value,
    old: Option<&Value>,
    context: &HookContext,
    violations: &mut Violations,
) {
    let grant = Grant {
        certificate: context.action == Action::Status,
        ..Grant::default()
    };
    validate_for(request, old, grant, violations);
}

/// Looks at a request of v1beta1 that is made, changed, or signed.
pub(super) fn validate_v1beta1(
    request: &Value,
    old: Option<&Value>,
    context: &HookContext,
    violations: &mut Violations,
) {
    let grant = Grant {
        approval: false,
        certificate: context.action == Action::Status,
        v1beta1: true,
    };
    validate_for(request, old, grant, violations);
}

/// Looks at a request that is approved or denied through `/approval`.
pub(super) fn validate_approval(
    request: &Value,
    old: Option<&Value>,
    _: &HookContext,
    violations: &mut Violations,
) {
    validate_for(
        request,
        old,
        Grant {
            approval: true,
            ..Grant::default()
        },
        violations,
    );
}

/// Looks at a request of v1beta1 that is approved or denied.
pub(super) fn validate_approval_v1beta1(
    request: &Value,
    old: Option<&Value>,
    _: &HookContext,
    violations: &mut Violations,
) {
    let grant = Grant {
        approval: true,
        certificate: false,
        v1beta1: true,
    };
    validate_for(request, old, grant, violations);
}

fn validate_for(request: &Value, old: Option<&Value>, grant: Grant, violations: &mut Violations) {
    validate_spec(
        &request["spec"],
        old.map(|old| &old["spec"]),
        grant,
        violations,
    );
    validate_conditions(request, old, grant, violations);
    let certificate = &request["status"]["certificate"];
    if !grant.v1beta1
        && old.is_none_or(|old| old["status"]["certificate"] != *certificate)
        && let Some(error) = certificate_error(certificate.str())
    {
        let path = Path::new("status");
        violations.invalid(path.child("certificate"), "<certificate data>", &error);
    }
    if let Some(old) = old {
        let status = Path::new("status");
        let path = status.child("conditions");
        let count = |request: &Value, wanted: &str| {
            types(request)
                .into_iter()
                .filter(|found| *found == wanted)
                .count()
        };
        for wanted in ["Approved", "Denied", "Failed"] {
            if count(request, wanted) < count(old, wanted) {
                violations.forbidden(
                    path,
                    &format!("updates may not remove a condition of type \"{wanted}\""),
                );
            }
        }
        for wanted in DECISIONS.into_iter().filter(|_| !grant.approval) {
            if count(request, wanted) > count(old, wanted) {
                violations.forbidden(
                    path,
                    &format!("updates may not add a condition of type \"{wanted}\""),
                );
            }
        }
        let (new, old) = (
            &request["status"]["certificate"],
            &old["status"]["certificate"],
        );
        let path = status.child("certificate");
        if new != old && !grant.certificate {
            violations.forbidden(path, "updates may not set certificate content");
        } else if new != old && !old.is_empty() && !grant.v1beta1 {
            violations.forbidden(path, "updates may not modify existing certificate content");
        }
    }
}

/// Kubernetes: what was stored before it was checked may stay, here and below.
fn validate_spec(spec: &Value, old: Option<&Value>, grant: Grant, violations: &mut Violations) {
    let path = Path::new("spec");
    if let Some(error) = request_error(spec["request"].str()) {
        violations.invalid(path.child("request"), spec["request"].clone(), error);
    }
    let (usages, place) = (&spec["usages"], path.child("usages"));
    if usages.is_empty() {
        violations.required(place, "");
    }
    if !grant.v1beta1 {
        let usages = usages.list();
        let old = old.map(|old| old["usages"].list());
        let is_unknown = |usage: &Value| !USAGES.contains(&usage.str());
        if !old.is_some_and(|old| old.iter().any(is_unknown)) {
            for (index, usage) in usages.iter().enumerate() {
                field::one_of(usage.str(), &USAGES, &place.index(index), violations);
            }
        }
        if old.is_none_or(|old| repeated(old).next().is_none()) {
            for index in repeated(usages) {
                violations.duplicate(place.index(index), usages[index].str());
            }
        }
    }

    let (signer, place) = (spec["signerName"].str(), path.child("signerName"));
    let may_be_legacy = grant.v1beta1 || old.is_some_and(|old| old["signerName"].str() == LEGACY);
    if signer == LEGACY && !may_be_legacy {
        violations.invalid(
            place,
            signer,
            "the legacy signerName is not allowed via this API version",
        );
    } else {
        validate_signer(signer, &place, violations);
    }
    if let Some(seconds) = spec["expirationSeconds"]
        .as_int()
        .filter(|seconds| *seconds < 600)
    {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        violations.invalid(path.child("expirationSeconds"), seconds, detail);
    }
}

pub(super) const LEGACY: &str = "kubernetes.io/legacy-unknown";

fn text_of(text: &str) -> String {
    String::from_utf8_lossy(&bytes::decode(text)).into_owned()
}

/// The request in DER, if it is one.
pub(super) fn request_der(request: &str) -> Option<Vec<u8>> {
    match request_error(request) {
        Some(_) => None,
        None => pem::decode(&text_of(request)).map(|(block, _)| block.bytes),
    }
}

/// The groups of the requested certificate: the organizations of its subject.
pub fn requested_groups(request: &str) -> Vec<String> {
    let block = pem::decode(&text_of(request)).map(|(block, _)| block.bytes);
    block
        .map(|bytes| pem::organizations(&bytes))
        .unwrap_or_default()
}

/// The common name of the requested certificate, or why the request is invalid.
pub fn requested_name(request: &str) -> Result<String, &'static str> {
    match request_error(request) {
        Some(error) => Err(error),
        None => {
            let block = pem::decode(&text_of(request)).map(|(block, _)| block.bytes);
            Ok(block
                .and_then(|bytes| pem::common_name(&bytes))
                .unwrap_or_default())
        }
    }
}

fn request_error(request: &str) -> Option<&'static str> {
    match pem::decode(&text_of(request)) {
        Some((block, _)) if block.label == "CERTIFICATE REQUEST" => pem::signed_error(&block.bytes),
        _ => Some("PEM block type must be CERTIFICATE REQUEST"),
    }
}

fn certificate_error(certificate: &str) -> Option<String> {
    let text = text_of(certificate);
    let (mut rest, mut n_blocks) = (text.as_str(), 0);
    while let Some((block, after)) = pem::decode(rest) {
        if block.label != "CERTIFICATE" {
            return Some(format!(
                "only CERTIFICATE PEM blocks are allowed, found \"{}\"",
                block.label
            ));
        }
        if block.has_headers {
            return Some("no PEM block headers are permitted".into());
        }
        if block.bytes.is_empty() {
            return Some("found CERTIFICATE PEM block containing 0 certificates".into());
        }
        if let Some(error) = pem::signed_error(&block.bytes) {
            return Some(error.into());
        }
        (rest, n_blocks) = (after, n_blocks + 1);
    }
    (n_blocks == 0 && !text.is_empty())
        .then(|| "must contain at least one CERTIFICATE PEM block".into())
}

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// Where there is something that was there before.
fn repeated(values: &[Value]) -> impl Iterator<Item = usize> {
    (0..values.len()).filter(|index| values[..*index].contains(&values[*index]))
}

fn validate_signer(signer: &str, path: &Path, violations: &mut Violations) {
    if signer.is_empty() {
        return violations.required(path, "");
    }
    let [domain, name] = signer.split('/').collect::<Vec<_>>()[..] else {
        let detail =
            "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return violations.invalid(path, signer, detail);
    };
    if domain.len() > 253 {
        violations.too_long(path, 253);
    }
    validate_labels(domain, names::is_dns1123_label, path, violations);
    if !domain.contains('.') {
        violations.invalid(
            path,
            domain,
            "should be a domain with at least two segments separated by dots",
        );
    }
    validate_labels(name, names::is_dns1123_subdomain, path, violations);
    if signer.len() > 571 {
        violations.too_long(path, 571);
    }
}

/// Only the first bad label is reported, because the messages would not tell them apart.
fn validate_labels(
    text: &str,
    check: fn(&str) -> Vec<String>,
    path: &Path,
    violations: &mut Violations,
) {
    if let Some(label) = text.split('.').find(|label| !check(label).is_empty()) {
        for message in check(label) {
            violations.invalid(
                path,
                text,
                &format!("validating label \"{label}\": {message}"),
            );
        }
    }
}

const DECISIONS: [&str; 2] = ["Approved", "Denied"];

fn validate_conditions(
    request: &Value,
    old: Option<&Value>,
    grant: Grant,
    violations: &mut Violations,
) {
    let path = Path::new("status");
    let path = path.child("conditions");
    let types = types(request);
    let old = old.map(self::types).unwrap_or_default();
    let contradiction_stays = DECISIONS.iter().all(|decision| old.contains(decision));
    let repetition_stays =
        grant.v1beta1 || (0..old.len()).any(|index| old[..index].contains(&old[index]));
    for (index, condition) in conditions(request).iter().enumerate() {
        let (item, condition_type) = (path.index(index), types[index]);
        if condition_type.is_empty() && !grant.v1beta1 && !old.contains(&"") {
            violations.required(item.child("type"), "");
        }
        let allowed: &[&str] = match condition["type"].str() {
            "Approved" | "Denied" | "Failed" => &["True"],
            _ => &["False", "True", "Unknown"],
        };
        match condition["status"].str() {
            "" => violations.required(item.child("status"), ""),
            status => field::one_of(status, allowed, &item.child("status"), violations),
        }
        let other = DECISIONS
            .iter()
            .find(|decision| **decision != condition_type);
        let contradicts = DECISIONS.contains(&condition_type)
            && other.is_some_and(|other| types[..index].contains(other));
        if contradicts && !contradiction_stays {
            violations.invalid(
                path,
                condition_type,
                "Approved and Denied conditions are mutually exclusive",
            );
        }
        if types[..index].contains(&condition_type) && !repetition_stays {
            violations.duplicate(item.child("type"), condition_type);
        }
    }
}

fn types(request: &Value) -> Vec<&str> {
    conditions(request)
        .iter()
        .map(|condition| condition["type"].str())
        .collect()
}
