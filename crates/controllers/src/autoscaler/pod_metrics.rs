//! What the metrics APIs return, as numbers in milli-units.

use std::collections::BTreeMap;

use mizzen_value::quantity::Quantity;
use mizzen_value::{Value, time};

/// One metric value of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PodMetric {
    /// In milli-units.
    pub value: i64,
    /// The timestamp, in seconds since 1970.
    pub at: i64,
    /// The window in seconds, rounded up.
    pub window: i64,
}

/// Metric values by pod name.
pub(crate) type PodMetrics = BTreeMap<String, PodMetric>;

/// The window in seconds if the API gives none.
const WINDOW: i64 = 60;

/// The usage of a resource from `metrics.k8s.io`: of all containers of a pod, or of one. Pods
/// without a value are left out.
pub(crate) fn from_resource_metrics(
    items: &[Value],
    resource: &str,
    container: &str,
) -> PodMetrics {
    let sample = |pod: &Value| {
        let containers = pod["containers"].list().iter();
        let selected: Vec<&Value> = containers
            .filter(|one| container.is_empty() || one["name"].str() == container)
            .collect();
        let used: Option<i64> = selected
            .iter()
            .map(|one| milli(&one["usage"][resource]))
            .sum();
        let value = used.filter(|_| !selected.is_empty())?;
        let window = time::duration_nanos(pod["window"].str()).unwrap_or_default();
        // Timestamps have whole seconds, so a fraction of a window counts as a whole second.
        let window = window.saturating_add(999_999_999) / 1_000_000_000;
        Some((
            pod["metadata"]["name"].str().into(),
            PodMetric {
                value,
                at: moment(pod),
                window,
            },
        ))
    };
    items.iter().filter_map(sample).collect()
}

/// A metric of pods from `custom.metrics.k8s.io`.
pub(crate) fn from_custom_metrics(items: &[Value]) -> PodMetrics {
    let sample = |item: &Value| {
        // v1beta1 has `window` instead.
        let window = item["windowSeconds"]
            .as_int()
            .or(item["window"].as_int())
            .unwrap_or(WINDOW);
        let name = item["describedObject"]["name"].str().to_string();
        (
            name,
            PodMetric {
                value: milli(&item["value"]).unwrap_or_default(),
                at: moment(item),
                window,
            },
        )
    };
    items.iter().map(sample).collect()
}

pub(crate) fn values(items: &[Value]) -> Vec<i64> {
    items
        .iter()
        .map(|item| milli(&item["value"]).unwrap_or_default())
        .collect()
}

fn moment(item: &Value) -> i64 {
    time::to_unix(item["timestamp"].str()).unwrap_or_default()
}

/// A quantity in milli-units. Plain numbers are accepted too.
pub(crate) fn milli(quantity: &Value) -> Option<i64> {
    match quantity {
        Value::String(text) => Some(Quantity::parse_or_zero(text).milli_value()),
        Value::Int(number) => Some(number.saturating_mul(1000)),
        Value::Number(text) => Some(Quantity::parse_or_zero(text).milli_value()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    fn pod(name: &str, containers: Value) -> Value {
        value!({
            "metadata": {"name": (name)}, "timestamp": "2024-01-01T00:00:00Z", "window": "30s",
            "containers": (containers)
        })
    }

    #[track_caller]
    fn check(container: &str, expect: &[(&str, i64)]) {
        let items = [
            pod(
                "a",
                value!([{"name": "x", "usage": {"cpu": "100m"}}, {"name": "y", "usage": {"cpu": "1"}}]),
            ),
            pod(
                "b",
                value!([{"name": "x", "usage": {"cpu": "5m"}}, {"name": "y", "usage": {}}]),
            ),
            pod("c", value!([])),
        ];
        let samples = from_resource_metrics(&items, "cpu", container);
        let values: Vec<(&str, i64)> = samples
            .iter()
            .map(|(name, sample)| (name.as_str(), sample.value))
            .collect();
        assert_eq!(values, expect);
        assert!(
            samples
                .values()
                .all(|sample| sample.window == 30 && sample.at == 1_704_067_200)
        );
    }

    #[test]
    fn a_pods_usage_is_the_sum_of_its_containers() {
        check("", &[("a", 1100)]);
        check("x", &[("a", 100), ("b", 5)]);
        check("none", &[]);
    }

    #[test]
    fn a_fraction_of_a_window_is_rounded_up() {
        for (window, expected) in [("0s", 0), ("15s", 15), ("15.05s", 16), ("1m0.999s", 61)] {
            let mut pod = pod("a", value!([{"name": "x", "usage": {"cpu": "1"}}]));
            pod.set("window", window);
            assert_eq!(
                from_resource_metrics(&[pod], "cpu", "")["a"].window,
                expected
            );
        }
    }

    #[test]
    fn custom_metrics_have_a_window_in_either_version() {
        let item = |name: &str, key: &str| {
            let mut item = value!({"describedObject": {"name": (name)}, "value": "1500m", "timestamp": "2024-01-01T00:00:00Z"});
            if !key.is_empty() {
                item.set(key, 15);
            }
            item
        };
        let samples = from_custom_metrics(&[
            item("a", "windowSeconds"),
            item("b", "window"),
            item("c", ""),
        ]);
        let seen: Vec<_> = samples
            .values()
            .map(|sample| (sample.value, sample.window))
            .collect();
        assert_eq!(seen, [(1500, 15), (1500, 15), (1500, 60)]);
    }

    #[test]
    fn numbers_are_quantities() {
        assert_eq!(
            values(&[value!({"value": 3}), value!({"value": "20k"})]),
            [3000, 20_000_000]
        );
    }
}
