//! What may an autoscaler ask for?

use mizzen_object::validate::{field, names};
use mizzen_object::{Action, Context, Path, Violations};
use mizzen_value::Value;
use mizzen_value::quantity::Quantity;

use crate::core::resources;
use mizzen_apiextensions::rules;

/// Refuses what no autoscaler may say. The object is in its stored form.
pub(super) fn validate(
    autoscaler: &Value,
    old: Option<&Value>,
    context: &Context,
    violations: &mut Violations,
) {
    if context.action == Action::Status {
        return validate_status(&autoscaler["status"], violations);
    }
    let (spec, path) = (&autoscaler["spec"], Path::new("spec"));
    let old = old.map(|old| &old["spec"]);
    validate_replicas(spec, old, &path, violations);
    validate_target(
        &spec["scaleTargetRef"],
        old,
        &path.child("scaleTargetRef"),
        violations,
    );
    validate_metrics(spec, old, &path.child("metrics"), violations);
    for direction in ["scaleUp", "scaleDown"] {
        if let Some(rules) = spec["behavior"].get(direction) {
            validate_rules(rules, &path.child("behavior").child(direction), violations);
        }
    }
}

/// Refuses to scale below zero.
pub(super) fn validate_scale(
    scale: &Value,
    _old: Option<&Value>,
    _context: &Context,
    violations: &mut Violations,
) {
    let path = Path::new("spec");
    field::non_negative(
        scale["spec"]["replicas"].int(),
        &path.child("replicas"),
        violations,
    );
}

fn validate_status(status: &Value, violations: &mut Violations) {
    let path = Path::new("status");
    for field in ["currentReplicas", "desiredReplicas"] {
        field::non_negative(status[field].int(), &path.child(field), violations);
    }
}

fn validate_replicas(spec: &Value, old: Option<&Value>, path: &Path, violations: &mut Violations) {
    let (min, max) = (spec["minReplicas"].as_int(), spec["maxReplicas"].int());
    // Kubernetes: zero replicas are behind a gate, but may stay where they are.
    let lowest = if old.is_some_and(|old| old["minReplicas"] == Value::Int(0)) {
        0
    } else {
        1
    };
    if let Some(min) = min.filter(|min| *min < lowest) {
        violations.invalid(
            path.child("minReplicas"),
            min,
            &format!("must be greater than or equal to {lowest}"),
        );
    }
    match max {
        0 => violations.required(path.child("maxReplicas"), "must be set and greater than 0"),
        ..0 => violations.invalid(
            path.child("maxReplicas"),
            max,
            "must be greater than or equal to 1",
        ),
        _ => {}
    }
    if min.is_some_and(|min| max < min) {
        violations.invalid(
            path.child("maxReplicas"),
            max,
            "must be greater than or equal to `minReplicas`",
        );
    }
}

/// What a reference's `apiVersion` may be.
#[derive(Clone, Copy, PartialEq)]
enum Version {
    /// Anything, because it was there before.
    Any,
    /// One that can be parsed, perhaps without a group.
    Parsed,
    /// One that names a group.
    Grouped,
}

fn validate_target(target: &Value, old: Option<&Value>, path: &Path, violations: &mut Violations) {
    let same = |field: &str| old.is_some_and(|old| old["scaleTargetRef"][field] == target[field]);
    let version = if same("apiVersion") && same("kind") {
        Version::Any
    } else if target["kind"].str() == "ReplicationController" {
        Version::Parsed
    } else {
        Version::Grouped
    };
    validate_reference(target, version, path, violations);
}

fn validate_reference(
    reference: &Value,
    version: Version,
    path: &Path,
    violations: &mut Violations,
) {
    for field in ["kind", "name"] {
        rules::required_text(
            &reference[field],
            names::is_path_segment_name,
            &path.child(field),
            violations,
        );
    }
    let api_version = reference["apiVersion"].str();
    if let Some(error) = version_error(api_version, version) {
        violations.invalid(path.child("apiVersion"), api_version, &error);
    }
}

fn version_error(api_version: &str, version: Version) -> Option<String> {
    if version == Version::Any {
        return None;
    }
    match api_version.split('/').collect::<Vec<_>>()[..] {
        [_] | ["", _] if version == Version::Grouped => {
            Some("apiVersion must specify API group".into())
        }
        [_] | [_, _] => None,
        _ => Some(format!("unexpected GroupVersion string: {api_version}")),
    }
}

fn validate_metrics(spec: &Value, old: Option<&Value>, path: &Path, violations: &mut Violations) {
    let described = if old.is_some_and(has_invalid_object) {
        Version::Any
    } else {
        Version::Parsed
    };
    let metrics = spec["metrics"].list();
    for (index, metric) in metrics.iter().enumerate() {
        validate_metric(metric, described, &path.index(index), violations);
    }
    let reaches_zero = metrics
        .iter()
        .any(|metric| matches!(metric["type"].str(), "Object" | "External"));
    if spec["minReplicas"] == Value::Int(0) && !reaches_zero {
        let detail = "must specify at least one Object or External metric to support scaling to zero replicas";
        violations.forbidden(path, detail);
    }
}

fn has_invalid_object(spec: &Value) -> bool {
    let objects = spec["metrics"]
        .list()
        .iter()
        .filter(|metric| metric["type"].str() == "Object");
    objects.into_iter().any(|metric| {
        metric.get("object").is_some_and(|object| {
            version_error(
                object["describedObject"]["apiVersion"].str(),
                Version::Parsed,
            )
            .is_some()
        })
    })
}

const TYPES: [&str; 5] = [
    "ContainerResource",
    "External",
    "Object",
    "Pods",
    "Resource",
];
/// The field of each type, in the order in which they are looked at.
const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];

fn validate_metric(metric: &Value, described: Version, path: &Path, violations: &mut Violations) {
    let metric_type = metric["type"].str();
    if metric_type.is_empty() {
        violations.required(path.child("type"), "must specify a metric source type");
    }
    field::one_of(
        metric["type"].str(),
        &TYPES,
        &path.child("type"),
        violations,
    );

    let present: Vec<&str> = SOURCES
        .iter()
        .map(|(_, field)| *field)
        .filter(|field| metric.get(field).is_some())
        .collect();
    if let Some(first) = present.first() {
        validate_source(
            first,
            &metric[*first],
            described,
            &path.child(first),
            violations,
        );
    }
    let expected = SOURCES
        .iter()
        .find(|(name, _)| *name == metric_type)
        .map(|(_, field)| *field);
    match expected {
        Some(field) if metric.get(field).is_none() => {
            violations.required(
                path.child(field),
                "must populate information for the given metric source",
            );
        }
        Some(_) => {}
        None => violations.not_supported(path.child("type"), metric_type, &TYPES),
    }
    if present.len() != 1 {
        for field in present.into_iter().filter(|field| Some(*field) != expected) {
            violations.forbidden(
                path.child(field),
                "must populate the given metric source only",
            );
        }
    }
}

fn validate_source(
    field: &str,
    source: &Value,
    described: Version,
    path: &Path,
    violations: &mut Violations,
) {
    match field {
        "object" => validate_reference(
            &source["describedObject"],
            described,
            &path.child("describedObject"),
            violations,
        ),
        "resource" | "containerResource" if source["name"].is_empty() => {
            violations.required(path.child("name"), "must specify a resource name");
        }
        "containerResource" => {
            resources::container_name(source["name"].str(), &path.child("name"), violations)
        }
        _ => {}
    }
    match field {
        "containerResource" => validate_container(
            source["container"].str(),
            &path.child("container"),
            violations,
        ),
        "resource" => {}
        _ => validate_name(
            source["metric"]["name"].str(),
            &path.child("metric").child("name"),
            violations,
        ),
    }
    validate_target_values(&source["target"], &path.child("target"), violations);
    validate_combination(field, &source["target"], &path.child("target"), violations);
}

fn validate_container(container: &str, path: &Path, violations: &mut Violations) {
    match container {
        "" => violations.required(path, "must specify a container"),
        name => rules::text(name, names::is_dns1123_label, path, violations),
    }
}

fn validate_name(name: &str, path: &Path, violations: &mut Violations) {
    match name {
        "" => violations.required(path, "must specify a metric name"),
        name => rules::text(name, names::is_path_segment_name, path, violations),
    }
}

fn validate_target_values(target: &Value, path: &Path, violations: &mut Violations) {
    let target_type = target["type"].str();
    if target_type.is_empty() {
        violations.required(path.child("type"), "must specify a metric target type");
    }
    if !["Utilization", "Value", "AverageValue"].contains(&target_type) {
        violations.invalid(
            path.child("type"),
            target_type,
            "must be either Utilization, Value, or AverageValue",
        );
    }
    for field in ["value", "averageValue"] {
        if let Some(amount) = target[field].as_str().filter(|amount| !is_positive(amount)) {
            violations.invalid(path.child(field), amount, "must be positive");
        }
    }
    if let Some(percent) = target["averageUtilization"]
        .as_int()
        .filter(|percent| *percent < 1)
    {
        violations.invalid(
            path.child("averageUtilization"),
            percent,
            "must be greater than 0",
        );
    }
}

fn is_positive(amount: &str) -> bool {
    let amount = Quantity::of(amount);
    !amount.is_zero() && !amount.is_negative()
}

/// Which of a target's values each source wants.
fn validate_combination(field: &str, target: &Value, path: &Path, violations: &mut Violations) {
    let has = |field: &str| target.get(field).is_some();
    match field {
        "object" if !has("value") && !has("averageValue") => {
            violations.required(
                path.child("averageValue"),
                "must set either a target value or averageValue",
            );
        }
        "external" if !has("value") && !has("averageValue") => {
            let detail = "must set either a target value for metric or a per-pod target";
            violations.required(path.child("averageValue"), detail);
        }
        "external" if has("value") && has("averageValue") => {
            let detail = "may not set both a target value for metric and a per-pod target";
            violations.forbidden(path.child("value"), detail);
        }
        "pods" if !has("averageValue") => {
            violations.required(
                path.child("averageValue"),
                "must specify a positive target averageValue",
            );
        }
        "resource" | "containerResource" => {
            match (has("averageUtilization"), has("averageValue")) {
                (false, false) => {
                    let detail = "must set either a target raw value or a target utilization";
                    violations.required(path.child("averageUtilization"), detail);
                }
                (true, true) => {
                    let detail = "may not set both a target raw value and a target utilization";
                    violations.forbidden(path.child("averageValue"), detail);
                }
                _ => {}
            }
        }
        _ => {}
    }
}

fn validate_rules(rules: &Value, path: &Path, violations: &mut Violations) {
    let window = path.child("stabilizationWindowSeconds");
    match rules["stabilizationWindowSeconds"].int() {
        seconds @ ..0 => {
            violations.invalid(window, seconds, "must be greater than or equal to zero")
        }
        seconds @ 3601.. => {
            violations.invalid(window, seconds, "must be less than or equal to 3600")
        }
        _ => {}
    }
    rules::optional_word(
        &rules["selectPolicy"],
        &["Disabled", "Max", "Min"],
        &path.child("selectPolicy"),
        violations,
    );
    let policies = path.child("policies");
    if rules["policies"].is_empty() {
        violations.required(policies, "must specify at least one Policy");
    }
    for (index, policy) in rules["policies"].list().iter().enumerate() {
        validate_policy(policy, &policies.index(index), violations);
    }
    rules::nonnegative_amount(&rules["tolerance"], &path.child("tolerance"), violations);
}

fn validate_policy(policy: &Value, path: &Path, violations: &mut Violations) {
    field::one_of(
        policy["type"].str(),
        &["Percent", "Pods"],
        &path.child("type"),
        violations,
    );
    if policy["value"].int() <= 0 {
        violations.invalid(
            path.child("value"),
            policy["value"].int(),
            "must be greater than zero",
        );
    }
    let period = path.child("periodSeconds");
    match policy["periodSeconds"].int() {
        seconds @ ..=0 => violations.invalid(period, seconds, "must be greater than zero"),
        seconds @ 1801.. => {
            violations.invalid(period, seconds, "must be less than or equal to 1800")
        }
        _ => {}
    }
}
