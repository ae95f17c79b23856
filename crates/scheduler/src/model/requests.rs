//! The resource requests of a pod.

use mizzen_component_helpers::pod_resources::{PodResourcesOptions, ResourceList, pod_requests};
use mizzen_value::Value;

use super::resources::ResourceAmounts;

/// The requests assumed for a container without any, so that such pods do not pile up on one node
/// (upstream: DefaultMilliCPURequest, DefaultMemoryRequest).
static DEFAULT_REQUESTS: [(&str, ResourceAmounts); 2] = [
    (
        "cpu",
        ResourceAmounts {
            cpu: 100,
            memory: 0,
            ephemeral: 0,
            scalar: Vec::new(),
        },
    ),
    (
        "memory",
        ResourceAmounts {
            cpu: 0,
            memory: 200 * 1024 * 1024,
            ephemeral: 0,
            scalar: Vec::new(),
        },
    ),
];

/// The resource requests of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PodRequests {
    /// As the pod states them.
    pub stated: ResourceAmounts,
    /// CPU as scores count it, with the default for containers without a request (upstream:
    /// NonZeroRequested).
    pub non_zero_cpu: i64,
    /// Memory, in the same way.
    pub non_zero_memory: i64,
}

impl PodRequests {
    pub(crate) fn from_pod(pod: &Value) -> PodRequests {
        let stated = PodResourcesOptions {
            use_status_resources: true,
            use_pod_status_resources: true,
            ..PodResourcesOptions::default()
        };
        let assumed = PodResourcesOptions {
            missing_requests: &DEFAULT_REQUESTS,
            ..stated
        };
        let assumed: ResourceAmounts = pod_requests(pod, &assumed);
        PodRequests {
            stated: pod_requests(pod, &stated),
            non_zero_cpu: assumed.cpu,
            non_zero_memory: assumed.memory,
        }
    }
}

impl ResourceList for ResourceAmounts {
    fn read(list: &Value) -> ResourceAmounts {
        ResourceAmounts::from_list(list)
    }

    fn add(&mut self, other: &ResourceAmounts) {
        ResourceAmounts::add(self, other, 1);
    }

    fn raise_to(&mut self, other: &ResourceAmounts) {
        ResourceAmounts::raise_to(self, other);
    }

    fn replace(&mut self, name: &str, other: &ResourceAmounts) {
        self.set(name, other.get(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::samples::object;

    #[track_caller]
    fn check(pod: &str, cpu: i64, non_zero_cpu: i64) {
        let requests = PodRequests::from_pod(&object(pod));
        assert_eq!(
            (requests.stated.cpu, requests.non_zero_cpu),
            (cpu, non_zero_cpu)
        );
    }

    #[test]
    fn containers_are_added() {
        check(
            r#"{"spec":{"containers":[{"resources":{"requests":{"cpu":"1"}}},{"resources":{"requests":{"cpu":"500m"}}}]}}"#,
            1500,
            1500,
        );
    }

    #[test]
    fn a_container_without_requests_has_default_requests() {
        check(
            r#"{"spec":{"containers":[{},{"resources":{"requests":{"cpu":"0"}}}]}}"#,
            0,
            100,
        );
    }

    #[test]
    fn the_largest_init_container_counts_if_it_is_larger() {
        check(
            r#"{"spec":{"containers":[{"resources":{"requests":{"cpu":"500m"}}}],
                "initContainers":[{"resources":{"requests":{"cpu":"1800m"}}},{"resources":{"requests":{"cpu":"1"}}}]}}"#,
            1800,
            1800,
        );
    }

    #[test]
    fn init_containers_that_stay_are_added_to_both() {
        check(
            r#"{"spec":{"containers":[{"resources":{"requests":{"cpu":"1"}}}],
                "initContainers":[{"restartPolicy":"Always","resources":{"requests":{"cpu":"200m"}}},
                                  {"resources":{"requests":{"cpu":"2"}}}]}}"#,
            2200,
            2200,
        );
    }

    #[test]
    fn overhead_is_added_and_the_pod_s_own_requests_replace_those_of_containers() {
        check(
            r#"{"spec":{"containers":[{"resources":{"requests":{"cpu":"1"}}}],
                "resources":{"requests":{"cpu":"3"}},"overhead":{"cpu":"100m"}}}"#,
            3100,
            3100,
        );
    }

    #[test]
    fn a_pod_that_shrinks_still_takes_what_it_has() {
        let shrinking = r#"{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]},"status":{
            "containerStatuses":[{"name":"c","resources":{"requests":{"cpu":"2"}},"allocatedResources":{"cpu":"1"}}]}}"#;
        check(shrinking, 2000, 2000);
    }
}
