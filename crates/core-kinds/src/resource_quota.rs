//! ResourceQuotas: limits and scopes.

use std::collections::BTreeSet;

use mizzen_object::validate::field::{self, go_struct};
use mizzen_object::{Action, HookContext, Path, Violations};
use mizzen_value::Value;
use mizzen_value::quantity::Quantity;

use super::resources;
use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;

pub(super) const BEHAVIOUR: Behaviour = Behaviour::of::<ResourceQuotaStrategy>();

pub(super) struct ResourceQuotaStrategy;

impl KindStrategy for ResourceQuotaStrategy {
    fn default(quota: &mut Value) {
        for path in ["spec.hard", "status.hard", "status.used"] {
            resources::round(quota.at_mut(path));
        }
    }

    fn validate(
        quota: &Value,
        old: Option<&Value>,
        context: &HookContext,
        violations: &mut Violations,
    ) {
        let status = Path::new("status");
        if context.action == Action::Status {
            amounts(&quota["status"]["hard"], &status.child("hard"), violations);
            return amounts(&quota["status"]["used"], &status.child("used"), violations);
        }
        let spec = Path::new("spec");
        amounts(&quota["spec"]["hard"], &spec.child("hard"), violations);
        scopes(&quota["spec"], &spec.child("scopes"), violations);
        let quota_spec = &quota["spec"];
        let path = spec.child("scopeSelector");
        let path = path.child("matchExpressions");
        let requirements = quota_spec["scopeSelector"]["matchExpressions"].list();
        for requirement in requirements {
            let scope = requirement["scopeName"].str();
            if !SCOPES.contains(&scope) {
                violations.invalid(path.child("scopeName"), scope, "unsupported scope");
            }
            for _ in excluded(quota_spec, scope) {
                violations.invalid(
                    path,
                    shown(requirements),
                    "unsupported scope applied to resource",
                );
            }
            operator(requirement, &path, violations);
        }
        let selector_scopes = requirements
            .iter()
            .map(|requirement| requirement["scopeName"].str());
        conflicts(selector_scopes, &quota_spec["scopes"], &path, violations);
        if let (Action::Update, Some(old)) = (context.action, old) {
            let new = &quota["spec"]["scopes"];
            let set = |scopes: &Value| {
                scopes
                    .items()
                    .map(|scope| scope.str().to_string())
                    .collect::<BTreeSet<_>>()
            };
            if set(new) != set(&old["spec"]["scopes"]) {
                violations.invalid(spec.child("scopes"), new.clone(), field::IMMUTABLE);
            }
        }
    }

    fn warnings(quota: &Value, _: Option<&Value>, context: &HookContext) -> Vec<String> {
        if context.action != Action::Create {
            return Vec::new();
        }
        let hard = &quota["spec"]["hard"];
        ["cpu", "memory", "storage", "ephemeral-storage"]
            .iter()
            .filter_map(|resource| {
                // More may be requested than the limits add up to.
                let requests = format!("requests.{resource}");
                let has_short_name = ["cpu", "memory"].contains(resource);
                let request_name = match hard.get(&requests) {
                    None if has_short_name => *resource,
                    _ => &requests,
                };
                let limit_name = format!("limits.{resource}");
                let amount = |name: &str| hard[name].as_str().map(Quantity::parse_or_zero);
                let (request, limit) = (amount(request_name)?, amount(&limit_name)?);
                (request > limit).then(|| {
        format!(
            "ResourceQuota {request_name} ({request}) should be less than {limit_name} ({limit})"
        )
    })
            })
            .collect()
    }
}

const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "VolumeAttributesClass",
    "CrossNamespacePodAffinity",
];
const COMPUTE: [&str; 6] = [
    "cpu",
    "memory",
    "limits.cpu",
    "limits.memory",
    "requests.cpu",
    "requests.memory",
];

fn amounts(amounts: &Value, path: &Path, violations: &mut Violations) {
    for (resource, amount) in amounts.entries() {
        let path = path.key(resource);
        resources::quota_name(resource, &path, violations);
        resources::amount(resource, amount, &path, violations);
    }
}

fn scopes(spec: &Value, path: &Path, violations: &mut Violations) {
    let scopes = &spec["scopes"];
    for scope in scopes.list() {
        if !SCOPES.contains(&scope.str()) {
            violations.invalid(path, scopes.clone(), "unsupported scope");
        }
        for _ in excluded(spec, scope.str()) {
            violations.invalid(
                path,
                scopes.clone(),
                "unsupported scope applied to resource",
            );
        }
    }
    conflicts(scopes.items().map(Value::str), scopes, path, violations);
}

/// The resources that a scope says nothing about.
fn excluded<'a>(spec: &'a Value, scope: &'a str) -> impl Iterator<Item = &'a str> {
    let resources: BTreeSet<&str> = spec["hard"]
        .entries()
        .map(|(resource, _)| resource)
        .collect();
    resources
        .into_iter()
        .filter(move |resource| resources::is_for_quota(resource) && !applies(scope, resource))
}

fn applies(scope: &str, resource: &str) -> bool {
    match scope {
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => {
            ["persistentvolumeclaims", "requests.storage"].contains(&resource)
        }
        _ if SCOPES.contains(&scope) => resource == "pods" || COMPUTE.contains(&resource),
        _ => true,
    }
}

fn conflicts<'a>(
    scopes: impl Iterator<Item = &'a str>,
    shown: &Value,
    path: &Path,
    violations: &mut Violations,
) {
    let scopes: BTreeSet<&str> = scopes.collect();
    for (one, other) in [
        ("BestEffort", "NotBestEffort"),
        ("Terminating", "NotTerminating"),
    ] {
        if scopes.contains(one) && scopes.contains(other) {
            violations.invalid(path, shown.clone(), "conflicting scopes");
        }
    }
}

fn operator(requirement: &Value, path: &Path, violations: &mut Violations) {
    let (scope, operator) = (
        requirement["scopeName"].str(),
        requirement["operator"].str(),
    );
    if SCOPES.contains(&scope) && !scope.ends_with("Class") && operator != "Exists" {
        violations.invalid(
            path.child("operator"),
            operator,
            "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, \
             ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or \
             ResourceQuotaScopeCrossNamespacePodAffinity",
        );
    }
    let values = &requirement["values"];
    match operator {
        "In" | "NotIn" if values.is_empty() => violations.required(
            path.child("values"),
            "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
        ),
        "Exists" | "DoesNotExist" if !values.is_empty() => violations.invalid(
            path.child("values"),
            values.clone(),
            "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
        ),
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => violations.invalid(
            path.child("operator"),
            other,
            "not a valid selector operator",
        ),
    }
}

fn shown(requirements: &[Value]) -> Value {
    let fields = [
        ("ScopeName", "scopeName", "".into()),
        ("Operator", "operator", "".into()),
        ("Values", "values", Value::Null),
    ];
    let shown = requirements
        .iter()
        .map(|requirement| go_struct(requirement, &fields))
        .collect::<Vec<_>>();
    mizzen_value::value!({"MatchExpressions": shown})
}

#[cfg(test)]
mod tests {
    use super::super::check::check;
    use super::*;

    #[track_caller]
    fn refused(spec: &str, expected: &[&str]) {
        check(BEHAVIOUR)
            .create(&format!(r#"{{"spec":{spec}}}"#))
            .refused(expected);
    }

    #[test]
    fn limits_have_supported_names_and_valid_amounts() {
        refused(
            r#"{"hard":{"nope":"1","pods":"1500m","count/":"1","example.com/gpu":"-1"}}"#,
            &[
                "spec.hard[nope]: Invalid value: \"nope\": must be a standard resource type or fully qualified",
                "spec.hard[nope]: Invalid value: \"nope\": must be a standard resource for quota",
                "spec.hard[pods]: Invalid value: \"1500m\": must be an integer",
                "spec.hard[count/]: Invalid value: \"count/\": name part must be non-empty",
                "spec.hard[count/]: Invalid value: \"count/\": name part must consist",
                "spec.hard[example.com/gpu]: Invalid value: \"-1\": must be greater than or equal to 0",
            ],
        );
    }

    #[test]
    fn scopes_fit_the_resources_and_each_other() {
        refused(
            r#"{"hard":{"pods":"1","cpu":"1"},"scopes":["BestEffort","NotBestEffort","Nope"]}"#,
            &[
                r#"spec.scopes: Invalid value: ["BestEffort","NotBestEffort","Nope"]: unsupported scope applied to"#,
                r#"spec.scopes: Invalid value: ["BestEffort","NotBestEffort","Nope"]: unsupported scope"#,
                r#"spec.scopes: Invalid value: ["BestEffort","NotBestEffort","Nope"]: conflicting scopes"#,
            ],
        );
        refused(
            r#"{"hard":{"cpu":"1"},"scopeSelector":{"matchExpressions":[{"scopeName":"BestEffort","operator":"In"}]}}"#,
            &[
                r#"spec.scopeSelector.matchExpressions: Invalid value: {"MatchExpressions":[{"ScopeName":"BestEffort","Operator":"In","Values":null}]}: unsupported scope applied"#,
                r#"spec.scopeSelector.matchExpressions.operator: Invalid value: "In": must be 'Exists' when scope"#,
                "spec.scopeSelector.matchExpressions.values: Required value: must be at least one value",
            ],
        );
    }

    #[test]
    fn scopes_stay() {
        let (new, old) = (r#"{"spec":{"scopes":["BestEffort"]}}"#, r#"{"spec":{}}"#);
        check(BEHAVIOUR)
            .update(new, old)
            .refused(&[r#"spec.scopes: Invalid value: ["BestEffort"]: field is immutable"#]);
    }

    #[test]
    fn requests_beyond_limits_are_warned_about() {
        let quota = r#"{"spec":{"hard":{"cpu":"2","limits.cpu":"1","requests.memory":"1","limits.memory":"2"}}}"#;
        check(BEHAVIOUR)
            .create(quota)
            .warns(&["ResourceQuota cpu (2) should be less than limits.cpu (1)"]);
    }
}
