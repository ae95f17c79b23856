//! The limits of cgroups, from the resources of a pod.
//!
//! Kubernetes: pkg/kubelet/cm/helpers_linux.go, pkg/kubelet/qos/policy.go and
//! pkg/kubelet/kuberuntime/kuberuntime_container_linux.go.
//!
//! Invariant: pure.

use std::collections::BTreeMap;

use mizzen_component_helpers::amounts::{Amounts, quantity};
use mizzen_component_helpers::pod_resources::{PodResourcesOptions, pod_limits, pod_requests};
use mizzen_component_helpers::pod_state::{is_sidecar, quality_of_service};
use mizzen_cri::messages::{HugepageLimit, LinuxContainerResources};
use mizzen_value::Value;
use mizzen_value::quantity::Quantity;

use crate::pod::resources::container_limit;
use crate::stats::MemoryStats;

/// The weight of a whole CPU, and the least and the most that the kernel takes.
const SHARES_PER_CPU: i64 = 1024;
const MIN_SHARES: i64 = 2;
const MAX_SHARES: i64 = 262_144;
/// The period of the CPU quota and the least quota, in microseconds.
pub(super) const QUOTA_PERIOD: i64 = 100_000;
const MIN_QUOTA: i64 = 1000;
/// The OOM score adjustments of the QoS classes; burstable pods are between the least and the most.
const GUARANTEED_OOM: i64 = -997;
const BEST_EFFORT_OOM: i64 = 1000;
const NODE_CRITICAL: &str = "system-node-critical";

/// What the limits of containers depend on beside their pod.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MachineResources {
    /// The memory of the machine, in bytes.
    pub memory: i64,
    /// Whether its cgroups are those of version 2.
    pub has_cgroup_v2: bool,
    /// Whether cgroups can limit swap.
    pub limits_swap: bool,
}

/// The limits of the cgroup of a pod; `None` is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CgroupLimits {
    pub cpu_shares: i64,
    /// In microseconds per [`QUOTA_PERIOD`].
    pub cpu_quota: Option<i64>,
    /// In bytes.
    pub memory: Option<i64>,
}

impl CgroupLimits {
    /// The limits that are enough for both, while containers are changed one after the other.
    pub(super) fn union(self, other: CgroupLimits) -> CgroupLimits {
        let most = |one: Option<i64>, other: Option<i64>| Some(one?.max(other?));
        CgroupLimits {
            cpu_shares: self.cpu_shares.max(other.cpu_shares),
            cpu_quota: most(self.cpu_quota, other.cpu_quota),
            memory: most(self.memory, other.memory),
        }
    }
}

/// The weight of millicores.
pub(super) fn shares(millicores: i64) -> i64 {
    (millicores.saturating_mul(SHARES_PER_CPU) / 1000).clamp(MIN_SHARES, MAX_SHARES)
}

/// The quota of millicores; `None` without a limit.
fn quota(millicores: i64) -> Option<i64> {
    let quota = millicores.saturating_mul(QUOTA_PERIOD) / 1000;
    (millicores > 0).then(|| quota.max(MIN_QUOTA))
}

/// The weight of cgroup v2 for shares. runc has the same formula, so that pods and containers
/// compare (opencontainers/cgroups, `ConvertCPUSharesToCgroupV2Value`).
pub(super) fn weight(shares: i64) -> u64 {
    if shares <= MIN_SHARES {
        return 1;
    }
    if shares >= MAX_SHARES {
        return 10_000;
    }
    let log = (shares as f64).log2();
    let exponent = (log * log + 125.0 * log) / 612.0 - 7.0 / 34.0;
    10_f64.powf(exponent).ceil() as u64
}

/// The millicores that a pod requests.
pub(super) fn cpu_request(pod: &Value) -> i64 {
    let requests: Amounts = pod_requests(pod, &PodResourcesOptions::default());
    requests.get("cpu").map_or(0, Quantity::milli_value)
}

/// The limits of a pod. A burstable pod is limited only if each of its containers is, or the pod
/// as a whole.
pub(super) fn of_pod(pod: &Value) -> CgroupLimits {
    let limits = pod_limits(pod, &PodResourcesOptions::default());
    let limit = |name: &str| limits.get(name).filter(|_| is_limited(pod, name));
    match quality_of_service(pod) {
        "BestEffort" => CgroupLimits {
            cpu_shares: MIN_SHARES,
            ..CgroupLimits::default()
        },
        _ => CgroupLimits {
            cpu_shares: shares(cpu_request(pod)),
            cpu_quota: limit("cpu").and_then(|limit| quota(limit.milli_value())),
            memory: limit("memory").map(Quantity::value),
        },
    }
}

fn is_limited(pod: &Value, name: &str) -> bool {
    let spec = &pod["spec"];
    let has_limit = |holder: &Value| !amount(&holder["resources"], "limits", name).is_zero();
    let mut containers = ["containers", "initContainers"]
        .into_iter()
        .flat_map(|list| spec[list].list());
    has_limit(spec) || containers.all(has_limit)
}

fn amount(resources: &Value, list: &str, name: &str) -> Quantity {
    Quantity::parse_or_zero(resources[list][name].str())
}

/// The limits of a container. Where it has none, those of the whole pod hold.
pub(super) fn of_container(
    pod: &Value,
    container: &Value,
    machine: MachineResources,
) -> LinuxContainerResources {
    let (resources, of_pod) = (&container["resources"], &pod["spec"]["resources"]);
    let limit = |name: &str| quantity(container_limit(resources, of_pod, name));
    let cpu_limit = limit("cpu").milli_value();
    let request = match resources["requests"]["cpu"].is_null() {
        true => cpu_limit,
        false => amount(resources, "requests", "cpu").milli_value(),
    };
    let quota = quota(cpu_limit);
    let memory_limit = limit("memory").value();
    LinuxContainerResources {
        cpu_period: quota.map_or(0, |_| QUOTA_PERIOD),
        cpu_quota: quota.unwrap_or_default(),
        cpu_shares: shares(request),
        memory_limit_in_bytes: memory_limit,
        // Version 1 limits the sum of memory and swap.
        memory_swap_limit_in_bytes: match machine.limits_swap && !machine.has_cgroup_v2 {
            true => memory_limit,
            false => 0,
        },
        oom_score_adj: oom_score(pod, container, machine.memory),
        hugepage_limits: hugepage_limits(resources, of_pod),
        unified: unified(machine),
        ..LinuxContainerResources::default()
    }
}

/// The resources of all containers of a pod together, and its overhead, for runtimes that make a
/// machine of that size. Kubernetes: pkg/kubelet/kuberuntime/kuberuntime_sandbox_linux.go.
pub(super) fn of_sandbox(
    pod: &Value,
    machine: MachineResources,
) -> (LinuxContainerResources, LinuxContainerResources) {
    let options = PodResourcesOptions {
        exclude_overhead: true,
        ..PodResourcesOptions::default()
    };
    let (requests, limits): (Amounts, Amounts) =
        (pod_requests(pod, &options), pod_limits(pod, &options));
    let milli = |amounts: &Amounts| amounts.get("cpu").map(Quantity::milli_value);
    let cpu_limit = milli(&limits).unwrap_or_default();
    let resources = |request: i64, cpu_limit: i64, memory: i64| LinuxContainerResources {
        cpu_shares: shares(request),
        cpu_period: QUOTA_PERIOD,
        cpu_quota: quota(cpu_limit).unwrap_or_default(),
        memory_limit_in_bytes: memory,
        unified: unified(machine),
        ..LinuxContainerResources::default()
    };
    let memory = limits.get("memory").map_or(0, Quantity::value);
    let all = resources(milli(&requests).unwrap_or(cpu_limit), cpu_limit, memory);
    let overhead = &pod["spec"]["overhead"];
    if overhead.is_null() {
        return (all, LinuxContainerResources::default());
    }
    let amount = |name: &str| Quantity::parse_or_zero(overhead[name].str());
    let cpu = amount("cpu").milli_value();
    (all, resources(cpu, cpu, amount("memory").value()))
}

/// The limits of huge pages that a container names, or its pod.
fn hugepage_limits(resources: &Value, of_pod: &Value) -> Vec<HugepageLimit> {
    let names = [of_pod, resources].into_iter();
    let names = names.flat_map(|holder| holder["limits"].entries());
    let sizes: BTreeMap<&str, &str> = names
        .filter_map(|(name, _)| Some((name, name.strip_prefix("hugepages-")?)))
        .collect();
    let limits = sizes.into_iter().map(|(name, size)| HugepageLimit {
        page_size: page_size(Quantity::parse_or_zero(size).value()),
        limit: u64::try_from(quantity(container_limit(resources, of_pod, name)).value())
            .unwrap_or_default(),
    });
    limits.collect()
}

/// A size as cgroups name it, such as `2MB`.
fn page_size(mut size: i64) -> String {
    let mut units = ["B", "KB", "MB"].into_iter();
    while size >= 1024 && units.next().is_some() {
        size /= 1024;
    }
    format!("{size}{}", units.next().unwrap_or("GB"))
}

/// Files of cgroup v2. Kubernetes: all processes of a container are killed together
/// (`singleProcessOOMKill: false`), and no memory is swapped (`swapBehavior: NoSwap`).
fn unified(machine: MachineResources) -> BTreeMap<String, String> {
    let files = [
        ("memory.oom.group", "1", machine.has_cgroup_v2),
        (
            "memory.swap.max",
            "0",
            machine.has_cgroup_v2 && machine.limits_swap,
        ),
    ];
    let files = files.into_iter().filter(|(_, _, is_written)| *is_written);
    files
        .map(|(file, content, _)| (file.to_owned(), content.to_owned()))
        .collect()
}

/// Why a memory limit, in bytes and zero for none, must not be set now: it is lower than the one
/// before and not above what is used.
pub(super) fn refuse_decrease(what: &str, memory: &MemoryStats, wanted: i64) -> Option<String> {
    let wanted = u64::try_from(wanted).ok().filter(|wanted| *wanted > 0)?;
    let is_lower = memory.limit.is_none_or(|limit| wanted < limit);
    (is_lower && memory.usage >= wanted).then(|| {
        let usage = memory.usage;
        format!("attempting to set {what} memory limit ({wanted}) below current usage ({usage})")
    })
}

/// The adjustment of the OOM score of a container: the more it requests, the later it is killed.
fn oom_score(pod: &Value, container: &Value, memory_capacity: i64) -> i64 {
    let class = quality_of_service(pod);
    if class == "Guaranteed" || pod["spec"]["priorityClassName"].str() == NODE_CRITICAL {
        return GUARANTEED_OOM;
    }
    if class == "BestEffort" {
        return BEST_EFFORT_OOM;
    }
    let request = |holder: &Value| amount(&holder["resources"], "requests", "memory").value();
    let regular = pod["spec"]["containers"].list();
    let mut requested = request(container);
    if is_sidecar(container) {
        // A sidecar is not killed before the container that it serves.
        let least = regular.iter().map(request).min();
        requested = requested.max(least.unwrap_or_default());
    }
    requested += unassigned_memory(pod);
    let share = i128::from(requested) * 1000 / i128::from(memory_capacity.max(1));
    let score = 1000 - i64::try_from(share).unwrap_or(1000);
    score.clamp(1000 + GUARANTEED_OOM, BEST_EFFORT_OOM - 1)
}

/// The share of each container in what its pod requests as a whole beyond them.
fn unassigned_memory(pod: &Value) -> i64 {
    let spec = &pod["spec"];
    if spec["resources"]["requests"]["memory"].is_null() {
        return 0;
    }
    let sidecars = spec["initContainers"].list().iter();
    let sidecars = sidecars.filter(|container| is_sidecar(container));
    let long: Vec<&Value> = spec["containers"].list().iter().chain(sidecars).collect();
    let request = |holder: &Value| amount(&holder["resources"], "requests", "memory").value();
    let assigned: i64 = long.iter().map(|container| request(container)).sum();
    let rest = request(spec).saturating_sub(assigned).max(0);
    rest / i64::try_from(long.len()).unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use mizzen_value::json;

    use super::*;

    fn pod(spec: &str) -> Value {
        json::parse(format!(r#"{{"spec":{spec}}}"#).as_bytes()).unwrap()
    }

    fn with(resources: &str) -> String {
        format!(r#"{{"name":"c","resources":{resources}}}"#)
    }

    const HALF: &str =
        r#"{"requests":{"cpu":"250m","memory":"64Mi"},"limits":{"cpu":"500m","memory":"128Mi"}}"#;

    #[track_caller]
    fn check(spec: &str, expected: (i64, Option<i64>, Option<i64>)) {
        let limits = of_pod(&pod(spec));
        let found = (limits.cpu_shares, limits.cpu_quota, limits.memory);
        assert_eq!(found, expected, "{spec}");
    }

    #[test]
    fn the_limits_of_a_pod_are_the_sums_of_its_containers() {
        let mebi = 1 << 20;
        check(r#"{"containers":[{"name":"c"}]}"#, (2, None, None));
        let one = with(HALF);
        check(
            &format!(r#"{{"containers":[{one}]}}"#),
            (256, Some(50_000), Some(128 * mebi)),
        );
        check(
            &format!(r#"{{"containers":[{one},{one}]}}"#),
            (512, Some(100_000), Some(256 * mebi)),
        );
        // One container without limits leaves the pod without.
        check(
            &format!(r#"{{"containers":[{one},{{"name":"d"}}]}}"#),
            (256, None, None),
        );
        let whole = r#"{"requests":{"cpu":"1"},"limits":{"cpu":"2","memory":"1Gi"}}"#;
        check(
            &format!(r#"{{"containers":[{{"name":"d"}}],"resources":{whole}}}"#),
            (1024, Some(200_000), Some(1024 * mebi)),
        );
        let tiny = with(r#"{"requests":{"cpu":"1m"},"limits":{"cpu":"1m"}}"#);
        check(
            &format!(r#"{{"containers":[{tiny}]}}"#),
            (2, Some(1000), None),
        );
    }

    #[test]
    fn a_sandbox_has_the_resources_of_its_containers_and_its_overhead() {
        let one = with(HALF);
        let overhead = r#""overhead":{"cpu":"100m","memory":"16Mi"}"#;
        let check = |spec: &str, expected: [(i64, i64, i64, i64); 2]| {
            let (all, overhead) = of_sandbox(&pod(spec), MachineResources::default());
            let found = [all, overhead].map(|it| {
                let memory = it.memory_limit_in_bytes >> 20;
                (it.cpu_shares, it.cpu_period, it.cpu_quota, memory)
            });
            assert_eq!(found, expected, "{spec}");
        };
        let none = (0, 0, 0, 0);
        check(
            &format!(r#"{{"containers":[{one},{one}],{overhead}}}"#),
            [
                (512, QUOTA_PERIOD, 100_000, 256),
                (102, QUOTA_PERIOD, 10_000, 16),
            ],
        );
        check(
            &format!(r#"{{"containers":[{one}]}}"#),
            [(256, QUOTA_PERIOD, 50_000, 128), none],
        );
        check(
            r#"{"containers":[{"name":"c"}]}"#,
            [(2, QUOTA_PERIOD, 0, 0), none],
        );
    }

    #[test]
    fn overhead_is_added_to_the_limits_of_a_pod() {
        let one = with(HALF);
        let overhead = r#""overhead":{"cpu":"100m","memory":"16Mi"}"#;
        check(
            &format!(r#"{{"containers":[{one}],{overhead}}}"#),
            (358, Some(60_000), Some(144 << 20)),
        );
        // Without a limit there is none.
        check(
            &format!(r#"{{"containers":[{{"name":"c"}}],{overhead}}}"#),
            (2, None, None),
        );
    }

    #[test]
    fn a_container_without_limits_has_those_of_its_pod() {
        let whole = r#"{"limits":{"cpu":"2","memory":"1Gi"}}"#;
        let pod = pod(&format!(
            r#"{{"containers":[{{"name":"d"}}],"resources":{whole}}}"#
        ));
        let container = &pod["spec"]["containers"].list()[0];
        let limits = of_container(&pod, container, MachineResources::default());
        assert_eq!(limits.cpu_quota, 200_000);
        assert_eq!(limits.memory_limit_in_bytes, 1 << 30);
    }

    #[test]
    fn huge_pages_are_limited_by_size() {
        let whole = r#"{"limits":{"hugepages-1Gi":"2Gi","hugepages-2Mi":"8Mi"}}"#;
        let own = with(r#"{"limits":{"hugepages-2Mi":"4Mi","hugepages-64Ki":"64Ki","cpu":"1"}}"#);
        let pod = pod(&format!(r#"{{"containers":[{own}],"resources":{whole}}}"#));
        let container = &pod["spec"]["containers"].list()[0];
        let limits = of_container(&pod, container, MachineResources::default());
        let found = limits.hugepage_limits.iter();
        let found: Vec<String> = found
            .map(|it| format!("{}={}", it.page_size, it.limit))
            .collect();
        assert_eq!(found, ["1GB=2147483648", "2MB=4194304", "64KB=65536"]);
    }

    #[test]
    fn a_container_is_killed_as_a_whole_and_does_not_swap() {
        let pod = pod(&format!(r#"{{"containers":[{}]}}"#, with(HALF)));
        let limits = |has_cgroup_v2: bool, limits_swap: bool| {
            let machine = MachineResources {
                memory: 1 << 34,
                has_cgroup_v2,
                limits_swap,
            };
            let made = of_container(&pod, &pod["spec"]["containers"].list()[0], machine);
            let files = made.unified.iter();
            let files: Vec<String> = files.map(|(file, text)| format!("{file}={text}")).collect();
            (files.join(" "), made.memory_swap_limit_in_bytes >> 20)
        };
        let v2 = "memory.oom.group=1";
        assert_eq!(limits(false, false), (String::new(), 0));
        assert_eq!(limits(false, true), (String::new(), 128));
        assert_eq!(limits(true, false), (v2.into(), 0));
        assert_eq!(limits(true, true), (format!("{v2} memory.swap.max=0"), 0));
    }

    #[test]
    fn a_memory_limit_is_not_lowered_below_the_usage() {
        let check = |limit: Option<u64>, usage: u64, wanted: i64| {
            let memory = MemoryStats {
                usage,
                limit,
                ..MemoryStats::default()
            };
            refuse_decrease("pod", &memory, wanted)
        };
        let why = "attempting to set pod memory limit (50) below current usage (60)";
        assert_eq!(check(Some(100), 60, 50).as_deref(), Some(why));
        assert_eq!(check(None, 60, 50).as_deref(), Some(why));
        assert_eq!(check(Some(100), 60, 70), None);
        // Files fill all that a container may use.
        assert_eq!(check(Some(100), 100, 100), None);
        assert_eq!(check(Some(100), 100, 200), None);
        assert_eq!(check(Some(100), 60, 0), None);
    }

    #[test]
    fn oom_scores_are_as_upstream() {
        let score = |spec: &str, list: &str| {
            let pod = pod(spec);
            oom_score(&pod, &pod["spec"][list].list()[0], 1 << 30)
        };
        let one = with(HALF);
        let burstable = format!(r#"{{"containers":[{one}]}}"#);
        assert_eq!(score(&burstable, "containers"), 1000 - 62);
        assert_eq!(
            score(r#"{"containers":[{"name":"c"}]}"#, "containers"),
            1000
        );
        let all =
            with(r#"{"requests":{"cpu":"1","memory":"1Gi"},"limits":{"cpu":"1","memory":"1Gi"}}"#);
        let guaranteed = format!(r#"{{"containers":[{all}]}}"#);
        assert_eq!(score(&guaranteed, "containers"), -997);
        let much = with(r#"{"requests":{"memory":"2Gi"}}"#);
        assert_eq!(
            score(&format!(r#"{{"containers":[{much}]}}"#), "containers"),
            3
        );
        let none = with(r#"{"requests":{"cpu":"1"}}"#);
        assert_eq!(
            score(&format!(r#"{{"containers":[{none}]}}"#), "containers"),
            999
        );
        let sidecar = r#"{"name":"s","restartPolicy":"Always"}"#;
        let beside = format!(r#"{{"containers":[{one}],"initContainers":[{sidecar}]}}"#);
        assert_eq!(score(&beside, "initContainers"), 1000 - 62);
        let whole = r#"{"requests":{"memory":"192Mi"}}"#;
        let spread = format!(r#"{{"containers":[{one},{{"name":"d"}}],"resources":{whole}}}"#);
        assert_eq!(score(&spread, "containers"), 1000 - 125);
        let critical =
            format!(r#"{{"containers":[{one}],"priorityClassName":"system-node-critical"}}"#);
        assert_eq!(score(&critical, "containers"), -997);
    }

    #[test]
    fn weights_are_those_of_runc() {
        for (shares, expected) in [(0, 1), (2, 1), (1024, 100), (262_144, 10_000), (512, 59)] {
            assert_eq!(weight(shares), expected, "{shares}");
        }
    }
}
