//! Validation of pod annotations.

use mizzen_object::{Path, Violations};
use mizzen_value::Value;
use mizzen_value::json::{self, quote};

use super::volumes::descending_path;
use super::{Options, containers, scheduling, visit_containers};
use mizzen_component_helpers::references::MIRROR;

pub(super) const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
pub(super) const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
pub(super) const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Annotations that other parts of Kubernetes read.
pub(super) fn validate(
    annotations: &Value,
    spec: &Value,
    options: &Options,
    path: &Path,
    violations: &mut Violations,
) {
    if let Some(mirror) = annotations[MIRROR]
        .as_str()
        .filter(|_| spec["nodeName"].str().is_empty())
    {
        let detail = "must set spec.nodeName if mirror pod annotation is set";
        violations.invalid(path.key(MIRROR), mirror, detail);
    }
    validate_tolerations(annotations[TOLERATIONS].str(), options, path, violations);
    if !options.any_deletion_cost && !is_deletion_cost(annotations) {
        violations.invalid(
            path.key(DELETION_COST),
            annotations[DELETION_COST].str(),
            "must be a 32bit integer",
        );
    }
    for (key, profile) in annotations.entries() {
        if key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER) {
            let profile = profile.str();
            match profile.strip_prefix("localhost/") {
                _ if matches!(profile, "runtime/default" | "docker/default" | "unconfined") => {}
                Some(file) => descending_path(file, &path.child(key), violations),
                None => {
                    violations.invalid(path.child(key), profile, "must be a valid seccomp profile")
                }
            }
        }
    }
    for (key, profile) in annotations.entries() {
        if let Some(container) = key.strip_prefix(APP_ARMOR) {
            let profile = profile.str();
            let path = path.key(key);
            if !containers(spec).any(|other| other["name"].str() == container) {
                violations.invalid(path, container, "container not found");
            }
            let is_known = matches!(profile, "" | "runtime/default" | "unconfined")
                || profile.starts_with("localhost/");
            if !is_known {
                violations.invalid(
                    path,
                    profile,
                    &format!("invalid AppArmor profile name: {}", quote(profile)),
                );
            }
        }
    }
}

fn validate_tolerations(text: &str, options: &Options, path: &Path, violations: &mut Violations) {
    if text.is_empty() {
        return;
    }
    match json::parse(text.as_bytes()) {
        Ok(tolerations) => {
            scheduling::validate_tolerations(
                &tolerations,
                options,
                &path.child(TOLERATIONS),
                violations,
            );
        }
        Err(error) => violations.invalid(path, TOLERATIONS, &error.to_string()),
    }
}

/// Whether the cost of deleting this pod first is a number, if it is given.
pub(super) fn is_deletion_cost(annotations: &Value) -> bool {
    annotations[DELETION_COST].as_str().is_none_or(|cost| {
        let is_plain = cost == "0" || !cost.starts_with(['0', '+']);
        is_plain && cost.parse::<i32>().is_ok()
    })
}

/// Where a profile is given both as an annotation and as a field, they agree.
pub(super) fn match_fields(
    annotations: &Value,
    spec: &Value,
    path: &Path,
    violations: &mut Violations,
) {
    let profile = &spec["securityContext"]["seccompProfile"];
    let place = path.child("securityContext");
    match_field(
        &annotations[SECCOMP_POD],
        profile,
        &SECCOMP,
        &place.child("seccompProfile"),
        violations,
    );
    visit_containers(spec, path, |container, path| {
        let annotation =
            &annotations[format!("{SECCOMP_CONTAINER}{}", container["name"].str()).as_str()];
        let profile = &container["securityContext"]["seccompProfile"];
        let place = path.child("securityContext");
        match_field(
            annotation,
            profile,
            &SECCOMP,
            &place.child("seccompProfile"),
            violations,
        );
    });
    if spec["os"]["name"].str() == "windows" {
        return;
    }
    visit_containers(spec, path, |container, path| {
        let annotation = &annotations[format!("{APP_ARMOR}{}", container["name"].str()).as_str()];
        let profile = match &container["securityContext"]["appArmorProfile"] {
            Value::Null => &spec["securityContext"]["appArmorProfile"],
            own => own,
        };
        let place = path.child("securityContext");
        match_field(
            annotation,
            profile,
            &ARMOR,
            &place.child("appArmorProfile"),
            violations,
        );
    });
}

/// How annotations name what fields have a type for.
struct Words {
    name: &'static str,
    runtime: &'static [&'static str],
}

const SECCOMP: Words = Words {
    name: "seccomp",
    runtime: &["runtime/default", "docker/default"],
};
const ARMOR: Words = Words {
    name: "apparmor",
    runtime: &["runtime/default"],
};

fn match_field(
    annotation: &Value,
    profile: &Value,
    words: &Words,
    path: &Path,
    violations: &mut Violations,
) {
    let Some(annotation) = annotation.as_str() else {
        return;
    };
    let local = annotation.strip_prefix("localhost/");
    let agrees = match profile["type"].str() {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => words.runtime.contains(&annotation),
        "Localhost" => local.is_some(),
        _ => true,
    };
    if !agrees {
        let detail = format!("{} type in annotation and field must match", words.name);
        violations.forbidden(path.child("type"), &detail);
    } else if profile["type"].str() == "Localhost" && profile["localhostProfile"].as_str() != local
    {
        let detail = format!("{} profile in annotation and field must match", words.name);
        violations.forbidden(path.child("localhostProfile"), &detail);
    }
}

/// Some annotations say how a pod was started, which no update changes.
pub(super) fn validate_update(new: &Value, old: &Value, path: &Path, violations: &mut Violations) {
    let (new, old) = (
        &new["metadata"]["annotations"],
        &old["metadata"]["annotations"],
    );
    let changed = old
        .entries()
        .filter(|(key, value)| new.get(key) != Some(*value))
        .map(|(key, _)| (key, true));
    let added = new
        .entries()
        .filter(|(key, _)| old.get(key).is_none())
        .map(|(key, _)| (key, false));
    for (key, existed) in changed.chain(added) {
        let verb = if existed { "remove or update" } else { "add" };
        if key.starts_with(APP_ARMOR) {
            violations.forbidden(
                path.key(key),
                &format!("may not {verb} AppArmor annotations"),
            );
        }
        if key == MIRROR {
            violations.forbidden(
                path.key(key),
                &format!("may not {verb} mirror pod annotation"),
            );
        }
    }
}
