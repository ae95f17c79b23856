//! Validation of pod updates.
//!
//! Most of a pod's spec is immutable. The mutable fields are reset to their old values; then both specs must be equal.

use mizzen_object::validate::{field, names};
use mizzen_object::{Path, Violations};
use mizzen_value::Value;
use mizzen_value::quantity::Quantity;

use super::{Options, annotations, containers, difference, internal, scheduling, spec};

const CHANGEABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
    `spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be \
    set to 1 if it was previously negative)";

/// An update of the pod's spec.
pub(super) fn validate(new: &Value, old: &Value, options: &Options, violations: &mut Violations) {
    spec::validate_whole(new, options, violations);
    validate_annotations(new, old, options, violations);
    let (new, old, path) = (&new["spec"], &old["spec"], Path::new("spec"));
    for list in ["containers", "initContainers"] {
        // Images may change, the number of containers may not.
        let place = path.child(list);
        if new[list].list().len() != old[list].list().len() {
            let detail = "pod updates may not add or remove containers";
            return violations.forbidden(place, detail);
        }
        for (index, container) in new[list].items().enumerate() {
            if container["image"].str().is_empty() {
                violations.required(place.index(index).child("image"), "");
            }
            containers::validate_image(container, &place.index(index), violations);
        }
    }
    if !validate_deadline(new, old, &path.child("activeDeadlineSeconds"), violations) {
        return;
    }
    validate_tolerations(new, old, options, &path.child("tolerations"), violations);
    let known: Vec<&str> = old["schedulingGates"]
        .items()
        .map(|gate| gate["name"].str())
        .collect();
    for (index, gate) in new["schedulingGates"].items().enumerate() {
        let gate = gate["name"].str();
        if !known.contains(&gate) {
            let detail =
                format!("only deletion is allowed, but found new scheduling gate '{gate}'");
            violations.forbidden(
                path.child("schedulingGates").index(index).child("name"),
                &detail,
            );
        }
    }
    if same(new, old) {
        return;
    }
    // The new spec with the old values of the fields that may change.
    let mut rest = new.clone();
    for list in ["containers", "initContainers"] {
        let images = old[list]
            .items()
            .map(|container| container["image"].clone());
        let containers = rest.get_mut(list).map(Value::list_mut).unwrap_or_default();
        for (container, image) in containers.iter_mut().zip(images) {
            container.set("image", image);
        }
    }
    for key in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        restore(&mut rest, old, key);
    }
    if old["terminationGracePeriodSeconds"].int() < 0
        && rest["terminationGracePeriodSeconds"].as_int() == Some(1)
    {
        restore(&mut rest, old, "terminationGracePeriodSeconds");
    }
    if !old["schedulingGates"].is_empty() {
        validate_placement(&mut rest, old, &path, violations);
    }
    if !same(&rest, old) {
        let difference = difference("PodSpec", old, &rest);
        let detail =
            format!("pod updates may not change fields other than {CHANGEABLE}\n{difference}");
        violations.forbidden(path, &detail);
    }
}

/// Annotations that say how a pod was started.
///
/// Kubernetes: violations of annotations are reported again on update.
pub(super) fn validate_annotations(
    new: &Value,
    old: &Value,
    options: &Options,
    violations: &mut Violations,
) {
    let path = Path::new("metadata");
    let path = path.child("annotations");
    annotations::validate_update(new, old, &path, violations);
    annotations::validate(
        &new["metadata"]["annotations"],
        &new["spec"],
        options,
        &path,
        violations,
    );
}

/// A deadline may come nearer. Answers whether it makes sense to go on.
fn validate_deadline(new: &Value, old: &Value, path: &Path, violations: &mut Violations) -> bool {
    let [new, old] = [new, old].map(|spec| spec["activeDeadlineSeconds"].as_int());
    let known = violations.0.len();
    match (new, old) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            field::all(
                names::is_in_range(new, 0, i32::MAX.into()),
                new,
                path,
                violations,
            );
        }
        (Some(new), Some(old)) if old < new => {
            violations.invalid(path, new, "must be less than or equal to previous value");
        }
        (None, Some(_)) => {
            violations.invalid_shown(
                path,
                "null",
                "must not update from a positive integer to nil value",
            );
            return true;
        }
        _ => {}
    }
    violations.0.len() == known
}

fn validate_tolerations(
    new: &Value,
    old: &Value,
    options: &Options,
    path: &Path,
    violations: &mut Violations,
) {
    let but_seconds = |toleration: &Value| {
        let mut toleration = toleration.clone();
        toleration.remove("tolerationSeconds");
        toleration
    };
    let kept: Vec<Value> = new["tolerations"].items().map(but_seconds).collect();
    if old["tolerations"]
        .items()
        .any(|old| !kept.contains(&but_seconds(old)))
    {
        return violations.forbidden(
            path,
            "existing toleration can not be modified except its tolerationSeconds",
        );
    }
    scheduling::validate_tolerations(&new["tolerations"], options, path, violations);
}

fn restore(rest: &mut Value, old: &Value, key: &str) {
    match old.get(key) {
        Some(value) => rest.set(key, value.clone()),
        None => drop(rest.remove(key)),
    }
}

/// Until a pod may be scheduled, the choice of nodes may become narrower.
fn validate_placement(rest: &mut Value, old: &Value, path: &Path, violations: &mut Violations) {
    let selector = &rest["nodeSelector"];
    if old["nodeSelector"]
        .entries()
        .any(|(key, value)| selector.get(key) != Some(value))
    {
        let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        violations.invalid(path.child("nodeSelector"), selector.clone(), detail);
    }
    restore(rest, old, "nodeSelector");
    let [new_affinity, old_affinity] = [&*rest, old].map(|spec| &spec["affinity"]["nodeAffinity"]);
    if same(new_affinity, old_affinity) {
        return;
    }
    let place = path.child("affinity");
    // Any of the terms must hold, so a new one would widen the choice; a new condition of a term narrows it.
    let path = place.child("nodeAffinity");
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let [new_terms, old_terms] =
        [new_affinity, old_affinity].map(|affinity| affinity[REQUIRED]["nodeSelectorTerms"].list());
    let path = path.child(REQUIRED);
    let path = path.child("nodeSelectorTerms");
    if !old_terms.is_empty() && old_terms.len() != new_terms.len() {
        let shown = if new_terms.is_empty() {
            Value::Null
        } else {
            internal::form_list("NodeSelectorTerm", new_terms)
        };
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        violations.invalid(path, shown, detail);
    } else {
        for (index, (new, old)) in new_terms.iter().zip(old_terms).enumerate() {
            let lists = ["matchExpressions", "matchFields"];
            // A term without conditions matches nothing, so that any condition would widen it.
            let was_empty = lists.iter().all(|list| old[*list].is_empty());
            let is_empty = lists.iter().all(|list| new[*list].is_empty());
            let keeps = |list: &&str| new[*list].list().starts_with(old[*list].list());
            let is_narrower = if was_empty {
                is_empty
            } else {
                lists.iter().all(keeps)
            };
            if !is_narrower {
                let shown = internal::form("NodeSelectorTerm", new);
                let detail = "only additions are allowed (no mutations or deletions)";
                violations.invalid(path.index(index), shown, detail);
            }
        }
    }
    let old_nodes = &old["affinity"]["nodeAffinity"];
    if !old_nodes.is_null() {
        rest.entry("affinity")
            .set("nodeAffinity", old_nodes.clone());
    } else if let Some(affinity) = rest.get_mut("affinity") {
        affinity.remove("nodeAffinity");
        if old["affinity"].is_null() && affinity.is_empty() {
            rest.remove("affinity");
        }
    }
}

/// Whether two parts of a pod mean the same: nothing is as good as an empty list, and `1Gi` is `1073741824`.
pub fn same(a: &Value, b: &Value) -> bool {
    same_in("", a, b)
}

fn same_in(key: &str, a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Map(left), Value::Map(right)) => {
            let is_amounts = matches!(key, "limits" | "requests" | "overhead");
            let same_member = |name: &str| match is_amounts {
                true => same_amount(&a[name], &b[name]),
                false => same_in(name, &a[name], &b[name]),
            };
            left.keys()
                .chain(right.keys())
                .all(|name| same_member(name))
        }
        (Value::List(left), Value::List(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|(left, right)| same_in("", left, right))
        }
        (Value::Null, Value::List(list)) | (Value::List(list), Value::Null) => list.is_empty(),
        _ if matches!(key, "sizeLimit" | "divisor") => same_amount(a, b),
        _ => a == b,
    }
}

fn same_amount(a: &Value, b: &Value) -> bool {
    a.is_null() == b.is_null()
        && Quantity::parse_or_zero(a.str()) == Quantity::parse_or_zero(b.str())
}
