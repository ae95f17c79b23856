//! Nodes: taints, pod CIDRs, addresses and reported status.

use mizzen_object::validate::{field, ip, meta, names, repeats};
use mizzen_object::{Action, HookContext, Path, ViolationReason, Violations, show};
use mizzen_value::{Str, Value, json, value};

use super::resources;
use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;

pub(super) const BEHAVIOUR: Behaviour = Behaviour::of::<NodeStrategy>();

pub(super) struct NodeStrategy;

impl KindStrategy for NodeStrategy {
    fn default(node: &mut Value) {
        // `podCIDR` is the first of `podCIDRs`; where they differ, the older field counts.
        let spec = node.entry("spec");
        let (one, first) = (spec["podCIDR"].clone(), spec["podCIDRs"][0].clone());
        match (one.str(), first.str()) {
            (one, first) if one == first => {}
            ("", _) => spec.set("podCIDR", first),
            _ => spec.set("podCIDRs", vec![one]),
        }
        let Some(status) = node.get_mut("status") else {
            return;
        };
        if status["allocatable"].is_null() && !status["capacity"].is_null() {
            let capacity = status["capacity"].clone();
            status.set("allocatable", capacity);
        }
        resources::round(status.get_mut("capacity"));
        resources::round(status.get_mut("allocatable"));
    }

    fn prepare(node: &mut Value, old: Option<&Value>, context: &HookContext) {
        match context.action {
            Action::Create => {
                remove(node, "spec", "configSource");
                remove(node, "status", "config");
            }
            Action::Update if old.is_none_or(|old| old["spec"]["configSource"].is_null()) => {
                remove(node, "spec", "configSource");
            }
            Action::Status if old.is_none_or(|old| old["status"]["config"].is_null()) => {
                remove(node, "status", "config");
            }
            _ => {}
        }
    }

    fn validate(
        node: &Value,
        old: Option<&Value>,
        context: &HookContext,
        violations: &mut Violations,
    ) {
        if context.action != Action::Status {
            let metadata = Path::new("metadata");
            annotations(
                &node["metadata"]["annotations"],
                &metadata.child("annotations"),
                violations,
            );
            taints(
                &node["spec"]["taints"],
                &metadata.child("taints"),
                violations,
            );
            amounts(&node["status"], violations);
            if let Some(capacity) = node["status"]["nodeInfo"]["swap"]["capacity"]
                .as_int()
                .filter(|capacity| *capacity <= 0)
            {
                let path = metadata.child("nodeSwapStatus");
                violations.invalid(
                    path.child("capacity"),
                    capacity,
                    "must be greater than zero",
                );
            }
            features(&node["status"]["declaredFeatures"], violations);
            let cidrs = &node["spec"]["podCIDRs"];
            let path = Path::new("spec");
            let path = path.child("podCIDRs");
            for (index, cidr) in cidrs.items().enumerate() {
                field::all(
                    ip::is_cidr_for_legacy_field(cidr.str()),
                    cidr.str(),
                    &path.index(index),
                    violations,
                );
            }
            if cidrs.list().len() >= 2 {
                let blocks: Vec<_> = cidrs
                    .items()
                    .map_while(|cidr| ip::Cidr::parse_sloppy(cidr.str()))
                    .collect();
                if let Some(cidr) = cidrs.list().get(blocks.len()) {
                    let message = format!(
                        "Internal error: invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[{}]: <nil> \
             (invalid CIDR address: {})",
                        blocks.len(),
                        cidr.str()
                    );
                    violations.push(ViolationReason::Internal, path, message);
                }
                let n_ipv4 = blocks.iter().filter(|block| block.ip.is_ipv4()).count();
                if cidrs.list().len() != 2 || blocks.len() != 2 || n_ipv4 != 1 {
                    violations.invalid(
                        path,
                        cidrs.clone(),
                        "may specify no more than one CIDR for each IP family",
                    );
                }
            }
        }
        if let Some(old) = old {
            change(node, old, violations);
        }
    }

    fn warnings(node: &Value, _: Option<&Value>, context: &HookContext) -> Vec<String> {
        if context.action == Action::Status {
            return Vec::new();
        }
        let spec = &node["spec"];
        let mut warnings = Vec::new();
        if !spec["configSource"].is_null() {
            warnings.push("spec.configSource: the feature is removed".into());
        }
        if !spec["externalID"].is_empty() {
            warnings.push(
                "spec.externalID: this field is deprecated, and is unused by Kubernetes".into(),
            );
        }
        let path = Path::new("spec");
        let path = path.child("podCIDRs");
        let cidrs = spec["podCIDRs"].items().enumerate();
        warnings.extend(
            cidrs.flat_map(|(index, cidr)| ip::cidr_warnings(path.index(index), cidr.str())),
        );
        warnings
    }

    /// `spec.unschedulable` is selectable as `false` when it is not set.
    fn selectable(node: &Value, field: &str) -> Option<Str> {
        (field == "spec.unschedulable")
            .then(|| node["spec"]["unschedulable"].bool().to_string().into())
    }
}

const TAINTS: &str = "scheduler.alpha.kubernetes.io/taints";
const AVOID_PODS: &str = "scheduler.alpha.kubernetes.io/preferAvoidPods";
const MAX_FEATURE_LENGTH: usize = 253;

fn remove(node: &mut Value, part: &str, field: &str) {
    if let Some(part) = node.get_mut(part) {
        part.remove(field);
    }
}

fn annotations(annotations: &Value, path: &Path, violations: &mut Violations) {
    if let Some(text) = annotations[TAINTS].as_str().filter(|text| !text.is_empty()) {
        match json::parse(text.as_bytes()) {
            Ok(list) => taints(&list, &path.child(TAINTS), violations),
            Err(error) => violations.invalid(path, TAINTS, &error.to_string()),
        }
    }
    if let Some(text) = annotations[AVOID_PODS]
        .as_str()
        .filter(|text| !text.is_empty())
    {
        match json::parse(text.as_bytes()) {
            Ok(avoid) => {
                let path = path.child(AVOID_PODS);
                for (index, entry) in avoid["preferAvoidPods"].items().enumerate() {
                    let path = path.index(index);
                    let path = path.child("PodSignature");
                    let controller = &entry["podSignature"]["podController"];
                    if controller.is_null() {
                        violations.required(path, "");
                    } else if !controller["controller"].bool() {
                        violations.invalid(
                            path.child("PodController").child("Controller"),
                            false,
                            "must point to a controller",
                        );
                    }
                }
            }
            Err(error) => {
                violations.invalid(path.child("AvoidPods"), AVOID_PODS, &error.to_string())
            }
        }
    }
}

/// Kubernetes: messages place taints in the metadata.
fn taints(taints: &Value, path: &Path, violations: &mut Violations) {
    let list = taints.list();
    let repeated = repeats(list, |taint| (taint["key"].str(), taint["effect"].str()));
    for (index, taint) in list.iter().enumerate() {
        let path = path.index(index);
        meta::label_name(taint["key"].str(), &path.child("key"), violations);
        let wrong = names::is_label_value(taint["value"].str());
        if !wrong.is_empty() {
            violations.invalid(path.child("value"), taint["value"].str(), &wrong.join(";"));
        }
        effect(taint["effect"].str(), &path.child("effect"), violations);
        if repeated[index] {
            let fields = [
                ("Key", "key", "".into()),
                ("Value", "value", "".into()),
                ("Effect", "effect", "".into()),
                ("TimeAdded", "timeAdded", Value::Null),
            ];
            let shown = show(&field::go_struct(taint, &fields));
            let message =
                format!("Duplicate value: {shown}: taints must be unique by key and effect pair");
            violations.push(ViolationReason::Duplicate, path, message);
        }
    }
}

fn effect(effect: &str, path: &Path, violations: &mut Violations) {
    match effect {
        "" => violations.required(path, ""),
        effect => field::one_of(
            effect,
            &["NoSchedule", "PreferNoSchedule", "NoExecute"],
            path,
            violations,
        ),
    }
}

fn amounts(status: &Value, violations: &mut Violations) {
    let path = Path::new("status");
    for list in ["capacity", "allocatable"] {
        let path = path.child(list);
        for (resource, amount) in status[list].entries() {
            resources::amount(resource, amount, &path.child(resource), violations);
        }
    }
}

fn features(features: &Value, violations: &mut Violations) {
    let path = Path::new("status");
    let path = path.child("declaredFeatures");
    let list = features.list();
    for (index, feature) in list.iter().map(Value::str).enumerate() {
        if let Some(message) = feature_problem(feature) {
            violations.invalid(path.index(index), feature, &message);
        }
        let Some(next) = list.get(index + 1).map(Value::str) else {
            break;
        };
        if feature == next {
            violations.duplicate(path.index(index + 1), next);
        } else if feature > next {
            violations.invalid(
                path.index(index + 1),
                next,
                "list must be sorted alphabetically",
            );
        }
    }
}

fn feature_problem(name: &str) -> Option<String> {
    let shown = json::quote(name);
    if name.len() > MAX_FEATURE_LENGTH {
        return Some(format!(
            "invalid feature name {shown}: must be no more than {MAX_FEATURE_LENGTH} characters"
        ));
    }
    let is_segment = |text: &str| {
        text.starts_with(|first: char| first.is_ascii_alphabetic())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    let fine = name.starts_with(|first: char| first.is_ascii_uppercase())
        && name.split('/').all(is_segment);
    (!fine).then(|| {
        format!(
            "invalid feature name {shown}: must start with an UpperCamelCase segment, with subsequent segments \
             separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters \
             and slashes"
        )
    })
}

fn change(node: &Value, old: &Value, violations: &mut Violations) {
    let (metadata, spec, status) = (
        Path::new("metadata"),
        Path::new("spec"),
        Path::new("status"),
    );
    annotations(
        &node["metadata"]["annotations"],
        &metadata.child("annotations"),
        violations,
    );
    amounts(&node["status"], violations);
    features(&node["status"]["declaredFeatures"], violations);
    addresses(
        &node["status"]["addresses"],
        &status.child("addresses"),
        violations,
    );
    let message = "node updates may not change podCIDR except from \"\" to valid";
    let (new, old_cidrs) = (
        node["spec"]["podCIDRs"].list(),
        old["spec"]["podCIDRs"].list(),
    );
    if !old_cidrs.is_empty() {
        let n_changed = if new.len() == old_cidrs.len() {
            new.iter()
                .zip(old_cidrs)
                .filter(|(new, old_cidrs)| new != old_cidrs)
                .count()
        } else {
            1
        };
        for _ in 0..n_changed {
            violations.forbidden(spec.child("podCIDRs"), message);
        }
    }
    let (provider, old_provider) = (&node["spec"]["providerID"], &old["spec"]["providerID"]);
    if !old_provider.is_empty() && provider != old_provider {
        let message = "node updates may not change providerID except from \"\" to valid";
        violations.forbidden(spec.child("providerID"), message);
    }
    // Dynamic kubelet configuration was removed; objects that have it may keep it.
    config_source(
        &node["spec"]["configSource"],
        false,
        &spec.child("configSource"),
        violations,
    );
    let path = status.child("config");
    for name in ["assigned", "active", "lastKnownGood"] {
        config_source(
            &node["status"]["config"][name],
            true,
            &path.child(name),
            violations,
        );
    }
    taints(
        &node["spec"]["taints"],
        &metadata.child("taints"),
        violations,
    );
    if node["spec"]["externalID"].str() != old["spec"]["externalID"].str() {
        violations.forbidden(spec.child("externalID"), "may not be updated");
    }
}

fn addresses(addresses: &Value, path: &Path, violations: &mut Violations) {
    let list = addresses.list();
    for (index, address) in list.iter().enumerate() {
        if list[..index].contains(address) {
            let fields = [
                ("Type", "type", "".into()),
                ("Address", "address", "".into()),
            ];
            violations.duplicate(path.index(index), field::go_struct(address, &fields));
        }
    }
}

fn config_source(source: &Value, in_status: bool, path: &Path, violations: &mut Violations) {
    if source.is_null() {
        return;
    }
    let map = &source["configMap"];
    if map.is_null() {
        let shown = value!({"ConfigMap": null});
        return violations.invalid(
            path,
            shown,
            "exactly one reference subfield must be non-nil",
        );
    }
    let path = path.child("configMap");
    for name in ["uid", "resourceVersion"] {
        match (in_status, map[name].str()) {
            (true, "") => violations.required(path.child(name), ""),
            (false, text) if !text.is_empty() => {
                violations.forbidden(path.child(name), &format!("{name} must not be set in spec"));
            }
            _ => {}
        }
    }
    let mut check = |name: &str, is: fn(&str) -> Vec<String>| match map[name].str() {
        "" => violations.required(path.child(name), ""),
        text => field::all(is(text), text, &path.child(name), violations),
    };
    check("namespace", names::is_dns1123_label);
    check("name", names::is_dns1123_subdomain);
    check("kubeletConfigKey", names::is_config_map_key);
}

#[cfg(test)]
mod tests {
    use super::super::check::check;
    use super::*;

    #[test]
    fn a_new_node_is_tainted() {
        check(BEHAVIOUR)
            .create(r#"{"spec":{"podCIDR":"10.0.0.0/24"},"status":{"capacity":{"cpu":"4"}}}"#)
            .becomes(
                r#"{"spec":{"podCIDR":"10.0.0.0/24","podCIDRs":["10.0.0.0/24"]},
                    "status":{"capacity":{"cpu":"4"},"allocatable":{"cpu":"4"}}}"#,
            );
    }

    #[test]
    fn taints_are_sound_and_unique() {
        check(BEHAVIOUR)
            .create(
                r#"{"spec":{"taints":[{"key":"k","effect":"NoSchedule"},{"key":"k","effect":"NoSchedule","value":"z"},
                    {"key":"a b","effect":"Nope"},{"key":"k"}]}}"#,
            )
            .refused(&[
                r#"metadata.taints[1]: Duplicate value: {"Key":"k","Value":"z","Effect":"NoSchedule","TimeAdded":null}: taints must be unique by key and effect pair"#,
                r#"metadata.taints[2].key: Invalid value: "a b": name part must consist"#,
                r#"metadata.taints[2].effect: Unsupported value: "Nope": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute""#,
                "metadata.taints[3].effect: Required value",
            ]);
    }

    #[test]
    fn pods_get_one_block_of_each_family() {
        let refused = |cidrs: &str, expected: &[&str]| {
            check(BEHAVIOUR)
                .create(&format!(r#"{{"spec":{{"podCIDRs":{cidrs}}}}}"#))
                .refused(expected);
        };
        refused(r#"["10.0.0.0/24","fd00::/64"]"#, &[]);
        refused(
            r#"["10.0.0.0/24","10.1.0.0/24"]"#,
            &[
                r#"spec.podCIDRs: Invalid value: ["10.0.0.0/24","10.1.0.0/24"]: may specify no more than one CIDR"#,
            ],
        );
        refused(
            r#"["nope"]"#,
            &[r#"spec.podCIDRs[0]: Invalid value: "nope": must be a valid CIDR value"#],
        );
    }

    #[test]
    fn what_was_given_to_a_node_stays() {
        let old = r#"{"metadata":{"name":"n"},"spec":{"podCIDR":"10.0.0.0/24","providerID":"p"}}"#;
        let new = r#"{"metadata":{"name":"n"},"spec":{"podCIDR":"10.1.0.0/24","providerID":"q"}}"#;
        check(BEHAVIOUR).update(new, old).refused(&[
            "spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid",
            "spec.providerID: Forbidden: node updates may not change providerID except from \"\" to valid",
        ]);
    }

    #[test]
    fn features_are_declared_in_order() {
        check(BEHAVIOUR).status(r#"{"status":{"declaredFeatures":["B","A","A","x"]}}"#, "{}").refused(&[
            r#"status.declaredFeatures[1]: Invalid value: "A": list must be sorted alphabetically"#,
            r#"status.declaredFeatures[2]: Duplicate value: "A""#,
            r#"status.declaredFeatures[3]: Invalid value: "x": invalid feature name "x": must start with an"#,
        ]);
    }
}
