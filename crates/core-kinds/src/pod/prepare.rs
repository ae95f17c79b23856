//! Preparation of pods for create and update, and disabled fields.

use std::collections::BTreeMap;

use mizzen_component_helpers::qos::qos_class;
use mizzen_object::{Action, HookContext, Path, Violations};
use mizzen_value::{Value, value};

use super::{CONTAINER_LISTS, STATUS_LISTS, affinity, annotations, containers, each, security};

/// Fills and clears before a write.
pub(super) fn prepare(new: &mut Value, old: Option<&Value>, context: &HookContext) {
    match (context.action, old) {
        (Action::Status, Some(old)) => prepare_status(new, old),
        (_, Some(_)) => drop_disabled(new, old),
        (_, None) => {
            let now = context.now;
            new.set(
                "status",
                value!({"phase": "Pending", "qosClass": (qos_class(&new["spec"]))}),
            );
            drop_disabled(new, None);
            if !new["spec"]["schedulingGates"].is_empty() {
                let condition = value!({
                    "type": "PodScheduled",
                    "status": "False",
                    "lastTransitionTime": now,
                    "reason": "SchedulingGated",
                    "message": "Scheduling is blocked due to non-empty scheduling gates",
                });
                new.entry("status").set("conditions", vec![condition]);
            }
            // The pod's own values of some labels become part of selectors.
            let labels = new["metadata"]["labels"].clone();
            let spec = new.entry("spec");
            affinity::terms_mut(spec, |term| merge_into(term, &labels));
            each(spec, "topologySpreadConstraints", |constraint| {
                merge_into(constraint, &labels)
            });
            // AppArmor profiles were annotations once.
            if new["spec"]["os"]["name"].str() != "windows" {
                let annotations = new["metadata"]["annotations"].clone();
                let spec = new.entry("spec");
                let whole = spec["securityContext"]["appArmorProfile"].clone();
                for list in CONTAINER_LISTS {
                    each(spec, list, |container| {
                        let annotation = &annotations[format!(
                            "{}{}",
                            annotations::APP_ARMOR,
                            container["name"].str()
                        )
                        .as_str()];
                        let profile = annotation.as_str().and_then(app_armor_profile);
                        if let Some(profile) = profile.filter(|profile| *profile != whole)
                            && container["securityContext"]["appArmorProfile"].is_null()
                        {
                            container
                                .entry("securityContext")
                                .set("appArmorProfile", profile);
                        }
                    });
                }
            }
        }
    }
}

/// Clears what is switched off, unless it was in use before. Holds for pods and for templates of pods.
pub fn drop_disabled(new: &mut Value, old: Option<&Value>) {
    let old = old.map_or(&Value::Null, |old| &old["spec"]);
    let spec = new.entry("spec");
    if old["schedulingGroup"].is_null() {
        spec.remove("schedulingGroup");
    }
    for source in ["clusterTrustBundle", "podCertificate"] {
        let mut projections = old["volumes"]
            .items()
            .flat_map(|volume| volume["projected"]["sources"].list());
        if !projections.any(|projection| !projection[source].is_null()) {
            each(spec, "volumes", |volume| {
                super::with(volume, "projected", |projected| {
                    each(projected, "sources", |projection| {
                        drop(projection.remove(source))
                    });
                });
            });
        }
    }
    if !containers(old).any(|container| !container["lifecycle"]["stopSignal"].is_null()) {
        for list in CONTAINER_LISTS {
            each(spec, list, |container| {
                if let Some(lifecycle) = container.get_mut("lifecycle")
                    && lifecycle
                        .remove("stopSignal")
                        .is_some_and(|signal| !signal.is_null())
                    && lifecycle.entries().all(|(_, moment)| moment.is_null())
                {
                    container.remove("lifecycle");
                }
            });
        }
    }
}

/// A node's report is about the status. What it leaves out of it that never goes away is kept.
fn prepare_status(new: &mut Value, old: &Value) {
    match old["metadata"].get("ownerReferences") {
        Some(owners) => new.entry("metadata").set("ownerReferences", owners.clone()),
        None => drop(new.entry("metadata").remove("ownerReferences")),
    }
    let (status, old) = (new.entry("status"), &old["status"]);
    for key in ["qosClass", "observedGeneration"] {
        if status[key].is_empty() && !old[key].is_null() {
            status.set(key, old[key].clone());
        }
    }
    // The n-th condition of a type remembers the generation of the n-th before it.
    let mut known: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for condition in old["conditions"].items().rev() {
        known
            .entry(condition["type"].str())
            .or_default()
            .push(&condition["observedGeneration"]);
    }
    each(status, "conditions", |condition| {
        let generation = known.get_mut(condition["type"].str()).and_then(Vec::pop);
        if let Some(generation) = generation.filter(|generation| !generation.is_null()) {
            condition.set_default("observedGeneration", generation.clone());
        }
    });
    if old["nodeAllocatableResourceClaimStatuses"].is_empty() {
        status.remove("nodeAllocatableResourceClaimStatuses");
    }
    let mounts = |status: &Value| {
        STATUS_LISTS.iter().any(|list| {
            status[*list].items().any(|status| {
                status["volumeMounts"]
                    .items()
                    .any(|mount| !mount["volumeStatus"].is_null())
            })
        })
    };
    if !mounts(old) {
        for list in STATUS_LISTS {
            each(status, list, |status| {
                each(status, "volumeMounts", |mount| {
                    drop(mount.remove("volumeStatus"))
                });
            });
        }
    }
}

fn merge_into(term: &mut Value, labels: &Value) {
    if term["labelSelector"].is_null() {
        return;
    }
    for (list, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in term[list].list().to_vec() {
            if let Some(label) = labels.get(key.str()) {
                let expression =
                    value!({"key": key, "operator": operator, "values": [(label.clone())]});
                term.entry("labelSelector")
                    .entry("matchExpressions")
                    .make_list()
                    .push(expression);
            }
        }
    }
}

/// The profile that an annotation means, if it means one.
pub(super) fn app_armor_profile(annotation: &str) -> Option<Value> {
    let profile = match (annotation, annotation.strip_prefix("localhost/")) {
        ("unconfined", _) => value!({"type": "Unconfined"}),
        ("runtime/default", _) => value!({"type": "RuntimeDefault"}),
        (_, Some(file)) if !file.is_empty() => {
            value!({"type": "Localhost", "localhostProfile": file})
        }
        _ => return None,
    };
    let mut violations = Violations::default();
    security::validate_app_armor(&profile, &Path::new(""), &mut violations);
    violations.is_empty().then_some(profile)
}

#[cfg(test)]
mod tests {
    use mizzen_value::{json, value};

    use super::merge_into;

    #[test]
    fn a_label_that_the_pod_has_becomes_an_expression() {
        let mut term =
            value!({"labelSelector": {}, "matchLabelKeys": ["a", "b"], "mismatchLabelKeys": ["c"]});
        merge_into(&mut term, &value!({"a": "1", "c": "3"}));
        let expected = r#"{"matchExpressions":[{"key":"a","operator":"In","values":["1"]},{"key":"c","operator":"NotIn","values":["3"]}]}"#;
        assert_eq!(json::to_string(&term["labelSelector"]), expected);
    }
}
