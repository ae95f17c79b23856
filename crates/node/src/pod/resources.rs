//! The resources that a resize changes: CPU and memory of containers, and of their pod as a whole.
//!
//! Kubernetes: a container without a limit has that of its pod (pkg/kubelet/util/util.go,
//! `GetLimits`).

use mizzen_component_helpers::amounts::quantity;
use mizzen_value::Value;

/// The resources that can be resized.
const NAMES: [&str; 2] = ["cpu", "memory"];
const LISTS: [&str; 2] = ["requests", "limits"];

/// The limit of a container: its own, or that of its pod. Null if there is none.
pub(crate) fn container_limit<'a>(
    resources: &'a Value,
    of_pod: &'a Value,
    name: &str,
) -> &'a Value {
    let own = &resources["limits"][name];
    match own.is_null() || quantity(own).is_zero() {
        true => &of_pod["limits"][name],
        false => own,
    }
}

/// The resources of a container, with the limits that it has from its pod.
pub(crate) fn of_container(pod: &Value, container: &Value) -> Value {
    with_limits(container["resources"].clone(), &pod["spec"]["resources"])
}

/// The resources of a container whose pod has `of_pod` as a whole.
pub(super) fn with_limits(mut resources: Value, of_pod: &Value) -> Value {
    for name in NAMES {
        let limit = container_limit(&resources, of_pod, name);
        if *limit != resources["limits"][name] {
            let limit = limit.clone();
            resources.entry("limits").set(name, limit);
        }
    }
    resources
}

/// Whether a container that has the resources `known` shall have others.
pub(super) fn must_change(known: &Value, pod: &Value, container: &Value) -> bool {
    NAMES
        .iter()
        .any(|name| changes(known, pod, container, name))
}

/// Whether a resource of a container that has the resources `known` changes.
pub(super) fn changes(known: &Value, pod: &Value, container: &Value, name: &str) -> bool {
    let (own, of_pod) = (&container["resources"], &pod["spec"]["resources"]);
    let differ = |one: &Value, other: &Value| one != other && quantity(one) != quantity(other);
    differ(&known["requests"][name], &own["requests"][name])
        || differ(&known["limits"][name], container_limit(own, of_pod, name))
}

/// The resources that a container or a pod had when its status was written, by those that it shall
/// have. What is not in the status it did not have.
pub(crate) fn restored(wanted: &Value, status: &Value, overhead: &Value) -> Value {
    let mut resources = wanted.clone();
    if status["resources"].is_null() {
        return resources;
    }
    for list in LISTS {
        let known = match list {
            "requests" => &status["allocatedResources"],
            _ => &status["resources"][list],
        };
        for (name, amount) in wanted[list].entries() {
            if known[name].is_null() {
                resources.entry(list).remove(name);
                continue;
            }
            let had = quantity(&known[name]).sub(&quantity(&overhead[name]));
            if had != quantity(amount) {
                resources.entry(list).set(name, had.to_string());
            }
        }
    }
    resources
}

/// The resources that a pod had as a whole when its status was written. Its status has the overhead,
/// too.
pub(crate) fn restored_of_pod(pod: &Value) -> Value {
    let spec = &pod["spec"];
    restored(&spec["resources"], &pod["status"], &spec["overhead"])
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    #[test]
    fn a_container_without_a_limit_follows_its_pod() {
        let pod = |limit: &str| {
            let resources = value!({ "limits": { "cpu": limit, "memory": "64Mi" } });
            value!({ "spec": { "resources": resources } })
        };
        let own =
            value!({ "resources": { "requests": { "cpu": "1" }, "limits": { "memory": "32Mi" } } });
        let before = of_container(&pod("2"), &own);
        let limits = value!({ "memory": "32Mi", "cpu": "2" });
        assert_eq!(before["limits"], limits);
        for (limit, cpu) in [("2", false), ("2000m", false), ("3", true)] {
            let pod = pod(limit);
            let found = NAMES.map(|name| changes(&before, &pod, &own, name));
            assert_eq!(found, [cpu, false], "{limit}");
        }
    }

    #[test]
    fn what_a_pod_had_is_read_from_its_status() {
        let resources = |limits: Value| value!({ "requests": { "cpu": "2" }, "limits": limits });
        let wanted = resources(value!({ "cpu": "4", "memory": "1Gi" }));
        let pod = |status: Value| {
            let overhead = value!({ "cpu": "500m" });
            let spec = value!({ "resources": (wanted.clone()), "overhead": overhead });
            value!({ "spec": spec, "status": status })
        };
        assert_eq!(restored_of_pod(&pod(value!({}))), wanted);
        let same = value!({
            "allocatedResources": { "cpu": "2500m" },
            "resources": { "limits": { "cpu": "4500m", "memory": "1024Mi" } },
        });
        assert_eq!(restored_of_pod(&pod(same)), wanted);
        let less = value!({
            "allocatedResources": { "cpu": "1500m" },
            "resources": { "limits": { "cpu": "2500m" } },
        });
        let had = value!({ "requests": { "cpu": "1" }, "limits": { "cpu": "2" } });
        assert_eq!(restored_of_pod(&pod(less)), had);
    }
}
