//! Conversion of HorizontalPodAutoscalers from v1: annotations become fields.

use mizzen_value::{Value, json, value};

use super::metric;
use super::{BEHAVIOR, CONDITIONS, CURRENT_METRICS, METRICS, cpu_utilization, default_v2};

/// Turns an autoscaler of version 1 into the stored version.
pub(super) fn convert(autoscaler: &mut Value) {
    let annotation = |name: &str| {
        let text = autoscaler["metadata"]["annotations"][name].as_str()?;
        json::parse(text.as_bytes()).ok()
    };
    let metrics =
        annotation(METRICS).and_then(|metrics| convert_all(&metrics, metric::spec_from_v1));
    let current = annotation(CURRENT_METRICS)
        .and_then(|metrics| convert_all(&metrics, metric::status_from_v1));
    let behavior = annotation(BEHAVIOR).and_then(|behavior| convert_behavior(&behavior));
    let conditions =
        annotation(CONDITIONS).filter(|conditions| matches!(conditions, Value::List(_)));

    autoscaler.set("apiVersion", "autoscaling/v2");
    let spec = autoscaler.entry("spec");
    let mut metrics = metrics.unwrap_or_default();
    if let Some(percent) = spec.remove("targetCPUUtilizationPercentage") {
        metrics.push(cpu_utilization(percent.int()));
    }
    spec.set("metrics", metrics);
    if let Some(behavior) = behavior {
        spec.set("behavior", behavior);
    }
    let status = autoscaler.entry("status");
    let cpu = status
        .remove("currentCPUUtilizationPercentage")
        .map(|percent| {
            let current = value!({"averageUtilization": percent});
            vec![value!({"type": "Resource", "resource": {"name": "cpu", "current": current}})]
        });
    status.set("currentMetrics", current.or(cpu));
    if let Some(conditions) = conditions {
        status.set("conditions", conditions);
    }
    default_v2(autoscaler);
}

pub(super) fn convert_all(
    metrics: &Value,
    convert: fn(&Value) -> Option<Value>,
) -> Option<Vec<Value>> {
    match metrics {
        Value::List(metrics) => metrics.iter().map(convert).collect(),
        _ => None,
    }
}

/// The annotation has the fields' Go names; an empty one counts as none.
pub(super) fn convert_behavior(internal: &Value) -> Option<Value> {
    let (up, down) = (member(internal, "scaleUp"), member(internal, "scaleDown"));
    if up.is_null() && down.is_null() {
        return None;
    }
    let mut behavior = Value::object();
    for (name, rules) in [("scaleUp", up), ("scaleDown", down)] {
        if !rules.is_null() {
            behavior.set(name, convert_rules(&rules)?);
        }
    }
    Some(behavior)
}

fn convert_rules(internal: &Value) -> Option<Value> {
    let policies = member(internal, "policies");
    let policies = match &policies {
        Value::List(policies) => Value::List(
            policies
                .iter()
                .map(|internal| {
                    metric::fields([
                        ("type", member(internal, "type")),
                        ("value", member(internal, "value")),
                        ("periodSeconds", member(internal, "periodSeconds")),
                    ])
                })
                .collect(),
        ),
        // Kubernetes: version 1 has no defaults for rules, so that they lack policies.
        _ => Value::List(Vec::new()),
    };
    let window = "stabilizationWindowSeconds";
    Some(metric::fields([
        (window, member(internal, window)),
        ("selectPolicy", member(internal, "selectPolicy")),
        ("policies", policies),
        ("tolerance", metric::amount(&member(internal, "tolerance"))?),
    ]))
}

/// A member whatever the case of its name, as Go's decoder finds it.
fn member(value: &Value, name: &str) -> Value {
    let found = value
        .entries()
        .find(|(key, _)| key.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.clone()).unwrap_or_default()
}
