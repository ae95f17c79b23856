//! HorizontalPodAutoscalers of v2beta1 and v2beta2.
//!
//! v2beta1 writes metrics as the annotations of version 1 do, and has no field for the behavior. v2beta2 has all fields
//! of version 2 but the tolerances.
//!
//! Kubernetes: pkg/apis/autoscaling/v2beta1 and v2beta2, which v1.35 still had.

use mizzen_value::{Value, json, value};

use super::from_v1::{convert_all, convert_behavior};
use super::to_v1::internal_behavior;
use super::{BEHAVIOR, SCALE_DOWN_TOLERANCE, SCALE_UP_TOLERANCE, drop_annotations, metric};

/// Where v2beta2 keeps the tolerance of each direction.
const TOLERANCES: [(&str, &str); 2] = [
    ("scaleDown", SCALE_DOWN_TOLERANCE),
    ("scaleUp", SCALE_UP_TOLERANCE),
];

pub(super) fn default_v2beta1(autoscaler: &mut Value) {
    let spec = autoscaler.entry("spec");
    spec.set_default("minReplicas", 1);
    if spec["metrics"].is_empty() {
        let cpu = value!({"name": "cpu", "targetAverageUtilization": 80});
        spec.set("metrics", value!([{"type": "Resource", "resource": cpu}]));
    }
}

pub(super) fn from_v2beta1(autoscaler: &mut Value) {
    let behavior =
        annotation(autoscaler, BEHAVIOR).and_then(|text| json::parse(text.as_bytes()).ok());
    if let Some(behavior) = behavior.as_ref().and_then(convert_behavior) {
        autoscaler.entry("spec").set("behavior", behavior);
    }
    convert_metrics(autoscaler, metric::spec_from_v1, metric::status_from_v1);
    drop_annotations(autoscaler);
}

pub(super) fn to_v2beta1(autoscaler: &mut Value) {
    drop_annotations(autoscaler);
    let behavior = autoscaler
        .entry("spec")
        .remove("behavior")
        .filter(|behavior| !behavior.is_null());
    if let Some(behavior) = behavior {
        let text = json::to_string(&internal_behavior(&behavior));
        autoscaler
            .entry("metadata")
            .entry("annotations")
            .set(BEHAVIOR, text);
    }
    convert_metrics(
        autoscaler,
        |metric| Some(metric::spec_to_v1(metric)),
        |metric| Some(metric::status_to_v1(metric)),
    );
}

/// A conversion of one metric; none for a metric that cannot be read.
type Convert = fn(&Value) -> Option<Value>;

fn convert_metrics(autoscaler: &mut Value, spec: Convert, status: Convert) {
    for (path, convert) in [("spec.metrics", spec), ("status.currentMetrics", status)] {
        if let Some(metrics) = autoscaler.at_mut(path).filter(|metrics| !metrics.is_null()) {
            *metrics = convert_all(metrics, convert).unwrap_or_default().into();
        }
    }
}

pub(super) fn from_v2beta2(autoscaler: &mut Value) {
    for (direction, name) in TOLERANCES {
        let tolerance = annotation(autoscaler, name).and_then(|text| metric::amount(&text.into()));
        if let Some(tolerance) = tolerance {
            autoscaler
                .entry("spec")
                .entry("behavior")
                .entry(direction)
                .set("tolerance", tolerance);
        }
    }
    drop_annotations(autoscaler);
}

pub(super) fn to_v2beta2(autoscaler: &mut Value) {
    drop_annotations(autoscaler);
    for (direction, name) in TOLERANCES {
        let rules = autoscaler
            .at_mut("spec.behavior")
            .and_then(|behavior| behavior.get_mut(direction));
        if let Some(tolerance) = rules
            .and_then(|rules| rules.remove("tolerance"))
            .filter(|it| !it.is_null())
        {
            autoscaler
                .entry("metadata")
                .entry("annotations")
                .set(name, tolerance);
        }
    }
}

fn annotation(autoscaler: &Value, name: &str) -> Option<String> {
    autoscaler["metadata"]["annotations"][name]
        .as_str()
        .map(String::from)
}
