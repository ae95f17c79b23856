//! The figures of a node and its pods, as they are measured: what `/stats/summary`, the metrics
//! endpoints and eviction read.
//!
//! Times are by the wall clock, since 1970.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::future::BoxFuture;
use mizzen_value::Str;

/// Measures a node. The runtime of a real node does; a test has figures of its own.
pub trait StatsProvider: Send + Sync {
    /// The figures of now, with those of these pods.
    fn stats(&self, pods: MeasuredPods) -> BoxFuture<'static, NodeStats>;
}

/// Which pods are measured with their node. A pod takes far more time than the node itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MeasuredPods {
    /// All that have a sandbox.
    All,
    /// Those of these UIDs.
    Only(HashSet<Str>),
}

impl MeasuredPods {
    /// Whether a pod is measured.
    pub fn contains(&self, uid: &str) -> bool {
        match self {
            MeasuredPods::All => true,
            MeasuredPods::Only(uids) => uids.contains(uid),
        }
    }

    /// Whether no pod is.
    pub fn is_empty(&self) -> bool {
        matches!(self, MeasuredPods::Only(uids) if uids.is_empty())
    }
}

/// The figures of a node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeStats {
    /// When they were measured.
    pub at: Duration,
    /// When the machine started.
    pub started: Duration,
    /// The machine.
    pub machine: CgroupStats,
    /// The memory of the machine.
    pub memory_capacity: u64,
    /// The CPUs of the machine.
    pub cpus: u64,
    /// The swap of the machine.
    pub swap_capacity: u64,
    /// The cgroup of all pods.
    pub all_pods: Option<CgroupStats>,
    /// The cgroup of all pods and those of QoS classes, by path.
    pub pod_groups: Vec<(String, CgroupStats)>,
    /// The file system of the node's directory.
    pub fs: Option<FsStats>,
    /// The file system of images, and what they use.
    pub image_fs: Option<FsStats>,
    /// Whether images have a file system of their own.
    pub has_image_fs: bool,
    /// Process IDs.
    pub pids: Option<PidStats>,
    /// The network interfaces, the one with the default route first.
    pub network: Vec<InterfaceStats>,
    /// The pods that were to be measured and have a sandbox.
    pub pods: Vec<PodStats>,
}

/// The figures of a pod.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PodStats {
    /// Its UID.
    pub uid: Str,
    /// Its namespace.
    pub namespace: Str,
    /// Its name.
    pub name: Str,
    /// Its cgroup.
    pub path: String,
    /// The figures of its cgroup; without one, the sums of its containers.
    pub cgroup: CgroupStats,
    /// Its network interfaces; none on the host network.
    pub network: Vec<InterfaceStats>,
    /// The containers that run.
    pub containers: Vec<ContainerStats>,
    /// Its volumes on the disk of the node.
    pub volumes: Vec<VolumeStats>,
}

impl PodStats {
    /// The disk that containers, logs and local volumes use.
    pub fn ephemeral_storage(&self) -> DiskUsage {
        let containers = self.containers.iter();
        let of_containers = containers.map(|container| container.rootfs.plus(container.logs));
        let volumes = self.volumes.iter().filter(|volume| volume.is_local);
        let of_volumes = volumes.map(|volume| volume.used);
        of_containers
            .chain(of_volumes)
            .fold(DiskUsage::default(), DiskUsage::plus)
    }
}

/// The figures of a container that runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ContainerStats {
    /// Its name.
    pub name: Str,
    /// Its ID in the runtime.
    pub id: Str,
    /// Its image.
    pub image: Str,
    /// Its cgroup; empty if it is not known.
    pub path: String,
    /// When it started.
    pub started: Duration,
    /// The figures of its cgroup.
    pub cgroup: CgroupStats,
    /// Its processes, if they could be counted.
    pub processes: Option<ProcessStats>,
    /// What it wrote beside its volumes.
    pub rootfs: DiskUsage,
    /// Its logs.
    pub logs: DiskUsage,
}

/// The figures of a volume.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VolumeStats {
    /// Its name in the pod.
    pub name: Str,
    /// Whether it counts as ephemeral storage of the pod.
    pub is_local: bool,
    /// What it uses.
    pub used: DiskUsage,
    /// Its file system.
    pub fs: FsStats,
}

/// The figures of a cgroup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CgroupStats {
    /// CPU.
    pub cpu: CpuStats,
    /// Memory.
    pub memory: MemoryStats,
    /// The CPU weight, in shares; only version 1 has it.
    pub cpu_shares: Option<u64>,
    /// The CPU quota in microseconds; `None` or negative without a limit.
    pub cpu_quota: Option<i64>,
    /// The number of tasks.
    pub processes: Option<u64>,
    /// The most tasks; `None` without a limit.
    pub max_processes: Option<u64>,
    /// How many processes were killed because memory ran out.
    pub oom_kills: u64,
    /// How long its tasks have waited for CPU, memory and I/O.
    pub pressure: PressureStats,
}

impl CgroupStats {
    /// The sums of both.
    pub fn plus(self, other: CgroupStats) -> CgroupStats {
        let mut sum = self;
        sum.cpu.usage_ns += other.cpu.usage_ns;
        sum.memory.usage += other.memory.usage;
        sum.memory.working_set += other.memory.working_set;
        sum.memory.rss += other.memory.rss;
        sum
    }
}

/// The CPU figures of a cgroup, since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuStats {
    /// The CPU time in nanoseconds.
    pub usage_ns: u64,
    /// The part in user mode.
    pub user_ns: u64,
    /// The part in the kernel.
    pub system_ns: u64,
    /// The periods in which it ran with a quota.
    pub periods: u64,
    /// The periods in which the quota was used up.
    pub throttled_periods: u64,
    /// How long it was stopped by the quota.
    pub throttled_ns: u64,
    /// The usage since an earlier measurement, in billionths of a core.
    pub nano_cores: Option<u64>,
}

/// The memory figures of a cgroup, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// All of it, with the page cache.
    pub usage: u64,
    /// What cannot be reclaimed at once: all but inactive files.
    pub working_set: u64,
    /// Files that were not used for some time.
    pub inactive_file: u64,
    /// Files that were used.
    pub active_file: u64,
    /// Anonymous memory.
    pub rss: u64,
    /// Files.
    pub cache: u64,
    /// Mapped files.
    pub mapped_file: u64,
    /// The limit.
    pub limit: Option<u64>,
    /// The most that was used.
    pub max_usage: u64,
    /// How often the limit was hit.
    pub failures: u64,
    /// Page faults.
    pub page_faults: u64,
    /// Page faults that read from disk.
    pub major_page_faults: u64,
    /// What the kernel uses for it.
    pub kernel: u64,
    /// What is swapped; `None` if that is not counted.
    pub swap: Option<u64>,
    /// The limit of swap. Kubernetes: in version 1, that of memory and swap together.
    pub swap_limit: Option<u64>,
}

/// The processes of a container and what they have open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessStats {
    /// The processes.
    pub count: u64,
    /// Their file descriptors.
    pub descriptors: u64,
    /// Those of sockets.
    pub sockets: u64,
}

/// Pressure stall information (PSI), where the kernel has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PressureStats {
    /// Of CPU.
    pub cpu: Option<Pressure>,
    /// Of memory.
    pub memory: Option<Pressure>,
    /// Of I/O.
    pub io: Option<Pressure>,
}

/// How long tasks have waited for something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pressure {
    /// At least one task.
    pub some: PressureTime,
    /// All tasks at once.
    pub full: PressureTime,
}

/// The time that was waited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PressureTime {
    /// In microseconds.
    pub total: u64,
    /// The parts of the last 10, 60 and 300 seconds, in hundredths of a percent.
    pub averages: [u32; 3],
}

impl Pressure {
    /// Reads a file such as `cpu.pressure`; `None` if it has nothing.
    pub(crate) fn parse(text: &str) -> Option<Pressure> {
        let mut pressure = None;
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let known: &mut Pressure = pressure.get_or_insert_default();
            let time = match words.next() {
                Some("some") => &mut known.some,
                Some("full") => &mut known.full,
                _ => continue,
            };
            for (name, number) in words.filter_map(|word| word.split_once('=')) {
                let percent: f64 = number.parse().ok()?;
                let hundredths = (percent * 100.0).round() as u32;
                match name {
                    "avg10" => time.averages[0] = hundredths,
                    "avg60" => time.averages[1] = hundredths,
                    "avg300" => time.averages[2] = hundredths,
                    "total" => time.total = number.parse().ok()?,
                    _ => {}
                }
            }
        }
        pressure
    }
}

/// Bytes and inodes on a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// Bytes.
    pub bytes: u64,
    /// Inodes.
    pub inodes: u64,
}

impl DiskUsage {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: DiskUsage) -> DiskUsage {
        DiskUsage {
            bytes: self.bytes.saturating_add(other.bytes),
            inodes: self.inodes.saturating_add(other.inodes),
        }
    }
}

/// The figures of a file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FsStats {
    /// Its size in bytes.
    pub capacity: u64,
    /// What is free for users other than root.
    pub available: u64,
    /// What is used.
    pub used: u64,
    /// Its inodes.
    pub inodes: u64,
    /// The free ones.
    pub inodes_free: u64,
}

/// The process IDs of a machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PidStats {
    /// The most.
    pub max: u64,
    /// The tasks that there are.
    pub running: u64,
}

/// The figures of a network interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InterfaceStats {
    /// Its name.
    pub name: String,
    /// Received bytes, packets, errors and dropped packets.
    pub received: [u64; 4],
    /// Sent bytes, packets, errors and dropped packets.
    pub sent: [u64; 4],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_read_as_the_kernel_writes_it() {
        let text = "some avg10=35.17 avg60=16.65 avg300=0.05 total=817230131\n\
                    full avg10=0.00 avg60=100.00 avg300=0.00 total=7\n";
        let expected = Pressure {
            some: PressureTime {
                total: 817_230_131,
                averages: [3517, 1665, 5],
            },
            full: PressureTime {
                total: 7,
                averages: [0, 10_000, 0],
            },
        };
        assert_eq!(Pressure::parse(text), Some(expected));
        // Old kernels have no line of CPU for all tasks.
        let some = text.lines().next().unwrap();
        let only = Pressure {
            full: PressureTime::default(),
            ..expected
        };
        assert_eq!(Pressure::parse(some), Some(only));
        assert_eq!(Pressure::parse(""), None);
        assert_eq!(Pressure::parse("some avg10=x total=1"), None);
    }
}
