//! ConfigurationValidation of a configuration, with upstream's messages (apis/apiserver/validation/validation_encryption.go).

use std::collections::HashSet;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use mizzen_object::{GroupResource, Path, Violations};
use mizzen_value::Value;

use super::cipher::Method;
use super::configuration::{group_resource, kms_timeout, kms_version};

/// All violations of a configuration.
pub(super) fn validate(document: &Value) -> Violations {
    let mut validation = ConfigurationValidation::default();
    let root = Path::new("resources");
    let entries = document["resources"].list();
    if entries.is_empty() {
        validation.require_one(&root, &root.to_string());
    }
    for (at, entry) in entries.iter().enumerate() {
        let path = root.index(at);
        validation.resources(&entry["resources"], &path.child("resources"));
        let path = path.child("providers");
        if entry["providers"].list().is_empty() {
            validation.require_one(&path, &path.to_string());
        }
        for (at, provider) in entry["providers"].list().iter().enumerate() {
            validation.provider(provider, &path.index(at));
        }
    }
    validation.violations
}

/// What was found so far.
#[derive(Default)]
struct ConfigurationValidation {
    violations: Violations,
    kms_names: HashSet<String>,
}

impl ConfigurationValidation {
    fn require_one(&mut self, path: &Path, what: &str) {
        self.violations
            .required(path, &format!("at least one {what} is required"));
    }

    fn resources(&mut self, resources: &Value, path: &Path) {
        if resources.list().is_empty() {
            self.require_one(path, &path.to_string());
        }
        let names = resources.list().iter();
        let parsed: Vec<GroupResource> = names.map(|name| group_resource(name.str())).collect();
        let is_duplicate = |at: usize| parsed[..at].contains(&parsed[at]);
        if (0..parsed.len()).any(is_duplicate) {
            let detail = "the same resource cannot be specified multiple times";
            self.violations.invalid(path, resources.clone(), detail);
        }
        if has_overlap(&parsed) {
            let detail = "using overlapping resources such as 'secrets' and '*.' in the same resource list is not \
                          allowed as they will be masked";
            self.violations.invalid(path, resources.clone(), detail);
        }
        for (at, name) in resources.list().iter().enumerate() {
            if let Some(detail) = resource_name_problem(name.str()) {
                self.violations
                    .invalid(path.index(at), name.clone(), detail);
            }
        }
    }

    fn provider(&mut self, provider: &Value, path: &Path) {
        let names = ["kms", "aesgcm", "aescbc", "secretbox", "identity"];
        match names.iter().filter(|name| !provider[**name].is_null()).count() {
            0 => self.violations.invalid_shown(
                path,
                r#"{"AESGCM":null,"AESCBC":null,"Secretbox":null,"Identity":null,"KMS":null}"#,
                "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity",
            ),
            1 => {}
            // Kubernetes: shows the keys here.
            _ => self.violations.invalid(
                path,
                "REDACTED",
                "more than one provider specified in a single element, should split into different list elements",
            ),
        }
        if !provider["kms"].is_null() {
            self.kms(&provider["kms"], &path.child("kms"));
            self.kms_names
                .insert(provider["kms"]["name"].str().to_string());
            return;
        }
        let mut methods = Method::ALL.into_iter();
        if let Some((name, method)) = methods.find(|(name, _)| !provider[*name].is_null()) {
            let (keys, path) = (&provider[name]["keys"], path.child(name));
            let path = path.child("keys");
            if keys.list().is_empty() {
                self.require_one(&path, "keys");
            }
            for (at, key) in keys.list().iter().enumerate() {
                self.key(key, &path.index(at), method);
            }
        }
    }

    fn key(&mut self, key: &Value, path: &Path, method: Method) {
        for field in ["name", "secret"] {
            if key[field].str().is_empty() {
                let detail = format!("{field} is a mandatory field for a key");
                self.violations.required(path.child(field), &detail);
            }
        }
        let lengths = method.key_lengths();
        let problem = match BASE64_STANDARD.decode(key["secret"].str()) {
            Ok(secret) if secret.is_empty() || lengths.contains(&secret.len()) => return,
            Ok(secret) => {
                let lengths: Vec<String> = lengths.iter().map(usize::to_string).collect();
                let (got, lengths) = (secret.len(), lengths.join(" "));
                format!(
                    "secret is not of the expected length, got {got}, expected one of [{lengths}]"
                )
            }
            Err(_) => "secrets must be base64 encoded".to_string(),
        };
        self.violations
            .invalid(path.child("secret"), "REDACTED", &problem);
    }

    fn kms(&mut self, kms: &Value, path: &Path) {
        let violations = &mut self.violations;
        let (name, version) = (kms["name"].str(), kms_version(kms));
        let name_path = path.child("name");
        if name.is_empty() {
            violations.required(name_path, "name is a mandatory field for a provider");
        }
        if version != "v1" && name.contains(':') {
            let detail = format!("invalid KMS provider name {name}, must not contain ':'");
            violations.invalid(name_path, name, &detail);
        }
        if version != "v1" && self.kms_names.contains(name) {
            let detail = format!("duplicate KMS provider name {name}, names must be unique");
            violations.invalid(name_path, name, &detail);
        }
        let timeout = match kms_timeout(kms) {
            Ok(timeout) if timeout.is_zero() => Some("timeout should be a positive value".into()),
            Ok(_) => None,
            Err(problem) => Some(problem),
        };
        if let Some(problem) = timeout {
            violations.invalid(path.child("timeout"), kms["timeout"].clone(), &problem);
        }
        let endpoint = kms["endpoint"].str();
        if let Some(problem) = endpoint_problem(endpoint) {
            violations.invalid(path.child("endpoint"), endpoint, &problem);
        }
        let cache_size = match (version, kms["cachesize"].as_int()) {
            ("v1", Some(0)) => Some("cachesize should be a positive value, or negative to disable"),
            ("v1", _) | (_, None) => None,
            _ => Some("cachesize is not supported in v2"),
        };
        if let Some(problem) = cache_size {
            violations.invalid(path.child("cachesize"), kms["cachesize"].clone(), problem);
        }
        if !["v1", "v2"].contains(&version) {
            // Kubernetes: names the field in place of the version.
            let detail =
                "unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported";
            violations.invalid(path.child("apiVersion"), version, detail);
        }
    }
}

/// Kubernetes: the first pair of equal resources is only a duplicate; any further pair may be an overlap, too.
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

/// Why a resource cannot be encrypted.
fn resource_name_problem(name: &str) -> Option<&'static str> {
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

fn endpoint_problem(endpoint: &str) -> Option<String> {
    if endpoint.is_empty() {
        return Some("endpoint is a mandatory field for a kms".into());
    }
    let scheme = match endpoint.split_once(':') {
        Some(("unix", _)) => return None,
        Some(("", _)) => {
            return Some(format!(
                "invalid endpoint for kms provider, error: parse {endpoint:?}: missing protocol scheme"
            ));
        }
        Some((scheme, _)) if scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) => scheme,
        _ => "",
    };
    Some(format!(
        "unsupported scheme {scheme:?} for KMS provider, only unix is supported"
    ))
}
