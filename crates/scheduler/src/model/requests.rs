//! How much does a pod ask for?

use mizzen_object::Value;

use super::resources::{Resources, amount};

/// What a container is taken to ask for if it does not say: so that many such pods do not end on one node.
const ASSUMED: [(&str, i64); 2] = [("cpu", 100), ("memory", 200 * 1024 * 1024)];

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
        let assumed = total(pod, true);
        Requests {
            stated: total(pod, false),
            assumed_cpu: assumed.cpu,
            assumed_memory: assumed.memory,
        }
    }
}

/// Containers run together, init containers one after the other beside those that stay; the larger of both counts.
fn total(pod: &Value, assume: bool) -> Resources {
    let spec = &pod["spec"];
    let mut total = Resources::default();
    for container in spec["containers"].list() {
        total.add(
            &container_requests(pod, container, "containerStatuses", assume),
            1,
        );
    }
    let (mut staying, mut peak) = (Resources::default(), Resources::default());
    for container in spec["initContainers"].list() {
        let stays = container["restartPolicy"].str() == "Always";
        let statuses = if stays { "initContainerStatuses" } else { "" };
        let requests = container_requests(pod, container, statuses, assume);
        let mut here = staying.clone();
        here.add(&requests, 1);
        if stays {
            total.add(&requests, 1);
            staying = here.clone();
        }
        peak.raise_to(&here);
    }
    total.raise_to(&peak);
    apply_pod_level(pod, &mut total);
    total.add(&Resources::of(&spec["overhead"]), 1);
    total
}

fn container_requests(pod: &Value, container: &Value, statuses: &str, assume: bool) -> Resources {
    let stated = &container["resources"]["requests"];
    let status = pod["status"][statuses]
        .list()
        .iter()
        .find(|status| status["name"].str() == container["name"].str());
    let status = status.filter(|status| !status["resources"].is_null());
    let mut requests = match status {
        Some(status) => effective(
            pod,
            stated,
            &status["resources"]["requests"],
            &status["allocatedResources"],
        ),
        None => Resources::of(stated),
    };
    for (name, amount) in ASSUMED
        .into_iter()
        .filter(|(name, _)| assume && stated[*name].is_null())
    {
        requests.set(name, requests.get(name).max(amount));
    }
    requests
}

/// While a pod is resized it takes the larger of what it wants and what it has, unless what it wants cannot be.
fn effective(pod: &Value, stated: &Value, actuated: &Value, allocated: &Value) -> Resources {
    let pending = pod["status"]["conditions"]
        .list()
        .iter()
        .find(|c| c["type"].str() == "PodResizePending");
    let infeasible = pending.is_some_and(|condition| condition["reason"].str() == "Infeasible");
    let mut requests = if infeasible {
        Resources::default()
    } else {
        Resources::of(stated)
    };
    requests.raise_to(&Resources::of(actuated));
    requests.raise_to(&Resources::of(allocated));
    requests
}

/// What the pod asks for as a whole replaces what its containers ask for.
fn apply_pod_level(pod: &Value, total: &mut Resources) {
    let requests = &pod["spec"]["resources"]["requests"];
    let status = &pod["status"];
    let whole = (!status["resources"].is_null()).then(|| {
        effective(
            pod,
            requests,
            &status["resources"]["requests"],
            &status["allocatedResources"],
        )
    });
    for (name, quantity) in requests.entries() {
        if matches!(name, "cpu" | "memory") || name.starts_with("hugepages-") {
            total.set(
                name,
                whole
                    .as_ref()
                    .map_or_else(|| amount(name, quantity), |whole| whole.get(name)),
            );
        }
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
