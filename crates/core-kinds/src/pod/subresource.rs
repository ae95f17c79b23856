//! Rules of the pod subresources `/ephemeralcontainers`, `/resize` and `/binding`.

use mizzen_object::{Path, Violations};
use mizzen_value::Value;

use super::{NOWHERE, Options, difference, is_sidecar, prepare, spec, update};
use mizzen_component_helpers::pod_state::quality_of_service;
use mizzen_component_helpers::qos::qos_class;
use mizzen_component_helpers::references::is_mirror;

/// Through `/ephemeralcontainers` only ephemeral containers change.
pub(super) fn prepare_ephemeral_containers(new: &mut Value, old: &Value) {
    let containers = new["spec"].get("ephemeralContainers").cloned();
    restore(new, old, |spec| {
        match containers {
            Some(containers) => spec.set("ephemeralContainers", containers),
            None => drop(spec.remove("ephemeralContainers")),
        };
    });
    prepare::drop_disabled(new, Some(old));
}

/// Ephemeral containers are added, never taken away or changed.
pub(super) fn validate_ephemeral_containers(new: &Value, old: &Value, violations: &mut Violations) {
    if is_mirror(old) {
        return violations.forbidden(NOWHERE, "static pods do not support ephemeral containers");
    }
    let options = Options {
        is_pod: true,
        ..Options::of(Some(old))
    };
    spec::validate_whole(new, &options, violations);
    update::validate_annotations(new, old, &options, violations);
    let path = Path::new("spec");
    let path = path.child("ephemeralContainers");
    for was in old["spec"]["ephemeralContainers"].list() {
        let name = was["name"].str();
        let mut containers = new["spec"]["ephemeralContainers"].items();
        match containers.rfind(|container| container["name"].str() == name) {
            None => {
                let detail =
                    format!("existing ephemeral containers \"{name}\" may not be removed\n");
                violations.forbidden(path, &detail);
            }
            Some(now) if !update::same(now, was) => {
                let difference = difference("EphemeralContainer", was, now);
                let detail = format!(
                    "existing ephemeral containers \"{name}\" may not be changed\n{difference}"
                );
                violations.forbidden(path, &detail);
            }
            Some(_) => {}
        }
    }
}

/// The old object, but for managed fields and what `keep` puts in.
fn restore(new: &mut Value, old: &Value, keep: impl FnOnce(&mut Value)) {
    for part in ["spec", "status"] {
        new.set(part, old[part].clone());
    }
    keep(new.entry("spec"));
    for part in [
        "deletionTimestamp",
        "generation",
        "selfLink",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
    ] {
        match old["metadata"].get(part) {
            Some(value) => new.entry("metadata").set(part, value.clone()),
            None => drop(new.entry("metadata").remove(part)),
        }
    }
}

const LISTS: [&str; 2] = ["containers", "initContainers"];

/// Through `/resize` only resources and how to resize them change.
pub(super) fn prepare_resize(new: &mut Value, old: &Value) {
    let same_length =
        |list: &&str| new["spec"][*list].list().len() == old["spec"][*list].list().len();
    if !LISTS.iter().all(same_length) {
        return;
    }
    let kept = LISTS.map(|list| {
        (
            list,
            resized(new["spec"][list].list(), old["spec"][list].list()),
        )
    });
    let whole = new["spec"].get("resources").cloned();
    restore(new, old, |spec| {
        for (list, containers) in kept
            .into_iter()
            .filter(|(_, containers)| !containers.is_empty())
        {
            spec.set(list, containers);
        }
        match whole {
            Some(resources) => spec.set("resources", resources),
            None => drop(spec.remove("resources")),
        };
    });
    prepare::drop_disabled(new, Some(old));
}

/// The old containers with the new resources; the new ones as they are if they are not the same.
fn resized(new: &[Value], old: &[Value]) -> Vec<Value> {
    if new
        .iter()
        .zip(old)
        .any(|(new, old)| new["name"] != old["name"])
    {
        return new.to_vec();
    }
    let merge = |(new, old): (&Value, &Value)| {
        let mut merged = old.clone();
        for key in ["resources", "resizePolicy"] {
            match new.get(key) {
                Some(value) => merged.set(key, value.clone()),
                None => drop(merged.remove(key)),
            }
        }
        merged
    };
    new.iter().zip(old).map(merge).collect()
}

/// Processor and memory of containers, and of the pod, may change.
pub(super) fn validate_resize(new: &Value, old: &Value, violations: &mut Violations) {
    if is_mirror(old) {
        return violations.forbidden(NOWHERE, "static pods cannot be resized");
    }
    if old["spec"]["os"]["name"].str() == "windows" {
        return violations.forbidden(NOWHERE, "windows pods cannot be resized");
    }
    let known = violations.0.len();
    let options = Options {
        is_pod: true,
        ..Options::of(Some(old))
    };
    spec::validate_whole(new, &options, violations);
    let path = Path::new("spec");
    if quality_of_service(old) != qos_class(&new["spec"]) {
        let detail = "Pod QOS Class may not change as a result of resizing";
        violations.invalid(path, new["status"]["qosClass"].str(), detail);
    }
    let mut statuses = old["status"]["containerStatuses"].items();
    let running = statuses.find(|status| !status["state"]["running"].is_null());
    if running.is_some_and(|status| status["resources"].is_null()) {
        violations.forbidden(path, "Pod running on node without support for resize");
    }
    let mut rest = new["spec"].clone();
    if has_resources(&new["spec"]) || has_resources(&old["spec"]) {
        validate_pod_resize(&mut rest, &old["spec"], &path, violations);
    }
    if !old["status"]["nodeAllocatableResourceClaimStatuses"].is_empty() {
        violations.forbidden(
            path,
            "pods with node allocatable resource claims cannot be resized",
        );
    }
    if !validate_order(new, old, &path, violations) {
        return;
    }
    for list in ["initContainers", "containers"] {
        // What was asked for once is asked for always.
        let path = path.child(list);
        for (index, (new, old)) in new["spec"][list]
            .items()
            .zip(old["spec"][list].list())
            .enumerate()
        {
            let path = path.index(index);
            let path = path.child("resources");
            for list in ["requests", "limits"] {
                if is_less(&new["resources"][list], &old["resources"][list]) {
                    violations.forbidden(
                        path.child(list),
                        &format!("resource {list} cannot be removed"),
                    );
                }
            }
        }
    }
    for list in LISTS {
        validate_only_compute(&mut rest, &old["spec"], list, &path, violations);
    }
    if violations.0.len() == known && !update::same(&rest, &old["spec"]) {
        violations.forbidden(path, "only cpu and memory resources are mutable");
    }
}

fn has_resources(spec: &Value) -> bool {
    ["requests", "limits"]
        .iter()
        .any(|list| !spec["resources"][*list].is_empty())
}

fn validate_pod_resize(rest: &mut Value, old: &Value, path: &Path, violations: &mut Violations) {
    let place = path.child("resources");
    if rest["resources"].is_null() && !old["resources"].is_null() {
        return violations.forbidden(place, "pod-level resources cannot be removed");
    }
    for list in ["requests", "limits"] {
        if is_less(&rest["resources"][list], &old["resources"][list]) {
            let detail = format!("pod-level resource {list} cannot be removed");
            violations.forbidden(place.child(list), &detail);
        }
    }
    restore_compute(rest.entry("resources"), &old["resources"]);
    if old["resources"].is_null() && rest["resources"].entries().all(|(_, part)| part.is_empty()) {
        rest.remove("resources");
    }
    if !update::same(&rest["resources"], &old["resources"]) {
        violations.forbidden(
            path,
            "only cpu and memory resources are mutable at pod-level",
        );
    }
}

fn is_less(new: &Value, old: &Value) -> bool {
    old.entries().any(|(name, _)| new.get(name).is_none())
}

/// The old amounts of what may change.
fn restore_compute(resources: &mut Value, old: &Value) {
    for list in ["requests", "limits"] {
        for name in ["cpu", "memory"] {
            match old[list].get(name) {
                Some(amount) => resources.entry(list).set(name, amount.clone()),
                None => drop(
                    resources
                        .get_mut(list)
                        .and_then(|amounts| amounts.remove(name)),
                ),
            }
        }
        if resources[list].is_empty() {
            resources.remove(list);
        }
    }
}

/// Containers are not added, removed, renamed or put in another order. Answers whether they are not.
fn validate_order(new: &Value, old: &Value, path: &Path, violations: &mut Violations) -> bool {
    let known = violations.0.len();
    for list in LISTS {
        let (new, old, path) = (
            new["spec"][list].list(),
            old["spec"][list].list(),
            path.child(list),
        );
        if new.len() != old.len() {
            violations.forbidden(
                path,
                &format!("{list} may not be added or removed on resize"),
            );
            continue;
        }
        for (index, _) in new
            .iter()
            .zip(old)
            .enumerate()
            .filter(|(_, (new, old))| new["name"] != old["name"])
        {
            let detail = format!("{list} may not be renamed or reordered on resize");
            violations.forbidden(path.index(index).child("name"), &detail);
        }
    }
    violations.0.len() == known
}

fn validate_only_compute(
    rest: &mut Value,
    old: &Value,
    list: &str,
    path: &Path,
    violations: &mut Violations,
) {
    let (place, is_init) = (path.child(list), list == "initContainers");
    let containers = rest.get_mut(list).map(Value::list_mut).unwrap_or_default();
    for (index, (container, old)) in containers.iter_mut().zip(old[list].list()).enumerate() {
        let is_changed = !update::same(container, old);
        // Kubernetes: claims are not compared, so that a container with claims cannot be resized.
        container.entry("resources").remove("claims");
        restore_compute(container.entry("resources"), &old["resources"]);
        if !update::same(container, old) && is_init {
            let detail = "only cpu and memory resources for init or sidecar containers are mutable";
            violations.forbidden(place.index(index), detail);
        } else if !update::same(container, old) {
            violations.forbidden(path, "only cpu and memory resources are mutable");
        }
        if is_init && is_changed && !is_sidecar(container) {
            let policies = container["resizePolicy"].items();
            for _ in policies.filter(|policy| policy["restartPolicy"].str() == "RestartContainer") {
                let detail = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
                violations.forbidden(place.index(index), detail);
            }
        }
    }
}

/// To what a pod is bound: a node.
pub fn validate_binding(binding: &Value, violations: &mut Violations) {
    let (target, path) = (&binding["target"], Path::new("target"));
    if !matches!(target["kind"].str(), "" | "Node") {
        violations.not_supported(
            path.child("kind"),
            target["kind"].str(),
            &["Node", "<empty>"],
        );
    }
    if target["name"].str().is_empty() {
        violations.required(path.child("name"), "");
    }
}
