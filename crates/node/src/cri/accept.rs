//! What this node refuses: fields of a pod that it would otherwise ignore (`docs/pod-spec.md` has all
//! fields), and what upstream's kubelet refuses.

use std::fs;

use mizzen_value::Value;

use super::user_namespaces::has_own_users;
use super::volumes;
use crate::pod::spec;
use crate::runtime::{RuntimeFeatures, Unacceptable};

/// Kubernetes: the sysctls that a pod may set by default (pkg/kubelet/sysctl/safe_sysctls.go). All
/// are in a namespace in every kernel since 4.15.
const SAFE_SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];
/// Kubernetes: the sysctls that are in a namespace, by prefix or by name.
const IPC_SYSCTLS: [&str; 4] = ["kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue."];
const NETWORK_SYSCTLS: [&str; 1] = ["net."];
/// The reason of fields that no kubelet refuses.
const UNSUPPORTED: &str = "UnsupportedPodSpec";
/// Whether the kernel has AppArmor.
const APPARMOR: &str = "/sys/module/apparmor/parameters/enabled";

/// What the machine and its runtime can do.
pub(super) struct NodeSupport<'a> {
    /// The sysctls that pods may set besides the safe ones.
    pub unsafe_sysctls: &'a [String],
    pub features: &'a RuntimeFeatures,
    /// Whether images can be volumes.
    pub has_images: bool,
    /// Whether the kernel has AppArmor.
    pub has_apparmor: bool,
}

/// Whether the kernel of this machine has AppArmor.
pub(super) fn has_apparmor() -> bool {
    fs::read_to_string(APPARMOR).is_ok_and(|text| text.starts_with('Y'))
}

/// Why a pod is refused, if it is.
pub(super) fn refusal(pod: &Value, node: &NodeSupport) -> Option<Unacceptable> {
    let context = &pod["spec"]["securityContext"];
    volumes::unsupported(pod, node.has_images)
        .or_else(|| unsupported(pod, node.features))
        .map(|message| (UNSUPPORTED, message))
        .or_else(|| forbidden_sysctl(&pod["spec"], node.unsafe_sysctls))
        .or_else(|| {
            let why = "Cannot enforce AppArmor: AppArmor is not enabled on the host";
            (uses_apparmor(pod) && !node.has_apparmor).then(|| ("AppArmor", why.into()))
        })
        .or_else(|| {
            let why = "SupplementalGroupsPolicy=Strict is not supported in this node";
            let is_strict = context["supplementalGroupsPolicy"].str() == "Strict";
            let can = node.features.supplemental_groups_policy == Some(true);
            (is_strict && !can).then(|| ("SupplementalGroupsPolicyNotSupported", why.into()))
        })
        .map(|(reason, message)| Unacceptable { reason, message })
}

/// Whether a pod can have users of its own. The handler of a RuntimeClass is known once its sandbox is
/// made, which fails if that handler cannot.
fn can_map_users(pod: &Value, features: &RuntimeFeatures) -> bool {
    match pod["spec"]["runtimeClassName"].str() {
        "" => features.user_namespaces(""),
        _ => features.handlers.iter().any(|it| it.user_namespaces),
    }
}

/// The first field that this node cannot honour.
fn unsupported(pod: &Value, features: &RuntimeFeatures) -> Option<String> {
    let pod_spec = &pod["spec"];
    let refused = |field: &str, why: &str| Some(format!("{field}: {why}"));
    if has_own_users(pod) && !can_map_users(pod, features) {
        let why = "user namespaces are not supported by this node";
        return refused("spec.hostUsers", why);
    }
    if !pod_spec["resourceClaims"].list().is_empty() {
        let why = "devices by claim are not supported by this node";
        return refused("spec.resourceClaims", why);
    }
    if is_windows(&pod_spec["securityContext"]) {
        return refused(
            "spec.securityContext.windowsOptions",
            "this node runs Linux",
        );
    }
    for (_, container) in spec::containers(pod) {
        let field = |name: &str| format!("container {:?}: {name}", container["name"].str());
        if !container["volumeDevices"].list().is_empty() {
            let why = "block devices are not supported by this node";
            return refused(&field("volumeDevices"), why);
        }
        if is_windows(&container["securityContext"]) {
            let why = "this node runs Linux";
            return refused(&field("securityContext.windowsOptions"), why);
        }
        if !container["lifecycle"]["stopSignal"].is_empty() {
            let why = "the stop signal is that of the image on this node";
            return refused(&field("lifecycle.stopSignal"), why);
        }
    }
    None
}

fn is_windows(context: &Value) -> bool {
    context["windowsOptions"].entries().next().is_some()
}

fn uses_apparmor(pod: &Value) -> bool {
    let is_used = |context: &Value| {
        let profile = context["appArmorProfile"]["type"].str();
        !matches!(profile, "" | "Unconfined")
    };
    let mut containers = spec::containers(pod);
    is_used(&pod["spec"]["securityContext"])
        || containers.any(|(_, container)| is_used(&container["securityContext"]))
}

/// Kubernetes: pkg/kubelet/sysctl/allowlist.go.
fn forbidden_sysctl(pod_spec: &Value, allowed: &[String]) -> Option<(&'static str, String)> {
    let mut sysctls = pod_spec["securityContext"]["sysctls"].list().iter();
    let why = sysctls.find_map(|sysctl| {
        let name = sysctl_name(sysctl["name"].str());
        let matches = |pattern: &String| match sysctl_name(pattern).strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == sysctl_name(pattern),
        };
        if !SAFE_SYSCTLS.contains(&name.as_str()) && !allowed.iter().any(matches) {
            return Some(format!("{name:?} not allowlisted"));
        }
        let host = |field: &str| pod_spec[field].bool();
        match namespace(&name) {
            Some("IPC") if host("hostIPC") => {
                Some(format!("{name:?} not allowed with host ipc enabled"))
            }
            Some("network") if host("hostNetwork") => {
                Some(format!("{name:?} not allowed with host net enabled"))
            }
            _ => None,
        }
    });
    why.map(|why| ("SysctlForbidden", format!("forbidden sysctl: {why}")))
}

/// The namespace that has a sysctl of its own.
fn namespace(name: &str) -> Option<&'static str> {
    let has = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    if has(&IPC_SYSCTLS) {
        return Some("IPC");
    }
    has(&NETWORK_SYSCTLS).then_some("network")
}

/// Kubernetes: a name with slashes between its parts, with dots.
pub(super) fn sysctl_name(name: &str) -> String {
    if name
        .find(['.', '/'])
        .is_none_or(|at| name[at..].starts_with('.'))
    {
        return name.into();
    }
    let swap = |letter: char| match letter {
        '.' => '/',
        '/' => '.',
        letter => letter,
    };
    name.chars().map(swap).collect()
}

/// Checks a pattern of `--allowed-unsafe-sysctls`: a sysctl in a namespace, or a prefix with `*`.
pub fn check_sysctl_pattern(pattern: &str) -> Result<(), String> {
    let name = sysctl_name(pattern);
    let prefix = name.strip_suffix('*').unwrap_or(&name);
    match namespace(prefix) {
        Some(_) => Ok(()),
        None => Err(format!(
            "the sysctls {prefix:?} are not known to be namespaced"
        )),
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::json;

    use super::*;
    use crate::runtime::RuntimeHandler;

    /// A machine whose kernel has AppArmor.
    fn support<'a>(unsafe_sysctls: &'a [String], features: &'a RuntimeFeatures) -> NodeSupport<'a> {
        NodeSupport {
            unsafe_sysctls,
            features,
            has_images: true,
            has_apparmor: true,
        }
    }

    #[track_caller]
    fn check(spec: &str, allowed: &[&str], expected: &str) {
        let pod = json::parse(format!("{{\"spec\":{spec}}}").as_bytes()).unwrap();
        let allowed: Vec<String> = allowed.iter().map(|name| (*name).to_owned()).collect();
        let shown = refusal(&pod, &support(&allowed, &RuntimeFeatures::default()));
        let shown = shown.map(|it| format!("{}: {}", it.reason, it.message));
        assert_eq!(shown.unwrap_or_default(), expected, "{spec}");
    }

    #[test]
    fn a_field_that_would_be_ignored_is_refused() {
        check(r#"{"hostUsers":true,"containers":[{"name":"c"}]}"#, &[], "");
        for (spec, expected) in [
            (
                r#"{"hostUsers":false}"#,
                "spec.hostUsers: user namespaces are not supported by this node",
            ),
            (
                r#"{"resourceClaims":[{"name":"a"}]}"#,
                "spec.resourceClaims: devices by claim are not supported by this node",
            ),
            (
                r#"{"securityContext":{"windowsOptions":{"hostProcess":true}}}"#,
                "spec.securityContext.windowsOptions: this node runs Linux",
            ),
            (
                r#"{"containers":[{"name":"c","volumeDevices":[{"name":"v"}]}]}"#,
                "container \"c\": volumeDevices: block devices are not supported by this node",
            ),
            (
                r#"{"initContainers":[{"name":"c","lifecycle":{"stopSignal":"SIGUSR1"}}]}"#,
                "container \"c\": lifecycle.stopSignal: the stop signal is that of the image on this node",
            ),
            (
                r#"{"containers":[{"name":"c","securityContext":{"windowsOptions":{"runAsUserName":"a"}}}]}"#,
                "container \"c\": securityContext.windowsOptions: this node runs Linux",
            ),
        ] {
            check(spec, &[], &format!("UnsupportedPodSpec: {expected}"));
        }
        check(
            r#"{"securityContext":{"supplementalGroupsPolicy":"Strict"}}"#,
            &[],
            "SupplementalGroupsPolicyNotSupported: SupplementalGroupsPolicy=Strict is not supported in this node",
        );
        check(
            r#"{"securityContext":{"supplementalGroupsPolicy":"Merge"}}"#,
            &[],
            "",
        );
        let pod = r#"{"spec":{"securityContext":{"supplementalGroupsPolicy":"Strict"}}}"#;
        let able = RuntimeFeatures {
            supplemental_groups_policy: Some(true),
            ..RuntimeFeatures::default()
        };
        let pod = json::parse(pod.as_bytes()).unwrap();
        assert_eq!(refusal(&pod, &support(&[], &able)), None);
    }

    #[test]
    fn users_of_its_own_need_a_handler_that_can() {
        let handler = |name: &str, user_namespaces| RuntimeHandler {
            name: name.into(),
            user_namespaces,
            ..RuntimeHandler::default()
        };
        let own = r#"{"spec":{"hostUsers":false}}"#;
        let of_class = r#"{"spec":{"hostUsers":false,"runtimeClassName":"kata"}}"#;
        for (pod, handlers, is_accepted) in [
            (own, vec![], false),
            (own, vec![handler("", false), handler("kata", true)], false),
            (own, vec![handler("", true)], true),
            (of_class, vec![handler("", false)], false),
            (
                of_class,
                vec![handler("", false), handler("kata", true)],
                true,
            ),
        ] {
            let features = RuntimeFeatures {
                handlers,
                ..RuntimeFeatures::default()
            };
            let pod = json::parse(pod.as_bytes()).unwrap();
            let refusal = refusal(&pod, &support(&[], &features));
            assert_eq!(refusal.is_none(), is_accepted, "{features:?}");
        }
    }

    #[test]
    fn an_apparmor_profile_is_refused_where_the_kernel_has_no_apparmor() {
        let context = r#"{"appArmorProfile":{"type":"RuntimeDefault"}}"#;
        for spec in [
            format!(r#"{{"securityContext":{context}}}"#),
            format!(r#"{{"containers":[{{"name":"c","securityContext":{context}}}]}}"#),
            format!(r#"{{"initContainers":[{{"name":"c","securityContext":{context}}}]}}"#),
        ] {
            let pod = json::parse(format!("{{\"spec\":{spec}}}").as_bytes()).unwrap();
            let features = RuntimeFeatures::default();
            let refused = |has_apparmor| {
                let node = NodeSupport {
                    has_apparmor,
                    ..support(&[], &features)
                };
                refusal(&pod, &node).map(|it| (it.reason, it.message))
            };
            let why = "Cannot enforce AppArmor: AppArmor is not enabled on the host";
            assert_eq!(refused(false), Some(("AppArmor", why.into())), "{spec}");
            assert_eq!(refused(true), None, "{spec}");
        }
    }

    #[test]
    fn only_sysctls_that_are_safe_or_allowed_are_set() {
        let spec = |name: &str, host: &str| {
            format!(
                r#"{{"securityContext":{{"sysctls":[{{"name":"{name}","value":"1"}}]}},"{host}":true}}"#
            )
        };
        check(&spec("net.ipv4.tcp_syncookies", "x"), &[], "");
        check(&spec("net/ipv4/tcp_syncookies", "x"), &[], "");
        let forbidden = "SysctlForbidden: forbidden sysctl: ";
        check(
            &spec("kernel.msgmax", "x"),
            &["net.*"],
            &format!("{forbidden}\"kernel.msgmax\" not allowlisted"),
        );
        check(&spec("kernel.msgmax", "x"), &["kernel.msg*"], "");
        check(
            &spec("net.core.somaxconn", "x"),
            &["net.core.somaxconn"],
            "",
        );
        check(
            &spec("kernel.shm_rmid_forced", "hostIPC"),
            &[],
            &format!("{forbidden}\"kernel.shm_rmid_forced\" not allowed with host ipc enabled"),
        );
        check(
            &spec("net.ipv4.tcp_syncookies", "hostNetwork"),
            &[],
            &format!("{forbidden}\"net.ipv4.tcp_syncookies\" not allowed with host net enabled"),
        );
        assert_eq!(check_sysctl_pattern("net.core.*"), Ok(()));
        assert_eq!(
            check_sysctl_pattern("vm.swappiness").unwrap_err(),
            "the sysctls \"vm.swappiness\" are not known to be namespaced"
        );
    }

    #[test]
    fn apparmor_is_used_unless_it_is_unconfined() {
        for (profile, expected) in [
            ("RuntimeDefault", true),
            ("Localhost", true),
            ("Unconfined", false),
        ] {
            let context =
                format!(r#"{{"securityContext":{{"appArmorProfile":{{"type":"{profile}"}}}}}}"#);
            for spec in [context.clone(), format!(r#"{{"containers":[{context}]}}"#)] {
                let pod = json::parse(format!("{{\"spec\":{spec}}}").as_bytes()).unwrap();
                assert_eq!(uses_apparmor(&pod), expected, "{spec}");
            }
        }
    }
}
