//! Validation of pod and container security contexts.

use std::collections::HashSet;

use mizzen_object::validate::{field, names};
use mizzen_object::{Path, Violations};
use mizzen_value::Value;

use super::capabilities::allows_privileged;
use super::options::has_namespaced_users;
use super::volumes::descending_path;
use super::{Options, internal, windows};

/// The pod's own context.
pub(super) fn validate_pod(
    spec: &Value,
    options: &Options,
    path: &Path,
    violations: &mut Violations,
) {
    let context = &spec["securityContext"];
    for key in ["fsGroup", "runAsUser", "runAsGroup"] {
        validate_id(&context[key], &path.child(key), violations);
    }
    let groups = path.child("supplementalGroups");
    for (index, group) in context["supplementalGroups"].items().enumerate() {
        validate_id(group, &groups.index(index), violations);
    }
    if spec["shareProcessNamespace"].bool() && spec["hostPID"].bool() {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        violations.invalid(path.child("shareProcessNamespace"), true, detail);
    }
    let place = path.child("sysctls");
    const RULE: &str = "must have at most 253 characters and match regex \
                        ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
    let mut seen: HashSet<&str> = HashSet::new();
    for (index, sysctl) in spec["securityContext"]["sysctls"].items().enumerate() {
        let path = place.index(index);
        let (name, path) = (sysctl["name"].str(), path.child("name"));
        if name.is_empty() {
            violations.required(path, "");
        } else if !is_sysctl(name) {
            violations.invalid(path, name, RULE);
        } else if seen.contains(&name) {
            violations.duplicate(path, name);
        }
        if let Some(detail) = host_sysctl(name, spec).filter(|_| !options.sysctls_of_host) {
            violations.invalid(path, name, detail);
        }
        seen.insert(name);
    }
    validate_word(
        context,
        "fsGroupChangePolicy",
        &["Always", "OnRootMismatch"],
        path,
        violations,
    );
    validate_seccomp(
        &context["seccompProfile"],
        &path.child("seccompProfile"),
        violations,
    );
    windows::validate(
        &context["windowsOptions"],
        &path.child("windowsOptions"),
        violations,
    );
    validate_app_armor(
        &context["appArmorProfile"],
        &path.child("appArmorProfile"),
        violations,
    );
    validate_word(
        context,
        "supplementalGroupsPolicy",
        &["Merge", "Strict"],
        path,
        violations,
    );
    let policies: &[&str] = if options.any_selinux_policy {
        &["MountOption", "Recursive"]
    } else {
        &["Recursive"]
    };
    validate_word(context, "seLinuxChangePolicy", policies, path, violations);
}

fn validate_word(
    context: &Value,
    key: &str,
    allowed: &[&str],
    path: &Path,
    violations: &mut Violations,
) {
    if let Some(word) = context[key].as_str() {
        field::one_of(word, allowed, &path.child(key), violations);
    }
}

fn validate_id(id: &Value, path: &Path, violations: &mut Violations) {
    field::all(names::is_user_id(id.int()), id.int(), path, violations);
}

fn is_sysctl(name: &str) -> bool {
    let is_outer = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_inner = |byte: u8| is_outer(byte) || matches!(byte, b'-' | b'_');
    name.len() <= 253
        && name
            .split(['.', '/'])
            .map(str::as_bytes)
            .all(|part| match part {
                [] => false,
                [first, .., last] => {
                    is_outer(*first) && is_outer(*last) && part.iter().copied().all(is_inner)
                }
                [only] => is_outer(*only),
            })
}

/// Why a pod that shares something of the host may not change it.
pub(super) fn host_sysctl(name: &str, spec: &Value) -> Option<&'static str> {
    let name = with_dots(name);
    let name = name.split('*').next().unwrap_or_default();
    let is_ipc = name.starts_with("fs.mqueue.")
        || matches!(
            name,
            "kernel.sem" | "kernel.shmall" | "kernel.shmmax" | "kernel.shmmni" | "kernel.shm"
        )
        || matches!(name, "kernel.shm_rmid_forced" | "kernel.msg")
        || matches!(name, "kernel.msgmax" | "kernel.msgmnb" | "kernel.msgmni");
    if spec["hostNetwork"].bool() && name.starts_with("net.") {
        Some("may not be specified when 'hostNetwork' is true")
    } else if spec["hostIPC"].bool() && is_ipc {
        Some("may not be specified when 'hostIPC' is true")
    } else {
        None
    }
}

/// A name that is separated by slashes has its dots for slashes.
fn with_dots(name: &str) -> String {
    if name
        .find(['.', '/'])
        .is_none_or(|at| name.as_bytes()[at] == b'.')
    {
        return name.to_string();
    }
    name.chars()
        .map(|char| {
            if char == '/' {
                '.'
            } else if char == '.' {
                '/'
            } else {
                char
            }
        })
        .collect()
}

/// A container's own context.
pub(super) fn validate_container(
    context: &Value,
    spec: &Value,
    path: &Path,
    violations: &mut Violations,
) {
    if context["privileged"].bool() && !allows_privileged() {
        violations.forbidden(path.child("privileged"), "disallowed by cluster policy");
    }
    for key in ["runAsUser", "runAsGroup"] {
        validate_id(&context[key], &path.child(key), violations);
    }
    validate_word(
        context,
        "procMount",
        &["Default", "Unmasked"],
        path,
        violations,
    );
    if context["procMount"].str() == "Unmasked" && !has_namespaced_users(spec) {
        let detail = "`hostUsers` must be false to use `Unmasked`";
        violations.invalid(path.child("procMount"), "Unmasked", detail);
    }
    validate_seccomp(
        &context["seccompProfile"],
        &path.child("seccompProfile"),
        violations,
    );
    if context["allowPrivilegeEscalation"].as_bool() == Some(false) {
        let mut refuse = |detail: &str| {
            violations.invalid(path, internal::form("SecurityContext", context), detail);
        };
        if context["privileged"].bool() {
            refuse("cannot set `allowPrivilegeEscalation` to false and `privileged` to true");
        }
        let added = context["capabilities"]["add"].list();
        for _ in added
            .iter()
            .filter(|capability| capability.str() == "CAP_SYS_ADMIN")
        {
            refuse(
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
            );
        }
    }
    windows::validate(
        &context["windowsOptions"],
        &path.child("windowsOptions"),
        violations,
    );
    validate_app_armor(
        &context["appArmorProfile"],
        &path.child("appArmorProfile"),
        violations,
    );
}

const PROFILES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];

fn validate_seccomp(profile: &Value, path: &Path, violations: &mut Violations) {
    if profile.is_null() {
        return;
    }
    let kind = profile["type"].str();
    match kind {
        "" => violations.required(
            path.child("type"),
            "type is required when seccompProfile is set",
        ),
        kind => field::one_of(kind, &PROFILES, &path.child("type"), violations),
    }
    let (file, path) = (&profile["localhostProfile"], path.child("localhostProfile"));
    match (kind, file.as_str()) {
        ("Localhost", None) => {
            violations.required(path, "must be set when seccomp type is Localhost")
        }
        ("Localhost", Some(file)) => descending_path(file, &path, violations),
        (_, Some(_)) => {
            let shown = internal::form("SeccompProfile", profile);
            violations.invalid(
                path,
                shown,
                "can only be set when seccomp type is Localhost",
            );
        }
        (_, None) => {}
    }
}

/// Which AppArmor profile applies.
pub(super) fn validate_app_armor(profile: &Value, path: &Path, violations: &mut Violations) {
    const UNSET: &str = "must be set when AppArmor type is Localhost";
    let (name, place) = (
        profile["localhostProfile"].as_str(),
        path.child("localhostProfile"),
    );
    match (profile["type"].str(), name) {
        _ if profile.is_null() => {}
        ("Localhost", None) => violations.required(place, UNSET),
        ("Localhost", Some(name)) => {
            if name.trim() != name {
                violations.invalid(place, name, "must not be padded with whitespace");
            } else if name.is_empty() {
                violations.required(place, UNSET);
            }
            if name.len() > 4095 {
                violations.too_long(place, 4095);
            }
        }
        ("RuntimeDefault" | "Unconfined", Some(name)) => {
            violations.invalid(
                place,
                name,
                "can only be set when AppArmor type is Localhost",
            );
        }
        ("RuntimeDefault" | "Unconfined", None) => {}
        ("", _) => violations.required(
            path.child("type"),
            "type is required when appArmorProfile is set",
        ),
        (other, _) => violations.not_supported(path.child("type"), other, &PROFILES),
    }
}

/// Users that are not the host's go with nothing else of the host.
pub(super) fn validate_users(
    spec: &Value,
    options: &Options,
    path: &Path,
    violations: &mut Violations,
) {
    const DETAIL: &str = "when `hostUsers` is false";
    if !has_namespaced_users(spec) {
        return;
    }
    if spec["hostNetwork"].bool() && !options.network_of_namespaced_users {
        violations.forbidden(path.child("hostNetwork"), DETAIL);
    }
    // Kubernetes: these are Go's names.
    for (key, shown) in [("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec[key].bool() {
            violations.forbidden(path.child(shown), DETAIL);
        }
    }
    if !options.devices_of_namespaced_users {
        super::visit_containers(spec, path, |container, path| {
            if !container["volumeDevices"].is_empty() {
                violations.forbidden(path.child("volumeDevices"), DETAIL);
            }
        });
    }
}
