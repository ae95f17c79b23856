//! Validation of tolerations and topology spread constraints.

use mizzen_object::validate::{field, meta, names, selector};
use mizzen_object::{Path, Violations};
use mizzen_value::Value;

use super::Options;
use mizzen_component_helpers::number;

/// Taints that do not keep a pod away.
pub(crate) fn validate_tolerations(
    tolerations: &Value,
    options: &Options,
    path: &Path,
    violations: &mut Violations,
) {
    for (index, toleration) in tolerations.items().enumerate() {
        let path = path.index(index);
        let (key, operator) = (toleration["key"].str(), toleration["operator"].str());
        if !key.is_empty() {
            meta::label_name(key, &path.child("key"), violations);
        } else if operator != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            violations.invalid(path.child("operator"), operator, detail);
        }
        let effect = toleration["effect"].str();
        if !toleration["tolerationSeconds"].is_null() && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            violations.invalid(path.child("effect"), effect, detail);
        }
        let value = toleration["value"].str();
        let place = path.child("operator");
        match operator {
            "Equal" | "" => {
                let wrong = names::is_label_value(value);
                if !wrong.is_empty() {
                    violations.invalid(place, value, &wrong.join(";"));
                }
            }
            "Exists" if !value.is_empty() => {
                violations.invalid(
                    place,
                    value,
                    "value must be empty when `operator` is 'Exists'",
                );
            }
            "Exists" => {}
            "Lt" | "Gt" if options.comparing_tolerations => {
                field::all(
                    names::is_decimal_integer(value),
                    value,
                    &path.child("value"),
                    violations,
                );
                if let Err(detail) = number::parse("ParseInt", value) {
                    violations.invalid(path.child("value"), value, &detail);
                }
            }
            "Lt" | "Gt" => {
                violations.not_supported(place, operator, &["Equal", "Exists", "Lt", "Gt"])
            }
            _ => violations.not_supported(place, operator, &["Equal", "Exists"]),
        }
        if !effect.is_empty() {
            let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
            field::one_of(effect, &effects, &path.child("effect"), violations);
        }
    }
}

/// Validates topology spread constraints.
pub(super) fn validate_spread(
    spec: &Value,
    options: &Options,
    path: &Path,
    violations: &mut Violations,
) {
    let constraints = spec["topologySpreadConstraints"].list();
    for (index, constraint) in constraints.iter().enumerate() {
        let path = path.index(index);
        validate_positive(
            constraint["maxSkew"].int(),
            &path.child("maxSkew"),
            violations,
        );
        if constraint["topologyKey"].str().is_empty() {
            violations.required(path.child("topologyKey"), "can not be empty");
        }
        let actions = ["DoNotSchedule", "ScheduleAnyway"];
        field::one_of(
            constraint["whenUnsatisfiable"].str(),
            &actions,
            &path.child("whenUnsatisfiable"),
            violations,
        );
        let pair = |constraint: &Value| {
            (
                constraint["topologyKey"].str().to_string(),
                constraint["whenUnsatisfiable"].str().to_string(),
            )
        };
        let (key, action) = pair(constraint);
        if constraints[index + 1..]
            .iter()
            .any(|other| pair(other) == (key.clone(), action.clone()))
        {
            violations.duplicate(
                path.child("{topologyKey, whenUnsatisfiable}"),
                format!("{{{key}, {action}}}"),
            );
        }
        if let Some(n_domains) = constraint["minDomains"].as_int() {
            let place = path.child("minDomains");
            validate_positive(n_domains, &place, violations);
            let action = constraint["whenUnsatisfiable"].str();
            if action != "DoNotSchedule" {
                let detail = format!(
                    "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
                );
                violations.invalid(place, n_domains, &detail);
            }
        }
        for key in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            if let Some(policy) = constraint[key].as_str() {
                field::one_of(policy, &["Honor", "Ignore"], &path.child(key), violations);
            }
        }
        if options.repeated_label_keys {
            validate_old_label_keys(constraint, &path.child("matchLabelKeys"), violations);
        } else {
            validate_label_keys(constraint, &path, violations);
        }
        if !options.any_spread_selectors {
            let place = path.child("labelSelector");
            selector::label_selector(
                &constraint["labelSelector"],
                Default::default(),
                &place,
                violations,
            );
        }
    }
}

fn validate_positive(number: i64, path: &Path, violations: &mut Violations) {
    if number <= 0 {
        violations.invalid(path, number, "must be greater than zero");
    }
}

const REPEATED: &str = "exists in both matchLabelKeys and labelSelector";

/// Labels of which the pod's own value counts. They become part of the selector, so they are not in it yet.
pub(super) fn validate_label_keys(term: &Value, path: &Path, violations: &mut Violations) {
    for key in ["matchLabelKeys", "mismatchLabelKeys"] {
        let keys = &term[key];
        let path = path.child(key);
        if keys.is_empty() {
            continue;
        }
        if term["labelSelector"].is_null() {
            violations.forbidden(path, "must not be specified when labelSelector is not set");
            continue;
        }
        for (index, key) in keys.items().enumerate() {
            meta::label_name(key.str(), &path.index(index), violations);
        }
    }
    // Kubernetes: by now the keys are expressions of the selector; one that is there twice was there before. The
    // message is at an item of the term, which is no list.
    let matched = term["matchLabelKeys"].list();
    let mut seen: Vec<&str> = term["labelSelector"]["matchLabels"]
        .entries()
        .map(|(key, _)| key)
        .collect();
    for expression in term["labelSelector"]["matchExpressions"].list() {
        let key = expression["key"].str();
        if let Some(index) = matched
            .iter()
            .rposition(|matched| matched.str() == key)
            .filter(|_| seen.contains(&key))
        {
            violations.invalid(path.index(index), key, REPEATED);
        }
        seen.push(key);
    }
    let (matched, place) = (term["matchLabelKeys"].list(), path.child("matchLabelKeys"));
    for (index, key) in matched.iter().enumerate() {
        if term["mismatchLabelKeys"].list().contains(key) {
            let detail = "exists in both matchLabelKeys and mismatchLabelKeys";
            violations.invalid(place.index(index), key.clone(), detail);
        }
    }
}

/// How it was before the keys became part of the selector.
fn validate_old_label_keys(constraint: &Value, path: &Path, violations: &mut Violations) {
    let (keys, selector) = (&constraint["matchLabelKeys"], &constraint["labelSelector"]);
    if keys.is_empty() {
        return;
    }
    if selector.is_null() {
        violations.forbidden(path, "must not be specified when labelSelector is not set");
    }
    for (index, key) in keys.items().enumerate() {
        let (key, path) = (key.str(), path.index(index));
        meta::label_name(key, &path, violations);
        let in_expressions = selector["matchExpressions"]
            .items()
            .any(|other| other["key"].str() == key);
        if in_expressions || selector["matchLabels"].get(key).is_some() {
            violations.invalid(path, key, REPEATED);
        }
    }
}
