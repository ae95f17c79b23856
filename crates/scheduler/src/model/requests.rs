//! How much does a pod ask for?

use mizzen_kinds::pod_resources::{PodResourcesOptions, ResourceList, pod_requests};
use mizzen_value::Value;

use super::resources::Resources;

/// What a container is taken to ask for if it does not say: so that many such pods do not end on one node.
static ASSUMED: [(&str, Resources); 2] = [
    (
        "cpu",
        Resources {
            cpu: 100,
            memory: 0,
            ephemeral: 0,
            scalar: Vec::new(),
        },
    ),
    (
        "memory",
        Resources {
            cpu: 0,
            memory: 200 * 1024 * 1024,
            ephemeral: 0,
            scalar: Vec::new(),
        },
    ),
];

/// What a pod asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Requests {
    /// As it says.
    pub stated: Resources,
    /// CPU as scores count it.
    pub assumed_cpu: i64,
    /// Memory as scores count it.
    pub assumed_memory: i64,
}

impl Requests {
    pub(crate) fn of(pod: &Value) -> Requests {
        let stated = PodResourcesOptions {
            use_status_resources: true,
            use_pod_status_resources: true,
            ..PodResourcesOptions::default()
        };
        let assumed = PodResourcesOptions {
            missing_requests: &ASSUMED,
            ..stated
        };
        let assumed: Resources = pod_requests(pod, &assumed);
        Requests {
            stated: pod_requests(pod, &stated),
            assumed_cpu: assumed.cpu,
            assumed_memory: assumed.memory,
        }
    }
}

impl ResourceList for Resources {
    fn read(list: &Value) -> Resources {
        Resources::of(list)
    }

    fn add(&mut self, other: &Resources) {
        Resources::add(self, other, 1);
    }

    fn raise_to(&mut self, other: &Resources) {
        Resources::raise_to(self, other);
    }

    fn replace(&mut self, name: &str, other: &Resources) {
        self.set(name, other.get(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::samples::object;

    #[track_caller]
    fn check(pod: &str, cpu: i64, assumed_cpu: i64) {
        let requests = Requests::of(&object(pod));
        assert_eq!(
            (requests.stated.cpu, requests.assumed_cpu),
            (cpu, assumed_cpu)
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
    fn a_container_that_asks_for_nothing_is_assumed_to_need_something() {
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
