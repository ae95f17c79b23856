//! Checks of containers, with upstream's messages.

use std::collections::BTreeSet;

use mizzen_value::{Value, json};

use super::checks::{CheckedPod, Finding};
use super::words::{bad, containers, contexts, finding, plural, quoted, setters};

const CAPABILITIES: &[&str] = &[
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
const SE_LINUX: &[&str] = &["", "container_t", "container_init_t", "container_kvm_t"];
const SE_LINUX_31: &[&str] = &[
    "",
    "container_t",
    "container_init_t",
    "container_kvm_t",
    "container_engine_t",
];
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

pub(super) fn app_armor(pod: &CheckedPod) -> Option<Finding> {
    let is_bad = |context: &Value| {
        let profile = &context["appArmorProfile"];
        !profile.is_null() && !matches!(profile["type"].str(), "RuntimeDefault" | "Localhost")
    };
    let of_pod = is_bad(&pod.spec["securityContext"]);
    let names = bad(pod, |container| is_bad(&container["securityContext"]));
    let values: BTreeSet<&str> = contexts(pod)
        .filter(|context| is_bad(context))
        .map(|context| context["appArmorProfile"]["type"].str())
        .collect();
    let allowed =
        |text: &str| text.is_empty() || text == "runtime/default" || text.starts_with("localhost/");
    let mut annotations: Vec<String> = pod.metadata["annotations"]
        .entries()
        .filter(|(key, text)| key.starts_with(APP_ARMOR) && !allowed(text.str()))
        .map(|(key, text)| format!("{key}={}", json::quote(text.str())))
        .collect();
    annotations.sort();
    let mut who = Vec::new();
    if of_pod {
        who.push("pod".to_string());
    }
    if !names.is_empty() {
        who.push(containers(&names));
    }
    if !annotations.is_empty() {
        who.push(plural(annotations.len(), "annotation", "annotations").to_string());
    }
    if who.is_empty() {
        return None;
    }
    let all: Vec<&str> = values
        .into_iter()
        .chain(annotations.iter().map(String::as_str))
        .collect();
    let reason = plural(
        all.len(),
        "forbidden AppArmor profile",
        "forbidden AppArmor profiles",
    );
    let detail = format!(
        "{} must not set AppArmor profile type to {}",
        who.join(" and "),
        quoted(all)
    );
    finding(reason, detail)
}

fn added<'a>(container: &'a Value, allowed: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    let added = container["securityContext"]["capabilities"]["add"]
        .list()
        .iter()
        .map(Value::str);
    added.filter(|capability| !allowed.contains(capability))
}

fn adding(pod: &CheckedPod, allowed: &[&str]) -> Option<String> {
    let names = bad(pod, |container| added(container, allowed).next().is_some());
    let capabilities: BTreeSet<&str> = pod
        .containers()
        .flat_map(|container| added(container, allowed))
        .collect();
    (!names.is_empty()).then(|| {
        format!(
            "{} must not include {} in securityContext.capabilities.add",
            containers(&names),
            quoted(capabilities)
        )
    })
}

pub(super) fn capabilities(pod: &CheckedPod) -> Option<Finding> {
    finding("non-default capabilities", adding(pod, CAPABILITIES)?)
}

pub(super) fn dropped_capabilities(pod: &CheckedPod) -> Option<Finding> {
    let names = bad(pod, |container| {
        let dropped = container["securityContext"]["capabilities"]["drop"].list();
        !dropped.iter().any(|capability| capability.str() == "ALL")
    });
    let keeping = (!names.is_empty()).then(|| {
        format!(
            "{} must set securityContext.capabilities.drop=[\"ALL\"]",
            containers(&names)
        )
    });
    let details: Vec<String> = keeping
        .into_iter()
        .chain(adding(pod, &["NET_BIND_SERVICE"]))
        .collect();
    if details.is_empty() {
        None
    } else {
        finding("unrestricted capabilities", details.join("; "))
    }
}

pub(super) fn privileged(pod: &CheckedPod) -> Option<Finding> {
    let names = bad(pod, |container| {
        container["securityContext"]["privileged"].bool()
    });
    let detail = format!(
        "{} must not set securityContext.privileged=true",
        containers(&names)
    );
    if names.is_empty() {
        None
    } else {
        finding("privileged", detail)
    }
}

pub(super) fn proc_mount(pod: &CheckedPod) -> Option<Finding> {
    let unusual = |container: &Value| {
        let mount = container["securityContext"]["procMount"].as_str();
        mount.filter(|mount| *mount != "Default").map(String::from)
    };
    let names = bad(pod, |container| unusual(container).is_some());
    let mounts: BTreeSet<String> = pod.containers().filter_map(unusual).collect();
    let detail = format!(
        "{} must not set securityContext.procMount to {}",
        containers(&names),
        quoted(mounts.iter().map(String::as_str))
    );
    if names.is_empty() {
        None
    } else {
        finding("procMount", detail)
    }
}

pub(super) fn se_linux(pod: &CheckedPod) -> Option<Finding> {
    se_linux_with(pod, SE_LINUX)
}

pub(super) fn se_linux_31(pod: &CheckedPod) -> Option<Finding> {
    se_linux_with(pod, SE_LINUX_31)
}

fn se_linux_with(pod: &CheckedPod, allowed: &[&str]) -> Option<Finding> {
    let sets = |context: &Value, field: &str| !context["seLinuxOptions"][field].is_empty();
    let has_bad_type =
        |context: &Value| !allowed.contains(&context["seLinuxOptions"]["type"].str());
    let is_bad =
        |context: &Value| has_bad_type(context) || sets(context, "user") || sets(context, "role");
    let of_pod = is_bad(&pod.spec["securityContext"]);
    let names = bad(pod, |container| is_bad(&container["securityContext"]));
    if !of_pod && names.is_empty() {
        return None;
    }
    let types: BTreeSet<&str> = contexts(pod)
        .filter(|context| has_bad_type(context))
        .map(|context| context["seLinuxOptions"]["type"].str())
        .collect();
    let mut wrong = Vec::new();
    if !types.is_empty() {
        wrong.push(format!(
            "{} {}",
            plural(types.len(), "type", "types"),
            quoted(types)
        ));
    }
    for field in ["user", "role"] {
        if contexts(pod).any(|context| sets(context, field)) {
            wrong.push(format!("{field} may not be set"));
        }
    }
    let who = setters(of_pod, &names);
    finding(
        "seLinuxOptions",
        format!(
            "{who} set forbidden securityContext.seLinuxOptions: {}",
            wrong.join("; ")
        ),
    )
}

pub(super) fn seccomp_annotations(pod: &CheckedPod) -> Option<Finding> {
    let allowed = |text: &str| {
        matches!(text, "runtime/default" | "docker/default") || text.starts_with("localhost/")
    };
    let of_containers = pod
        .containers()
        .map(|container| format!("{SECCOMP_CONTAINER}{}", container["name"].str()));
    let keys = std::iter::once(SECCOMP_POD.to_string()).chain(of_containers);
    let forbidden: BTreeSet<String> = keys
        .filter_map(|key| {
            let text = pod.metadata["annotations"][key.as_str()]
                .as_str()
                .filter(|text| !allowed(text))?;
            Some(format!("{key}={}", json::quote(text)))
        })
        .collect();
    let annotations = plural(forbidden.len(), "annotation", "annotations");
    let list: Vec<&str> = forbidden.iter().map(String::as_str).collect();
    let detail = format!("forbidden {annotations} {}", list.join(", "));
    if forbidden.is_empty() {
        None
    } else {
        finding("seccompProfile", detail)
    }
}

fn has_seccomp(context: &Value) -> bool {
    !context["seccompProfile"].is_null()
}

fn has_bad_seccomp(context: &Value) -> bool {
    has_seccomp(context)
        && !matches!(
            context["seccompProfile"]["type"].str(),
            "Localhost" | "RuntimeDefault"
        )
}

pub(super) fn seccomp(pod: &CheckedPod) -> Option<Finding> {
    let of_pod = has_bad_seccomp(&pod.spec["securityContext"]);
    let names = bad(pod, |container| {
        has_bad_seccomp(&container["securityContext"])
    });
    if !of_pod && names.is_empty() {
        return None;
    }
    let types: BTreeSet<&str> = contexts(pod)
        .filter(|context| has_bad_seccomp(context))
        .map(|context| context["seccompProfile"]["type"].str())
        .collect();
    let who = setters(of_pod, &names);
    finding(
        "seccompProfile",
        format!(
            "{who} must not set securityContext.seccompProfile.type to {}",
            quoted(types)
        ),
    )
}

pub(super) fn seccomp_restricted(pod: &CheckedPod) -> Option<Finding> {
    if let Some(found) = seccomp(pod) {
        return Some(found);
    }
    if has_seccomp(&pod.spec["securityContext"]) {
        return None;
    }
    let names = bad(pod, |container| !has_seccomp(&container["securityContext"]));
    let detail = format!(
        "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
        containers(&names)
    );
    if names.is_empty() {
        None
    } else {
        finding("seccompProfile", detail)
    }
}

pub(super) fn host_process(pod: &CheckedPod) -> Option<Finding> {
    let is_bad = |context: &Value| context["windowsOptions"]["hostProcess"].bool();
    let of_pod = is_bad(&pod.spec["securityContext"]);
    let names = bad(pod, |container| is_bad(&container["securityContext"]));
    if !of_pod && names.is_empty() {
        return None;
    }
    let who = setters(of_pod, &names);
    finding(
        "hostProcess",
        format!("{who} must not set securityContext.windowsOptions.hostProcess=true"),
    )
}

pub(super) fn escalation(pod: &CheckedPod) -> Option<Finding> {
    let names = bad(pod, |container| {
        container["securityContext"]["allowPrivilegeEscalation"].as_bool() != Some(false)
    });
    let detail = format!(
        "{} must set securityContext.allowPrivilegeEscalation=false",
        containers(&names)
    );
    if names.is_empty() {
        None
    } else {
        finding("allowPrivilegeEscalation != false", detail)
    }
}

pub(super) fn non_root(pod: &CheckedPod) -> Option<Finding> {
    let given = |context: &Value| context["runAsNonRoot"].as_bool();
    let of_pod = given(&pod.spec["securityContext"]);
    let refusing = bad(pod, |container| {
        given(&container["securityContext"]) == Some(false)
    });
    if of_pod == Some(false) || !refusing.is_empty() {
        let who = setters(of_pod == Some(false), &refusing);
        return finding(
            "runAsNonRoot != true",
            format!("{who} must not set securityContext.runAsNonRoot=false"),
        );
    }
    let silent = bad(pod, |container| {
        given(&container["securityContext"]).is_none()
    });
    if of_pod.is_some() || silent.is_empty() {
        return None;
    }
    let who = containers(&silent);
    finding(
        "runAsNonRoot != true",
        format!("pod or {who} must set securityContext.runAsNonRoot=true"),
    )
}

pub(super) fn root_user(pod: &CheckedPod) -> Option<Finding> {
    let is_root = |context: &Value| context["runAsUser"].as_int() == Some(0);
    let of_pod = is_root(&pod.spec["securityContext"]);
    let names = bad(pod, |container| is_root(&container["securityContext"]));
    if !of_pod && names.is_empty() {
        return None;
    }
    finding(
        "runAsUser=0",
        format!("{} must not set runAsUser=0", setters(of_pod, &names)),
    )
}
