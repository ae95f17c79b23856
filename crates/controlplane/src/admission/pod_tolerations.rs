//! PodTolerationRestriction: default and allowed tolerations of the pods of a namespace, from its annotations or from the
//! plug-in's configuration.

use mizzen_component_helpers::pod_state::quality_of_service;
use mizzen_component_helpers::tolerations::{is_superset, merge};
use mizzen_core_kinds::pod::validate_tolerations;
use mizzen_object::schema::CanonicalObject;
use mizzen_object::{GroupResource, Path, Status, Violations};
use mizzen_value::{Value, json, value};

use super::{Attributes, admission};

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

/// Adds the default tolerations to a new pod, and that of memory pressure unless it is best effort.
pub(super) fn admit(attributes: &Attributes, pod: &mut CanonicalObject) -> Result<(), Status> {
    if !attributes.is_main("", "pods") {
        return Ok(());
    }
    let mut extra = Vec::new();
    if attributes.is_create() {
        let configured = &admission(attributes).pod_tolerations.default;
        extra = annotated(attributes, DEFAULTS)?.unwrap_or_else(|| configured.clone());
    }
    if quality_of_service(pod) != "BestEffort" {
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

/// Rejects a pod with a toleration that its namespace does not allow. Kubernetes: with 500
/// (podtolerationrestriction/admission.go).
pub(super) fn check(attributes: &Attributes, pod: &Value) -> Result<(), Status> {
    let tolerations = pod["spec"]["tolerations"].list();
    if !attributes.is_main("", "pods") || tolerations.is_empty() {
        return Ok(());
    }
    let configured = &admission(attributes).pod_tolerations.whitelist;
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

/// The tolerations in an annotation of the namespace; `None` without it.
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
