//! Quality of service: how firmly a pod holds its resources.
//!
//! Kubernetes: pkg/apis/core/v1/helper/qos.

use std::collections::BTreeMap;

use mizzen_value::Value;
use mizzen_value::quantity::Quantity;

/// The QoS class of a pod with this spec. Kubernetes: `ComputePodQOS`.
pub fn qos_class(spec: &Value) -> &'static str {
    let mut sums = [BTreeMap::new(), BTreeMap::new()];
    let mut all_limited = true;
    let mut count = |resources: &Value| {
        for (list, sums) in ["requests", "limits"].iter().zip(&mut sums) {
            for (name, amount) in compute_amounts(&resources[*list]) {
                sums.entry(name)
                    .and_modify(|sum: &mut Quantity| *sum = sum.add(&amount))
                    .or_insert(amount);
            }
        }
        all_limited &= compute_amounts(&resources["limits"]).count() == 2;
    };
    if spec["resources"].is_null() {
        for list in ["containers", "initContainers"] {
            spec[list]
                .items()
                .for_each(|container| count(&container["resources"]));
        }
    } else {
        count(&spec["resources"]);
        all_limited |= spec["resources"]["limits"].is_empty();
    }
    let [requests, limits] = sums;
    match () {
        () if requests.is_empty() && limits.is_empty() => "BestEffort",
        () if all_limited && requests == limits => "Guaranteed",
        () => "Burstable",
    }
}

/// What counts for the class: processor and memory, if any is asked for.
fn compute_amounts(amounts: &Value) -> impl Iterator<Item = (&'static str, Quantity)> {
    ["cpu", "memory"]
        .into_iter()
        .map(|name| (name, Quantity::parse_or_zero(amounts[name].str())))
        .filter(|(_, amount)| *amount > Quantity::default())
}

#[cfg(test)]
mod tests {
    use mizzen_value::json;

    use super::qos_class;

    #[track_caller]
    fn check(class: &str, spec: &str) {
        assert_eq!(qos_class(&json::parse(spec.as_bytes()).unwrap()), class);
    }

    #[test]
    fn a_pod_without_requests_is_best_effort() {
        check(
            "BestEffort",
            r#"{"containers":[{"resources":{"requests":{"cpu":"0","x.io/gpu":"1"}}}]}"#,
        );
    }

    #[test]
    fn a_pod_with_some_requests_is_burstable() {
        check(
            "Burstable",
            r#"{"containers":[{"resources":{"requests":{"cpu":"1"}}}]}"#,
        );
        check(
            "Burstable",
            r#"{"containers":[{"resources":{"requests":{"cpu":"1","memory":"1"},"limits":{"cpu":"1","memory":"1"}}},{}]}"#,
        );
    }

    #[test]
    fn a_pod_with_equal_requests_and_limits_is_guaranteed() {
        check(
            "Guaranteed",
            r#"{"containers":[{"resources":{"requests":{"cpu":"1","memory":"1Ki"},"limits":{"cpu":"1000m","memory":"1024"}}}]}"#,
        );
        check(
            "Guaranteed",
            r#"{"resources":{"requests":{"cpu":"1","memory":"1"},"limits":{"cpu":"1","memory":"1"}}}"#,
        );
    }
}
