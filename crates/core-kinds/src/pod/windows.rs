//! Validation of Windows pods and of Windows options.

use mizzen_object::{Path, Violations};
use mizzen_value::Value;

use super::capabilities::allows_privileged;
use super::visit_containers;
use crate::fields::dns_subdomain;

/// Options of a security context that only Windows has.
pub(super) fn validate(options: &Value, path: &Path, violations: &mut Violations) {
    if let Some(name) = options["gmsaCredentialSpecName"].as_str() {
        dns_subdomain(name, &path.child("gmsaCredentialSpecName"), violations);
    }
    if let Some(text) = options["gmsaCredentialSpec"].as_str() {
        let detail = match text.len() {
            0 => "gmsaCredentialSpec cannot be an empty string",
            1..=65536 => "",
            _ => "gmsaCredentialSpec size must be under 64 KiB",
        };
        refuse(detail, text, &path.child("gmsaCredentialSpec"), violations);
    }
    if let Some(name) = options["runAsUserName"].as_str() {
        validate_user(name, &path.child("runAsUserName"), violations);
    }
}

fn refuse(detail: &str, text: &str, path: &Path, violations: &mut Violations) {
    if !detail.is_empty() {
        violations.invalid(path, text, detail);
    }
}

/// `DOMAIN\USER`, the domain optional.
fn validate_user(name: &str, path: &Path, violations: &mut Violations) {
    let whole = if name.is_empty() {
        "runAsUserName cannot be an empty string"
    } else if name.bytes().any(|byte| byte.is_ascii_control()) {
        "runAsUserName cannot contain control characters"
    } else if name.matches('\\').count() > 1 {
        "runAsUserName cannot contain more than one backslash"
    } else {
        ""
    };
    if !whole.is_empty() {
        return refuse(whole, name, path, violations);
    }
    let (domain, user) = match name.split_once('\\') {
        Some((domain, user)) => (Some(domain), user),
        None => (None, name),
    };
    if domain.is_some_and(|domain| domain.len() >= 256) {
        refuse(
            "runAsUserName's Domain length must be under 256 characters",
            name,
            path,
            violations,
        );
    }
    let is_netbios = |domain: &str| {
        (1..=15).contains(&domain.chars().count())
            && !domain.starts_with('.')
            && !domain.contains(['\\', '/', ':', '*', '?', '"', '<', '>', '|'])
    };
    let is_dns_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let is_dns = |domain: &str| domain.split('.').all(is_dns_label);
    if domain.is_some_and(|domain| !is_netbios(domain) && !is_dns(domain)) {
        refuse(
            "runAsUserName's Domain doesn't match the NetBios nor the DNS format",
            name,
            path,
            violations,
        );
    }
    let detail = match user.len() {
        0 => "runAsUserName's User cannot be empty",
        1..=104 => "",
        _ => "runAsUserName's User length must not be longer than 104 characters",
    };
    refuse(detail, name, path, violations);
    if !user.is_empty() && user.bytes().all(|byte| matches!(byte, b'.' | b' ')) {
        refuse(
            "runAsUserName's User cannot contain only periods or spaces",
            name,
            path,
            violations,
        );
    }
    if user.contains([
        '"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']',
    ]) {
        let detail =
            r#"runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]"#;
        refuse(detail, name, path, violations);
    }
}

/// Containers that are processes of the host: all of them or none.
pub(super) fn validate_host_processes(spec: &Value, path: &Path, violations: &mut Violations) {
    let pod = spec["securityContext"]["windowsOptions"]["hostProcess"].as_bool();
    let (mut n_containers, mut n_processes) = (0, 0);
    visit_containers(spec, path, |container, path| {
        let own = container["securityContext"]["windowsOptions"]["hostProcess"].as_bool();
        if let (Some(pod), Some(own)) = (pod, own)
            && pod != own
        {
            let detail =
                format!("pod hostProcess value must be identical if both are specified, was {pod}");
            let context = path.child("securityContext");
            violations.invalid(
                context.child("windowsOptions").child("hostProcess"),
                own,
                &detail,
            );
        }
        n_containers += 1;
        n_processes += usize::from(own.or(pod) == Some(true));
    });
    if n_processes == 0 {
        return;
    }
    if n_processes != n_containers {
        let detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        violations.invalid(path, "", detail);
    }
    if !spec["hostNetwork"].bool() {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        violations.invalid(path.child("hostNetwork"), false, detail);
    }
    if !allows_privileged() {
        violations.forbidden(
            path,
            "hostProcess containers are disallowed by cluster policy",
        );
    }
}

/// What a pod may not have on the system that it is for.
pub(super) fn validate_os(spec: &Value, path: &Path, violations: &mut Violations) {
    let os = &spec["os"];
    match os["name"].str() {
        _ if os.is_null() => {}
        "" => violations.required(path.child("os").child("name"), ""),
        "linux" => {
            let mut check = |holder: &Value, path: &Path| {
                if !holder["securityContext"]["windowsOptions"].is_null() {
                    let path = path.child("securityContext");
                    violations.forbidden(
                        path.child("windowsOptions"),
                        "windows options cannot be set for a linux pod",
                    );
                }
            };
            check(spec, path);
            visit_containers(spec, path, check);
        }
        "windows" => {
            const DETAIL: &str = "cannot be set for a windows pod";
            for (key, in_context) in NOT_OF_PODS {
                let holder = if in_context {
                    &spec["securityContext"]
                } else {
                    spec
                };
                if !holder[key].is_null() {
                    let context = path.child("securityContext");
                    violations
                        .forbidden(if in_context { &context } else { path }.child(key), DETAIL);
                }
            }
            visit_containers(spec, path, |container, path| {
                let path = path.child("securityContext");
                for key in NOT_OF_CONTAINERS
                    .into_iter()
                    .filter(|key| !container["securityContext"][*key].is_null())
                {
                    violations.forbidden(path.child(key), DETAIL);
                }
            });
        }
        other => violations.not_supported(path.child("os"), other, &["linux", "windows"]),
    }
}

/// Of a pod, in the order of messages. `true` is in the pod's security context, `false` beside it.
const NOT_OF_PODS: [(&str, bool); 15] = [
    ("appArmorProfile", true),
    ("seLinuxOptions", true),
    ("hostUsers", false),
    ("hostPID", false),
    ("hostIPC", false),
    ("seccompProfile", true),
    ("fsGroup", true),
    ("fsGroupChangePolicy", true),
    ("sysctls", true),
    ("shareProcessNamespace", false),
    ("runAsUser", true),
    ("runAsGroup", true),
    ("supplementalGroups", true),
    ("supplementalGroupsPolicy", true),
    ("seLinuxChangePolicy", true),
];

const NOT_OF_CONTAINERS: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];
