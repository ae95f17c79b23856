//! PodTolerationRestriction: which taints do the pods of a namespace tolerate, and which may they?
//!
//! Annotations of the namespace say it, or the plug-in's configuration for those without.

use mizzen_kinds::{qos_class, validate_tolerations};
use mizzen_object::{GroupResource, Path, Status, Value, Violations, json, value};

use super::Attributes;

const DEFAULTS: &str = "scheduler.alpha.kubernetes.io/defaultTolerations";
const WHITELIST: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";

/// The tolerations of namespaces without annotations.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PodTolerations {
    default: Vec<Value>,
    whitelist: Vec<Value>,
}

impl PodTolerations {
    pub(super) fn read(configuration: &Value) -> Result<PodTolerations, Violations> {
        let (path, mut violations) = (Path::new("podtolerationrestriction"), Violations::default());
        for field in ["default", "whitelist"] {
            validate_tolerations(&configuration[field], &path.child(field), &mut violations);
        }
        let list = |field: &str| configuration[field].list().to_vec();
        match violations.is_empty() {
            true => Ok(PodTolerations {
                default: list("default"),
                whitelist: list("whitelist"),
            }),
            false => Err(violations),
        }
    }
}

/// Adds the default tolerations to a new pod, and that of memory pressure to each that requests something.
pub(super) fn admit(attributes: &Attributes, pod: &mut Value) -> Result<(), Status> {
    if !attributes.is_main("", "pods") {
        return Ok(());
    }
    let mut extra = Vec::new();
    if attributes.is_create() {
        let configured = &attributes
            .call
            .server
            .options
            .admission
            .pod_tolerations
            .default;
        extra = annotated(attributes, DEFAULTS)?.unwrap_or_else(|| configured.clone());
    }
    if qos(pod) != "BestEffort" {
        let key = "node.kubernetes.io/memory-pressure";
        extra.push(value!({ "key": key, "operator": "Exists", "effect": "NoSchedule" }));
    }
    if !extra.is_empty() {
        let tolerations = pod.entry("spec").entry("tolerations").make_list();
        tolerations.extend(extra);
        *tolerations = merge(tolerations);
    }
    check(attributes, pod)
}

/// Rejects a pod that tolerates more than its namespace may. Kubernetes: with 500
/// (podtolerationrestriction/admission.go).
pub(super) fn check(attributes: &Attributes, pod: &Value) -> Result<(), Status> {
    let tolerations = pod["spec"]["tolerations"].list();
    if !attributes.is_main("", "pods") || tolerations.is_empty() {
        return Ok(());
    }
    let configured = &attributes
        .call
        .server
        .options
        .admission
        .pod_tolerations
        .whitelist;
    let (whitelist, scope) = match annotated(attributes, WHITELIST)? {
        Some(whitelist) => (whitelist, "namespace"),
        None => (configured.clone(), "cluster"),
    };
    let is_listed = |toleration: &Value| {
        whitelist
            .iter()
            .any(|listed| is_superset(listed, toleration))
    };
    match whitelist.is_empty() || tolerations.iter().all(is_listed) {
        true => Ok(()),
        false => Err(Status::unknown(format!(
            "pod tolerations (possibly merged with namespace default tolerations) conflict with its {scope} whitelist"
        ))),
    }
}

fn qos(pod: &Value) -> &str {
    match pod["status"]["qosClass"].str() {
        "" => qos_class(&pod["spec"]),
        class => class,
    }
}

/// The tolerations in an annotation of the namespace; none if it does not have it.
fn annotated(attributes: &Attributes, annotation: &str) -> Result<Option<Vec<Value>>, Status> {
    let name = attributes.namespace();
    let namespaces = GroupResource {
        group: "".into(),
        resource: "namespaces".into(),
    };
    let namespace = attributes.find("", "namespaces", "", name);
    let namespace = namespace.ok_or_else(|| Status::not_found(&namespaces, name))?;
    match namespace["metadata"]["annotations"]
        .get(annotation)
        .map(Value::str)
    {
        None => Ok(None),
        Some("") => Ok(Some(Vec::new())),
        Some(text) => {
            let list =
                json::parse(text.as_bytes()).map_err(|error| Status::unknown(error.to_string()))?;
            Ok(Some(list.list().to_vec()))
        }
    }
}

/// All tolerations without those that another makes redundant; of equal ones the first stays.
fn merge(all: &[Value]) -> Vec<Value> {
    let mut merged: Vec<Value> = Vec::new();
    for (index, toleration) in all.iter().enumerate() {
        let is_covered = merged.iter().any(|other| is_superset(other, toleration))
            || all[index + 1..]
                .iter()
                .any(|other| !is_equal(other, toleration) && is_superset(other, toleration));
        if !is_covered {
            merged.push(toleration.clone());
        }
    }
    merged
}

fn is_equal(first: &Value, second: &Value) -> bool {
    ["key", "operator", "value", "effect"]
        .iter()
        .all(|field| first[*field].str() == second[*field].str())
        && first["tolerationSeconds"].as_int() == second["tolerationSeconds"].as_int()
}

/// Whether one toleration tolerates all that another does. Kubernetes: pkg/util/tolerations, where `Equal` must be written
/// out on the other side.
fn is_superset(all: &Value, one: &Value) -> bool {
    let text = |field: &str| (all[field].str(), one[field].str());
    let ((key, other_key), (effect, other_effect)) = (text("key"), text("effect"));
    let (operator, other_operator) = text("operator");
    let seconds = |toleration: &Value| toleration["tolerationSeconds"].as_int();
    let lasts = match seconds(all) {
        Some(limit) if effect == "NoExecute" => {
            seconds(one).is_some_and(|seconds| seconds <= limit)
        }
        _ => true,
    };
    let has_key = key == other_key || key.is_empty() && operator == "Exists";
    let has_effect = effect == other_effect || effect.is_empty();
    let has_value = match operator {
        "Equal" | "" => other_operator == "Equal" && all["value"].str() == one["value"].str(),
        operator => operator == "Exists",
    };
    is_equal(all, one) || has_key && has_effect && lasts && has_value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Value> {
        json::parse(text.as_bytes()).unwrap().list().to_vec()
    }

    #[track_caller]
    fn check_superset(all: &str, one: &str, expected: bool) {
        assert_eq!(
            is_superset(&read(&format!("[{all}]"))[0], &read(&format!("[{one}]"))[0]),
            expected,
            "{all} {one}"
        );
    }

    #[test]
    fn a_toleration_may_include_another() {
        check_superset("{}", "{}", true);
        check_superset(
            r#"{"operator":"Exists"}"#,
            r#"{"key":"a","operator":"Equal","value":"x"}"#,
            true,
        );
        check_superset(
            r#"{"key":"a","operator":"Exists"}"#,
            r#"{"key":"b","operator":"Exists"}"#,
            false,
        );
        check_superset(
            r#"{"key":"a","operator":"Exists","effect":"NoSchedule"}"#,
            r#"{"key":"a"}"#,
            false,
        );
        check_superset(
            r#"{"key":"a","operator":"Exists"}"#,
            r#"{"key":"a","effect":"NoSchedule"}"#,
            true,
        );
        check_superset(
            r#"{"key":"a","value":"x"}"#,
            r#"{"key":"a","operator":"Equal","value":"x"}"#,
            true,
        );
        check_superset(
            r#"{"key":"a","operator":"Equal"}"#,
            r#"{"key":"a","value":""}"#,
            false,
        );
        check_superset(
            r#"{"key":"a","operator":"Odd"}"#,
            r#"{"key":"a","operator":"Exists"}"#,
            false,
        );
        let lasting =
            r#"{"key":"a","operator":"Exists","effect":"NoExecute","tolerationSeconds":5}"#;
        check_superset(lasting, &lasting.replace('5', "4"), true);
        check_superset(lasting, &lasting.replace('5', "6"), false);
        check_superset(
            lasting,
            r#"{"key":"a","operator":"Exists","effect":"NoExecute"}"#,
            false,
        );
    }

    #[test]
    fn tolerations_that_others_include_are_left_out() {
        let one = r#"{"key":"a","operator":"Equal","value":"x"}"#;
        let all = r#"{"key":"a","operator":"Exists"}"#;
        assert_eq!(
            merge(&read(&format!("[{one},{all},{one}]"))),
            read(&format!("[{all}]"))
        );
        assert_eq!(
            merge(&read(&format!("[{one},{one}]"))),
            read(&format!("[{one}]"))
        );
    }
}
