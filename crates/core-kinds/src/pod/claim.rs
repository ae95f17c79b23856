//! Validation of a claim spec, in a PersistentVolumeClaim or in a template of one.

use crate::fields::{dns_label, dns_subdomain};
use mizzen_object::validate::{field, meta, names, selector};
use mizzen_object::{Path, Violations};
use mizzen_value::Value;
use mizzen_value::quantity::Quantity;

/// The claim that is made for a volume of a pod: its metadata is labels and annotations.
pub(super) fn validate_template(template: &Value, path: &Path, violations: &mut Violations) {
    /// All other metadata, with its name in messages.
    const OTHERS: [(&str, &str); 13] = [
        ("name", "name"),
        ("generateName", "generateName"),
        ("namespace", "namespace"),
        ("selfLink", "selfLink"),
        ("uid", "uID"),
        ("resourceVersion", "resourceVersion"),
        ("generation", "generation"),
        ("creationTimestamp", "creationTimestamp"),
        ("deletionTimestamp", "deletionTimestamp"),
        ("deletionGracePeriodSeconds", "deletionGracePeriodSeconds"),
        ("ownerReferences", "ownerReferences"),
        ("finalizers", "finalizers"),
        ("managedFields", "managedFields"),
    ];
    let (metadata, place) = (&template["metadata"], path.child("metadata"));
    meta::annotations(
        &metadata["annotations"],
        &place.child("annotations"),
        violations,
    );
    meta::labels(&metadata["labels"], &place.child("labels"), violations);
    for (_, shown) in OTHERS.iter().filter(|(name, _)| !metadata[*name].is_null()) {
        violations.forbidden(place.child(shown), "cannot be set");
    }
    validate_claim_spec(&template["spec"], &path.child("spec"), violations);
}

/// What a new claim asks for.
pub fn validate_claim_spec(spec: &Value, path: &Path, violations: &mut Violations) {
    let modes = &spec["accessModes"];
    const MODES: [&str; 4] = [
        "ReadOnlyMany",
        "ReadWriteMany",
        "ReadWriteOnce",
        "ReadWriteOncePod",
    ];
    let place = path.child("accessModes");
    if modes.is_empty() {
        violations.required(place, "at least 1 access mode is required");
    }
    let options = selector::SelectorOptions::default();
    selector::label_selector(
        &spec["selector"],
        options,
        &path.child("selector"),
        violations,
    );
    for mode in modes.list() {
        field::one_of(mode.str(), &MODES, &place, violations);
    }
    let has = |wanted: fn(&str) -> bool| modes.items().any(|mode| wanted(mode.str()));
    if has(|mode| mode == "ReadWriteOncePod") && has(|mode| MODES[..3].contains(&mode)) {
        violations.forbidden(
            place,
            "may not use ReadWriteOncePod with other access modes",
        );
    }
    let size = &spec["resources"]["requests"]["storage"];
    let place = path.child("resources");
    let place = place.key("storage");
    if size.is_null() {
        violations.required(place, "");
    } else if Quantity::parse_or_zero(size.str()) <= Quantity::default() {
        violations.invalid(place, size.clone(), "must be greater than zero");
    }
    validate_class(spec, "storageClassName", path, violations);
    if let Some(mode) = spec["volumeMode"].as_str() {
        field::one_of(
            mode,
            &["Block", "Filesystem"],
            &path.child("volumeMode"),
            violations,
        );
    }
    for source in ["dataSource", "dataSourceRef"] {
        if !spec[source].is_null() {
            validate_source(&spec[source], &path.child(source), violations);
        }
    }
    let (source, reference) = (&spec["dataSource"], &spec["dataSourceRef"]);
    if !source.is_null() && !reference.is_null() {
        let agree = ["apiGroup", "kind", "name"]
            .iter()
            .all(|part| source[*part] == reference[*part]);
        // Kubernetes: what is shown is Go's form of a path, which has no public fields.
        if !reference["namespace"].str().is_empty() {
            let detail = "may not be specified when dataSourceRef.namespace is specified";
            violations.invalid_shown(path, "{}", detail);
        } else if !agree {
            violations.invalid_shown(path, "{}", "must match dataSourceRef");
        }
    }
    validate_class(spec, "volumeAttributesClassName", path, violations);
}

fn validate_class(spec: &Value, key: &str, path: &Path, violations: &mut Violations) {
    let name = spec[key].str();
    if !name.is_empty() {
        field::all(
            names::name_is_dns_subdomain(name, false),
            name,
            &path.child(key),
            violations,
        );
    }
}

fn validate_source(source: &Value, path: &Path, violations: &mut Violations) {
    for part in ["name", "kind"] {
        if source[part].str().is_empty() {
            violations.required(path.child(part), "");
        }
    }
    let (group, kind) = (source["apiGroup"].str(), source["kind"].str());
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        violations.invalid(path, kind, detail);
    }
    if !group.is_empty() {
        dns_subdomain(group, &path.child("apiGroup"), violations);
    }
    let namespace = source["namespace"].str();
    if !namespace.is_empty() {
        dns_label(namespace, &path.child("namespace"), violations);
    }
}

/// Warnings for a claim spec.
pub fn claim_spec_warnings(spec: &Value, path: &Path) -> Vec<String> {
    let fractional = |list: &str| {
        let amount = spec["resources"][list]["storage"].str();
        let path = path.child("resources");
        let path = path.child(list);
        let path = path.key("storage");
        (!amount.is_empty() && Quantity::parse_or_zero(amount).milli_value() % 1000 != 0).then(
            || format!("{path}: fractional byte value \"{amount}\" is invalid, must be an integer"),
        )
    };
    ["requests", "limits"]
        .into_iter()
        .filter_map(fractional)
        .collect()
}
