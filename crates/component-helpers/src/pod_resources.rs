//! Resource requests and limits of a whole pod.
//!
//! The one rule for scheduler, kubelet, quota, LimitRanger, autoscaler, defaulting and validation: regular containers and
//! sidecars run together, init containers one after the other beside the sidecars that started before them; what the pod
//! says as a whole replaces the sum, and overhead comes on top. While a resize is in progress, a container counts with the
//! largest of its desired, actual and allocated resources.
//!
//! Kubernetes: component-helpers/resource/helpers.go. Amounts of node-allocatable resource claims are behind the gate
//! DRANodeAllocatableResources, which is off in v1.36.

use mizzen_object::condition::find;
use mizzen_value::Value;

use crate::amounts::{Amounts, add, amounts, raise};
use crate::pod_state::is_sidecar;
use crate::resource_names::is_huge_page;

static NONE: Value = Value::Null;

/// Amounts by resource. The scheduler has a form of its own, which is faster and knows what it schedules by.
pub trait ResourceList: Clone + Default {
    /// Reads a list of amounts, such as a container's requests.
    fn read(list: &Value) -> Self;
    /// Adds each amount of `other`.
    fn add(&mut self, other: &Self);
    /// Makes each amount at least that of `other`.
    fn raise_to(&mut self, other: &Self);
    /// Makes one amount that of `other`, zero if it has none.
    fn replace(&mut self, name: &str, other: &Self);
}

impl ResourceList for Amounts {
    fn read(list: &Value) -> Amounts {
        amounts(list)
    }

    fn add(&mut self, other: &Amounts) {
        add(self, other);
    }

    fn raise_to(&mut self, other: &Amounts) {
        raise(self, other);
    }

    fn replace(&mut self, name: &str, other: &Amounts) {
        let amount = other.get(name).copied().unwrap_or_default();
        self.insert(name.to_owned(), amount);
    }
}

/// What is counted. Kubernetes: `PodResourcesOptions`; the default counts the spec alone, overhead included.
#[derive(Debug, Clone, Copy, Default)]
pub struct PodResourcesOptions<'a, L> {
    /// Whether the statuses of containers count, which tell of a resize in progress.
    pub use_status_resources: bool,
    /// Whether the same holds for resources of the pod as a whole (InPlacePodLevelResourcesVerticalScaling).
    pub use_pod_status_resources: bool,
    /// Whether overhead is left out.
    pub exclude_overhead: bool,
    /// What containers request that do not name the resource.
    pub missing_requests: &'a [(&'a str, L)],
}

/// One of the two lists of a container's `resources`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceField {
    /// `requests`.
    Requests,
    /// `limits`.
    Limits,
}

impl ResourceField {
    /// The name of the field.
    pub fn name(self) -> &'static str {
        match self {
            ResourceField::Requests => "requests",
            ResourceField::Limits => "limits",
        }
    }
}

/// What a pod requests.
pub fn pod_requests<L: ResourceList>(pod: &Value, options: &PodResourcesOptions<L>) -> L {
    let mut requests = aggregate(pod, ResourceField::Requests, options);
    apply_pod_level(pod, ResourceField::Requests, options, &mut requests);
    if !options.exclude_overhead && !pod["spec"]["overhead"].is_null() {
        requests.add(&L::read(&pod["spec"]["overhead"]));
    }
    requests
}

/// What a pod may use. Overhead is added to limits that are there and not zero.
pub fn pod_limits(pod: &Value, options: &PodResourcesOptions<Amounts>) -> Amounts {
    let mut limits = aggregate(pod, ResourceField::Limits, options);
    apply_pod_level(pod, ResourceField::Limits, options, &mut limits);
    if !options.exclude_overhead {
        for (name, amount) in amounts(&pod["spec"]["overhead"]) {
            if let Some(limit) = limits.get_mut(&name).filter(|limit| !limit.is_zero()) {
                *limit = limit.add(&amount);
            }
        }
    }
    limits
}

/// Whether a pod can name a resource for all its containers together.
pub fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || is_huge_page(name)
}

/// Whether a pod requests something as a whole.
pub fn has_pod_level_requests(spec: &Value) -> bool {
    let mut requests = spec["resources"]["requests"].entries();
    requests.any(|(name, _)| is_pod_level(name))
}

/// What all containers of a pod spec need together, without what its status says.
pub fn aggregate_spec(spec: &Value, field: ResourceField) -> Amounts {
    aggregate_containers(spec, |container| {
        amounts(&container["resources"][field.name()])
    })
}

fn aggregate<L: ResourceList>(
    pod: &Value,
    field: ResourceField,
    options: &PodResourcesOptions<L>,
) -> L {
    aggregate_containers(&pod["spec"], |container| {
        let stated = &container["resources"][field.name()];
        let status = match options.use_status_resources {
            true => status_of(pod, container),
            false => None,
        };
        let lists = match status {
            Some(status) => effective(pod, field, stated, status),
            None => [stated, &NONE, &NONE],
        };
        let mut list: L = maximum(&lists);
        let missing = match field {
            ResourceField::Requests => options.missing_requests,
            ResourceField::Limits => &[],
        };
        for (name, amount) in missing {
            if lists.iter().all(|list| list[*name].is_null()) {
                list.add(amount);
            }
        }
        list
    })
}

fn aggregate_containers<L: ResourceList>(spec: &Value, of: impl Fn(&Value) -> L) -> L {
    let mut total = L::default();
    for container in spec["containers"].list() {
        total.add(&of(container));
    }
    let init_containers = spec["initContainers"].list();
    if init_containers.is_empty() {
        return total;
    }
    let (mut sidecars, mut peak) = (L::default(), L::default());
    for container in init_containers {
        let mut needed = of(container);
        if is_sidecar(container) {
            total.add(&needed);
            sidecars.add(&needed);
            needed.clone_from(&sidecars);
        } else {
            needed.add(&sidecars);
        }
        peak.raise_to(&needed);
    }
    total.raise_to(&peak);
    total
}

/// The status of a container that tells of its resources; only containers that can be resized are looked for.
fn status_of<'a>(pod: &'a Value, container: &Value) -> Option<&'a Value> {
    let lists: &[&str] = match container["restartPolicy"].str() {
        "Always" => &["initContainerStatuses", "containerStatuses"],
        _ => &["containerStatuses"],
    };
    let mut statuses = lists.iter().flat_map(|list| pod["status"][*list].list());
    let status = statuses.find(|status| status["name"] == container["name"])?;
    (!status["resources"].is_null()).then_some(status)
}

/// The lists of which the largest amounts count while `status` may lag behind what is stated. What is stated does not count
/// if the node can never grant it; what was promised counts for requests only.
fn effective<'a>(
    pod: &Value,
    field: ResourceField,
    stated: &'a Value,
    status: &'a Value,
) -> [&'a Value; 3] {
    let allocated = match field {
        ResourceField::Requests => &status["allocatedResources"],
        ResourceField::Limits => &NONE,
    };
    // A resize that the node can never do has no effect.
    let is_infeasible = find(&pod["status"]["conditions"], "PodResizePending")
        .is_some_and(|condition| condition["reason"].str() == "Infeasible");
    let stated = if is_infeasible { &NONE } else { stated };
    [stated, &status["resources"][field.name()], allocated]
}

fn maximum<L: ResourceList>(lists: &[&Value]) -> L {
    let mut lists = lists.iter().filter(|list| !list.is_null());
    let mut maximum = lists.next().map_or_else(L::default, |list| L::read(list));
    lists.for_each(|list| maximum.raise_to(&L::read(list)));
    maximum
}

/// What the pod names as a whole replaces the sum of its containers.
fn apply_pod_level<L: ResourceList>(
    pod: &Value,
    field: ResourceField,
    options: &PodResourcesOptions<L>,
    total: &mut L,
) {
    let stated = &pod["spec"]["resources"][field.name()];
    if stated.is_null() {
        return;
    }
    let uses_status = options.use_status_resources && options.use_pod_status_resources;
    let whole = match uses_status && !pod["status"]["resources"].is_null() {
        true => maximum(&effective(pod, field, stated, &pod["status"])),
        false => L::read(stated),
    };
    for (name, _) in stated.entries().filter(|(name, _)| is_pod_level(name)) {
        total.replace(name, &whole);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::{Map, Str, json};

    fn shown(amounts: &Amounts) -> String {
        let entries = amounts
            .iter()
            .map(|(name, amount)| (Str::from(name.as_str()), amount.to_string()));
        json::to_string(&Value::Map(entries.collect::<Map>()))
    }

    #[track_caller]
    fn check(pod: &str, options: &PodResourcesOptions<Amounts>, requests: &str, limits: &str) {
        let object = json::parse(pod.as_bytes()).unwrap();
        assert_eq!(shown(&pod_requests(&object, options)), requests, "{pod}");
        assert_eq!(shown(&pod_limits(&object, options)), limits, "{pod}");
    }

    const SPEC: PodResourcesOptions<Amounts> = PodResourcesOptions {
        use_status_resources: false,
        use_pod_status_resources: false,
        exclude_overhead: false,
        missing_requests: &[],
    };
    const STATUS: PodResourcesOptions<Amounts> = PodResourcesOptions {
        use_status_resources: true,
        ..SPEC
    };
    const POD_STATUS: PodResourcesOptions<Amounts> = PodResourcesOptions {
        use_pod_status_resources: true,
        ..STATUS
    };

    #[test]
    fn containers_run_together_and_init_containers_before_them() {
        #[rustfmt::skip]
        let cases = [
            (r#"{"spec":{"containers":[{}]}}"#, "{}", "{}"),
            (r#"{"spec":{"containers":[{"resources":{"requests":{"cpu":"1"},"limits":{"cpu":"2"}}},
                                       {"resources":{"requests":{"cpu":"500m","memory":"1Gi"}}}]}}"#,
             r#"{"cpu":"1500m","memory":"1Gi"}"#, r#"{"cpu":"2"}"#),
            // The largest init container counts if it is larger than all containers together.
            (r#"{"spec":{"containers":[{"resources":{"requests":{"cpu":"500m","memory":"2Gi"}}}],
                 "initContainers":[{"resources":{"requests":{"cpu":"1800m"}}},{"resources":{"requests":{"cpu":"1","memory":"1Gi"}}}]}}"#,
             r#"{"cpu":"1800m","memory":"2Gi"}"#, "{}"),
            // A sidecar runs beside the containers and beside the init containers after it.
            (r#"{"spec":{"containers":[{"resources":{"requests":{"cpu":"1"}}}],
                 "initContainers":[{"restartPolicy":"Always","resources":{"requests":{"cpu":"200m"}}},{"resources":{"requests":{"cpu":"2"}}}]}}"#,
             r#"{"cpu":"2200m"}"#, "{}"),
            // It does not run beside the init containers before it.
            (r#"{"spec":{"containers":[{"resources":{"limits":{"cpu":"1"}}}],
                 "initContainers":[{"resources":{"limits":{"cpu":"2"}}},{"restartPolicy":"Always","resources":{"limits":{"cpu":"200m"}}}]}}"#,
             "{}", r#"{"cpu":"2"}"#),
            // Ephemeral containers have no resources of their own.
            (r#"{"spec":{"containers":[{"resources":{"requests":{"cpu":"1"}}}],"ephemeralContainers":[{"resources":{"requests":{"cpu":"9"}}}]}}"#,
             r#"{"cpu":"1"}"#, "{}"),
            // Amounts may be numbers.
            (r#"{"spec":{"containers":[{"resources":{"requests":{"cpu":1}}}]}}"#, r#"{"cpu":"1"}"#, "{}"),
        ];
        for (pod, requests, limits) in cases {
            check(pod, &SPEC, requests, limits);
        }
    }

    #[test]
    fn overhead_is_added_to_requests_and_to_limits_that_are_there() {
        let pod = r#"{"spec":{"overhead":{"cpu":"100m","memory":"1Mi"},"containers":[
            {"resources":{"requests":{"cpu":"1"},"limits":{"cpu":"2","memory":"0"}}}]}}"#;
        let requests = r#"{"cpu":"1100m","memory":"1Mi"}"#;
        check(pod, &SPEC, requests, r#"{"cpu":"2100m","memory":"0"}"#);
        let without = PodResourcesOptions {
            exclude_overhead: true,
            ..SPEC
        };
        let limits = r#"{"cpu":"2","memory":"0"}"#;
        check(pod, &without, r#"{"cpu":"1"}"#, limits);
    }

    #[test]
    fn what_a_pod_names_as_a_whole_replaces_the_sum() {
        let pod = r#"{"spec":{"overhead":{"cpu":"100m"},
            "resources":{"requests":{"cpu":"3","hugepages-2Mi":"4Mi","example.com/gpu":"7"},"limits":{"memory":"1Gi"}},
            "containers":[{"resources":{"requests":{"cpu":"1","memory":"1Mi","example.com/gpu":"1"},"limits":{"memory":"2Gi","cpu":"4"}}}]}}"#;
        let requests =
            r#"{"cpu":"3100m","example.com/gpu":"1","hugepages-2Mi":"4Mi","memory":"1Mi"}"#;
        check(pod, &SPEC, requests, r#"{"cpu":"4100m","memory":"1Gi"}"#);
    }

    #[test]
    fn a_container_that_is_resized_counts_with_the_largest_amount() {
        let pod = |stated: &str, status: &str, reason: &str| {
            format!(
                r#"{{"spec":{{"containers":[{{"name":"c","resources":{{"requests":{{"cpu":"{stated}"}},"limits":{{"cpu":"{stated}"}}}}}}]}},
                "status":{{"conditions":[{{"type":"PodResizePending","reason":"{reason}"}}],"containerStatuses":[{{"name":"c",{status}}}]}}}}"#
            )
        };
        let has = r#""resources":{"requests":{"cpu":"2"},"limits":{"cpu":"3"}},"allocatedResources":{"cpu":"4"}"#;
        #[rustfmt::skip]
        let cases = [
            (pod("1", has, "Deferred"), r#"{"cpu":"4"}"#, r#"{"cpu":"3"}"#),
            (pod("5", has, "Deferred"), r#"{"cpu":"5"}"#, r#"{"cpu":"5"}"#),
            (pod("5", has, "Infeasible"), r#"{"cpu":"4"}"#, r#"{"cpu":"3"}"#),
            // Without resources in the status there is nothing to compare with.
            (pod("1", r#""allocatedResources":{"cpu":"4"}"#, ""), r#"{"cpu":"1"}"#, r#"{"cpu":"1"}"#),
            (pod("5", r#""restartCount":0"#, "Infeasible"), r#"{"cpu":"5"}"#, r#"{"cpu":"5"}"#),
        ];
        for (pod, requests, limits) in cases {
            check(&pod, &STATUS, requests, limits);
        }
        let spec_alone = pod("1", has, "Deferred");
        check(&spec_alone, &SPEC, r#"{"cpu":"1"}"#, r#"{"cpu":"1"}"#);
    }

    #[test]
    fn of_init_containers_only_sidecars_are_resized() {
        let pod = |policy: &str| {
            format!(
                r#"{{"spec":{{"initContainers":[{{"name":"i",{policy}"resources":{{"requests":{{"cpu":"1"}}}}}}]}},
                "status":{{"initContainerStatuses":[{{"name":"i","resources":{{"requests":{{"cpu":"2"}}}}}}]}}}}"#
            )
        };
        check(&pod(""), &STATUS, r#"{"cpu":"1"}"#, "{}");
        let sidecar = pod(r#""restartPolicy":"Always","#);
        check(&sidecar, &STATUS, r#"{"cpu":"2"}"#, "{}");
    }

    #[test]
    fn a_pod_level_resize_counts_with_the_largest_amount_if_enabled() {
        let pod = r#"{"spec":{"resources":{"requests":{"cpu":"1"},"limits":{"cpu":"1"}},"containers":[{}]},
            "status":{"resources":{"requests":{"cpu":"2"},"limits":{"cpu":"2"}},"allocatedResources":{"cpu":"3"}}}"#;
        check(pod, &STATUS, r#"{"cpu":"1"}"#, r#"{"cpu":"1"}"#);
        check(pod, &POD_STATUS, r#"{"cpu":"3"}"#, r#"{"cpu":"2"}"#);
    }

    #[test]
    fn resources_that_no_list_names_are_assumed() {
        let assumed = [(
            "cpu",
            Amounts::from([(
                "cpu".to_owned(),
                mizzen_value::quantity::Quantity::parse_or_zero("100m"),
            )]),
        )];
        let options = PodResourcesOptions {
            missing_requests: &assumed,
            ..STATUS
        };
        #[rustfmt::skip]
        let cases = [
            (r#"{"spec":{"containers":[{},{"resources":{"requests":{"cpu":"0"}}}]}}"#, r#"{"cpu":"100m"}"#),
            (r#"{"spec":{"containers":[{"name":"c"}]},"status":{"containerStatuses":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}}"#,
             r#"{"cpu":"1"}"#),
            (r#"{"spec":{"containers":[{"name":"c"}]},"status":{"containerStatuses":[{"name":"c","resources":{}}]}}"#,
             r#"{"cpu":"100m"}"#),
        ];
        for (pod, requests) in cases {
            check(pod, &options, requests, "{}");
        }
    }
}
