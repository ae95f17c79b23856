//! Validation of environment variables.

use mizzen_object::validate::{field, names};
use mizzen_object::{Path, Violations};
use mizzen_value::Value;
use mizzen_value::quantity::Quantity;

use super::volumes;
use crate::fields::{dns_label, qualified_name};

/// Variables, each with a value or a place to take it from.
pub(super) fn validate(variables: &Value, path: &Path, violations: &mut Violations) {
    for (index, variable) in variables.items().enumerate() {
        let path = path.index(index);
        match variable["name"].str() {
            "" => violations.required(path.child("name"), ""),
            name => field::all(
                names::is_relaxed_env_var_name(name),
                name,
                &path.child("name"),
                violations,
            ),
        }
        if !variable["valueFrom"].is_null() {
            validate_source(variable, &path.child("valueFrom"), violations);
        }
    }
}

type Check = fn(&Value, &Path, &mut Violations);

const SOURCES: [(&str, Check); 5] = [
    ("fieldRef", |field, path, violations| {
        const FIELDS: [&str; 9] = [
            "metadata.name",
            "metadata.namespace",
            "metadata.uid",
            "spec.nodeName",
            "spec.serviceAccountName",
            "status.hostIP",
            "status.hostIPs",
            "status.podIP",
            "status.podIPs",
        ];
        validate_field(field, &FIELDS, path, violations);
    }),
    ("resourceFieldRef", |resource, path, violations| {
        validate_resource(resource, false, path, violations);
    }),
    ("configMapKeyRef", validate_key),
    ("secretKeyRef", validate_key),
    ("fileKeyRef", |selector, path, violations| {
        match selector["key"].str() {
            "" => violations.required(path.child("key"), ""),
            key => field::all(
                names::is_relaxed_env_var_name(key),
                key,
                &path.child("key"),
                violations,
            ),
        }
        match selector["volumeName"].str() {
            "" => violations.required(path.child("volumeName"), ""),
            name => dns_label(name, &path.child("volumeName"), violations),
        }
        match selector["path"].str() {
            "" => violations.required(path.child("path"), ""),
            text => volumes::no_backsteps(text, &path.child("path"), violations),
        }
    }),
];

fn validate_source(variable: &Value, path: &Path, violations: &mut Violations) {
    let from = &variable["valueFrom"];
    let sources = SOURCES
        .iter()
        .filter(|(source, _)| !from[*source].is_null());
    for (source, check) in sources.clone() {
        check(&from[*source], &path.child(source), violations);
    }
    let detail = match sources.count() {
        0 => {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        }
        _ if !variable["value"].str().is_empty() => {
            "may not be specified when `value` is not empty"
        }
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    violations.invalid(path, "", detail);
}

/// A field of the pod, one of `fields` or one label or annotation.
pub(super) fn validate_field(
    selector: &Value,
    fields: &[&str],
    path: &Path,
    violations: &mut Violations,
) {
    for part in ["apiVersion", "fieldPath"] {
        if selector[part].str().is_empty() {
            return violations.required(path.child(part), "");
        }
    }
    let (version, text) = (selector["apiVersion"].str(), selector["fieldPath"].str());
    // What cannot be read from a pod, and why.
    const FIELDS: [&str; 15] = [
        "metadata.annotations",
        "metadata.labels",
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.serviceAccountName",
        "spec.schedulerName",
        "spec.host",
        "status.phase",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    ];
    let unreadable = match subscript(text) {
        _ if version != "v1" => Some(format!("unsupported pod version: {version}")),
        Some(("metadata.annotations" | "metadata.labels", _)) => None,
        Some(_) => Some(format!("field label does not support subscript: {text}")),
        None if FIELDS.contains(&text) => None,
        None => Some(format!("field label not supported: {text}")),
    };
    if let Some(problem) = unreadable {
        let detail = format!("error converting fieldPath: {problem}");
        return violations.invalid(path.child("fieldPath"), text, &detail);
    }
    match subscript(text) {
        Some(("metadata.annotations", key)) => {
            let key = key.to_lowercase();
            field::all(names::is_qualified_name(&key), &key, path, violations);
        }
        Some((_, key)) => qualified_name(key, path, violations),
        None if fields.contains(&known_as(text)) => {}
        None => violations.not_supported(path.child("fieldPath"), known_as(text), fields),
    }
}

/// `spec.host` is the old name of `spec.nodeName`.
fn known_as(text: &str) -> &str {
    if text == "spec.host" {
        "spec.nodeName"
    } else {
        text
    }
}

/// Splits `metadata.labels['key']`.
fn subscript(text: &str) -> Option<(&str, &str)> {
    text.strip_suffix("']")?
        .split_once("['")
        .filter(|(path, _)| !path.is_empty())
}

/// What a container may use, as a number.
pub(super) fn validate_resource(
    selector: &Value,
    is_file: bool,
    path: &Path,
    violations: &mut Violations,
) {
    const RESOURCES: [&str; 6] = [
        "limits.cpu",
        "limits.ephemeral-storage",
        "limits.memory",
        "requests.cpu",
        "requests.ephemeral-storage",
        "requests.memory",
    ];
    let resource = selector["resource"].str();
    if is_file && selector["containerName"].str().is_empty() {
        violations.required(path.child("containerName"), "");
    } else if resource.is_empty() {
        violations.required(path.child("resource"), "");
    } else if !RESOURCES.contains(&resource) && !is_huge_page(resource) {
        violations.not_supported(path.child("resource"), resource, &RESOURCES);
    }
    let divisor = selector["divisor"].str();
    const BYTES: [&str; 13] = [
        "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
    ];
    if Quantity::parse_or_zero(divisor).is_zero() {
        return;
    }
    let (word, allowed, list) = match resource {
        "limits.cpu" | "requests.cpu" => ("cpu", &["1m", "1"][..], "1m and 1".to_string()),
        "limits.memory" | "requests.memory" => ("memory", &BYTES[..], BYTES.join(", ")),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => {
            ("local ephemeral storage", &BYTES[..], BYTES.join(", "))
        }
        _ if is_huge_page(resource) => ("hugepages", &BYTES[..], BYTES.join(", ")),
        _ => return,
    };
    if !allowed.contains(&divisor) {
        let detail = format!("only divisor's values {list} are supported with the {word} resource");
        violations.invalid(path.child("divisor"), resource, &detail);
    }
}

fn is_huge_page(resource: &str) -> bool {
    resource.starts_with("requests.hugepages-") || resource.starts_with("limits.hugepages-")
}

fn validate_key(selector: &Value, path: &Path, violations: &mut Violations) {
    let name = selector["name"].str();
    field::all(
        names::name_is_dns_subdomain(name, false),
        name,
        &path.child("name"),
        violations,
    );
    match selector["key"].str() {
        "" => violations.required(path.child("key"), ""),
        key => field::all(
            names::is_config_map_key(key),
            key,
            &path.child("key"),
            violations,
        ),
    }
}

/// Whole sets of variables.
pub(super) fn validate_from(sets: &Value, path: &Path, violations: &mut Violations) {
    for (index, set) in sets.items().enumerate() {
        let place = path.index(index);
        match set["prefix"].str() {
            "" => {}
            prefix => {
                field::all(
                    names::is_relaxed_env_var_name(prefix),
                    prefix,
                    &place.child("prefix"),
                    violations,
                );
            }
        }
        let sources = ["configMapRef", "secretRef"]
            .into_iter()
            .filter(|source| !set[*source].is_null());
        for source in sources.clone() {
            match set[source]["name"].str() {
                "" => violations.required(place.child(source).child("name"), ""),
                name => field::all(
                    names::name_is_dns_subdomain(name, true),
                    name,
                    &place.child(source).child("name"),
                    violations,
                ),
            }
        }
        match sources.count() {
            0 => violations.invalid(
                path,
                "",
                "must specify one of: `configMapRef` or `secretRef`",
            ),
            1 => {}
            _ => violations.invalid(
                path,
                "",
                "may not have more than one field specified at a time",
            ),
        }
    }
}

/// A variable can only be read from a file in a directory that the pod shares.
pub(super) fn validate_files(spec: &Value, path: &Path, violations: &mut Violations) {
    super::visit_containers(spec, path, |container, path| {
        let path = path.child("env");
        for (index, variable) in container["env"].items().enumerate() {
            let file = &variable["valueFrom"]["fileKeyRef"];
            if !file.is_null() {
                let path = path.index(index);
                let name = file["volumeName"].str();
                let path = path.child("valueFrom");
                let path = path.child("fileKeyRef");
                let volume = spec["volumes"]
                    .items()
                    .rfind(|volume| volume["name"].str() == name);
                match volume {
                    None => violations.not_found(path.child("volumeName"), name),
                    Some(volume) if volume["emptyDir"].is_null() => {
                        violations.invalid(
                            path.child("volumeName"),
                            name,
                            "referenced volume must be of type emptyDir",
                        );
                    }
                    Some(_) => {}
                }
            }
        }
    });
}
