//! autoscaling: HorizontalPodAutoscalers and Scale.
//!
//! Version 2 is the one that is stored. Preparing and validating see the stored form, whatever version was sent.

mod beta;
mod from_v1;
mod metric;
mod to_v1;
mod validate;

use mizzen_value::{Value, value};

use crate::Behaviour;

pub(super) fn behaviour(version: &str, kind: &str) -> Behaviour {
    let stored = Behaviour {
        validate: validate::validate,
        ..Behaviour::NONE
    };
    match (version, kind) {
        ("v1", "HorizontalPodAutoscaler") => Behaviour {
            default: |autoscaler| {
                autoscaler.entry("spec").set_default("minReplicas", 1);
            },
            to_stored: from_v1::convert,
            from_stored: to_v1::convert,
            ..stored
        },
        ("v2beta1", "HorizontalPodAutoscaler") => Behaviour {
            default: beta::default_v2beta1,
            to_stored: beta::from_v2beta1,
            from_stored: beta::to_v2beta1,
            ..stored
        },
        ("v2beta2", "HorizontalPodAutoscaler") => Behaviour {
            default: default_fields,
            to_stored: beta::from_v2beta2,
            from_stored: beta::to_v2beta2,
            ..stored
        },
        ("v2", "HorizontalPodAutoscaler") => Behaviour {
            default: default_v2,
            ..stored
        },
        ("v1", "Scale") => Behaviour {
            validate: validate::validate_scale,
            ..Behaviour::NONE
        },
        _ => Behaviour::NONE,
    }
}

/// Where version 1 keeps what it has no fields for.
const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
/// Where v2beta2 keeps the tolerance of each direction.
const SCALE_DOWN_TOLERANCE: &str = "autoscaling.alpha.kubernetes.io/scale-down-tolerance";
const SCALE_UP_TOLERANCE: &str = "autoscaling.alpha.kubernetes.io/scale-up-tolerance";
const ANNOTATIONS: [&str; 6] = [
    METRICS,
    CURRENT_METRICS,
    CONDITIONS,
    BEHAVIOR,
    SCALE_DOWN_TOLERANCE,
    SCALE_UP_TOLERANCE,
];

/// The defaults that v2beta2 has as well.
fn default_fields(autoscaler: &mut Value) {
    let spec = autoscaler.entry("spec");
    spec.set_default("minReplicas", 1);
    if spec["metrics"].is_empty() {
        spec.set("metrics", vec![cpu_utilization(80)]);
    }
    if let Some(behavior) = spec.get_mut("behavior") {
        let scale_up = value!([
            {"type": "Pods", "value": 4, "periodSeconds": 15},
            {"type": "Percent", "value": 100, "periodSeconds": 15},
        ]);
        let up = behavior.entry("scaleUp");
        up.set_default("stabilizationWindowSeconds", 0);
        default_rules(up, scale_up);
        let scale_down = value!([{"type": "Percent", "value": 100, "periodSeconds": 15}]);
        default_rules(behavior.entry("scaleDown"), scale_down);
    }
}

fn default_rules(rules: &mut Value, policies: Value) {
    rules.set_default("selectPolicy", "Max");
    rules.set_default("policies", policies);
}

fn default_v2(autoscaler: &mut Value) {
    drop_annotations(autoscaler);
    default_fields(autoscaler);
}

/// Kubernetes: version 2 has fields for all that version 1 keeps in annotations, and drops those.
fn drop_annotations(autoscaler: &mut Value) {
    if let Some(Value::Map(annotations)) = autoscaler.at_mut("metadata.annotations") {
        annotations.retain(|key, _| !ANNOTATIONS.contains(&key));
    }
}

/// The one metric that version 1 has a field for.
fn cpu_utilization(percent: i64) -> Value {
    let target = value!({"type": "Utilization", "averageUtilization": percent});
    value!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

/// Whether it is that one.
fn is_cpu_utilization(metric: &Value) -> bool {
    let resource = &metric["resource"];
    metric["type"].str() == "Resource"
        && resource["name"].str() == "cpu"
        && !resource["target"]["averageUtilization"].is_null()
}
