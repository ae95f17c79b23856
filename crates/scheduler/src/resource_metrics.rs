//! `/metrics/resources`: what pods request and may use, under upstream's names
//! (pkg/scheduler/metrics/resources).

use mizzen_component_helpers::amounts::Amounts;
use mizzen_component_helpers::pod_resources::{PodResourcesOptions, pod_limits, pod_requests};
use mizzen_component_helpers::pod_state::is_terminal;
use mizzen_component_helpers::resource_names::is_huge_page;
use mizzen_sdk::Object;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::metrics::{Collector, Families};
use mizzen_value::Value;

/// The requests and limits of all pods.
pub struct PodResourceMetrics(pub(crate) Informer<Object>);

impl Collector for PodResourceMetrics {
    fn collect(&self, families: &mut Families) {
        for entry in self.0.store().list() {
            // Decoded for the scrape and not kept.
            if let Ok(pod) = entry.read() {
                collect_pod(&pod, families);
            }
        }
    }
}

fn collect_pod(pod: &Value, families: &mut Families) {
    let (metadata, spec) = (&pod["metadata"], &pod["spec"]);
    if !spec["nodeName"].str().is_empty() && is_terminal(pod) {
        return;
    }
    let options = PodResourcesOptions::default();
    let requests: Amounts = pod_requests(pod, &options);
    let limits = pod_limits(pod, &options);
    let priority = spec["priority"].as_int();
    let priority = priority.map_or(String::new(), |priority| priority.to_string());
    for (name, help, amounts) in [
        (
            "kube_pod_resource_request",
            "What pods request, by resource.",
            requests,
        ),
        (
            "kube_pod_resource_limit",
            "What pods may use, by resource.",
            limits,
        ),
    ] {
        let family = families.gauge(name, help);
        for (resource, amount) in amounts.iter().filter(|(_, amount)| !amount.is_zero()) {
            let labels = [
                ("namespace", metadata["namespace"].str()),
                ("pod", metadata["name"].str()),
                ("node", spec["nodeName"].str()),
                ("scheduler", spec["schedulerName"].str()),
                ("priority", &*priority),
                ("resource", resource),
                ("unit", unit(resource)),
            ];
            family.add(&labels, amount.as_f64());
        }
    }
}

fn unit(resource: &str) -> &'static str {
    match resource {
        "cpu" => "cores",
        "memory" | "storage" | "ephemeral-storage" => "bytes",
        name if is_huge_page(name) => "bytes",
        name if name.starts_with("attachable-volumes-") => "integer",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::samples::object;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let mut families = Families::default();
        collect_pod(&object(text), &mut families);
        let families = families.to_string();
        let series: Vec<&str> = families
            .lines()
            .filter(|line| !line.starts_with('#'))
            .collect();
        assert_eq!(series, expected);
    }

    #[test]
    fn a_pod_has_its_requests_and_limits_until_it_is_over() {
        let spec = "spec: {nodeName: n1, schedulerName: s, priority: 7, containers: [{resources: {
            requests: {cpu: 250m, memory: 1Gi, example.com/gpu: '0'}, limits: {cpu: '1'}}}]}";
        let labels = |resource: &str, unit: &str| {
            format!(
                r#"{{namespace="a",node="n1",pod="p",priority="7",resource="{resource}",scheduler="s",unit="{unit}"}}"#
            )
        };
        let pod = |phase: &str| {
            format!("{{metadata: {{namespace: a, name: p}}, {spec}, status: {{phase: {phase}}}}}")
        };
        check(
            &pod("Running"),
            &[
                &format!("kube_pod_resource_limit{} 1", labels("cpu", "cores")),
                &format!("kube_pod_resource_request{} 0.25", labels("cpu", "cores")),
                &format!(
                    "kube_pod_resource_request{} 1.073741824e+09",
                    labels("memory", "bytes")
                ),
            ],
        );
        check(&pod("Succeeded"), &[]);
    }
}
