//! StorageClasses and VolumeAttributesClasses.

use std::collections::{BTreeMap, BTreeSet};

use mizzen_object::validate::{field, meta, names};
use mizzen_object::{HookContext, Path, Violations};
use mizzen_value::Value;

use super::label_warning;
use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;

pub(super) const STORAGE: Behaviour = Behaviour::of::<StorageClassStrategy>();
pub(super) const ATTRIBUTES: Behaviour = Behaviour::of::<VolumeAttributesClassStrategy>();

pub(super) struct StorageClassStrategy;

impl KindStrategy for StorageClassStrategy {
    fn default(class: &mut Value) {
        class.set_default("reclaimPolicy", "Delete");
        class.set_default("volumeBindingMode", "Immediate");
    }

    fn validate(class: &Value, old: Option<&Value>, _: &HookContext, violations: &mut Violations) {
        validate_provisioner(
            class["provisioner"].str(),
            &Path::new("provisioner"),
            violations,
        );
        validate_parameters(&class["parameters"], violations);
        if !class["reclaimPolicy"].is_empty() {
            let path = Path::new("reclaimPolicy");
            field::one_of(
                class["reclaimPolicy"].str(),
                &["Delete", "Retain"],
                &path,
                violations,
            );
        }
        let mode = Path::new("volumeBindingMode");
        match class["volumeBindingMode"].as_str() {
            None => violations.required(mode, ""),
            Some(word) => field::one_of(
                word,
                &["Immediate", "WaitForFirstConsumer"],
                &mode,
                violations,
            ),
        }
        let topologies = class["allowedTopologies"].list();
        // Kubernetes: the list of earlier terms starts with as many empty ones as there are terms, so that an empty
        // term is a duplicate (validation.go, validateAllowedTopologies).
        let mut earlier: Vec<Term> = vec![Term::new(); topologies.len()];
        let path = Path::new("allowedTopologies");
        for (index, topology) in topologies.iter().enumerate() {
            let path = path.index(index);
            let path = path.child("matchLabelExpressions");
            let requirements = topology["matchLabelExpressions"].list();
            let mut term = Term::new();
            for (index, requirement) in requirements.iter().enumerate() {
                let path = path.index(index);
                let values = requirement["values"].list();
                if values.is_empty() {
                    violations.required(path.child("values"), "");
                }
                let mut seen = BTreeSet::new();
                for (index, value) in values.iter().enumerate() {
                    if !seen.insert(value.str()) {
                        violations.duplicate(path.child("values").index(index), value.str());
                    }
                }
                let key = requirement["key"].str();
                meta::label_name(key, &path.child("key"), violations);
                if term.insert(key, seen).is_some() {
                    violations.duplicate(path.child("key"), key);
                }
            }
            for _ in earlier.iter().filter(|earlier| **earlier == term) {
                violations.duplicate(path, "");
            }
            earlier.push(term);
        }
        if let Some(old) = old {
            for name in [
                "parameters",
                "provisioner",
                "reclaimPolicy",
                "volumeBindingMode",
            ] {
                field::immutable(&class[name], &old[name], &Path::new(name), violations);
            }
        }
    }

    fn warnings(class: &Value, _: Option<&Value>, _: &HookContext) -> Vec<String> {
        let mut warnings = Vec::new();
        for (i, topology) in class["allowedTopologies"].items().enumerate() {
            for (j, requirement) in topology["matchLabelExpressions"].items().enumerate() {
                let place = format!("allowedTopologies[{i}].matchLabelExpressions[{j}].key");
                warnings.extend(label_warning(place, requirement["key"].str()));
            }
        }
        warnings
    }
}

pub(super) struct VolumeAttributesClassStrategy;

impl KindStrategy for VolumeAttributesClassStrategy {
    fn validate(class: &Value, old: Option<&Value>, _: &HookContext, violations: &mut Violations) {
        if let Some(old) = old {
            for name in ["driverName", "parameters"] {
                if class[name] != old[name] {
                    violations.forbidden(
                        Path::new(name),
                        &format!("updates to {name} are forbidden."),
                    );
                }
            }
        }
        validate_provisioner(
            class["driverName"].str(),
            &Path::new("driverName"),
            violations,
        );
        validate_parameters(&class["parameters"], violations);
        if class["parameters"].is_empty() {
            violations.required(
                Path::new("parameters"),
                "must contain at least one key/value pair",
            );
        }
    }
}

const MAX_PARAMETERS: usize = 512;
const MAX_PARAMETERS_SIZE: usize = 256 * 1024;

fn validate_provisioner(name: &str, path: &Path, violations: &mut Violations) {
    if name.is_empty() {
        return violations.required(path, "");
    }
    let lower = name.to_lowercase();
    field::all(
        names::is_qualified_name(&lower),
        lower.as_str(),
        path,
        violations,
    );
}

fn validate_parameters(parameters: &Value, violations: &mut Violations) {
    let path = Path::new("parameters");
    if parameters.entries().count() > MAX_PARAMETERS {
        return violations.too_long(path, MAX_PARAMETERS);
    }
    if parameters.get("").is_some() {
        violations.invalid(path, "", "field can not be empty.");
    }
    let size: usize = parameters
        .entries()
        .map(|(key, value)| key.len() + value.str().len())
        .sum();
    if size > MAX_PARAMETERS_SIZE {
        violations.too_long(path, MAX_PARAMETERS_SIZE);
    }
}

/// What a term asks for: for each label the values that will do.
type Term<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;
