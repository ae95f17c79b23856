//! `/stats/summary`, `/metrics/resource` and `/metrics/cadvisor` of a node that is measured.
//!
//! Kubernetes: staging/src/k8s.io/kubelet/pkg/apis/stats and cAdvisor's metrics/prometheus.go.
//! cAdvisor's series of block devices, inodes, CPU load, ulimits and the topology of the machine are
//! left out.

use std::time::Duration;

use mizzen_value::{Value, value};

use crate::agent::{NodeUsage, PodUsageSample, RunningContainer};
use crate::moment::{Moment, to_value};
use crate::resource_metrics::{MetricsText, seconds};
use crate::stats::{
    CgroupStats, ContainerStats, DiskUsage, FsStats, InterfaceStats, NodeStats, PodStats, Pressure,
    PressureTime, ProcessStats,
};

/// The period of CPU quotas, in microseconds.
const QUOTA_PERIOD: f64 = 100_000.0;

/// The figures for `/metrics/resource`.
pub(super) fn usage(stats: &NodeStats) -> NodeUsage {
    let time = |cgroup: &CgroupStats| Duration::from_nanos(cgroup.cpu.usage_ns);
    let container = |container: &ContainerStats| RunningContainer {
        name: container.name.clone(),
        started: container.started,
        cpu_time: time(&container.cgroup),
        memory_bytes: container.cgroup.memory.working_set,
        swap_bytes: container.cgroup.memory.swap,
        swap_limit: container.cgroup.memory.swap_limit,
    };
    let pods = stats.pods.iter().filter(|pod| !pod.containers.is_empty());
    NodeUsage {
        at: Duration::from_millis(u64::try_from(stats.at.as_millis()).unwrap_or_default()),
        cpu_time: time(&stats.machine),
        memory_bytes: stats.machine.memory.working_set,
        swap_bytes: stats.machine.memory.swap,
        pods: pods
            .map(|pod| PodUsageSample {
                namespace: pod.namespace.clone(),
                name: pod.name.clone(),
                cpu_time: time(&pod.cgroup),
                memory_bytes: pod.cgroup.memory.working_set,
                swap_bytes: pod.cgroup.memory.swap,
                containers: pod.containers.iter().map(container).collect(),
            })
            .collect(),
    }
}

/// The document of `/stats/summary`.
pub(super) fn summary(stats: &NodeStats, node: &str) -> Value {
    let at = &timestamp(stats.at);
    let mut machine = value!({
        "nodeName": node,
        "startTime": (timestamp(stats.started)),
        "cpu": (cpu(&stats.machine, at)),
        "memory": (memory(&stats.machine, Some(stats.memory_capacity), at)),
        "network": (network(&stats.network, at)),
    });
    add_swap_and_io(&mut machine, &stats.machine, Some(stats.swap_capacity), at);
    if let Some(fs) = &stats.fs {
        machine.set("fs", file_system(fs, None, at));
    }
    if let Some(fs) = &stats.image_fs {
        let fs = file_system(fs, None, at);
        let runtime = value!({ "imageFs": (fs.clone()), "containerFs": fs });
        machine.set("runtime", runtime);
    }
    if let Some(pids) = &stats.pids {
        let (max, running) = (signed(pids.max), signed(pids.running));
        let rlimit = value!({ "time": (at.clone()), "maxpid": max, "curproc": running });
        machine.set("rlimit", rlimit);
    }
    if let Some(all) = &stats.all_pods {
        let limit = all.memory.limit.or(Some(stats.memory_capacity));
        let mut pods = value!({
            "name": "pods",
            "startTime": (timestamp(stats.started)),
            "cpu": (cpu(all, at)),
            "memory": (memory(all, limit, at)),
        });
        add_swap_and_io(&mut pods, all, all.memory.swap_limit, at);
        machine.set("systemContainers", vec![pods]);
    }
    let pods: Vec<Value> = stats
        .pods
        .iter()
        .map(|pod| pod_summary(pod, stats, at))
        .collect();
    value!({ "node": machine, "pods": pods })
}

fn pod_summary(pod: &PodStats, stats: &NodeStats, at: &Value) -> Value {
    let node_fs = stats.fs.unwrap_or_default();
    let containers = pod.containers.iter().map(|container| {
        let image_fs = stats.image_fs.unwrap_or(node_fs);
        let cgroup = &container.cgroup;
        let mut summary = value!({
            "name": (&container.name),
            "startTime": (timestamp(container.started)),
            "cpu": (cpu(cgroup, at)),
            "memory": (memory(cgroup, cgroup.memory.limit, at)),
            "rootfs": (file_system(&image_fs, Some(container.rootfs), at)),
            "logs": (file_system(&node_fs, Some(container.logs), at)),
        });
        add_swap_and_io(&mut summary, cgroup, cgroup.memory.swap_limit, at);
        summary
    });
    let containers: Vec<Value> = containers.collect();
    let started = pod
        .containers
        .iter()
        .map(|container| container.started)
        .min();
    let volumes = pod.volumes.iter().map(|volume| {
        let mut fs = file_system(&volume.fs, Some(volume.used), at);
        fs.set("name", &volume.name);
        fs
    });
    let volumes: Vec<Value> = volumes.collect();
    let mut summary = value!({
        "podRef": { "name": (&pod.name), "namespace": (&pod.namespace), "uid": (&pod.uid) },
        "startTime": (timestamp(started.unwrap_or(stats.at))),
        "containers": containers,
        "cpu": (cpu(&pod.cgroup, at)),
        "memory": (memory(&pod.cgroup, pod.cgroup.memory.limit, at)),
        "ephemeral-storage": (file_system(&node_fs, Some(pod.ephemeral_storage()), at)),
    });
    add_swap_and_io(&mut summary, &pod.cgroup, pod.cgroup.memory.swap_limit, at);
    if !pod.network.is_empty() {
        summary.set("network", network(&pod.network, at));
    }
    if !volumes.is_empty() {
        summary.set("volume", volumes);
    }
    if let Some(processes) = pod.cgroup.processes {
        let count = signed(processes);
        summary.set("process_stats", value!({ "process_count": count }));
    }
    summary
}

fn timestamp(wall: Duration) -> Value {
    to_value(Moment::new(Duration::ZERO, wall))
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn cpu(cgroup: &CgroupStats, at: &Value) -> Value {
    let mut cpu = value!({
        "time": (at.clone()),
        "usageCoreNanoSeconds": (signed(cgroup.cpu.usage_ns)),
    });
    if let Some(rate) = cgroup.cpu.nano_cores {
        cpu.set("usageNanoCores", signed(rate));
    }
    if let Some(waited) = &cgroup.pressure.cpu {
        cpu.set("psi", pressure(waited));
    }
    cpu
}

/// Pressure stall information. Kubernetes: the totals are the microseconds of the kernel.
fn pressure(waited: &Pressure) -> Value {
    let time = |time: &PressureTime| {
        let [avg10, avg60, avg300] = time.averages.map(percent);
        value!({
            "total": (signed(time.total)),
            "avg10": avg10,
            "avg60": avg60,
            "avg300": avg300,
        })
    };
    value!({ "full": (time(&waited.full)), "some": (time(&waited.some)) })
}

/// Hundredths of a percent, as Go writes them.
fn percent(hundredths: u32) -> Value {
    match hundredths % 100 {
        0 => Value::Int(i64::from(hundredths / 100)),
        _ => Value::Number((f64::from(hundredths) / 100.0).to_string().into()),
    }
}

/// Adds what is swapped, and how long tasks have waited for I/O, where that is measured.
fn add_swap_and_io(summary: &mut Value, cgroup: &CgroupStats, limit: Option<u64>, at: &Value) {
    if let Some(used) = cgroup.memory.swap {
        let mut swap = value!({ "time": (at.clone()), "swapUsageBytes": (signed(used)) });
        if let Some(limit) = limit {
            swap.set("swapAvailableBytes", signed(limit.saturating_sub(used)));
        }
        summary.set("swap", swap);
    }
    if let Some(waited) = &cgroup.pressure.io {
        let io = value!({ "time": (at.clone()), "psi": (pressure(waited)) });
        summary.set("io", io);
    }
}

fn memory(cgroup: &CgroupStats, limit: Option<u64>, at: &Value) -> Value {
    let figures = &cgroup.memory;
    let mut memory = value!({
        "time": (at.clone()),
        "usageBytes": (signed(figures.usage)),
        "workingSetBytes": (signed(figures.working_set)),
        "rssBytes": (signed(figures.rss)),
        "pageFaults": (signed(figures.page_faults)),
        "majorPageFaults": (signed(figures.major_page_faults)),
    });
    if let Some(limit) = limit {
        let available = limit.saturating_sub(figures.working_set);
        memory.set("availableBytes", signed(available));
    }
    if let Some(waited) = &cgroup.pressure.memory {
        memory.set("psi", pressure(waited));
    }
    memory
}

/// A file system, and what a part of it uses.
fn file_system(fs: &FsStats, part: Option<DiskUsage>, at: &Value) -> Value {
    let used = part.unwrap_or(DiskUsage {
        bytes: fs.used,
        inodes: fs.inodes.saturating_sub(fs.inodes_free),
    });
    value!({
        "time": (at.clone()),
        "availableBytes": (signed(fs.available)),
        "capacityBytes": (signed(fs.capacity)),
        "usedBytes": (signed(used.bytes)),
        "inodesFree": (signed(fs.inodes_free)),
        "inodes": (signed(fs.inodes)),
        "inodesUsed": (signed(used.inodes)),
    })
}

fn network(interfaces: &[InterfaceStats], at: &Value) -> Value {
    let one = |interface: &InterfaceStats| {
        value!({
            "name": (interface.name.as_str()),
            "rxBytes": (signed(interface.received[0])),
            "rxErrors": (signed(interface.received[2])),
            "txBytes": (signed(interface.sent[0])),
            "txErrors": (signed(interface.sent[2])),
        })
    };
    let mut network = interfaces.first().map_or_else(Value::object, one);
    network.set("time", at.clone());
    let interfaces: Vec<Value> = interfaces.iter().map(one).collect();
    network.set("interfaces", interfaces);
    network
}

/// A cgroup with its labels.
struct Labelled<'a> {
    labels: String,
    cgroup: &'a CgroupStats,
    started: Duration,
    network: &'a [InterfaceStats],
    disk: Option<DiskUsage>,
    /// The size of its file system.
    disk_limit: Option<u64>,
    processes: Option<ProcessStats>,
}

impl Labelled<'_> {
    fn with(&self, more: &str) -> String {
        format!("{{{}{more}}}", self.labels)
    }
}

fn labels(names: [&str; 6]) -> String {
    let keys = ["container", "id", "image", "name", "namespace", "pod"];
    let pairs = keys.iter().zip(names);
    let pairs: Vec<String> = pairs.map(|(key, name)| format!("{key}={name:?}")).collect();
    pairs.join(",")
}

fn cgroups(stats: &NodeStats) -> Vec<Labelled<'_>> {
    let group = |path: &str, cgroup| Labelled {
        labels: labels(["", path, "", "", "", ""]),
        cgroup,
        started: stats.started,
        network: &[],
        disk: None,
        disk_limit: None,
        processes: None,
    };
    let mut all = vec![Labelled {
        network: &stats.network,
        disk: stats.fs.map(|fs| DiskUsage {
            bytes: fs.used,
            inodes: fs.inodes.saturating_sub(fs.inodes_free),
        }),
        disk_limit: stats.fs.map(|fs| fs.capacity),
        ..group("/", &stats.machine)
    }];
    let groups = stats.pod_groups.iter();
    all.extend(groups.map(|(path, cgroup)| group(path, cgroup)));
    let image_fs = stats.image_fs.or(stats.fs);
    for pod in &stats.pods {
        let (namespace, name) = (&*pod.namespace, &*pod.name);
        let started = pod
            .containers
            .iter()
            .map(|container| container.started)
            .min();
        all.push(Labelled {
            labels: labels(["", &pod.path, "", "", namespace, name]),
            cgroup: &pod.cgroup,
            started: started.unwrap_or(stats.at),
            network: &pod.network,
            disk: None,
            disk_limit: None,
            processes: None,
        });
        for it in &pod.containers {
            all.push(Labelled {
                labels: labels([&it.name, &it.path, &it.image, &it.id, namespace, name]),
                cgroup: &it.cgroup,
                started: it.started,
                network: &[],
                disk: Some(it.rootfs),
                disk_limit: image_fs.map(|fs| fs.capacity),
                processes: it.processes,
            });
        }
    }
    all
}

/// The text of `/metrics/cadvisor`.
pub(super) fn cadvisor(stats: &NodeStats) -> String {
    let (all, at) = (cgroups(stats), stats.at);
    let mut text = MetricsText::default();
    type Figure = fn(&CgroupStats) -> f64;
    let counters: [(&str, &str, &str, Figure); 7] = [
        (
            "container_cpu_user_seconds_total",
            "Cumulative user cpu time consumed in seconds.",
            "",
            |it| seconds(Duration::from_nanos(it.cpu.user_ns)),
        ),
        (
            "container_cpu_system_seconds_total",
            "Cumulative system cpu time consumed in seconds.",
            "",
            |it| seconds(Duration::from_nanos(it.cpu.system_ns)),
        ),
        (
            "container_cpu_usage_seconds_total",
            "Cumulative cpu time consumed in seconds.",
            ",cpu=\"total\"",
            |it| seconds(Duration::from_nanos(it.cpu.usage_ns)),
        ),
        (
            "container_memory_failcnt",
            "Number of memory usage hits limits",
            "",
            |it| it.memory.failures as f64,
        ),
        (
            "container_memory_failures_total",
            "Cumulative count of memory allocation failures.",
            ",failure_type=\"pgfault\",scope=\"hierarchy\"",
            |it| it.memory.page_faults as f64,
        ),
        (
            "container_memory_failures_total",
            "",
            ",failure_type=\"pgmajfault\",scope=\"hierarchy\"",
            |it| it.memory.major_page_faults as f64,
        ),
        (
            "container_oom_events_total",
            "Count of out of memory events observed for the container",
            "",
            |it| it.oom_kills as f64,
        ),
    ];
    for (name, help, more, figure) in counters {
        let samples = all
            .iter()
            .map(|it| (it.with(more), figure(it.cgroup), Some(at)));
        text.family(name, "counter", help, samples);
    }
    let gauges: [(&str, &str, Figure); 12] = [
        (
            "container_memory_cache",
            "Number of bytes of page cache memory.",
            |it| it.memory.cache as f64,
        ),
        ("container_memory_rss", "Size of RSS in bytes.", |it| {
            it.memory.rss as f64
        }),
        (
            "container_memory_kernel_usage",
            "Size of kernel memory allocated in bytes.",
            |it| it.memory.kernel as f64,
        ),
        (
            "container_memory_swap",
            "Container swap usage in bytes.",
            |it| it.memory.swap.unwrap_or_default() as f64,
        ),
        (
            "container_spec_memory_swap_limit_bytes",
            "Memory swap limit for the container.",
            |it| it.memory.swap_limit.unwrap_or_default() as f64,
        ),
        (
            "container_memory_mapped_file",
            "Size of memory mapped files in bytes.",
            |it| it.memory.mapped_file as f64,
        ),
        (
            "container_memory_usage_bytes",
            "Current memory usage in bytes, including all memory regardless of when it was accessed",
            |it| it.memory.usage as f64,
        ),
        (
            "container_memory_max_usage_bytes",
            "Maximum memory usage recorded in bytes",
            |it| it.memory.max_usage as f64,
        ),
        (
            "container_memory_working_set_bytes",
            "Current working set in bytes.",
            |it| it.memory.working_set as f64,
        ),
        (
            "container_memory_total_active_file_bytes",
            "Current total active file in bytes.",
            |it| it.memory.active_file as f64,
        ),
        (
            "container_memory_total_inactive_file_bytes",
            "Current total inactive file in bytes.",
            |it| it.memory.inactive_file as f64,
        ),
        (
            "container_spec_memory_limit_bytes",
            "Memory limit for the container.",
            |it| it.memory.limit.unwrap_or_default() as f64,
        ),
    ];
    for (name, help, figure) in gauges {
        let samples = all
            .iter()
            .map(|it| (it.with(""), figure(it.cgroup), Some(at)));
        text.family(name, "gauge", help, samples);
    }
    write_cpu_quota(&mut text, &all, at);
    write_networks(&mut text, &all, at);
    write_pressure(&mut text, &all, at);
    let some = |figure: fn(&Labelled) -> Option<f64>| {
        let samples = all
            .iter()
            .filter_map(move |it| Some((it.with(""), figure(it)?, Some(at))));
        samples.collect::<Vec<_>>()
    };
    text.family(
        "container_processes",
        "gauge",
        "Number of processes running inside the container.",
        some(|it| it.processes.map(|processes| processes.count as f64)),
    );
    text.family(
        "container_file_descriptors",
        "gauge",
        "Number of open file descriptors for the container.",
        some(|it| it.processes.map(|processes| processes.descriptors as f64)),
    );
    text.family(
        "container_sockets",
        "gauge",
        "Number of open sockets for the container.",
        some(|it| it.processes.map(|processes| processes.sockets as f64)),
    );
    text.family(
        "container_threads",
        "gauge",
        "Number of threads running inside the container",
        some(|it| it.cgroup.processes.map(|count| count as f64)),
    );
    text.family(
        "container_threads_max",
        "gauge",
        "Maximum number of threads allowed inside the container, infinity if value is zero",
        some(|it| {
            it.cgroup.processes?;
            Some(it.cgroup.max_processes.unwrap_or_default() as f64)
        }),
    );
    text.family(
        "container_fs_limit_bytes",
        "gauge",
        "Number of bytes that can be consumed by the container on this filesystem.",
        some(|it| it.disk_limit.map(|limit| limit as f64)),
    );
    text.family(
        "container_fs_usage_bytes",
        "gauge",
        "Number of bytes that are consumed by the container on this filesystem.",
        some(|it| it.disk.map(|disk| disk.bytes as f64)),
    );
    text.family(
        "container_start_time_seconds",
        "gauge",
        "Start time of the container since unix epoch in seconds.",
        some(|it| Some(it.started.as_secs() as f64)),
    );
    let seen = at.as_secs() as f64;
    let last_seen: Vec<_> = all.iter().map(|it| (it.with(""), seen, Some(at))).collect();
    let help = "Last time a container was seen by the exporter";
    text.family("container_last_seen", "gauge", help, last_seen);
    text.family(
        "machine_cpu_cores",
        "gauge",
        "Number of logical CPU cores.",
        [(String::new(), stats.cpus as f64, None)],
    );
    text.family(
        "machine_memory_bytes",
        "gauge",
        "Amount of memory installed on the machine.",
        [(String::new(), stats.memory_capacity as f64, None)],
    );
    text.into_string()
}

/// The series of pressure stall information.
fn write_pressure(text: &mut MetricsText, all: &[Labelled], at: Duration) {
    type Figure = fn(&CgroupStats) -> Option<Pressure>;
    let resources: [(&str, &str, Figure); 3] = [
        ("cpu", "CPU", |it| it.pressure.cpu),
        ("memory", "memory", |it| it.pressure.memory),
        ("io", "IO", |it| it.pressure.io),
    ];
    for (resource, shown, figure) in resources {
        let samples = |part: fn(Pressure) -> PressureTime| {
            let samples = all.iter().filter_map(move |it| {
                let time = Duration::from_micros(part(figure(it.cgroup)?).total);
                Some((it.with(""), seconds(time), Some(at)))
            });
            samples.collect::<Vec<_>>()
        };
        let stalled = format!(
            "Total time duration no tasks in the container could make progress due to {shown} congestion."
        );
        let name = format!("container_pressure_{resource}_stalled_seconds_total");
        text.family(&name, "counter", &stalled, samples(|it| it.full));
        let waiting = format!(
            "Total time duration tasks in the container have waited due to {shown} congestion."
        );
        let name = format!("container_pressure_{resource}_waiting_seconds_total");
        text.family(&name, "counter", &waiting, samples(|it| it.some));
    }
}

/// The series of cgroups with a CPU quota.
fn write_cpu_quota(text: &mut MetricsText, all: &[Labelled], at: Duration) {
    let limited = || {
        all.iter()
            .filter(|it| it.cgroup.cpu_quota.is_some_and(|quota| quota > 0))
    };
    type Figure = fn(&CgroupStats) -> f64;
    let series: [(&str, &str, &str, Figure); 5] = [
        (
            "container_cpu_cfs_periods_total",
            "counter",
            "Number of elapsed enforcement period intervals.",
            |it| it.cpu.periods as f64,
        ),
        (
            "container_cpu_cfs_throttled_periods_total",
            "counter",
            "Number of throttled period intervals.",
            |it| it.cpu.throttled_periods as f64,
        ),
        (
            "container_cpu_cfs_throttled_seconds_total",
            "counter",
            "Total time duration the container has been throttled.",
            |it| seconds(Duration::from_nanos(it.cpu.throttled_ns)),
        ),
        (
            "container_spec_cpu_period",
            "gauge",
            "CPU period of the container.",
            |_| QUOTA_PERIOD,
        ),
        (
            "container_spec_cpu_quota",
            "gauge",
            "CPU quota of the container.",
            |it| it.cpu_quota.unwrap_or_default() as f64,
        ),
    ];
    for (name, kind, help, figure) in series {
        let samples = limited().map(|it| (it.with(""), figure(it.cgroup), Some(at)));
        text.family(name, kind, help, samples);
    }
    let shares = all.iter().filter_map(|it| {
        let shares = it.cgroup.cpu_shares? as f64;
        Some((it.with(""), shares, Some(at)))
    });
    let help = "CPU share of the container.";
    text.family("container_spec_cpu_shares", "gauge", help, shares);
}

fn write_networks(text: &mut MetricsText, all: &[Labelled], at: Duration) {
    type Direction = fn(&InterfaceStats) -> &[u64; 4];
    let directions: [(&str, &str, Direction); 2] = [
        ("receive", "received", |it| &it.received),
        ("transmit", "transmitted", |it| &it.sent),
    ];
    let kinds = ["bytes", "packets", "errors", "packets_dropped"];
    for (direction, done, figures) in directions {
        for (place, kind) in kinds.into_iter().enumerate() {
            let name = format!("container_network_{direction}_{kind}_total");
            let help = match kind {
                "errors" if direction == "receive" => {
                    "Cumulative count of errors encountered while receiving".into()
                }
                "errors" => "Cumulative count of errors encountered while transmitting".into(),
                "packets_dropped" if direction == "receive" => {
                    "Cumulative count of packets dropped while receiving".into()
                }
                "packets_dropped" => {
                    "Cumulative count of packets dropped while transmitting".into()
                }
                kind => format!("Cumulative count of {kind} {done}"),
            };
            let samples = all.iter().flat_map(|it| {
                it.network.iter().map(move |interface| {
                    let labels = it.with(&format!(",interface={:?}", interface.name));
                    (labels, figures(interface)[place] as f64, Some(at))
                })
            });
            text.family(&name, "counter", &help, samples);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{CpuStats, MemoryStats, PidStats, PressureStats};

    fn stats() -> NodeStats {
        let cgroup = CgroupStats {
            cpu: CpuStats {
                usage_ns: 2_500_000_000,
                nano_cores: Some(1000),
                ..CpuStats::default()
            },
            memory: MemoryStats {
                usage: 300,
                working_set: 200,
                limit: Some(1000),
                kernel: 64,
                swap: Some(10),
                swap_limit: Some(50),
                ..MemoryStats::default()
            },
            cpu_quota: Some(50_000),
            processes: Some(3),
            oom_kills: 2,
            pressure: PressureStats {
                memory: Some(Pressure {
                    some: PressureTime {
                        total: 1_500_000,
                        averages: [150, 75, 0],
                    },
                    ..Pressure::default()
                }),
                io: Some(Pressure::default()),
                ..PressureStats::default()
            },
            ..CgroupStats::default()
        };
        let container = ContainerStats {
            name: "c".into(),
            id: "1f".into(),
            image: "busybox".into(),
            path: "/kubepods/podu/1f".into(),
            started: Duration::from_secs(1_700_000_000),
            cgroup,
            processes: Some(ProcessStats {
                count: 2,
                descriptors: 12,
                sockets: 5,
            }),
            rootfs: DiskUsage {
                bytes: 4096,
                inodes: 2,
            },
            ..ContainerStats::default()
        };
        let interface = InterfaceStats {
            name: "eth0".into(),
            received: [10, 2, 3, 4],
            sent: [50, 6, 7, 8],
        };
        NodeStats {
            at: Duration::from_millis(1_700_000_060_125),
            memory_capacity: 5000,
            pids: Some(PidStats {
                max: 100,
                running: 40,
            }),
            fs: Some(FsStats {
                capacity: 8000,
                ..FsStats::default()
            }),
            pod_groups: vec![("/kubepods".into(), cgroup)],
            pods: vec![PodStats {
                uid: "u".into(),
                namespace: "default".into(),
                name: "web".into(),
                path: "/kubepods/podu".into(),
                cgroup,
                network: vec![interface],
                containers: vec![container],
                ..PodStats::default()
            }],
            ..NodeStats::default()
        }
    }

    #[test]
    fn the_summary_has_the_fields_of_a_kubelet() {
        let summary = summary(&stats(), "node");
        let pod = &summary["pods"].list()[0];
        let container = &pod["containers"].list()[0];
        let texts = [
            (
                &container["cpu"],
                r#"{"time":"2023-11-14T22:14:20Z","usageCoreNanoSeconds":2500000000,"usageNanoCores":1000}"#,
            ),
            (
                &pod["podRef"],
                r#"{"name":"web","namespace":"default","uid":"u"}"#,
            ),
            (&pod["process_stats"], r#"{"process_count":3}"#),
            (
                &container["swap"],
                r#"{"time":"2023-11-14T22:14:20Z","swapUsageBytes":10,"swapAvailableBytes":40}"#,
            ),
            (
                &container["memory"]["psi"],
                r#"{"full":{"total":0,"avg10":0,"avg60":0,"avg300":0},"some":{"total":1500000,"avg10":1.5,"avg60":0.75,"avg300":0}}"#,
            ),
            (
                &summary["node"]["rlimit"],
                r#"{"time":"2023-11-14T22:14:20Z","maxpid":100,"curproc":40}"#,
            ),
        ];
        for (value, expected) in texts {
            assert_eq!(mizzen_value::json::to_string(value), expected);
        }
        assert!(container["cpu"]["psi"].is_null() && !pod["io"]["psi"].is_null());
        assert!(summary["node"]["swap"].is_null());
        assert_eq!(container["memory"]["availableBytes"].int(), 800);
        assert_eq!(container["rootfs"]["usedBytes"].int(), 4096);
        assert_eq!(pod["ephemeral-storage"]["inodesUsed"].int(), 2);
        assert_eq!(pod["network"]["interfaces"].list()[0]["txErrors"].int(), 7);
        assert_eq!(summary["node"]["memory"]["availableBytes"].int(), 5000);
    }

    #[test]
    fn the_series_are_those_of_cadvisor() {
        let text = cadvisor(&stats());
        let labels = r#"container="c",id="/kubepods/podu/1f",image="busybox",name="1f",namespace="default",pod="web""#;
        for line in [
            format!("container_cpu_usage_seconds_total{{{labels},cpu=\"total\"}} 2.5 1700000060125\n"),
            format!("container_memory_working_set_bytes{{{labels}}} 200 1700000060125\n"),
            format!("container_spec_cpu_quota{{{labels}}} 50000 1700000060125\n"),
            format!("container_fs_usage_bytes{{{labels}}} 4096 1700000060125\n"),
            format!("container_fs_limit_bytes{{{labels}}} 8000 1700000060125\n"),
            format!("container_memory_swap{{{labels}}} 10 1700000060125\n"),
            format!("container_memory_kernel_usage{{{labels}}} 64 1700000060125\n"),
            format!("container_oom_events_total{{{labels}}} 2 1700000060125\n"),
            format!("container_processes{{{labels}}} 2 1700000060125\n"),
            format!("container_file_descriptors{{{labels}}} 12 1700000060125\n"),
            format!("container_sockets{{{labels}}} 5 1700000060125\n"),
            format!("container_threads{{{labels}}} 3 1700000060125\n"),
            format!("container_threads_max{{{labels}}} 0 1700000060125\n"),
            format!("container_pressure_memory_waiting_seconds_total{{{labels}}} 1.5 1700000060125\n"),
            "container_threads{container=\"\",id=\"/kubepods\",image=\"\",name=\"\",namespace=\"\",pod=\"\"} 3 1700000060125\n".to_owned(),
            "container_network_receive_bytes_total{container=\"\",id=\"/kubepods/podu\",image=\"\",name=\"\",namespace=\"default\",pod=\"web\",interface=\"eth0\"} 10 1700000060125\n".to_owned(),
            "machine_memory_bytes 5000\n".to_owned(),
        ] {
            assert!(text.contains(&line), "{line} is not in\n{text}");
        }
        assert!(
            !text.contains("container_pressure_cpu"),
            "it is not measured"
        );
        // A family is described once.
        let described = text
            .matches("# TYPE container_memory_failures_total counter\n")
            .count();
        assert_eq!(described, 1);
        let usage = usage(&stats());
        assert_eq!(usage.pods[0].containers[0].memory_bytes, 200);
    }
}
