//! Conversion of HorizontalPodAutoscalers to v1: fields that v1 lacks become annotations.

use mizzen_value::{Value, json};

use super::metric;
use super::{BEHAVIOR, CONDITIONS, CURRENT_METRICS, METRICS, drop_annotations, is_cpu_utilization};

/// Turns a stored autoscaler into version 1.
pub(super) fn convert(autoscaler: &mut Value) {
    drop_annotations(autoscaler);
    let (mut spec, mut status) = (autoscaler["spec"].clone(), autoscaler["status"].clone());
    for (name, value) in annotations(&spec, &status) {
        autoscaler
            .entry("metadata")
            .entry("annotations")
            .set(name, json::to_string(&value));
    }
    autoscaler.set("apiVersion", "autoscaling/v1");
    let metrics = spec.remove("metrics").unwrap_or_default();
    spec.remove("behavior");
    if let Some(metric) = metrics.items().find(|metric| is_cpu_utilization(metric)) {
        let target = &metric["resource"]["target"];
        spec.set(
            "targetCPUUtilizationPercentage",
            target["averageUtilization"].clone(),
        );
    }
    autoscaler.set("spec", spec);
    let current = status.remove("currentMetrics").unwrap_or_default();
    status.remove("conditions");
    for metric in current
        .items()
        .filter(|metric| metric["type"].str() == "Resource")
    {
        let (resource, field) = (&metric["resource"], "averageUtilization");
        if resource["name"].str() == "cpu" && !resource["current"][field].is_null() {
            status.set(
                "currentCPUUtilizationPercentage",
                resource["current"][field].clone(),
            );
        }
    }
    autoscaler.set("status", status);
}

fn annotations(spec: &Value, status: &Value) -> Vec<(&'static str, Value)> {
    let others = spec["metrics"]
        .items()
        .filter(|metric| !is_cpu_utilization(metric));
    let others: Vec<Value> = others.map(metric::spec_to_v1).collect();
    let current: Vec<Value> = status["currentMetrics"]
        .items()
        .map(metric::status_to_v1)
        .collect();
    let all = [
        (METRICS, Value::List(others)),
        (CURRENT_METRICS, Value::List(current)),
        (
            BEHAVIOR,
            spec.get("behavior")
                .map(internal_behavior)
                .unwrap_or_default(),
        ),
        (CONDITIONS, status["conditions"].clone()),
    ];
    all.into_iter()
        .filter(|(_, value)| !value.is_empty())
        .collect()
}

/// Kubernetes: this annotation uses Go field names, because the internal type has no JSON tags.
pub(super) fn internal_behavior(behavior: &Value) -> Value {
    let mut internal = Value::object();
    internal.set("ScaleUp", internal_rules(&behavior["scaleUp"]));
    internal.set("ScaleDown", internal_rules(&behavior["scaleDown"]));
    internal
}

fn internal_rules(rules: &Value) -> Value {
    if rules.is_null() {
        return Value::Null;
    }
    let policies = rules.get("policies").map(|policies| {
        policies
            .items()
            .map(|policy| {
                let mut internal = Value::object();
                internal.set("Type", policy["type"].str());
                internal.set("Value", policy["value"].int());
                internal.set("PeriodSeconds", policy["periodSeconds"].int());
                internal
            })
            .collect::<Vec<_>>()
    });
    let mut internal = Value::object();
    internal.set(
        "StabilizationWindowSeconds",
        rules["stabilizationWindowSeconds"].clone(),
    );
    internal.set("SelectPolicy", rules["selectPolicy"].clone());
    internal.set("Policies", policies);
    internal.set("Tolerance", rules["tolerance"].clone());
    internal
}
