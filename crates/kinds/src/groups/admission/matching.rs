//! Validation of match rules and match conditions of webhooks and policies.

use mizzen_object::validate::{field, names};
use mizzen_object::{Path, Violations};
use mizzen_value::Value;

use mizzen_apiextensions::expression::{ExpressionCompiler, ExpressionResult, ExpressionVariables};
use mizzen_apiextensions::rules;

pub(super) const FAILURE_POLICIES: [&str; 2] = ["Fail", "Ignore"];
pub(super) const MATCH_POLICIES: [&str; 2] = ["Equivalent", "Exact"];
pub(super) const REINVOCATION_POLICIES: [&str; 2] = ["IfNeeded", "Never"];

/// Fills a rule's scope.
pub(super) fn default_rules(rules: Option<&mut Value>) {
    for rule in rules.into_iter().flat_map(Value::list_mut) {
        rule.set_default("scope", "*");
    }
}

/// Fills what webhooks and policies have in common.
pub(super) fn default_matching(matching: &mut Value) {
    matching.set_default("matchPolicy", "Equivalent");
    matching.set_default("namespaceSelector", Value::object());
    matching.set_default("objectSelector", Value::object());
}

/// Fills a policy's constraints, or a binding's.
pub(super) fn default_resources(resources: &mut Value) {
    default_matching(resources);
    for name in ["resourceRules", "excludeResourceRules"] {
        default_rules(resources.get_mut(name));
    }
}

/// The constraints of a policy or binding.
pub(super) fn validate_resources(resources: &Value, path: &Path, violations: &mut Violations) {
    match resources["matchPolicy"].as_str() {
        None => violations.required(path.child("matchPolicy"), ""),
        Some(policy) => field::one_of(
            policy,
            &MATCH_POLICIES,
            &path.child("matchPolicy"),
            violations,
        ),
    }
    for name in ["namespaceSelector", "objectSelector"] {
        match resources.get(name) {
            None => violations.required(path.child(name), ""),
            Some(selector) => rules::selector(selector, None, &path.child(name), violations),
        }
    }
    for name in ["resourceRules", "excludeResourceRules"] {
        for (index, rule) in resources[name].items().enumerate() {
            let path = path.child(name);
            let path = path.index(index);
            let names = rule["resourceNames"].list();
            for (index, name) in names.iter().enumerate() {
                let path = path.child("resourceNames");
                rules::text(
                    name.str(),
                    names::is_path_segment_name,
                    &path.index(index),
                    violations,
                );
                if names[..index].contains(name) {
                    violations.duplicate(path.index(index), name.str());
                }
            }
            validate_rule(rule, &path, violations);
        }
    }
}

/// A mutating policy sees no deletions.
pub(super) fn validate_mutating_operations(
    rules: &Value,
    path: &Path,
    violations: &mut Violations,
) {
    let path = path.child("resourceRules");
    let path = path.child("operations");
    for operation in rules["resourceRules"]
        .items()
        .flat_map(|rule| rule["operations"].list())
    {
        field::one_of(
            operation.str(),
            &["*", "CONNECT", "CREATE", "UPDATE"],
            &path,
            violations,
        );
    }
}

/// A rule: operations on resources of groups and versions.
pub(super) fn validate_rule(rule: &Value, path: &Path, violations: &mut Violations) {
    validate_list(
        &rule["operations"],
        "operations",
        &path.child("operations"),
        violations,
    );
    for (index, operation) in rule["operations"].items().enumerate() {
        let path = path.child("operations");
        let allowed = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
        field::one_of(operation.str(), &allowed, &path.index(index), violations);
    }
    validate_list(
        &rule["apiGroups"],
        "API groups",
        &path.child("apiGroups"),
        violations,
    );
    validate_list(
        &rule["apiVersions"],
        "API versions",
        &path.child("apiVersions"),
        violations,
    );
    for (index, version) in rule["apiVersions"].items().enumerate() {
        if version.is_empty() {
            violations.required(path.child("apiVersions").index(index), "");
        }
    }
    // Resources and subresources: `pods`, `pods/status`, `pods/*`, `*/scale`, `*`, `*/*`.
    let resources = &rule["resources"];
    let place = path.child("resources");
    let list = resources.list();
    if list.is_empty() {
        violations.required(place, "");
    }
    for (index, name) in list.iter().enumerate() {
        match name.str().split_once('/') {
            None if name.is_empty() => violations.required(place.index(index), ""),
            None => {}
            Some(parts) => {
                // What earlier names cover must not be said again.
                let (resource, subresource) = parts;
                for covering in [format!("{resource}/*"), format!("*/{subresource}")] {
                    if list[..index].iter().any(|name| name.str() == covering) {
                        let name = format!("{resource}/{subresource}");
                        let detail = format!("if '{covering}' is present, must not specify {name}");
                        violations.invalid(place.index(index), name, &detail);
                    }
                }
            }
        }
    }
    let has = |wanted: &str| list.iter().any(|name| name.str() == wanted);
    if list.len() > 1 && has("*/*") {
        let detail = "if '*/*' is present, must not specify other resources";
        violations.invalid(place, resources.clone(), detail);
    }
    // Kubernetes: only the last resource without a subresource counts.
    let last = list
        .iter()
        .rev()
        .map(Value::str)
        .find(|name| !name.is_empty() && !name.contains('/'));
    if has("*") && last != Some("*") {
        let detail = "if '*' is present, must not specify other resources without subresources";
        violations.invalid(place, resources.clone(), detail);
    }
    rules::optional_word(
        &rule["scope"],
        &["*", "Cluster", "Namespaced"],
        &path.child("scope"),
        violations,
    );
}

/// There is something, and a star stands alone.
fn validate_list(list: &Value, things: &str, path: &Path, violations: &mut Violations) {
    let n_items = list.list().len();
    if n_items == 0 {
        violations.required(path, "");
    }
    if n_items > 1 && list.items().any(|item| item.str() == "*") {
        let detail = format!("if '*' is present, must not specify other {things}");
        violations.invalid(path, list.clone(), &detail);
    }
}

/// Conditions that decide whether to call at all.
pub(super) fn validate_conditions(
    conditions: &[Value],
    scope: ExpressionVariables,
    path: &Path,
    violations: &mut Violations,
) {
    if conditions.len() > 64 {
        violations.too_many(path, conditions.len(), 64);
    }
    for (index, condition) in conditions.iter().enumerate() {
        let (name, path) = (&condition["name"], path.index(index));
        match condition["expression"].str().trim() {
            "" => violations.required(path.child("expression"), ""),
            text => {
                if let Err(refusal) =
                    ExpressionCompiler::default().compile(text, scope, ExpressionResult::Bool)
                {
                    refusal.tell(text, &path.child("expression"), violations);
                }
            }
        }
        rules::required_text(
            name,
            names::is_qualified_name,
            &path.child("name"),
            violations,
        );
        if !name.is_empty()
            && conditions[..index]
                .iter()
                .any(|earlier| earlier["name"] == *name)
        {
            violations.duplicate(path.child("name"), name.str());
        }
    }
}
