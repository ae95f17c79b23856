//! Quota evaluation of pods: usage, required resources and scopes.

use std::collections::{BTreeMap, BTreeSet};

use mizzen_value::{Value, time};

use super::count;
use super::scope::ScopeSelector;
use crate::amounts::{Amounts, add, amounts};
use crate::pod_resources::{PodResourcesOptions, is_pod_level, pod_limits, pod_requests};
use crate::pod_state::{is_terminal, quality_of_service};
use crate::resource_names::{is_extended, is_huge_page, is_native};

const COUNT: &str = "count/pods";
/// What every container must ask for before it can be counted.
const EXPLICIT: [&str; 6] = [
    "cpu",
    "memory",
    "requests.cpu",
    "requests.memory",
    "limits.cpu",
    "limits.memory",
];
const REQUESTS: &str = "requests.";
const IMPLICIT_DEVICES: &str = "requests.deviceclass.resource.kubernetes.io/";

/// Whether a quota's name for something is about pods.
pub(super) fn counts_as(name: &str) -> bool {
    let plain = name
        .strip_prefix(REQUESTS)
        .or(name.strip_prefix("limits."))
        .unwrap_or(name);
    matches!(name, COUNT | "pods")
        || matches!(plain, "cpu" | "memory" | "ephemeral-storage")
        || is_huge_page(name)
        || name.starts_with("requests.hugepages-")
        || name.starts_with(REQUESTS) && !is_native(name)
        || name.starts_with(IMPLICIT_DEVICES)
}

/// Whether a pod ends by itself.
pub(super) fn is_terminating(pod: &Value) -> bool {
    pod["spec"]["activeDeadlineSeconds"]
        .as_int()
        .is_some_and(|seconds| seconds >= 0)
}

/// Whether a pod is in a scope.
pub(super) fn is_in(selector: &ScopeSelector, pod: &Value) -> bool {
    match selector.scope.as_str() {
        "Terminating" => is_terminating(pod),
        "NotTerminating" => !is_terminating(pod),
        "BestEffort" => quality_of_service(pod) == "BestEffort",
        "NotBestEffort" => quality_of_service(pod) != "BestEffort",
        "PriorityClass" => {
            let class = pod["spec"]["priorityClassName"].str();
            selector.selects(if class.is_empty() {
                &[]
            } else {
                std::slice::from_ref(&class)
            })
        }
        "CrossNamespacePodAffinity" => {
            // Whether a pod wants to be near to or far from pods of other namespaces.
            let is_elsewhere = |term: &Value| {
                !term["namespaces"].is_empty() || !term["namespaceSelector"].is_null()
            };
            ["podAffinity", "podAntiAffinity"].iter().any(|side| {
                let side = &pod["spec"]["affinity"][*side];
                let weighted = side["preferredDuringSchedulingIgnoredDuringExecution"].items();
                side["requiredDuringSchedulingIgnoredDuringExecution"]
                    .items()
                    .any(is_elsewhere)
                    || weighted
                        .map(|weighted| &weighted["podAffinityTerm"])
                        .any(is_elsewhere)
            })
        }
        _ => false,
    }
}

/// What the containers of a pod must ask for and do not: `cpu for: a,b; memory for: b`.
pub(super) fn missing(names: &[&str], pod: &Value) -> Option<String> {
    let spec = &pod["spec"];
    let whole = |field: &str| {
        spec["resources"][field]
            .entries()
            .any(|(name, _)| is_pod_level(name))
    };
    if whole("requests") || whole("limits") {
        return None;
    }
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for container in spec["containers"]
        .items()
        .chain(spec["initContainers"].list())
    {
        let resources = &container["resources"];
        let usage = usage_of(
            &amounts(&resources["requests"]),
            &amounts(&resources["limits"]),
        );
        for name in names
            .iter()
            .filter(|name| EXPLICIT.contains(name) && !usage.contains_key(**name))
        {
            missing
                .entry(name)
                .or_default()
                .insert(container["name"].str());
        }
    }
    let list =
        |containers: &BTreeSet<&str>| containers.iter().copied().collect::<Vec<_>>().join(",");
    let texts: Vec<String> = missing
        .iter()
        .map(|(name, containers)| format!("{name} for: {}", list(containers)))
        .collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

/// What a pod takes. One that is over takes nothing but its place.
pub(super) fn usage(pod: &Value, now: i64) -> Amounts {
    let mut usage = Amounts::from([(COUNT.to_string(), count(1))]);

    let metadata = &pod["metadata"];
    let end = time::to_unix(metadata["deletionTimestamp"].str());
    let grace = metadata["deletionGracePeriodSeconds"].as_int();
    let is_over = is_terminal(pod) || end.zip(grace).is_some_and(|(end, grace)| now > end + grace);
    if is_over {
        return usage;
    }
    let options = PodResourcesOptions {
        use_status_resources: true,
        ..PodResourcesOptions::default()
    };
    let (requests, limits) = (pod_requests(pod, &options), pod_limits(pod, &options));
    add(&mut usage, &usage_of(&requests, &limits));
    usage
}

/// Under which names requests and limits are counted.
fn usage_of(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut usage = Amounts::from([("pods".to_string(), count(1))]);
    for (name, amount) in requests {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || is_huge_page(name) {
            usage.insert(name.clone(), *amount);
            usage.insert(format!("{REQUESTS}{name}"), *amount);
        } else if is_extended(name) || name.starts_with("deviceclass.resource.kubernetes.io/") {
            usage.insert(format!("{REQUESTS}{name}"), *amount);
        }
    }
    for (name, amount) in limits {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
            usage.insert(format!("limits.{name}"), *amount);
        }
    }
    usage
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json;

    fn read(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    #[track_caller]
    fn check(pod: &str, expected: &str) {
        let usage = usage(&read(pod), 1000);
        let found: Vec<String> = usage
            .iter()
            .map(|(name, amount)| format!("{name}={amount}"))
            .collect();
        assert_eq!(found.join(" "), expected);
    }

    #[test]
    fn a_pod_uses_its_requests_and_its_overhead() {
        check(
            r#"{"spec":{"overhead":{"cpu":"1"},"containers":[{"resources":{"requests":{"cpu":"1","example.com/gpu":"2"},"limits":{"cpu":"2"}}}]}}"#,
            "count/pods=1 cpu=2 limits.cpu=3 pods=1 requests.cpu=2 requests.example.com/gpu=2",
        );
        check(
            r#"{"spec":{"containers":[{"resources":{"requests":{"hugepages-2Mi":"4Mi","ephemeral-storage":"1Gi"}}}]}}"#,
            "count/pods=1 ephemeral-storage=1Gi hugepages-2Mi=4Mi pods=1 requests.ephemeral-storage=1Gi requests.hugepages-2Mi=4Mi",
        );
    }

    #[test]
    fn a_pod_that_is_over_takes_only_its_place() {
        check(
            r#"{"status":{"phase":"Failed"},"spec":{"containers":[{}]}}"#,
            "count/pods=1",
        );
        let going = r#"{"metadata":{"deletionTimestamp":"1970-01-01T00:10:00Z","deletionGracePeriodSeconds":30},"spec":{}}"#;
        check(going, "count/pods=1");
    }

    #[test]
    fn a_pod_that_shrinks_takes_what_it_still_has() {
        check(
            r#"{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]},
                "status":{"containerStatuses":[{"name":"c","resources":{"requests":{"cpu":"2"}},"allocatedResources":{"cpu":"3"}}]}}"#,
            "count/pods=1 cpu=3 pods=1 requests.cpu=3",
        );
    }

    #[test]
    fn containers_must_have_the_requests_that_are_limited() {
        let pod = read(
            r#"{"spec":{"containers":[{"name":"b"},{"name":"a","resources":{"requests":{"cpu":"1"}}}]}}"#,
        );
        let found = missing(&["requests.cpu", "memory", "pods"], &pod);
        assert_eq!(
            found.as_deref(),
            Some("memory for: a,b; requests.cpu for: b")
        );
        let whole =
            read(r#"{"spec":{"resources":{"limits":{"cpu":"1"}},"containers":[{"name":"b"}]}}"#);
        assert_eq!(missing(&["memory"], &whole), None);
    }

    #[test]
    fn scopes_part_pods() {
        let scope = |scope: &str| ScopeSelector {
            scope: scope.into(),
            operator: "Exists".into(),
            values: Vec::new(),
        };
        let plain = read(r#"{"spec":{"containers":[{}]}}"#);
        let bound = read(
            r#"{"spec":{"activeDeadlineSeconds":1,"priorityClassName":"p","containers":[{"resources":{"limits":{"cpu":"1"}}}],
                "affinity":{"podAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"podAffinityTerm":{"namespaces":["x"]}}]}}}}"#,
        );
        for name in [
            "Terminating",
            "NotBestEffort",
            "PriorityClass",
            "CrossNamespacePodAffinity",
        ] {
            assert!(
                is_in(&scope(name), &bound) && !is_in(&scope(name), &plain),
                "{name}"
            );
        }
        for name in ["NotTerminating", "BestEffort"] {
            assert!(
                is_in(&scope(name), &plain) && !is_in(&scope(name), &bound),
                "{name}"
            );
        }
    }
}
