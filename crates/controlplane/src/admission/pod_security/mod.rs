//! PodSecurity: rejects, audits or warns of pods that violate the Pod Security Standard of their namespace.

mod checks;
mod containers;
mod host;
mod policy;
mod words;

pub use policy::{NamespacePolicy, Standard, StandardLevel, StandardVersion};

use std::collections::BTreeMap;

use mizzen_object::owner_references::controller_of;
use mizzen_object::{Status, Violations};
use mizzen_value::Value;

use super::{Attributes, admission};
use checks::{CheckedPod, Finding};

/// How many pods are checked when the policy of a namespace becomes stricter.
const MAX_PODS: usize = 3000;
/// Pod fields whose change is not significant.
const IGNORED: [&str; 8] = [
    "exec",
    "attach",
    "binding",
    "eviction",
    "log",
    "portforward",
    "proxy",
    "status",
];
/// Resources with pod templates, and the path of the template.
const TEMPLATES: [(&str, &str, &str); 11] = [
    ("", "replicationcontrollers", "spec.template"),
    ("", "podtemplates", "template"),
    ("apps", "replicasets", "spec.template"),
    ("apps", "deployments", "spec.template"),
    ("apps", "statefulsets", "spec.template"),
    ("apps", "daemonsets", "spec.template"),
    ("batch", "jobs", "spec.template"),
    ("batch", "cronjobs", "spec.jobTemplate.spec.template"),
    ("extensions", "replicasets", "spec.template"),
    ("extensions", "deployments", "spec.template"),
    ("extensions", "daemonsets", "spec.template"),
];

/// The defaults and the exemptions.
#[derive(Debug, Clone, Default)]
pub struct PodSecurity {
    /// The policy of namespaces without labels.
    pub defaults: NamespacePolicy,
    /// Exempt users.
    pub users: Vec<String>,
    /// Exempt namespaces.
    pub namespaces: Vec<String>,
    /// Exempt runtime classes.
    pub runtime_classes: Vec<String>,
}

/// Checks pods, pod templates and namespaces.
pub(super) fn check(attributes: &Attributes, object: &Value) -> Result<(), Status> {
    if attributes.is("", "pods") {
        return check_pod(attributes, object);
    }
    if !attributes.subresource().is_empty() {
        return Ok(());
    }
    if attributes.is("", "namespaces") {
        return check_namespace(attributes, object);
    }
    let template = TEMPLATES
        .iter()
        .find(|(group, plural, _)| attributes.is(group, plural));
    if let Some((_, _, path)) = template {
        // Objects with a pod template are never rejected; their pods are.
        let template = object.at(path);
        if template.is_null() || is_exempt(attributes) {
            return Ok(());
        }
        let pod = CheckedPod::of(template);
        if let Some(policy) = policy_here(attributes)
            && !is_exempt_by_runtime(attributes, &pod)
        {
            audit(attributes, &pod, policy.audit);
            warn(attributes, &pod, policy.warn);
        }
    }
    Ok(())
}

fn check_pod(attributes: &Attributes, pod: &Value) -> Result<(), Status> {
    if IGNORED.contains(&attributes.subresource()) || is_exempt(attributes) {
        return Ok(());
    }
    let policy = policy_here(attributes).ok_or_else(|| {
        Status::internal(format!(
            "failed to lookup namespace \"{}\"",
            attributes.namespace()
        ))
    })?;
    if policy.is_privileged() {
        note(attributes, "enforce-policy", || policy.enforce.to_string());
        return Ok(());
    }
    if attributes.old.is_some_and(|old| !is_significant(pod, old)) {
        return Ok(());
    }
    let pod = CheckedPod::of(pod);
    if is_exempt_by_runtime(attributes, &pod) {
        return Ok(());
    }
    note(attributes, "enforce-policy", || policy.enforce.to_string());
    audit(attributes, &pod, policy.audit);
    let found = pod.findings(policy.enforce);
    if found.is_empty() {
        warn(attributes, &pod, policy.warn);
        return Ok(());
    }
    let why = format!(
        "violates PodSecurity \"{}\": {}",
        policy.enforce,
        details(&found)
    );
    Err(Status::forbidden(
        &attributes.resource(),
        pod.metadata["name"].str(),
        &why,
    ))
}

/// Adds an audit annotation, if the request is audited.
fn note(attributes: &Attributes, key: &str, text: impl FnOnce() -> String) {
    let record = &attributes.call.request.record;
    if record.is_open() {
        record.annotate(&format!("pod-security.kubernetes.io/{key}"), text());
    }
}

fn audit(attributes: &Attributes, pod: &CheckedPod, standard: Standard) {
    if attributes.call.request.record.is_open() {
        let found = pod.findings(standard);
        if !found.is_empty() {
            note(attributes, "audit-violations", || {
                would_violate(standard, &found)
            });
        }
    }
}

fn warn(attributes: &Attributes, pod: &CheckedPod, standard: Standard) {
    let found = pod.findings(standard);
    if !found.is_empty() {
        attributes.call.notes.warn(would_violate(standard, &found));
    }
}

fn configuration<'a>(attributes: &Attributes<'a>) -> &'a PodSecurity {
    &admission(attributes).pod_security
}

fn is_exempt(attributes: &Attributes) -> bool {
    let exempt = configuration(attributes);
    let user = attributes.call.request.user.name.as_str();
    let reason = if exempt
        .namespaces
        .iter()
        .any(|name| name == attributes.namespace())
    {
        "namespace"
    } else if exempt
        .users
        .iter()
        .any(|name| name == user && !user.is_empty())
    {
        "user"
    } else {
        return false;
    };
    note(attributes, "exempt", || reason.into());
    true
}

fn is_exempt_by_runtime(attributes: &Attributes, pod: &CheckedPod) -> bool {
    let is_exempt = has_exempt_runtime(attributes, pod);
    if is_exempt {
        note(attributes, "exempt", || "runtimeClass".into());
    }
    is_exempt
}

fn has_exempt_runtime(attributes: &Attributes, pod: &CheckedPod) -> bool {
    let class = pod.spec["runtimeClassName"].str();
    !class.is_empty()
        && configuration(attributes)
            .runtime_classes
            .iter()
            .any(|name| name == class)
}

/// The policy of the namespace; `None` if it does not exist.
fn policy_here(attributes: &Attributes) -> Option<NamespacePolicy> {
    let namespace = attributes.find("", "namespaces", "", attributes.namespace())?;
    Some(policy_of(
        attributes,
        &namespace,
        &mut Violations::default(),
    ))
}

fn policy_of(
    attributes: &Attributes,
    namespace: &Value,
    problems: &mut Violations,
) -> NamespacePolicy {
    NamespacePolicy::from_labels(
        &namespace["metadata"]["labels"],
        &configuration(attributes).defaults,
        problems,
    )
}

/// Whether an update of a pod is significant for the standard.
fn is_significant(pod: &Value, old: &Value) -> bool {
    let (pod, old) = (&pod["spec"], &old["spec"]);
    let images = |list: &Value| {
        list.list()
            .iter()
            .map(|container| container["image"].clone())
            .collect::<Vec<_>>()
    };
    let differs = |list: &str| images(&pod[list]) != images(&old[list]);
    let is_new = |container: &Value| {
        let same = |other: &&Value| other["name"] == container["name"];
        let before = old["ephemeralContainers"].list().iter().find(same);
        before.is_none_or(|before| before["image"] != container["image"])
    };
    differs("containers")
        || differs("initContainers")
        || pod["ephemeralContainers"].list().iter().any(is_new)
}

/// Rejects invalid labels, and warns of existing pods that violate a stricter policy.
fn check_namespace(attributes: &Attributes, namespace: &Value) -> Result<(), Status> {
    let mut problems = Violations::default();
    let policy = policy_of(attributes, namespace, &mut problems);
    let name = namespace["metadata"]["name"].str();
    let invalid = |problems: &Violations| {
        Err(Status::invalid(
            &attributes.call.resource.kind().gvk,
            name,
            problems,
        ))
    };
    let is_exempt = configuration(attributes)
        .namespaces
        .iter()
        .any(|exempt| exempt == name);
    let Some(old) = attributes.old else {
        return if problems.is_empty() {
            Ok(())
        } else {
            invalid(&problems)
        };
    };
    let mut old_problems = Violations::default();
    let old_policy = policy_of(attributes, old, &mut old_problems);
    let texts = |problems: &Violations| {
        problems
            .0
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    if !problems.is_empty() && texts(&problems) != texts(&old_problems) {
        return invalid(&problems);
    }
    let (new, old) = (policy.enforce, old_policy.enforce);
    let is_stricter = new != old
        && new.level != StandardLevel::Privileged
        && !(new.version == old.version && new.level <= old.level);
    if is_stricter {
        match is_exempt {
            true => warn_of_exemption(attributes, namespace, &policy),
            false => warn_of_pods(attributes, name, policy.enforce)?,
        }
    }
    Ok(())
}

fn warn_of_exemption(attributes: &Attributes, namespace: &Value, policy: &NamespacePolicy) {
    if policy.is_privileged() || policy.is_like(&configuration(attributes).defaults) {
        return;
    }
    let labels = &namespace["metadata"]["labels"];
    let modes = [
        ("enforce", policy.enforce),
        ("audit", policy.audit),
        ("warn", policy.warn),
    ];
    let labelled = modes.iter().filter(|(mode, standard)| {
        let is_set = |suffix: &str| {
            labels
                .get(&format!("pod-security.kubernetes.io/{mode}{suffix}"))
                .is_some()
        };
        standard.level != StandardLevel::Privileged && (is_set("") || is_set("-version"))
    });
    let labelled: Vec<String> = labelled
        .map(|(mode, standard)| format!("{mode}={standard}"))
        .collect();
    attributes.call.notes.warn(format!(
        "namespace \"{}\" is exempt from Pod Security, and the policy ({}) will be ignored",
        namespace["metadata"]["name"].str(),
        labelled.join(", ")
    ));
}

/// Warns of existing pods that violate a standard; those with the same violations share a warning.
fn warn_of_pods(
    attributes: &Attributes,
    namespace: &str,
    standard: Standard,
) -> Result<(), Status> {
    let all = by_importance(attributes, attributes.all("", "pods", namespace)?);
    let mut failing: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for pod in all.iter().take(MAX_PODS) {
        let found = CheckedPod::of(pod).findings(standard);
        if !found.is_empty() {
            failing
                .entry(reasons(&found))
                .or_default()
                .push(pod["metadata"]["name"].str());
        }
    }
    let notes = attributes.call.notes;
    if all.len() > MAX_PODS {
        notes.warn(format!(
            "new PodSecurity enforce level only checked against the first {MAX_PODS} of {} existing pods",
            all.len()
        ));
    }
    if !failing.is_empty() {
        notes.warn(format!(
            "existing pods in namespace \"{namespace}\" violate the new PodSecurity enforce level \"{standard}\""
        ));
    }
    let mut warnings: Vec<String> = failing
        .iter()
        .map(|(reasons, pods)| {
            let first = pods.iter().min().copied().unwrap_or_default();
            match pods.len() {
                1 => format!("{first}: {reasons}"),
                2 => format!("{first} (and 1 other pod): {reasons}"),
                n_pods => format!("{first} (and {} other pods): {reasons}", n_pods - 1),
            }
        })
        .collect();
    warnings.sort();
    warnings.into_iter().for_each(|warning| notes.warn(warning));
    Ok(())
}

/// One pod of each controller first: its other pods are alike.
fn by_importance(attributes: &Attributes, pods: Vec<Value>) -> Vec<Value> {
    let mut seen = Vec::new();
    let pods = pods
        .into_iter()
        .filter(|pod| !has_exempt_runtime(attributes, &CheckedPod::of(pod)));
    let (mut first, rest): (Vec<Value>, Vec<Value>) = pods.partition(|pod| {
        let Some(owner) = controller_of(pod) else {
            return true;
        };
        let is_new = !seen.contains(&owner["uid"]);
        if is_new {
            seen.push(owner["uid"].clone());
        }
        is_new
    });
    first.extend(rest);
    first
}

fn reasons(found: &[Finding]) -> String {
    found
        .iter()
        .map(|finding| finding.reason)
        .collect::<Vec<_>>()
        .join(", ")
}

fn would_violate(standard: Standard, found: &[Finding]) -> String {
    format!(
        "would violate PodSecurity \"{standard}\": {}",
        details(found)
    )
}

fn details(found: &[Finding]) -> String {
    let texts = found
        .iter()
        .map(|Finding { reason, detail }| match detail.as_str() {
            "" => (*reason).to_string(),
            detail => format!("{reason} ({detail})"),
        });
    texts.collect::<Vec<_>>().join(", ")
}
