//! What is wrong with a configuration, in Kubernetes' words (apis/apiserver/validation/validation_encryption.go).

use std::collections::HashSet;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use mizzen_object::{GroupResource, Path, Violations};
use mizzen_value::Value;

use super::cipher::Method;
use super::configuration::{group_resource, kms_timeout, kms_version};

/// Everything that is wrong.
pub(super) fn validate(document: &Value) -> Violations {
    let mut violations = Violations::default();
    let root = Path::new("resources");
    let entries = document["resources"].list();
    if entries.is_empty() {
        at_least_one(&root, &root.to_string(), &mut violations);
    }
    let mut kms_names = HashSet::new();
    for (at, entry) in entries.iter().enumerate() {
        let path = root.index(at);
        validate_resources(
            &entry["resources"],
            &path.child("resources"),
            &mut violations,
        );
        let path = path.child("providers");
        if entry["providers"].list().is_empty() {
            at_least_one(&path, &path.to_string(), &mut violations);
        }
        for (at, provider) in entry["providers"].list().iter().enumerate() {
            validate_provider(provider, &path.index(at), &mut kms_names, &mut violations);
        }
    }
    violations
}

fn at_least_one(path: &Path, what: &str, violations: &mut Violations) {
    violations.required(path, &format!("at least one {what} is required"));
}

fn validate_resources(resources: &Value, path: &Path, violations: &mut Violations) {
    if resources.list().is_empty() {
        at_least_one(path, &path.to_string(), violations);
    }
    let parsed: Vec<GroupResource> = resources
        .list()
        .iter()
        .map(|name| group_resource(name.str()))
        .collect();
    if has_duplicates(&parsed) {
        let detail = "the same resource cannot be specified multiple times";
        violations.invalid(path, resources.clone(), detail);
    }
    if has_overlap(&parsed) {
        let detail = "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed \
                      as they will be masked";
        violations.invalid(path, resources.clone(), detail);
    }
    for (at, name) in resources.list().iter().enumerate() {
        if let Some(detail) = name_problem(name.str()) {
            violations.invalid(path.index(at), name.clone(), detail);
        }
    }
}

fn has_duplicates(resources: &[GroupResource]) -> bool {
    resources
        .iter()
        .enumerate()
        .any(|(at, resource)| resources[..at].contains(resource))
}

/// Kubernetes: of two that are the same, the first pair is a duplicate and every other one may be an overlap, too.
fn has_overlap(resources: &[GroupResource]) -> bool {
    let any = |resource: &GroupResource| resource.group == "*" && resource.resource == "*";
    let mut seen_duplicate = false;
    for (at, one) in resources.iter().enumerate() {
        for (other_at, other) in resources.iter().enumerate() {
            if at == other_at {
                continue;
            }
            if one == other && !seen_duplicate {
                seen_duplicate = true;
                continue;
            }
            let wild = one.resource == "*" || other.resource == "*";
            if any(one) || (one.group == other.group && wild) {
                return true;
            }
        }
    }
    false
}

fn name_problem(name: &str) -> Option<&'static str> {
    let GroupResource { group, resource } = group_resource(name);
    if name.to_lowercase() != name {
        return Some("resource name should not contain capital letters");
    }
    match (name, group.as_str(), resource.as_str()) {
        ("*", ..) => Some(
            "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources",
        ),
        ("apiserveripinfo" | "serviceipallocations" | "servicenodeportallocations", ..) => {
            Some("resources which do not have REST API/s cannot be encrypted")
        }
        (_, "events.k8s.io", _) => Some(
            "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the \
             config file",
        ),
        (_, "extensions", _) => {
            Some("'extensions' group has been removed and cannot be used for encryption")
        }
        (_, "*", resource) if resource != "*" => {
            Some("encrypting the same resource across groups is not supported")
        }
        _ => None,
    }
}

fn validate_provider(
    provider: &Value,
    path: &Path,
    kms_names: &mut HashSet<String>,
    violations: &mut Violations,
) {
    let names = ["kms", "aesgcm", "aescbc", "secretbox", "identity"];
    match names.iter().filter(|name| !provider[**name].is_null()).count() {
        0 => violations.invalid_shown(
            path,
            r#"{"AESGCM":null,"AESCBC":null,"Secretbox":null,"Identity":null,"KMS":null}"#,
            "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity",
        ),
        1 => {}
        // Upstream shows the keys here.
        _ => violations.invalid(
            path,
            "REDACTED",
            "more than one provider specified in a single element, should split into different list elements",
        ),
    }
    if !provider["kms"].is_null() {
        validate_kms(&provider["kms"], &path.child("kms"), kms_names, violations);
        kms_names.insert(provider["kms"]["name"].str().to_string());
        return;
    }
    if let Some((name, method)) = Method::ALL
        .into_iter()
        .find(|(name, _)| !provider[*name].is_null())
    {
        validate_keys(
            &provider[name]["keys"],
            &path.child(name).child("keys"),
            method,
            violations,
        );
    }
}

fn validate_keys(keys: &Value, path: &Path, method: Method, violations: &mut Violations) {
    if keys.list().is_empty() {
        at_least_one(path, "keys", violations);
    }
    for (at, key) in keys.list().iter().enumerate() {
        validate_key(key, &path.index(at), method, violations);
    }
}

fn validate_key(key: &Value, path: &Path, method: Method, violations: &mut Violations) {
    for field in ["name", "secret"] {
        if key[field].str().is_empty() {
            violations.required(
                path.child(field),
                &format!("{field} is a mandatory field for a key"),
            );
        }
    }
    let problem = match BASE64_STANDARD.decode(key["secret"].str()) {
        Ok(secret) if secret.is_empty() || method.key_lengths().contains(&secret.len()) => return,
        Ok(secret) => {
            let lengths: Vec<String> = method.key_lengths().iter().map(usize::to_string).collect();
            let (got, lengths) = (secret.len(), lengths.join(" "));
            format!("secret is not of the expected length, got {got}, expected one of [{lengths}]")
        }
        Err(_) => "secrets must be base64 encoded".to_string(),
    };
    violations.invalid(path.child("secret"), "REDACTED", &problem);
}

fn validate_kms(kms: &Value, path: &Path, names: &HashSet<String>, violations: &mut Violations) {
    let (name, version) = (kms["name"].str(), kms_version(kms));
    let name_path = path.child("name");
    if name.is_empty() {
        violations.required(name_path, "name is a mandatory field for a provider");
    }
    if version != "v1" && name.contains(':') {
        let detail = format!("invalid KMS provider name {name}, must not contain ':'");
        violations.invalid(name_path, name, &detail);
    }
    if version != "v1" && names.contains(name) {
        let detail = format!("duplicate KMS provider name {name}, names must be unique");
        violations.invalid(name_path, name, &detail);
    }
    match kms_timeout(kms) {
        Ok(timeout) if !timeout.is_zero() => {}
        Ok(_) => {
            let timeout = kms["timeout"].clone();
            violations.invalid(
                path.child("timeout"),
                timeout,
                "timeout should be a positive value",
            );
        }
        Err(problem) => violations.invalid(path.child("timeout"), kms["timeout"].clone(), &problem),
    }
    validate_endpoint(kms["endpoint"].str(), &path.child("endpoint"), violations);
    validate_cache_size(kms, version, &path.child("cachesize"), violations);
    if !["v1", "v2"].contains(&version) {
        // Kubernetes: it names the field where the version was meant.
        let detail =
            "unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported";
        violations.invalid(path.child("apiVersion"), version, detail);
    }
}

fn validate_endpoint(endpoint: &str, path: &Path, violations: &mut Violations) {
    if endpoint.is_empty() {
        return violations.invalid(path, "", "endpoint is a mandatory field for a kms");
    }
    let problem = match endpoint.split_once(':') {
        Some(("unix", _)) => return,
        Some(("", _)) => {
            format!(
                "invalid endpoint for kms provider, error: parse {endpoint:?}: missing protocol scheme"
            )
        }
        Some((scheme, _)) if scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
            format!("unsupported scheme {scheme:?} for KMS provider, only unix is supported")
        }
        _ => "unsupported scheme \"\" for KMS provider, only unix is supported".to_string(),
    };
    violations.invalid(path, endpoint, &problem);
}

fn validate_cache_size(kms: &Value, version: &str, path: &Path, violations: &mut Violations) {
    let problem = match (version, kms["cachesize"].as_int()) {
        ("v1", Some(0)) => "cachesize should be a positive value, or negative to disable",
        ("v1", _) | (_, None) => return,
        _ => "cachesize is not supported in v2",
    };
    violations.invalid(path, kms["cachesize"].clone(), problem);
}
