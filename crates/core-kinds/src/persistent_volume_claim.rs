//! PersistentVolumeClaims: defaults, data sources, and which fields may change.

use mizzen_object::validate::{field, meta, names};
use mizzen_object::{Action, HookContext, NameRule, Path, Violations};
use mizzen_value::quantity::Quantity;
use mizzen_value::{Str, Value, value};

use super::resources;
use crate::Behaviour;
use crate::pod::{self, claim_spec_warnings, validate_claim_spec};
use mizzen_apiextensions::KindStrategy;
use mizzen_component_helpers::resource_names::is_native;

pub(super) const BEHAVIOUR: Behaviour = Behaviour::of::<PersistentVolumeClaimStrategy>();

pub(super) struct PersistentVolumeClaimStrategy;

impl KindStrategy for PersistentVolumeClaimStrategy {
    fn default(claim: &mut Value) {
        claim.entry("status").set_default("phase", "Pending");
        default_spec(claim.entry("spec"));
        for path in ["status.capacity", "status.allocatedResources"] {
            resources::round(claim.at_mut(path));
        }
    }

    fn prepare(claim: &mut Value, old: Option<&Value>, context: &HookContext) {
        match context.action {
            Action::Status => return,
            Action::Create => claim.set("status", value!({"phase": "Pending"})),
            Action::Update => {}
        }
        // `dataSource` and `dataSourceRef` are kept equal.
        let spec = claim.entry("spec");
        let old = old.map(|old| &old["spec"]);
        let elsewhere = !spec["dataSourceRef"]["namespace"].str().is_empty();
        if elsewhere && old.is_none_or(|old| old["dataSourceRef"].is_null()) {
            spec.remove("dataSourceRef");
        }
        let had_source =
            old.is_some_and(|old| !old["dataSource"].is_null() || !old["dataSourceRef"].is_null());
        // Kubernetes: a source of any other kind was once ignored, and still is.
        let is_claim_or_snapshot = matches!(
            (
                spec["dataSource"]["apiGroup"].str(),
                spec["dataSource"]["kind"].str()
            ),
            ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
        );
        if !had_source && spec["dataSourceRef"].is_null() && !is_claim_or_snapshot {
            spec.remove("dataSource");
        }
        let (source, reference) = (spec["dataSource"].clone(), spec["dataSourceRef"].clone());
        match (source.is_null(), reference.is_null()) {
            (false, true) => spec.set("dataSourceRef", copied(&source)),
            (true, false) if reference["namespace"].str().is_empty() => {
                spec.set("dataSource", copied(&reference))
            }
            _ => {}
        }
    }

    fn validate(
        claim: &Value,
        old: Option<&Value>,
        context: &HookContext,
        violations: &mut Violations,
    ) {
        if context.action == Action::Status {
            return status(claim, violations);
        }
        if context.action == Action::Update {
            meta::native_object_meta(&claim["metadata"], true, NameRule::Subdomain, violations);
        }
        validate_claim_spec(&claim["spec"], &Path::new("spec"), violations);
        if let (Action::Update, Some(old)) = (context.action, old) {
            // Both specs without the fields that may differ.
            let (mut new_spec, mut old_spec) = (claim["spec"].clone(), old["spec"].clone());
            if old_spec["volumeName"].is_empty() {
                old_spec.set("volumeName", new_spec["volumeName"].clone());
            }
            if class_moved_from_annotation(claim, old) {
                new_spec.remove("storageClassName");
            } else {
                let annotation =
                    |claim: &Value| claim["metadata"]["annotations"][BETA_CLASS].clone();
                let path = Path::new("metadata");
                let path = path.child("annotations");
                field::immutable_text(
                    &annotation(claim),
                    &annotation(old),
                    &path.child(BETA_CLASS),
                    violations,
                );
                // A claim without a class may be given one.
                let class = &claim["spec"]["storageClassName"];
                let class_was_unset = !class.is_null()
                    && old["spec"]["storageClassName"].is_null()
                    && old["metadata"]["annotations"]
                        .get(BETA_CLASS)
                        .is_none_or(|known| known == class);
                if class_was_unset {
                    new_spec.remove("storageClassName");
                }
            }
            if claim["status"]["phase"].str() == "Bound" {
                new_spec.set(
                    "volumeAttributesClassName",
                    old_spec["volumeAttributesClassName"].clone(),
                );
                if let Some(requests) = new_spec.at_mut("resources.requests") {
                    requests.set(
                        "storage",
                        old_spec["resources"]["requests"]["storage"].clone(),
                    );
                }
            }
            // Specs are compared with their quantities normalized.
            let without = |spec: &Value| {
                let mut spec = spec.clone();
                spec.remove("resources");
                spec.make_map().retain(|_, value| !value.is_null());
                spec
            };
            let same_amounts = |list: &str| {
                let (one, other) = (&new_spec["resources"][list], &old_spec["resources"][list]);
                let mut names = one.entries().chain(other.entries()).map(|(name, _)| name);
                names.all(|name| amount(&one[name]) == amount(&other[name]))
            };
            let same_spec = without(&new_spec) == without(&old_spec)
                && same_amounts("limits")
                && same_amounts("requests");
            if !same_spec {
                let message = "spec is immutable after creation except resources.requests and volumeAttributesClassName for \
                       bound claims";
                let difference = pod::difference("PersistentVolumeClaimSpec", &old_spec, &new_spec);
                violations.forbidden("spec", &format!("{message}\n{difference}"));
            }
            size(claim, old, violations);
            let (mode, old_mode) = (&claim["spec"]["volumeMode"], &old["spec"]["volumeMode"]);
            field::immutable(mode, old_mode, &Path::new("volumeMode"), violations);
            attributes_class(claim, old, violations);
        }
    }

    fn warnings(claim: &Value, _: Option<&Value>, context: &HookContext) -> Vec<String> {
        if context.action == Action::Status {
            return Vec::new();
        }
        let mut warnings = Vec::new();
        if claim["metadata"]["annotations"].get(BETA_CLASS).is_some() {
            let advice = "deprecated since v1.8; use \"storageClassName\" attribute instead";
            warnings.push(format!("metadata.annotations[{BETA_CLASS}]: {advice}"));
        }
        warnings.extend(claim_spec_warnings(&claim["spec"], &Path::new("spec")));
        warnings
    }

    /// Kubernetes: `name` is kept for compatibility.
    fn selectable(claim: &Value, field: &str) -> Option<Str> {
        (field == "name").then(|| claim["metadata"]["name"].str().into())
    }
}

pub(super) const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

const RESIZE_STATUSES: &[&str] = &[
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

/// Defaults of a claim, or of the template of one.
pub(crate) fn default_spec(spec: &mut Value) {
    spec.set_default("volumeMode", "Filesystem");
    for path in ["resources.limits", "resources.requests"] {
        resources::round(spec.at_mut(path));
    }
}

fn copied(source: &Value) -> Value {
    let part = |name: &str| source[name].clone();
    value!({"apiGroup": (part("apiGroup")), "kind": (part("kind")), "name": (part("name"))})
}

/// The class may move from the annotation that once held it to the field.
fn class_moved_from_annotation(claim: &Value, old: &Value) -> bool {
    let annotation = |claim: &Value| claim["metadata"]["annotations"].get(BETA_CLASS).cloned();
    let Some(old_class) = annotation(old) else {
        return false;
    };
    old["spec"]["storageClassName"].is_null()
        && claim["spec"]["storageClassName"] == old_class
        && annotation(claim).is_none_or(|class| class == old_class)
}

fn amount(text: &Value) -> Option<Quantity> {
    text.as_str().map(Quantity::parse_or_zero)
}

fn size(claim: &Value, old: &Value, violations: &mut Violations) {
    let size = |amounts: &Value| Quantity::parse_or_zero(amounts["storage"].str());
    let new_size = size(&claim["spec"]["resources"]["requests"]);
    let shrinks = new_size < size(&old["spec"]["resources"]["requests"]);
    if shrinks && new_size <= size(&old["status"]["capacity"]) {
        violations.forbidden(
            "spec.resources.requests.storage",
            "field can not be less than status.capacity",
        );
    }
}

fn attributes_class(claim: &Value, old: &Value, violations: &mut Violations) {
    let field = "volumeAttributesClassName";
    let (new, applied) = (
        &claim["spec"][field],
        &old["status"]["currentVolumeAttributesClassName"],
    );
    if *new == old["spec"][field] || applied.is_null() {
        return;
    }
    let what = match new.as_str() {
        None => "nil",
        Some("") => "empty string",
        Some(_) => return,
    };
    let message = format!(
        "update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil"
    );
    violations.forbidden(Path::new("spec").child(field), &message);
}

fn status(claim: &Value, violations: &mut Violations) {
    let (status, path) = (&claim["status"], Path::new("status"));
    if claim["spec"]["accessModes"].is_empty() {
        violations.required("Spec.accessModes", "");
    }
    let capacity = path.child("capacity");
    for (resource, amount) in status["capacity"].entries() {
        resources::reported(amount, &capacity.key(resource), violations);
    }
    let statuses = path.child("allocatedResourceStatuses");
    for (resource, state) in status["allocatedResourceStatuses"].entries() {
        allocated_name(resource, &statuses, violations);
        if !RESIZE_STATUSES.contains(&state.str()) {
            violations.not_supported(statuses, resource, RESIZE_STATUSES);
        }
    }
    let allocated = path.child("allocatedResources");
    for (resource, amount) in status["allocatedResources"].entries() {
        let path = allocated.key(resource);
        if allocated_name(resource, &allocated, violations)
            && resources::reported(amount, &path, violations)
        {
            resources::amount("storage", amount, &path, violations);
        }
    }
}

fn allocated_name(resource: &str, path: &Path, violations: &mut Violations) -> bool {
    let wrong = names::is_qualified_name(resource);
    let fine = wrong.is_empty() && (!is_native(resource) || resource == "storage");
    if wrong.is_empty() && !fine {
        violations.not_supported(path, resource, &["storage"]);
    }
    field::all(wrong, resource, path, violations);
    fine
}

#[cfg(test)]
mod tests {
    use super::super::check::check;
    use super::*;

    fn claim(spec: &str) -> String {
        format!(
            r#"{{"metadata":{{"name":"c","namespace":"n"}},"spec":{{"accessModes":["ReadWriteOnce"],
                "resources":{{"requests":{{"storage":"1Gi"}}}}{spec}}}}}"#
        )
    }

    #[test]
    fn a_new_claim_is_pending() {
        check(BEHAVIOUR)
            .create(&claim(""))
            .has("spec.volumeMode", r#""Filesystem""#)
            .has("status", r#"{"phase":"Pending"}"#);
    }

    #[test]
    fn one_source_stands_for_both() {
        let source = |spec: &str| check(BEHAVIOUR).create(&claim(spec));
        source(r#","dataSource":{"apiGroup":"snapshot.storage.k8s.io","kind":"VolumeSnapshot","name":"s"}"#)
            .has("spec.dataSourceRef.kind", r#""VolumeSnapshot""#);
        source(r#","dataSourceRef":{"kind":"Thing","apiGroup":"x.io","name":"s"}"#)
            .has("spec.dataSource.kind", r#""Thing""#);
        source(r#","dataSource":{"kind":"Pod","name":"s"}"#).has("spec.dataSource", "null");
    }

    #[test]
    fn a_claim_without_a_class_may_get_one() {
        check(BEHAVIOUR)
            .update(&claim(r#","storageClassName":"a""#), &claim(""))
            .refused(&[]);
        check(BEHAVIOUR)
            .update(
                &claim(r#","storageClassName":"a""#),
                &claim(r#","storageClassName":"b""#),
            )
            .refused(&[
                "spec: Forbidden: spec is immutable after creation except resources.requests and",
            ]);
    }

    #[test]
    fn a_bound_claim_may_grow() {
        let sized = |size: &str| {
            let claim = claim("").replace("1Gi", size);
            claim.replace(
                r#""spec""#,
                r#""status":{"phase":"Bound","capacity":{"storage":"2Gi"}},"spec""#,
            )
        };
        check(BEHAVIOUR)
            .update(&sized("3Gi"), &sized("2Gi"))
            .refused(&[]);
        check(BEHAVIOUR).update(&sized("1Gi"), &sized("2Gi")).refused(&[
            "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity",
        ]);
    }

    #[test]
    fn reported_amounts_are_sound() {
        let status = r#"{"spec":{"accessModes":["ReadWriteOnce"]},"status":{"capacity":{"storage":"-1"},
            "allocatedResources":{"cpu":"1"},"allocatedResourceStatuses":{"storage":"Nope"}}}"#;
        check(BEHAVIOUR).status(status, "{}").refused(&[
            "status.capacity[storage]: Invalid value: -1: must be a valid resource quantity",
            r#"status.allocatedResourceStatuses: Unsupported value: "storage": supported values: "ControllerResizeInP"#,
            r#"status.allocatedResources: Unsupported value: "cpu": supported values: "storage""#,
        ]);
    }
}
