//! Validation of HorizontalPodAutoscalers.

use mizzen_object::validate::{field, names};
use mizzen_object::{Action, HookContext, Path, Violations};
use mizzen_value::Value;
use mizzen_value::quantity::Quantity;

use mizzen_apiextensions::rules;
use mizzen_core_kinds::resources;

/// Refuses what no autoscaler may say. The object is in its stored form.
pub(super) fn validate(
    autoscaler: &Value,
    old: Option<&Value>,
    context: &HookContext,
    violations: &mut Violations,
) {
    if context.action == Action::Status {
        let path = Path::new("status");
        for field in ["currentReplicas", "desiredReplicas"] {
            field::non_negative(
                autoscaler["status"][field].int(),
                &path.child(field),
                violations,
            );
        }
        return;
    }
    let (spec, path) = (&autoscaler["spec"], Path::new("spec"));
    let old = old.map(|old| &old["spec"]);
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
    let target = &spec["scaleTargetRef"];
    let same = |field: &str| old.is_some_and(|old| old["scaleTargetRef"][field] == target[field]);
    let version = if same("apiVersion") && same("kind") {
        ApiVersionRule::Any
    } else if target["kind"].str() == "ReplicationController" {
        ApiVersionRule::Parsed
    } else {
        ApiVersionRule::Grouped
    };
    validate_reference(target, version, &path.child("scaleTargetRef"), violations);
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
    _: Option<&Value>,
    _: &HookContext,
    violations: &mut Violations,
) {
    let path = Path::new("spec");
    field::non_negative(
        scale["spec"]["replicas"].int(),
        &path.child("replicas"),
        violations,
    );
}

/// What a reference's `apiVersion` may be.
#[derive(Clone, Copy, PartialEq)]
enum ApiVersionRule {
    /// Anything, because it was there before.
    Any,
    /// One that can be parsed, perhaps without a group.
    Parsed,
    /// One that names a group.
    Grouped,
}

fn validate_reference(
    reference: &Value,
    version: ApiVersionRule,
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

fn version_error(api_version: &str, version: ApiVersionRule) -> Option<String> {
    if version == ApiVersionRule::Any {
        return None;
    }
    match api_version.split('/').collect::<Vec<_>>()[..] {
        [_] | ["", _] if version == ApiVersionRule::Grouped => {
            Some("apiVersion must specify API group".into())
        }
        [_] | [_, _] => None,
        _ => Some(format!("unexpected GroupVersion string: {api_version}")),
    }
}

fn validate_metrics(spec: &Value, old: Option<&Value>, path: &Path, violations: &mut Violations) {
    let described = if old.is_some_and(|spec| {
        let objects = spec["metrics"]
            .items()
            .filter(|metric| metric["type"].str() == "Object");
        objects.into_iter().any(|metric| {
            metric.get("object").is_some_and(|object| {
                version_error(
                    object["describedObject"]["apiVersion"].str(),
                    ApiVersionRule::Parsed,
                )
                .is_some()
            })
        })
    }) {
        ApiVersionRule::Any
    } else {
        ApiVersionRule::Parsed
    };
    let metrics = spec["metrics"].list();
    for (index, metric) in metrics.iter().enumerate() {
        let path = path.index(index);
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
    let reaches_zero = metrics
        .iter()
        .any(|metric| matches!(metric["type"].str(), "Object" | "External"));
    if spec["minReplicas"] == Value::Int(0) && !reaches_zero {
        let detail = "must specify at least one Object or External metric to support scaling to zero replicas";
        violations.forbidden(path, detail);
    }
}

const TYPES: [&str; 5] = [
    "ContainerResource",
    "External",
    "Object",
    "Pods",
    "Resource",
];
/// The field of each type, in validation order.
const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];

fn validate_source(
    field: &str,
    source: &Value,
    described: ApiVersionRule,
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
        "containerResource" => {
            let container = source["container"].str();
            match container {
                "" => violations.required(path.child("container"), "must specify a container"),
                name => rules::text(
                    name,
                    names::is_dns1123_label,
                    &path.child("container"),
                    violations,
                ),
            }
        }
        "resource" => {}
        _ => {
            let name = source["metric"]["name"].str();
            let path = path.child("metric");
            let path = path.child("name");
            match name {
                "" => violations.required(path, "must specify a metric name"),
                name => rules::text(name, names::is_path_segment_name, &path, violations),
            }
        }
    }
    let target = &source["target"];
    let place = path.child("target");
    let target_type = target["type"].str();
    if target_type.is_empty() {
        violations.required(place.child("type"), "must specify a metric target type");
    }
    if !["Utilization", "Value", "AverageValue"].contains(&target_type) {
        violations.invalid(
            place.child("type"),
            target_type,
            "must be either Utilization, Value, or AverageValue",
        );
    }
    for field in ["value", "averageValue"] {
        if let Some(amount) = target[field]
            .as_str()
            .filter(|amount| Quantity::parse_or_zero(amount) <= Quantity::default())
        {
            violations.invalid(place.child(field), amount, "must be positive");
        }
    }
    if let Some(percent) = target["averageUtilization"]
        .as_int()
        .filter(|percent| *percent < 1)
    {
        violations.invalid(
            place.child("averageUtilization"),
            percent,
            "must be greater than 0",
        );
    }
    validate_combination(field, &source["target"], &path.child("target"), violations);
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
    for (index, policy) in rules["policies"].items().enumerate() {
        let path = policies.index(index);
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
    rules::nonnegative_amount(&rules["tolerance"], &path.child("tolerance"), violations);
}
