//! Validation of node affinity, pod affinity and pod anti-affinity.

use mizzen_object::validate::{field, meta, names, selector};
use mizzen_object::{Path, Violations};
use mizzen_value::Value;

use super::{Options, scheduling};
use crate::fields::dns_label;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Validates node affinity, pod affinity and pod anti-affinity.
pub(super) fn validate(
    affinity: &Value,
    options: &Options,
    path: &Path,
    violations: &mut Violations,
) {
    let node_affinity = &affinity["nodeAffinity"];
    let place = path.child("nodeAffinity");
    if !node_affinity[REQUIRED].is_null() {
        validate_node_selector(
            &node_affinity[REQUIRED],
            options.any_node_values,
            &place.child(REQUIRED),
            violations,
        );
    }
    let nodes_path = place.child(PREFERRED);
    for (index, term) in node_affinity[PREFERRED].items().enumerate() {
        let nodes_path = nodes_path.index(index);
        validate_weight(&term["weight"], &nodes_path, violations);
        // What is only wished for may be impossible.
        validate_node_term(
            &term["preference"],
            true,
            &nodes_path.child("preference"),
            violations,
        );
    }
    for key in ["podAffinity", "podAntiAffinity"] {
        let affinity = &affinity[key];
        let any_values = options.any_selector_values;
        let path = path.child(key);
        let required = path.child(REQUIRED);
        for (index, term) in affinity[REQUIRED].items().enumerate() {
            validate_pod_term(term, any_values, &required.index(index), violations);
        }
        let preferred = path.child(PREFERRED);
        for (index, term) in affinity[PREFERRED].items().enumerate() {
            let path = preferred.index(index);
            validate_weight(&term["weight"], &path, violations);
            validate_pod_term(
                &term["podAffinityTerm"],
                any_values,
                &path.child("podAffinityTerm"),
                violations,
            );
        }
    }
}

fn validate_weight(weight: &Value, path: &Path, violations: &mut Violations) {
    if !(1..=100).contains(&weight.int()) {
        violations.invalid(
            path.child("weight"),
            weight.int(),
            "must be in the range 1-100",
        );
    }
}

/// A choice of nodes: any of its terms.
pub fn validate_node_selector(
    selector: &Value,
    any_values: bool,
    path: &Path,
    violations: &mut Violations,
) {
    let path = path.child("nodeSelectorTerms");
    if selector["nodeSelectorTerms"].is_empty() {
        return violations.required(path, "must have at least one node selector term");
    }
    for (index, term) in selector["nodeSelectorTerms"].items().enumerate() {
        validate_node_term(term, any_values, &path.index(index), violations);
    }
}

fn validate_node_term(term: &Value, any_values: bool, path: &Path, violations: &mut Violations) {
    let expressions = path.child("matchExpressions");
    for (index, expression) in term["matchExpressions"].items().enumerate() {
        let path = expressions.index(index);
        let values = expression["values"].list();
        let place = path.child("values");
        match expression["operator"].str() {
            "In" | "NotIn" if values.is_empty() => {
                violations.required(
                    place,
                    "must be specified when `operator` is 'In' or 'NotIn'",
                );
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                violations.forbidden(
                    place,
                    "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                );
            }
            "Gt" | "Lt" if values.len() != 1 => {
                violations.required(
                    place,
                    "must be specified single value when `operator` is 'Lt' or 'Gt'",
                );
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            other => violations.invalid(
                path.child("operator"),
                other,
                "not a valid selector operator",
            ),
        }
        meta::label_name(expression["key"].str(), &path.child("key"), violations);
        if any_values {
            continue;
        }
        for (index, value) in values.iter().enumerate() {
            field::all(
                names::is_label_value(value.str()),
                value.str(),
                &place.index(index),
                violations,
            );
        }
    }
    let fields = path.child("matchFields");
    for (index, requirement) in term["matchFields"].items().enumerate() {
        // Of a node's fields only its name can be chosen by.
        let path = fields.index(index);
        let values = requirement["values"].list();
        match requirement["operator"].str() {
            "In" | "NotIn" if values.len() == 1 => {}
            "In" | "NotIn" => {
                let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                violations.required(path.child("values"), detail);
            }
            other => violations.invalid(
                path.child("operator"),
                other,
                "not a valid selector operator",
            ),
        }
        let key = requirement["key"].str();
        if key != "metadata.name" {
            violations.invalid(path.child("key"), key, "not a valid field selector key");
            continue;
        }
        let path = path.child("values");
        for (index, value) in values.iter().enumerate() {
            let wrong = names::name_is_dns_subdomain(value.str(), false);
            field::all(wrong, value.str(), &path.index(index), violations);
        }
    }
}

fn validate_pod_term(term: &Value, any_values: bool, path: &Path, violations: &mut Violations) {
    validate_selectors(term, any_values, path, violations);
    for namespace in term["namespaces"].list() {
        let namespace = namespace.str();
        dns_label(namespace, &path.child("namespace"), violations);
    }
    scheduling::validate_label_keys(term, path, violations);
    let key = term["topologyKey"].str();
    if key.is_empty() {
        violations.required(path.child("topologyKey"), "can not be empty");
    }
    meta::label_name(key, &path.child("topologyKey"), violations);
}

/// Which pods, in which namespaces.
pub(super) fn validate_selectors(
    term: &Value,
    any_values: bool,
    path: &Path,
    violations: &mut Violations,
) {
    let options = selector::SelectorOptions {
        any_values,
        ..Default::default()
    };
    for key in ["labelSelector", "namespaceSelector"] {
        selector::label_selector(&term[key], options, &path.child(key), violations);
    }
}

/// Every term about other pods.
pub(super) fn terms<'a>(spec: &'a Value, mut visit: impl FnMut(&'a Value)) {
    for key in ["podAffinity", "podAntiAffinity"] {
        let affinity = &spec["affinity"][key];
        affinity[REQUIRED].items().for_each(&mut visit);
        affinity[PREFERRED]
            .items()
            .for_each(|term| visit(&term["podAffinityTerm"]));
    }
}

/// Every term about other pods, to be changed.
pub(super) fn terms_mut(spec: &mut Value, mut visit: impl FnMut(&mut Value)) {
    for key in ["podAffinity", "podAntiAffinity"] {
        let Some(affinity) = spec
            .get_mut("affinity")
            .and_then(|affinity| affinity.get_mut(key))
        else {
            continue;
        };
        super::each(affinity, PREFERRED, |term| {
            visit(term.entry("podAffinityTerm"))
        });
        super::each(affinity, REQUIRED, &mut visit);
    }
}
