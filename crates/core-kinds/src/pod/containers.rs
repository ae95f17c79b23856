//! Validation of containers, init containers and ephemeral containers.

use std::collections::HashSet;

use mizzen_object::validate::{field, names};
use mizzen_object::{Path, Violations};
use mizzen_value::Value;

use super::{Options, env, is_sidecar, probes, resources, security, sources};

/// What is known around a container.
pub(super) struct ContainerContext<'a> {
    /// The pod.
    pub(super) spec: &'a Value,
    /// The volumes with which nothing is wrong, by name.
    pub(super) volumes: Vec<(&'a str, &'a Value)>,
    /// The names of the pod's claims.
    pub(super) claims: Vec<&'a str>,
    pub(super) options: &'a Options,
}

/// The containers for which the pod is there.
pub(super) fn validate(around: &ContainerContext, path: &Path, violations: &mut Violations) {
    let containers = around.spec["containers"].list();
    if containers.is_empty() {
        return violations.required(path, "");
    }
    let mut seen: HashSet<&str> = HashSet::new();
    for (index, container) in containers.iter().enumerate() {
        let path = path.index(index);
        validate_common(container, around, &path, violations);
        validate_unique(container["name"].str(), &mut seen, &path, violations);
        probes::validate(container, around.spec, &path, violations);
        validate_restarts(container, &path, violations);
    }
    validate_host_ports(containers, path, violations);
}

/// Init containers. Sidecars have the rules of regular containers; other init containers have no probes and handlers.
pub(super) fn validate_init(around: &ContainerContext, path: &Path, violations: &mut Violations) {
    let mut seen: HashSet<&str> = around.spec["containers"]
        .items()
        .map(|container| container["name"].str())
        .collect();
    for (index, container) in around.spec["initContainers"].items().enumerate() {
        let place = path.index(index);
        validate_common(container, around, &place, violations);
        // Kubernetes: restart rules of an init container without a restart policy are not validated, those of other containers are.
        match container["restartPolicy"].is_null() && !container["restartPolicyRules"].is_empty() {
            true => violations.required(place.child("restartPolicy"), UNSAID_RESTARTS),
            false => validate_restarts(container, &place, violations),
        }
        let name = container["name"].str();
        if seen.contains(&name) {
            violations.duplicate(place.child("name"), name);
        } else if !name.is_empty() {
            seen.insert(name);
        }
        // Kubernetes: whichever it is, the message says it is the first.
        validate_host_ports(std::slice::from_ref(container), path, violations);
        if is_sidecar(container) {
            probes::validate(container, around.spec, &place, violations);
        } else {
            // An init container that is not a sidecar.
            let options = around.options;
            for key in [
                "lifecycle",
                "livenessProbe",
                "readinessProbe",
                "startupProbe",
            ] {
                if !container[key].is_null() {
                    let detail = "may not be set for init containers without restartPolicy=Always";
                    violations.forbidden(place.child(key), detail);
                }
            }
            let path = place.child("resizePolicy");
            for (index, policy) in container["resizePolicy"].items().enumerate() {
                let policy = policy["restartPolicy"].str();
                if policy == "RestartContainer" && !options.restarting_init_containers {
                    let detail =
                        "must not be set to 'RestartContainer' for non-sidecar initContainers";
                    violations.invalid(path.index(index).child("restartPolicy"), policy, detail);
                }
            }
        }
    }
}

/// The containers that are brought in to look around.
pub(super) fn validate_ephemeral(
    around: &ContainerContext,
    path: &Path,
    violations: &mut Violations,
) {
    let lists = ["containers", "initContainers"];
    let others = lists.into_iter().flat_map(|list| around.spec[list].list());
    let others: HashSet<&str> = others.map(|container| container["name"].str()).collect();
    let mut seen = others.clone();
    for (index, container) in around.spec["ephemeralContainers"].items().enumerate() {
        let path = path.index(index);
        validate_common(container, around, &path, violations);
        validate_image(container, &path, violations);
        validate_unique(container["name"].str(), &mut seen, &path, violations);
        let target = container["targetContainerName"].str();
        if !target.is_empty() && !others.contains(&target) {
            violations.not_found(path.child("targetContainerName"), target);
        }
        // Fields that an ephemeral container cannot have.
        const NEVER: [&str; 9] = [
            "ports",
            "resources",
            "resizePolicy",
            "restartPolicy",
            "restartPolicyRules",
            "livenessProbe",
            "readinessProbe",
            "startupProbe",
            "lifecycle",
        ];
        let detail = "cannot be set for an Ephemeral Container";
        let is_set = |key: &&str| match *key {
            // It is always there, mostly empty.
            "resources" => container["resources"]
                .entries()
                .any(|(_, part)| !part.is_null()),
            key => !container[key].is_null(),
        };
        for key in NEVER.into_iter().filter(is_set) {
            violations.forbidden(path.child(key), detail);
        }
        let path = path.child("volumeMounts");
        for (index, mount) in container["volumeMounts"].items().enumerate() {
            for key in ["subPath", "subPathExpr"]
                .into_iter()
                .filter(|key| !mount[*key].str().is_empty())
            {
                violations.forbidden(path.index(index).child(key), detail);
            }
        }
    }
}

fn validate_unique<'a>(
    name: &'a str,
    seen: &mut HashSet<&'a str>,
    path: &Path,
    violations: &mut Violations,
) {
    if seen.contains(&name) {
        violations.duplicate(path.child("name"), name);
    } else {
        seen.insert(name);
    }
}

/// An image must be set and have no surrounding space in a pod; a template may have a placeholder.
pub(super) fn validate_image(container: &Value, path: &Path, violations: &mut Violations) {
    let image = container["image"].str();
    if image.trim() != image {
        violations.invalid(
            path.child("image"),
            image,
            "must not have leading or trailing whitespace",
        );
    }
}

fn validate_common(
    container: &Value,
    around: &ContainerContext,
    path: &Path,
    violations: &mut Violations,
) {
    super::volumes::validate_name(container["name"].str(), &path.child("name"), violations);
    if container["image"].str().is_empty() {
        violations.required(path.child("image"), "");
    }
    match container["terminationMessagePolicy"].str() {
        "" => violations.required(path.child("terminationMessagePolicy"), ""),
        policy => {
            let allowed = ["File", "FallbackToLogsOnError"];
            field::one_of(
                policy,
                &allowed,
                &path.child("terminationMessagePolicy"),
                violations,
            );
        }
    }
    validate_ports(&container["ports"], &path.child("ports"), violations);
    env::validate(&container["env"], &path.child("env"), violations);
    env::validate_from(&container["envFrom"], &path.child("envFrom"), violations);
    super::mounts::validate(container, &around.volumes, path, violations);
    let place = path.child("imagePullPolicy");
    sources::validate_pull_policy(container["imagePullPolicy"].str(), &place, violations);
    let place = path.child("resources");
    resources::validate_container(
        &container["resources"],
        &around.claims,
        around.options,
        &place,
        violations,
    );
    let place = path.child("resizePolicy");
    // What it takes to give a container more or less of something.
    let restarts = around.spec["restartPolicy"].str();
    let mut seen: HashSet<&str> = HashSet::new();
    for (index, policy) in container["resizePolicy"].items().enumerate() {
        let (resource, restart) = (policy["resourceName"].str(), policy["restartPolicy"].str());
        if seen.contains(&resource) {
            violations.duplicate(place.index(index), resource);
        }
        seen.insert(resource);
        let words = [
            (resource, ["cpu", "memory"]),
            (restart, ["NotRequired", "RestartContainer"]),
        ];
        for (word, allowed) in words {
            match word {
                "" => violations.required(place, ""),
                word => field::one_of(word, &allowed, &place, violations),
            }
        }
        if restarts == "Never" && restart != "NotRequired" {
            let detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            violations.invalid(place, restart, detail);
        }
    }
    let place = path.child("securityContext");
    security::validate_container(
        &container["securityContext"],
        around.spec,
        &place,
        violations,
    );
}

fn validate_ports(ports: &Value, path: &Path, violations: &mut Violations) {
    let mut seen: HashSet<&str> = HashSet::new();
    for (index, port) in ports.items().enumerate() {
        let path = path.index(index);
        let name = port["name"].str();
        if !name.is_empty() {
            let wrong = names::is_port_name(name);
            if wrong.is_empty() {
                validate_unique(name, &mut seen, &path, violations);
            }
            field::all(wrong, name, &path.child("name"), violations);
        }
        match port["containerPort"].int() {
            0 => violations.required(path.child("containerPort"), ""),
            number => field::all(
                names::is_port_number(number),
                number,
                &path.child("containerPort"),
                violations,
            ),
        }
        match port["hostPort"].int() {
            0 => {}
            number => field::all(
                names::is_port_number(number),
                number,
                &path.child("hostPort"),
                violations,
            ),
        }
        match port["protocol"].str() {
            "" => violations.required(path.child("protocol"), ""),
            protocol => field::one_of(
                protocol,
                &["SCTP", "TCP", "UDP"],
                &path.child("protocol"),
                violations,
            ),
        }
    }
}

/// A port of the host can be given away once.
fn validate_host_ports(containers: &[Value], path: &Path, violations: &mut Violations) {
    let mut taken: HashSet<String> = HashSet::new();
    for (index, container) in containers.iter().enumerate() {
        let path = path.index(index);
        let path = path.child("ports");
        for (index, port) in container["ports"].items().enumerate() {
            let number = port["hostPort"].int();
            let key = format!(
                "{}/{}/{number}",
                port["protocol"].str(),
                port["hostIP"].str()
            );
            if number != 0 && taken.contains(&key) {
                violations.duplicate(path.index(index).child("hostPort"), key);
            } else if number != 0 {
                taken.insert(key);
            }
        }
    }
}

const UNSAID_RESTARTS: &str = "must specify restartPolicy when restart rules are used";

/// When a container is started again, if that is not for the pod to say.
fn validate_restarts(container: &Value, path: &Path, violations: &mut Violations) {
    let (policy, rules) = (
        &container["restartPolicy"],
        container["restartPolicyRules"].list(),
    );
    match policy.as_str() {
        None if rules.is_empty() => return,
        None => violations.required(path.child("restartPolicy"), UNSAID_RESTARTS),
        Some(policy) => {
            field::one_of(
                policy,
                &["Always", "Never", "OnFailure"],
                &path.child("restartPolicy"),
                violations,
            );
        }
    }
    let path = path.child("restartPolicyRules");
    if rules.len() > 20 {
        violations.too_many(path, rules.len(), 20);
    }
    for (index, rule) in rules.iter().enumerate() {
        let path = path.index(index);
        let actions = ["Restart", "RestartAllContainers"];
        field::one_of(
            rule["action"].str(),
            &actions,
            &path.child("action"),
            violations,
        );
        let (codes, path) = (&rule["exitCodes"], path.child("exitCodes"));
        if codes.is_null() {
            violations.required(path, "must be specified");
            continue;
        }
        field::one_of(
            codes["operator"].str(),
            &["In", "NotIn"],
            &path.child("operator"),
            violations,
        );
        let n_values = codes["values"].list().len();
        if n_values > 255 {
            violations.too_many(path.child("values"), n_values, 255);
        }
    }
}

/// On the host's network a port is the host's. A template may leave that for later.
pub(super) fn validate_shared_ports(
    spec: &Value,
    options: &Options,
    path: &Path,
    violations: &mut Violations,
) {
    if !spec["hostNetwork"].bool() {
        return;
    }
    let path = path.child("containers");
    for (index, container) in spec["containers"].items().enumerate() {
        let path = path.index(index);
        let path = path.child("ports");
        for (index, port) in container["ports"].items().enumerate() {
            let (host, own) = (port["hostPort"].int(), port["containerPort"].int());
            if (options.is_pod || host != 0) && host != own {
                let detail = "must match `containerPort` when `hostNetwork` is true";
                violations.invalid(path.index(index).child("hostPort"), host, detail);
            }
        }
    }
}
