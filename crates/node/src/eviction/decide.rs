//! Which pod is evicted, and the message of its eviction.
//!
//! Kubernetes: pkg/kubelet/eviction/eviction_manager.go and helpers.go.
//!
//! Invariant: pure.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use mizzen_component_helpers::amounts::{Amounts, quantity};
use mizzen_component_helpers::pod_resources::{PodResourcesOptions, pod_limits, pod_requests};
use mizzen_component_helpers::pod_state::quality_of_service;
use mizzen_component_helpers::tolerations::{Taint, Toleration, any_tolerates};
use mizzen_sdk::{Key, Object};
use mizzen_value::quantity::{Quantity, QuantityFormat};
use mizzen_value::{Str, Value};

use super::threshold::{EvictionConfig, NodePressure, Observations, Signal, Threshold};
use crate::moment::seconds;
use crate::stats::{ContainerStats, DiskUsage, PodStats};

/// The grace period of a pod that is evicted at once.
const IMMEDIATE: Duration = Duration::from_secs(1);
/// The priority from which a pod is critical to the system.
const CRITICAL_PRIORITY: i64 = 2_000_000_000;
/// The annotations of static pods and of their mirrors.
const STATIC_ANNOTATIONS: [&str; 2] =
    ["kubernetes.io/config.mirror", "kubernetes.io/config.source"];

/// A pod that may be evicted.
pub(crate) struct Candidate<'a> {
    pub pod: &'a Object,
    /// Its figures; `None` if it was not measured.
    pub stats: Option<&'a PodStats>,
}

/// The eviction of a pod.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Eviction {
    pub key: Key,
    pub uid: Str,
    pub message: String,
    /// The annotations of its Event.
    pub annotations: BTreeMap<String, String>,
    pub grace: Duration,
    /// Whether the pod gets the condition DisruptionTarget: it is not to blame.
    pub is_disruption: bool,
}

impl Eviction {
    fn of_limit(pod: &Object, message: String) -> Eviction {
        Eviction {
            key: Key::new(pod.namespace(), pod.name()),
            uid: pod.uid().into(),
            message,
            annotations: BTreeMap::new(),
            grace: IMMEDIATE,
            is_disruption: false,
        }
    }
}

/// Whether a pod is needed for the system: it is neither evicted nor rejected under pressure.
pub(crate) fn is_critical(pod: &Value) -> bool {
    let annotations = &pod["metadata"]["annotations"];
    let [mirror, source] = STATIC_ANNOTATIONS.map(|name| annotations[name].str());
    let is_static = !mirror.is_empty() || !matches!(source, "" | "api");
    is_static || pod["spec"]["priority"].int() >= CRITICAL_PRIORITY
}

/// Why a node under pressure rejects a new pod.
pub(crate) fn rejection(pod: &Value, pressures: &[NodePressure]) -> Option<String> {
    if pressures.is_empty() || is_critical(pod) {
        return None;
    }
    if pressures == [NodePressure::Memory] {
        let taint = Taint {
            key: "node.kubernetes.io/memory-pressure".into(),
            value: "".into(),
            effect: "NoSchedule".into(),
        };
        let tolerations = Toleration::list(&pod["spec"]["tolerations"]);
        let tolerates = any_tolerates(&tolerations, &taint);
        if quality_of_service(pod) != "BestEffort" || tolerates {
            return None;
        }
    }
    let names: Vec<&str> = pressures.iter().map(|pressure| pressure.name()).collect();
    Some(format!("The node had condition: [{}]. ", names.join(" ")))
}

/// Whether a pod has a limit of its disk, so that it must be measured although nothing runs short.
pub(crate) fn has_storage_limit(pod: &Value) -> bool {
    let mut volumes = pod["spec"]["volumes"].list().iter();
    let mut containers = pod["spec"]["containers"].list().iter();
    volumes.any(|volume| quantity(&volume["emptyDir"]["sizeLimit"]).value() > 0)
        || containers.any(|it| !it["resources"]["limits"]["ephemeral-storage"].is_null())
        || pod_limits(pod, &PodResourcesOptions::default()).contains_key("ephemeral-storage")
}

/// The pods that use more disk than their limits allow.
pub(crate) fn over_storage_limits(candidates: &[Candidate], has_image_fs: bool) -> Vec<Eviction> {
    let over = |candidate: &Candidate| {
        let (pod, stats) = (candidate.pod, candidate.stats?);
        let message = over_empty_dir(pod, stats)
            .or_else(|| over_pod_limit(pod, stats))
            .or_else(|| over_container_limit(pod, stats, has_image_fs))?;
        (!is_critical(pod)).then(|| Eviction::of_limit(pod, message))
    };
    candidates.iter().filter_map(over).collect()
}

fn over_empty_dir(pod: &Value, stats: &PodStats) -> Option<String> {
    let volumes = pod["spec"]["volumes"].list().iter();
    let over = volumes.filter_map(|volume| {
        let limit = quantity(&volume["emptyDir"]["sizeLimit"]);
        let name = volume["name"].str();
        let used = stats.volumes.iter().find(|used| used.name == name)?;
        let is_over = limit.value() > 0 && bytes(used.used.bytes) > limit.value();
        is_over
            .then(|| format!("Usage of EmptyDir volume {name:?} exceeds the limit \"{limit}\". "))
    });
    over.into_iter().next()
}

fn over_pod_limit(pod: &Value, stats: &PodStats) -> Option<String> {
    let limits = pod_limits(pod, &PodResourcesOptions::default());
    let limit = limits.get("ephemeral-storage")?;
    let used = bytes(stats.ephemeral_storage().bytes);
    (used > limit.value()).then(|| {
        format!("Pod ephemeral local storage usage exceeds the total limit of containers {limit}. ")
    })
}

fn over_container_limit(pod: &Value, stats: &PodStats, has_image_fs: bool) -> Option<String> {
    let containers = pod["spec"]["containers"].list().iter();
    let over = containers.filter_map(|container| {
        let limit = quantity(&container["resources"]["limits"]["ephemeral-storage"]);
        let name = container["name"].str();
        let used = stats.containers.iter().find(|used| used.name == name)?;
        let disk = match has_image_fs {
            true => used.logs,
            false => used.logs.plus(used.rootfs),
        };
        let is_over = limit.value() > 0 && bytes(disk.bytes) > limit.value();
        is_over.then(|| {
            format!("Container {name} exceeded its local ephemeral storage limit \"{limit}\". ")
        })
    });
    over.into_iter().next()
}

/// The pod that is evicted because the first of the thresholds that are met.
pub(crate) fn by_pressure(
    config: &EvictionConfig,
    met: &[Threshold],
    observations: &Observations,
    mut candidates: Vec<Candidate>,
    has_image_fs: bool,
) -> Option<Eviction> {
    let threshold = met.first()?;
    rank(threshold.signal, &mut candidates, has_image_fs);
    let chosen = candidates.iter().find(|it| !is_critical(it.pod))?;
    let (pod, resource) = (chosen.pod, threshold.signal.resource());
    let (message, annotations) = message(resource, met, observations, chosen);
    let grace = match threshold.is_hard() {
        true => IMMEDIATE,
        false => config
            .max_pod_grace_period
            .min(seconds(&pod["spec"]["terminationGracePeriodSeconds"])),
    };
    Some(Eviction {
        annotations,
        grace,
        is_disruption: true,
        ..Eviction::of_limit(pod, message)
    })
}

/// Sorts pods: the first one is evicted first. Pods without figures come first, then those that use
/// more than they request; among them those of lower priority, and those that exceed their requests
/// most.
fn rank(signal: Signal, candidates: &mut [Candidate], has_image_fs: bool) {
    let place = |candidate: &Candidate| {
        let priority = candidate.pod["spec"]["priority"].int();
        let Some(stats) = candidate.stats else {
            return match signal {
                Signal::PidAvailable => (true, false, priority, Reverse(i64::MAX)),
                _ => (false, false, priority, Reverse(0)),
            };
        };
        let (used, requested, subtracted) = usage(signal, candidate.pod, stats, has_image_fs);
        let is_within = signal != Signal::PidAvailable && used <= requested;
        (
            true,
            is_within,
            priority,
            Reverse(used.saturating_sub(subtracted)),
        )
    };
    candidates.sort_by_key(place);
}

/// What a pod uses, what it requests of that, and what is subtracted to compare pods.
fn usage(signal: Signal, pod: &Object, stats: &PodStats, has_image_fs: bool) -> (i64, i64, i64) {
    let requests: Amounts = pod_requests(pod, &PodResourcesOptions::default());
    let request = |name: &str| requests.get(name).map_or(0, Quantity::value);
    let disk = || disk_usage(signal, stats, has_image_fs);
    let storage = request("ephemeral-storage");
    match signal {
        Signal::MemoryAvailable | Signal::AllocatableMemoryAvailable => {
            let used = bytes(stats.cgroup.memory.working_set);
            (used, request("memory"), request("memory"))
        }
        Signal::PidAvailable => (bytes(stats.cgroup.processes.unwrap_or_default()), 0, 0),
        Signal::NodeFsAvailable | Signal::ImageFsAvailable => {
            (bytes(disk().bytes), storage, storage)
        }
        // Kubernetes: inodes cannot be requested, yet the requested bytes are subtracted.
        Signal::NodeFsInodesFree | Signal::ImageFsInodesFree => (bytes(disk().inodes), 0, storage),
    }
}

/// What a pod uses of the file system that runs short.
fn disk_usage(signal: Signal, stats: &PodStats, has_image_fs: bool) -> DiskUsage {
    if !has_image_fs {
        return stats.ephemeral_storage();
    }
    let is_image_fs = matches!(signal, Signal::ImageFsAvailable | Signal::ImageFsInodesFree);
    let sum = |part: fn(&ContainerStats) -> DiskUsage| {
        let parts = stats.containers.iter().map(part);
        parts.fold(DiskUsage::default(), DiskUsage::plus)
    };
    if is_image_fs {
        return sum(|container| container.rootfs);
    }
    let volumes = stats.volumes.iter().filter(|volume| volume.is_local);
    let logs = sum(|container| container.logs);
    volumes.fold(logs, |total, volume| total.plus(volume.used))
}

fn message(
    resource: &str,
    met: &[Threshold],
    observations: &Observations,
    chosen: &Candidate,
) -> (String, BTreeMap<String, String>) {
    let mut text = format!("The node was low on resource: {resource}. ");
    let first = met.iter().find_map(|threshold| {
        let observed = observations.get(&threshold.signal)?;
        (threshold.signal.resource() == resource).then_some((threshold, observed))
    });
    if let Some((threshold, observed)) = first {
        let least = threshold.value.of(observed.capacity);
        let format = match resource {
            "memory" | "ephemeral-storage" => QuantityFormat::Binary,
            _ => QuantityFormat::Decimal,
        };
        let available = Quantity::from_int(observed.available, format);
        let _ = write!(
            text,
            "Threshold quantity: {least}, available: {available}. "
        );
    }
    let Some(stats) = chosen.stats else {
        return (text, BTreeMap::new());
    };
    let mut annotations = BTreeMap::new();
    let spec = &chosen.pod["spec"];
    let whole = &spec["resources"]["requests"][resource];
    if resource == "memory" && !whole.is_null() {
        let (name, used) = (chosen.pod.name(), binary(stats.cgroup.memory.working_set));
        let request = quantity(whole);
        let _ = write!(
            text,
            "Pod {name} was using {used}, request is {request}, has larger consumption of {resource}. "
        );
        annotations.insert("offending_pod".to_owned(), name.to_owned());
        annotations.insert("offending_pod_usage".to_owned(), used.to_string());
    }
    let (mut names, mut usages) = (Vec::new(), Vec::new());
    for container in &stats.containers {
        let used = match resource {
            "memory" => binary(container.cgroup.memory.working_set),
            "ephemeral-storage" => binary(container.rootfs.plus(container.logs).bytes),
            _ => continue,
        };
        let lists = ["containers", "initContainers"].map(|list| spec[list].list());
        let mut specs = lists.into_iter().flatten();
        let Some(own) = specs.find(|spec| spec["name"].str() == container.name.as_str()) else {
            continue;
        };
        let request = quantity(&own["resources"]["requests"][resource]);
        if used > request {
            let name = &container.name;
            let _ = write!(
                text,
                "Container {name} was using {used}, request is {request}, has larger consumption of {resource}. "
            );
            names.push(name.to_string());
            usages.push(used.to_string());
        }
    }
    annotations.insert("offending_containers".to_owned(), names.join(","));
    annotations.insert("offending_containers_usage".to_owned(), usages.join(","));
    annotations.insert("starved_resource".to_owned(), resource.to_owned());
    (text, annotations)
}

fn bytes(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn binary(number: u64) -> Quantity {
    Quantity::from_int(bytes(number), QuantityFormat::Binary)
}

#[cfg(test)]
mod tests {
    use mizzen_value::json;

    use super::*;
    use crate::eviction::threshold::{Observation, parse_thresholds};
    use crate::stats::{CgroupStats, MemoryStats, VolumeStats};

    const MEBI: u64 = 1 << 20;

    fn pod(name: &str, spec: &str) -> Object {
        let text = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"default","uid":"{name}"}},"spec":{spec}}}"#
        );
        Object(json::parse(text.as_bytes()).unwrap())
    }

    /// A pod with a priority that requests so much memory and uses so much of everything.
    fn user(name: &str, priority: i64, request: &str, used: u64) -> (Object, PodStats) {
        let requests = format!(r#"{{"memory":"{request}","ephemeral-storage":"{request}"}}"#);
        let spec = format!(
            r#"{{"priority":{priority},"containers":[{{"name":"c","resources":{{"requests":{requests}}}}}]}}"#
        );
        let disk = DiskUsage {
            bytes: used * MEBI,
            inodes: used,
        };
        let cgroup = CgroupStats {
            memory: MemoryStats {
                working_set: used * MEBI,
                ..MemoryStats::default()
            },
            processes: Some(used),
            ..CgroupStats::default()
        };
        let container = ContainerStats {
            name: "c".into(),
            cgroup,
            rootfs: disk,
            ..ContainerStats::default()
        };
        let stats = PodStats {
            cgroup,
            containers: vec![container],
            ..PodStats::default()
        };
        (pod(name, &spec), stats)
    }

    fn order(signal: Signal, pods: &[(Object, Option<PodStats>)]) -> String {
        let candidates = pods.iter().map(|(pod, stats)| Candidate {
            pod,
            stats: stats.as_ref(),
        });
        let mut candidates: Vec<Candidate> = candidates.collect();
        rank(signal, &mut candidates, false);
        let names: Vec<&str> = candidates.iter().map(|it| it.pod.name()).collect();
        names.join(" ")
    }

    #[test]
    fn pods_are_ranked_by_requests_then_priority_then_usage() {
        let mut pods: Vec<(Object, Option<PodStats>)> = [
            user("within", 0, "100Mi", 90),
            user("little-over", 0, "100Mi", 110),
            user("much-over", 0, "100Mi", 300),
            user("important", 10, "100Mi", 900),
            user("within-important", 10, "100Mi", 10),
        ]
        .map(|(pod, stats)| (pod, Some(stats)))
        .into();
        let expected = "much-over little-over important within within-important";
        for signal in [
            Signal::MemoryAvailable,
            Signal::NodeFsAvailable,
            Signal::ImageFsAvailable,
        ] {
            assert_eq!(order(signal, &pods), expected, "{signal:?}");
        }
        // PIDs cannot be requested.
        assert_eq!(
            order(Signal::PidAvailable, &pods),
            "much-over little-over within important within-important"
        );
        pods.push((pod("unknown", r#"{"priority":50}"#), None));
        pods.push((pod("unknown-minor", r#"{"priority":5}"#), None));
        for signal in [Signal::MemoryAvailable, Signal::NodeFsAvailable] {
            let first = order(signal, &pods);
            let expected = "unknown-minor unknown much-over";
            assert!(first.starts_with(expected), "{first}");
        }
    }

    #[test]
    fn the_message_says_what_was_short_and_what_the_pod_used() {
        let config = EvictionConfig {
            thresholds: parse_thresholds("memory.available<100Mi", "", "", "").unwrap(),
            ..EvictionConfig::default()
        };
        let seen = Observation {
            available: 50 << 20,
            capacity: 1 << 30,
        };
        let seen = [(Signal::MemoryAvailable, seen)].into();
        let (pod, stats) = user("web", 0, "100Mi", 110);
        let (system, busy) = user("system", 2_000_000_000, "1Mi", 900);
        let candidates = vec![
            Candidate {
                pod: &system,
                stats: Some(&busy),
            },
            Candidate {
                pod: &pod,
                stats: Some(&stats),
            },
        ];
        let evicted = by_pressure(&config, &config.thresholds[..1], &seen, candidates, false);
        let evicted = evicted.expect("one pod is not critical");
        assert_eq!(evicted.uid, "web");
        assert_eq!(
            evicted.message,
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. \
             Container c was using 110Mi, request is 100Mi, has larger consumption of memory. "
        );
        assert_eq!(evicted.annotations["starved_resource"], "memory");
        assert_eq!(evicted.annotations["offending_containers_usage"], "110Mi");
        assert!(evicted.is_disruption && evicted.grace == IMMEDIATE);
    }

    #[test]
    fn disk_limits_are_those_of_volumes_pods_and_containers() {
        let check = |spec: &str, expected: &str| {
            let pod = pod("web", spec);
            let disk = |mebi: u64| DiskUsage {
                bytes: mebi * MEBI,
                inodes: 1,
            };
            let stats = PodStats {
                containers: vec![ContainerStats {
                    name: "c".into(),
                    rootfs: disk(10),
                    logs: disk(1),
                    ..ContainerStats::default()
                }],
                volumes: vec![VolumeStats {
                    name: "v".into(),
                    is_local: true,
                    used: disk(5),
                    ..VolumeStats::default()
                }],
                ..PodStats::default()
            };
            let candidate = Candidate {
                pod: &pod,
                stats: Some(&stats),
            };
            let evicted = over_storage_limits(&[candidate], false);
            let message = evicted.first().map_or("", |evicted| &evicted.message);
            assert_eq!(message, expected, "{spec}");
        };
        let volume = |limit: &str| {
            format!(r#"{{"volumes":[{{"name":"v","emptyDir":{{"sizeLimit":"{limit}"}}}}]}}"#)
        };
        check(
            &volume("4Mi"),
            "Usage of EmptyDir volume \"v\" exceeds the limit \"4Mi\". ",
        );
        check(&volume("5Mi"), "");
        let limited = |limit: &str| {
            let limits = format!(r#"{{"limits":{{"ephemeral-storage":"{limit}"}}}}"#);
            format!(r#"{{"containers":[{{"name":"c","resources":{limits}}}]}}"#)
        };
        check(&limited("16Mi"), "");
        check(
            &limited("15Mi"),
            "Pod ephemeral local storage usage exceeds the total limit of containers 15Mi. ",
        );
        // The other container leaves room in the limit of the pod.
        let two = r#"{"containers":[{"name":"c","resources":{"limits":{"ephemeral-storage":"10Mi"}}},
            {"name":"d","resources":{"limits":{"ephemeral-storage":"1Gi"}}}]}"#;
        check(
            two,
            "Container c exceeded its local ephemeral storage limit \"10Mi\". ",
        );
    }

    #[test]
    fn a_node_under_pressure_rejects_pods() {
        let rejects = |spec: &str, pressures: &[NodePressure]| {
            rejection(&pod("web", spec), pressures).is_some()
        };
        let (memory, disk) = (NodePressure::Memory, NodePressure::Disk);
        let burstable = r#"{"containers":[{"resources":{"requests":{"cpu":"1"}}}]}"#;
        let tolerant = r#"{"containers":[{}],"tolerations":[{"key":"node.kubernetes.io/memory-pressure","operator":"Exists"}]}"#;
        let critical = r#"{"containers":[{}],"priority":2000001000}"#;
        let plain = r#"{"containers":[{}]}"#;
        assert!(!rejects(plain, &[]) && rejects(plain, &[memory]) && rejects(plain, &[disk]));
        assert!(!rejects(burstable, &[memory]) && rejects(burstable, &[memory, disk]));
        assert!(!rejects(tolerant, &[memory]) && rejects(tolerant, &[disk]));
        assert!(!rejects(critical, &[memory, disk]));
        let message = rejection(&pod("web", plain), &[memory, disk]).unwrap();
        assert_eq!(
            message,
            "The node had condition: [MemoryPressure DiskPressure]. "
        );
    }
}
