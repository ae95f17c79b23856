//! Groups the pods of a target by how far their metrics count, and reads their resource requests.
//!
//! Kubernetes: groupPods and calculateRequests of replica_calculator.go.

use std::collections::BTreeSet;

use mizzen_component_helpers::amounts::Amounts;
use mizzen_component_helpers::pod_resources::{
    PodResourcesOptions, has_pod_level_requests, pod_requests,
};
use mizzen_component_helpers::pod_state::is_ready;
use mizzen_component_helpers::pod_state::is_sidecar;
use mizzen_value::quantity::Quantity;
use mizzen_value::{Value, time};

use super::pod_metrics::{PodMetric, PodMetrics};
use crate::services::member::condition;

/// The CPU initialization period: CPU samples of a pod are not trusted this long after its start,
/// in seconds.
const CPU_INITIALIZATION_PERIOD: i64 = 300;
/// How long after its start a pod that was never ready still counts as starting, in seconds.
const DELAY_OF_INITIAL_READINESS_STATUS: i64 = 30;

/// Pods by how far their metrics count.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct PodGroups<'a> {
    /// How many pods are ready and measured.
    pub n_ready: usize,
    /// Pods that are not ready yet.
    pub unready: BTreeSet<&'a str>,
    /// Pods without metrics.
    pub missing: BTreeSet<&'a str>,
    /// Pods that are being deleted or have failed.
    pub ignored: BTreeSet<&'a str>,
}

/// Groups pods by how far their metrics count.
pub(crate) fn group_pods<'a>(
    pods: &[&'a Value],
    samples: &PodMetrics,
    is_cpu: bool,
    now: i64,
) -> PodGroups<'a> {
    let mut groups = PodGroups::default();
    for pod in pods {
        let (name, phase) = (pod["metadata"]["name"].str(), pod["status"]["phase"].str());
        let sample = samples.get(name);
        if !pod["metadata"]["deletionTimestamp"].is_null() || phase == "Failed" {
            groups.ignored.insert(name);
        } else if phase == "Pending" {
            groups.unready.insert(name);
        } else if let Some(sample) = sample {
            match is_cpu && sample.is_of_start(pod, now) {
                true => drop(groups.unready.insert(name)),
                false => groups.n_ready += 1,
            }
        } else {
            groups.missing.insert(name);
        }
    }
    groups
}

impl PodMetric {
    /// Whether a CPU sample is still that of its pod's start.
    fn is_of_start(&self, pod: &Value, now: i64) -> bool {
        let ready = condition(pod, "Ready");
        let started = time::to_unix(pod["status"]["startTime"].str());
        let (Some(started), false) = (started, ready.is_null()) else {
            return true;
        };
        let turned = time::to_unix(ready["lastTransitionTime"].str()).unwrap_or_default();
        let is_down = ready["status"].str() == "False";
        match started + CPU_INITIALIZATION_PERIOD > now {
            true => is_down || self.at - self.window < turned,
            false => is_down && started + DELAY_OF_INITIAL_READINESS_STATUS > turned,
        }
    }
}

/// Counts the ready pods. An error if the selector matches no pod.
pub(crate) fn count_ready_pods(pods: &[&Value]) -> Result<i64, String> {
    if pods.is_empty() {
        return Err(NO_PODS.into());
    }
    let works = |pod: &&&Value| pod["status"]["phase"].str() == "Running" && is_ready(pod);
    Ok(pods.iter().filter(works).count() as i64)
}

/// The error if a selector matches no pod.
pub(crate) const NO_PODS: &str = "no pods returned by selector while calculating replica count";

/// A pod's request for a resource in milli-units: of all containers, or of one.
pub(crate) fn pod_request(pod: &Value, container: &str, resource: &str) -> Result<i64, String> {
    if container.is_empty() && has_pod_level_requests(&pod["spec"]) {
        let requests: Amounts = pod_requests(pod, &PodResourcesOptions::default());
        let name = pod["metadata"]["name"].str();
        let missing = || format!("missing pod-level request for {resource} in Pod {name}");
        let request = requests.get(resource).ok_or_else(missing)?;
        return Ok(request.milli_value());
    }
    let (spec, name) = (&pod["spec"], pod["metadata"]["name"].str());
    let containers = spec["containers"].list().iter();
    let sidecars = spec["initContainers"].list().iter();
    let containers: Vec<&Value> = containers
        .chain(sidecars.filter(|container| is_sidecar(container)))
        .filter(|one| container.is_empty() || one["name"].str() == container)
        .collect();
    if containers.is_empty() && !container.is_empty() {
        return Err(format!("container {container} not found in Pod {name}"));
    }
    let request = |one: &&Value| {
        let missing = || {
            let container = one["name"].str();
            format!("missing request for {resource} in container {container} of Pod {name}")
        };
        let request = one["resources"]["requests"][resource].as_str();
        request
            .map(|text| Quantity::parse_or_zero(text).milli_value())
            .ok_or_else(missing)
    };
    containers.iter().map(request).sum()
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    const NOW: i64 = 1_704_067_500;

    /// A pod that started and last changed its Ready condition so many seconds ago.
    fn pod(phase: &str, ready: &str, started: i64, turned: i64) -> Value {
        value!({
            "metadata": {"name": "p"},
            "status": {
                "phase": (phase), "startTime": (time::from_unix(NOW - started)),
                "conditions": [{
                    "type": "Ready", "status": (ready), "lastTransitionTime": (time::from_unix(NOW - turned))
                }]
            }
        })
    }

    #[track_caller]
    fn check(pod: &Value, is_cpu: bool, expect: &str) {
        let samples = PodMetrics::from([(
            "p".to_string(),
            PodMetric {
                value: 1,
                at: NOW,
                window: 30,
            },
        )]);
        let groups = group_pods(&[pod], &samples, is_cpu, NOW);
        let said = match (
            groups.n_ready,
            groups.unready.len(),
            groups.missing.len(),
            groups.ignored.len(),
        ) {
            (1, 0, 0, 0) => "ready",
            (0, 1, 0, 0) => "unready",
            (0, 0, 0, 1) => "ignored",
            _ => "?",
        };
        assert_eq!(said, expect);
    }

    #[test]
    fn the_cpu_of_a_starting_pod_does_not_count() {
        check(&pod("Running", "True", 100, 40), true, "ready");
        check(&pod("Running", "True", 100, 20), true, "unready"); // sampled before it was ready
        check(&pod("Running", "False", 100, 90), true, "unready");
        check(&pod("Running", "False", 1000, 990), true, "unready"); // was never ready
        check(&pod("Running", "False", 1000, 100), true, "ready"); // was ready before
        check(&pod("Running", "False", 100, 90), false, "ready");
        check(&pod("Pending", "False", 100, 90), false, "unready");
        check(&pod("Failed", "False", 100, 90), true, "ignored");
    }

    #[test]
    fn a_pod_without_metrics_is_missing() {
        let pod = pod("Running", "True", 1000, 900);
        assert_eq!(
            group_pods(&[&pod], &PodMetrics::new(), true, NOW).missing,
            BTreeSet::from(["p"])
        );
    }

    #[track_caller]
    fn check_request(spec: Value, container: &str, expect: Result<i64, &str>) {
        let pod = value!({"metadata": {"name": "p"}, "spec": (spec)});
        assert_eq!(
            pod_request(&pod, container, "cpu"),
            expect.map_err(String::from)
        );
    }

    #[test]
    fn a_pods_request_is_the_sum_of_its_containers() {
        let spec = value!({
            "containers": [
                {"name": "a", "resources": {"requests": {"cpu": "100m"}}},
                {"name": "b", "resources": {"requests": {"cpu": "1"}}}
            ],
            "initContainers": [{"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "10m"}}}]
        });
        check_request(spec.clone(), "", Ok(1110));
        check_request(spec.clone(), "b", Ok(1000));
        check_request(
            spec.clone(),
            "none",
            Err("container none not found in Pod p"),
        );
        let mut whole = spec;
        whole
            .entry("resources")
            .set("requests", value!({"cpu": "3"}));
        check_request(whole.clone(), "", Ok(3000));
        check_request(whole, "a", Ok(100));
        let none = value!({"containers": [{"name": "a"}]});
        check_request(
            none,
            "",
            Err("missing request for cpu in container a of Pod p"),
        );
    }
}
