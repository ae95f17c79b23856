//! The figures of this machine and its pods: from cgroups, `/proc`, file systems and the runtime.
//!
//! CPU and memory of a container are those of its cgroup; where pods have no cgroups, those that
//! the runtime has. Directories are counted anew only after a pause that grows with the time that
//! counting takes.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use mizzen_cri::messages::{
    ContainerStats as CriStats, ContainerStatsFilter, ImageFsInfoRequest,
    ListContainerStatsRequest, UInt64Value,
};
use nix::sys::statvfs::statvfs;
use parking_lot::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use super::container::CellPhase;
use super::{CriNode, CriRuntime, machine};
use crate::stats::{
    CgroupStats, ContainerStats, CpuStats, DiskUsage, FsStats, InterfaceStats, MeasuredPods,
    MemoryStats, NodeStats, PidStats, PodStats, Pressure, PressureStats, ProcessStats,
    StatsProvider, VolumeStats,
};

/// How long the runtime may take to say what it knows.
const RUNTIME: Duration = Duration::from_secs(5);
/// The shortest time over which CPU usage is a rate.
const RATE_WINDOW: Duration = Duration::from_secs(1);
/// Counting directories takes at most this part of the time.
const COUNTING_SHARE: u32 = 20;
/// The most files that are counted in a directory.
const MAX_FILES: u64 = 1_000_000;
/// The size of the blocks in which the kernel counts files.
const BLOCK: u64 = 512;
/// The volumes that are directories on the node's disk (upstream: `localVolumeNames`).
const LOCAL_VOLUMES: [&str; 2] = ["empty-dir", "configmap"];

/// What is remembered between two measurements.
#[derive(Default)]
pub(super) struct StatsCache {
    /// The CPU time of cgroups.
    cpu: Mutex<HashMap<String, CpuSample>>,
    /// The sizes of directories.
    disk: Mutex<HashMap<PathBuf, DiskSample>>,
}

#[derive(Clone, Copy)]
struct CpuSample {
    at: Instant,
    usage_ns: u64,
    nano_cores: Option<u64>,
}

#[derive(Clone, Copy)]
struct DiskSample {
    at: Instant,
    took: Duration,
    usage: DiskUsage,
}

/// A pod to measure.
struct MeasuredPod {
    stats: PodStats,
    logs: PathBuf,
}

/// What the runtime says.
#[derive(Default)]
struct RuntimeFigures {
    /// By container ID.
    containers: HashMap<String, CriStats>,
    /// The directory of images.
    image_dir: Option<PathBuf>,
    image_usage: DiskUsage,
}

impl StatsProvider for CriRuntime {
    fn stats(&self, pods: MeasuredPods) -> BoxFuture<'static, NodeStats> {
        let node = self.0.clone();
        Box::pin(async move { node.node_stats(&pods).await })
    }
}

impl CriNode {
    async fn node_stats(self: Arc<Self>, pods: &MeasuredPods) -> NodeStats {
        let pods = self.pods_to_measure(pods);
        let figures = timeout(RUNTIME, self.runtime_figures(!pods.is_empty())).await;
        let figures = figures.unwrap_or_default();
        let measured = spawn_blocking(move || self.measure_node(pods, &figures)).await;
        measured.unwrap_or_default()
    }

    async fn runtime_figures(&self, with_containers: bool) -> RuntimeFigures {
        let (listed, images) = tokio::join!(
            async {
                match with_containers {
                    true => self.container_stats().await,
                    false => Vec::new(),
                }
            },
            self.client.call(ImageFsInfoRequest {})
        );
        let id = |stats: &CriStats| stats.attributes.as_ref().map(|it| it.id.clone());
        let images = images
            .map(|info| info.image_filesystems)
            .unwrap_or_default();
        let images = images.into_iter().next().unwrap_or_default();
        RuntimeFigures {
            containers: listed
                .into_iter()
                .filter_map(|stats| Some((id(&stats)?, stats)))
                .collect(),
            image_dir: images.fs_id.map(|id| id.mountpoint.into()),
            image_usage: DiskUsage {
                bytes: number(images.used_bytes),
                inodes: number(images.inodes_used),
            },
        }
    }

    async fn container_stats(&self) -> Vec<CriStats> {
        let filter = ContainerStatsFilter {
            label_selector: self.selector(),
            ..ContainerStatsFilter::default()
        };
        let list = ListContainerStatsRequest {
            filter: Some(filter),
        };
        let listed = self.client.call(list).await;
        listed.map(|listed| listed.stats).unwrap_or_default()
    }

    fn pods_to_measure(&self, measured: &MeasuredPods) -> Vec<MeasuredPod> {
        let pods = self.pods.lock();
        let mut found: Vec<MeasuredPod> = pods
            .iter()
            .filter(|(uid, record)| measured.contains(uid) && record.sandbox.phase.id().is_some())
            .map(|(uid, record)| MeasuredPod {
                logs: self
                    .paths
                    .pod_logs(record.key.namespace(), record.key.name(), uid),
                stats: PodStats {
                    uid: uid.clone(),
                    namespace: record.key.namespace().into(),
                    name: record.key.name().into(),
                    containers: running_containers(&record.containers),
                    ..PodStats::default()
                },
            })
            .collect();
        found.sort_by(|one, other| {
            let key = |pod: &MeasuredPod| (pod.stats.namespace.clone(), pod.stats.name.clone());
            key(one).cmp(&key(other))
        });
        found
    }

    fn measure_node(&self, pods: Vec<MeasuredPod>, figures: &RuntimeFigures) -> NodeStats {
        let (memory, stat) = (read("/proc/meminfo"), read("/proc/stat"));
        let mut machine = self.cgroups.measure("/").unwrap_or_default();
        machine.memory = machine_memory(&memory);
        self.stats.rate("/", &mut machine.cpu);
        machine.pressure = PressureStats {
            cpu: Pressure::parse(&read("/proc/pressure/cpu")),
            memory: Pressure::parse(&read("/proc/pressure/memory")),
            io: Pressure::parse(&read("/proc/pressure/io")),
        };
        let groups = self.cgroups.group_paths().into_iter();
        let groups = groups.filter_map(|path| self.cgroups.measure(&path).map(|it| (path, it)));
        let all_pods = self.cgroups.all_pods_path();
        let all_pods = self.cgroups.measure(&all_pods).map(|mut all| {
            self.stats.rate("kubepods", &mut all.cpu);
            all
        });
        let fs = file_system(&self.paths.root);
        let image_fs = figures.image_dir.as_deref().and_then(file_system);
        let device = |path: &Path| existing(path).and_then(|path| fs::metadata(path).ok());
        let node_device = device(&self.paths.root).map(|it| it.dev());
        let image_device = figures.image_dir.as_deref().and_then(device);
        let stats = NodeStats {
            started: Duration::from_secs(number_after(&stat, "btime")),
            machine,
            memory_capacity: kibibytes(&memory, "MemTotal"),
            swap_capacity: kibibytes(&memory, "SwapTotal"),
            pod_groups: groups.collect(),
            cpus: machine::cpus(),
            all_pods,
            fs,
            image_fs: image_fs.map(|fs| FsStats {
                used: figures.image_usage.bytes,
                ..fs
            }),
            has_image_fs: image_device.is_some_and(|it| Some(it.dev()) != node_device),
            pids: pids(),
            network: default_first(interfaces(&read("/proc/net/dev")), &read("/proc/net/route")),
            pods: pods
                .into_iter()
                .map(|pod| self.measure_pod(pod, figures))
                .collect(),
            ..NodeStats::default()
        };
        self.stats.forget_old();
        stats
    }

    fn measure_pod(&self, pod: MeasuredPod, figures: &RuntimeFigures) -> PodStats {
        let MeasuredPod { mut stats, logs } = pod;
        let classes = ["Burstable", "BestEffort", "Guaranteed"];
        let paths = classes.map(|class| self.cgroups.pod_path(class, &stats.uid));
        let found = paths.into_iter().find_map(|path| {
            let figures = self.cgroups.measure(&path)?;
            Some((path, figures))
        });
        if let Some((path, cgroup)) = &found {
            (stats.path, stats.cgroup) = (path.clone(), *cgroup);
            stats.network = self.pod_network(path);
        }
        for container in &mut stats.containers {
            let runtime = figures.containers.get(container.id.as_str());
            container.path = found
                .as_ref()
                .and_then(|(pod, _)| self.cgroups.container_path(pod, &container.id))
                .unwrap_or_default();
            let processes = self.cgroups.processes(&container.path);
            container.processes = processes.map(|ids| open_files(&ids, Path::new("/proc")));
            let measured = self.cgroups.measure(&container.path);
            container.cgroup = measured.unwrap_or_else(|| of_runtime(runtime));
            self.stats.rate(&container.id, &mut container.cgroup.cpu);
            let layer = runtime.and_then(|stats| stats.writable_layer.clone());
            container.rootfs = layer.map_or(DiskUsage::default(), |layer| DiskUsage {
                bytes: number(layer.used_bytes),
                inodes: number(layer.inodes_used),
            });
            container.logs = self.stats.count(&logs.join(container.name.as_str()));
        }
        if found.is_none() {
            let containers = stats.containers.iter().map(|container| container.cgroup);
            stats.cgroup = containers.fold(CgroupStats::default(), CgroupStats::plus);
        }
        self.stats.rate(&stats.uid, &mut stats.cgroup.cpu);
        stats.volumes = self.measure_volumes(&stats.uid);
        stats
    }

    /// The interfaces of a pod's network namespace, unless it is that of this machine.
    fn pod_network(&self, path: &str) -> Vec<InterfaceStats> {
        let Some(process) = self.cgroups.process(path) else {
            return Vec::new();
        };
        let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).ok();
        let own = namespace("self");
        if own.is_none() || own == namespace(&process.to_string()) {
            return Vec::new();
        }
        let dir = format!("/proc/{process}/net");
        let route = read(&format!("{dir}/route"));
        default_first(interfaces(&read(&format!("{dir}/dev"))), &route)
    }

    /// The volumes of a pod that are directories of this agent.
    fn measure_volumes(&self, uid: &str) -> Vec<VolumeStats> {
        let dir = self.paths.pod(uid).join("volumes");
        let node = fs::metadata(&dir).map(|it| it.dev()).ok();
        let mut volumes = Vec::new();
        for kind in entries(&dir) {
            let name = kind.file_name().unwrap_or_default().to_string_lossy();
            let kind_name = name.strip_prefix("kubernetes.io~").unwrap_or_default();
            // Kubernetes: volumes that are images have no figures (pkg/volume/image).
            if kind_name == "image" {
                continue;
            }
            let is_local = LOCAL_VOLUMES.contains(&kind_name);
            for volume in entries(&kind) {
                let device = fs::metadata(&volume).map(|it| it.dev()).ok();
                let Some(fs) = file_system(&volume) else {
                    continue;
                };
                let is_on_disk = device == node;
                volumes.push(VolumeStats {
                    name: volume
                        .file_name()
                        .unwrap_or_default()
                        .to_string_lossy()
                        .as_ref()
                        .into(),
                    is_local: is_local && is_on_disk,
                    used: match is_on_disk {
                        true => self.stats.count(&volume),
                        false => DiskUsage {
                            bytes: fs.used,
                            inodes: fs.inodes.saturating_sub(fs.inodes_free),
                        },
                    },
                    fs,
                });
            }
        }
        volumes.sort_by(|one, other| one.name.cmp(&other.name));
        volumes
    }
}

fn running_containers(cells: &[Arc<super::container::ContainerCell>]) -> Vec<ContainerStats> {
    let running = cells.iter().filter_map(|cell| {
        let state = cell.state.lock();
        let CellPhase::Running { started } = state.phase else {
            return None;
        };
        Some(ContainerStats {
            name: cell.name.clone(),
            id: state.id.clone(),
            image: state.image_id.clone(),
            started,
            ..ContainerStats::default()
        })
    });
    running.collect()
}

impl StatsCache {
    /// Sets the rate since an earlier measurement.
    fn rate(&self, name: &str, cpu: &mut CpuStats) {
        let now = Instant::now();
        let mut samples = self.cpu.lock();
        let sample = samples.entry(name.to_owned()).or_insert(CpuSample {
            at: now,
            usage_ns: cpu.usage_ns,
            nano_cores: None,
        });
        let elapsed = now - sample.at;
        if elapsed >= RATE_WINDOW {
            // A counter that fell is that of another instance.
            let used = cpu.usage_ns.checked_sub(sample.usage_ns);
            let rate = |used: u64| u128::from(used) * 1_000_000_000 / elapsed.as_nanos();
            *sample = CpuSample {
                at: now,
                usage_ns: cpu.usage_ns,
                nano_cores: used.and_then(|used| u64::try_from(rate(used)).ok()),
            };
        }
        cpu.nano_cores = sample.nano_cores;
    }

    /// The size of a directory, perhaps as it was counted some time ago.
    fn count(&self, dir: &Path) -> DiskUsage {
        let known = self.disk.lock().get(dir).copied();
        let is_recent = |known: &DiskSample| known.at.elapsed() < known.took * COUNTING_SHARE;
        if let Some(known) = known.filter(is_recent) {
            return known.usage;
        }
        let at = Instant::now();
        let mut usage = DiskUsage::default();
        let device = fs::symlink_metadata(dir).map(|it| it.dev());
        if let Ok(device) = device {
            count(dir, device, &mut usage);
        }
        let sample = DiskSample {
            at,
            took: at.elapsed(),
            usage,
        };
        self.disk.lock().insert(dir.to_owned(), sample);
        usage
    }

    /// Forgets what was not measured for a long time.
    fn forget_old(&self) {
        const OLD: Duration = Duration::from_secs(600);
        self.cpu
            .lock()
            .retain(|_, sample| sample.at.elapsed() < OLD);
        let is_current =
            |sample: &DiskSample| sample.at.elapsed() < OLD.max(sample.took * COUNTING_SHARE * 2);
        self.disk.lock().retain(|_, sample| is_current(sample));
    }
}

/// Adds a directory and what is in it, as far as it is on the same device.
fn count(path: &Path, device: u64, usage: &mut DiskUsage) {
    let mut waiting = vec![path.to_owned()];
    while let Some(path) = waiting.pop() {
        let Ok(metadata) = fs::symlink_metadata(&path) else {
            continue;
        };
        if metadata.dev() != device || usage.inodes >= MAX_FILES {
            continue;
        }
        *usage = usage.plus(DiskUsage {
            bytes: metadata.blocks() * BLOCK,
            inodes: 1,
        });
        if metadata.is_dir() {
            waiting.extend(entries(&path));
        }
    }
}

/// Processes and what they have open, below `/proc`. Kubernetes: cadvisor, `processStatsFromProcs`.
fn open_files(ids: &[u32], proc: &Path) -> ProcessStats {
    let mut found = ProcessStats {
        count: ids.len() as u64,
        ..ProcessStats::default()
    };
    for id in ids {
        for descriptor in entries(&proc.join(id.to_string()).join("fd")) {
            found.descriptors += 1;
            let target = fs::read_link(descriptor).unwrap_or_default();
            found.sockets +=
                u64::from(target.as_os_str().as_encoded_bytes().starts_with(b"socket"));
        }
    }
    found
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// The figures that the runtime has of a container.
fn of_runtime(stats: Option<&CriStats>) -> CgroupStats {
    let Some(stats) = stats else {
        return CgroupStats::default();
    };
    let (cpu, memory) = (stats.cpu.clone(), stats.memory.clone());
    let (cpu, memory) = (cpu.unwrap_or_default(), memory.unwrap_or_default());
    CgroupStats {
        cpu: CpuStats {
            usage_ns: number(cpu.usage_core_nano_seconds),
            ..CpuStats::default()
        },
        memory: MemoryStats {
            usage: number(memory.usage_bytes),
            working_set: number(memory.working_set_bytes),
            rss: number(memory.rss_bytes),
            ..MemoryStats::default()
        },
        ..CgroupStats::default()
    }
}

fn number(value: Option<UInt64Value>) -> u64 {
    value.map_or(0, |value| value.value)
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The number after a name at the start of a line.
fn number_after(text: &str, name: &str) -> u64 {
    let rest = text.lines().find_map(|line| line.strip_prefix(name));
    let number = rest.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    number.unwrap_or_default()
}

/// A line of `/proc/meminfo`, in bytes.
pub(super) fn kibibytes(text: &str, name: &str) -> u64 {
    number_after(text, &format!("{name}:")) * 1024
}

/// The memory of the machine. Kubernetes: as cAdvisor has it of the root cgroup.
fn machine_memory(text: &str) -> MemoryStats {
    let bytes = |name: &str| kibibytes(text, name);
    let usage = bytes("MemTotal").saturating_sub(bytes("MemFree"));
    let inactive_file = bytes("Inactive(file)");
    let events = read("/proc/vmstat");
    MemoryStats {
        usage,
        working_set: usage.saturating_sub(inactive_file),
        inactive_file,
        active_file: bytes("Active(file)"),
        rss: bytes("AnonPages"),
        cache: bytes("Cached"),
        mapped_file: bytes("Mapped"),
        swap: Some(bytes("SwapTotal").saturating_sub(bytes("SwapFree"))),
        page_faults: number_after(&events, "pgfault "),
        major_page_faults: number_after(&events, "pgmajfault "),
        ..MemoryStats::default()
    }
}

/// The directory, or the one in which it will be.
fn existing(path: &Path) -> Option<&Path> {
    path.ancestors().find(|path| path.exists())
}

fn file_system(path: &Path) -> Option<FsStats> {
    let found = statvfs(existing(path)?).ok()?;
    let bytes = |blocks: u64| blocks * found.fragment_size();
    Some(FsStats {
        capacity: bytes(found.blocks()),
        available: bytes(found.blocks_available()),
        used: bytes(found.blocks().saturating_sub(found.blocks_free())),
        inodes: found.files(),
        inodes_free: found.files_free(),
    })
}

/// Kubernetes: the less of the most PIDs and the most threads; the tasks of `/proc/loadavg`
/// (pkg/kubelet/stats/pidlimit).
fn pids() -> Option<PidStats> {
    let number = |path: &str| read(path).trim().parse::<u64>().ok();
    let most = [
        number("/proc/sys/kernel/pid_max"),
        number("/proc/sys/kernel/threads-max"),
    ];
    let load = read("/proc/loadavg");
    let tasks = load.split_whitespace().nth(3)?.split_once('/')?.1;
    Some(PidStats {
        max: most.into_iter().flatten().min()?,
        running: tasks.parse().ok()?,
    })
}

/// The interfaces in `/proc/net/dev`, without the loopback.
fn interfaces(text: &str) -> Vec<InterfaceStats> {
    let parse = |line: &str| {
        let (name, figures) = line.split_once(':')?;
        let figures: Vec<u64> = figures
            .split_whitespace()
            .map_while(|figure| figure.parse().ok())
            .collect();
        let figures: [u64; 16] = figures.try_into().ok()?;
        Some(InterfaceStats {
            name: name.trim().to_owned(),
            received: [figures[0], figures[1], figures[2], figures[3]],
            sent: [figures[8], figures[9], figures[10], figures[11]],
        })
    };
    let all = text.lines().filter_map(parse);
    all.filter(|interface| interface.name != "lo").collect()
}

/// Moves the interface of the default route, of `/proc/net/route`, to the front.
fn default_first(mut interfaces: Vec<InterfaceStats>, routes: &str) -> Vec<InterfaceStats> {
    let routes = routes.lines().map(|line| line.split_whitespace());
    let default = routes.filter_map(|mut route| Some((route.next()?, route.next()?)));
    let default = default.into_iter().find(|(_, to)| *to == "00000000");
    let name = default.map_or("", |(name, _)| name);
    interfaces.sort_by_key(|interface| interface.name != name);
    interfaces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_read_without_the_loopback_and_the_default_comes_first() {
        let text = "Inter-|   Receive                                                |  Transmit\n \
                    face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
                    lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n  eth0: 10 2 3 4 0 0 0 0 50 6 7 8 0 0 0 0\n  cni0: 9 9 9 9 0 0 0 0 9 9 9 9 0 0 0 0\n";
        let route =
            "Iface\tDestination\tGateway\neth0\t0000A8C0\t00000000\ncni0\t00000000\t0101A8C0\n";
        let found = default_first(interfaces(text), route);
        let names: Vec<&str> = found.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["cni0", "eth0"]);
        assert_eq!(
            (found[1].received, found[1].sent),
            ([10, 2, 3, 4], [50, 6, 7, 8])
        );
    }

    #[test]
    fn memory_that_can_be_reclaimed_is_not_in_the_working_set() {
        let text = "MemTotal: 1000 kB\nMemFree: 300 kB\nInactive(file): 200 kB\nAnonPages: 50 kB\n\
                    SwapTotal: 90 kB\nSwapFree: 70 kB\n";
        let memory = machine_memory(text);
        assert_eq!(memory.swap, Some(20 * 1024));
        assert_eq!(memory.usage, 700 * 1024);
        assert_eq!(memory.working_set, 500 * 1024);
        assert_eq!(memory.rss, 50 * 1024);
    }

    #[test]
    fn open_files_of_processes_are_counted() {
        let proc = tempfile::tempdir().unwrap();
        for (id, targets) in [(7, &["/a", "socket:[1]"][..]), (8, &["pipe:[2]"][..])] {
            let dir = proc.path().join(id.to_string()).join("fd");
            fs::create_dir_all(&dir).unwrap();
            for (at, target) in targets.iter().enumerate() {
                std::os::unix::fs::symlink(target, dir.join(at.to_string())).unwrap();
            }
        }
        // The last one has ended.
        let found = open_files(&[7, 8, 9], proc.path());
        let expected = ProcessStats {
            count: 3,
            descriptors: 3,
            sockets: 1,
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn a_directory_is_counted_with_what_is_in_it() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("a/b"), vec![1; 100_000]).unwrap();
        let usage = StatsCache::default().count(dir.path());
        assert_eq!(usage.inodes, 3);
        assert!((100_000..200_000).contains(&usage.bytes), "{usage:?}");
        let missing = StatsCache::default().count(&dir.path().join("none"));
        assert_eq!(missing, DiskUsage::default());
    }

    #[tokio::test(start_paused = true)]
    async fn cpu_usage_is_a_rate_between_two_measurements() {
        let cache = StatsCache::default();
        let measure = |usage_ns: u64| {
            let mut cpu = CpuStats {
                usage_ns,
                ..CpuStats::default()
            };
            cache.rate("a", &mut cpu);
            cpu.nano_cores
        };
        assert_eq!(measure(1_000_000_000), None);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(measure(2_000_000_000), Some(500_000_000));
        // Too soon for another one.
        assert_eq!(measure(3_000_000_000), Some(500_000_000));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(measure(0), None);
    }
}
