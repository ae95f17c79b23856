//! The cgroups of pods: made with the limits of their pod, measured, and removed with it.
//!
//! Guaranteed pods are in `kubepods`, the others in the cgroup of their QoS class:
//! `kubepods/burstable/podUID`. Containers are cgroups of the runtime in that of their pod. With
//! the systemd driver these are slices, which systemd makes and limits (`slices`).
//!
//! Kubernetes: pkg/kubelet/cm.
//!
//! Invariant: only cgroups in `kubepods` are changed, and processes are left where they are.
//!
//! Invariant: a limit that cannot be set is an error.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use mizzen_component_helpers::pod_state::quality_of_service;
use mizzen_value::quantity::Quantity;
use mizzen_value::{Str, Value};
use parking_lot::Mutex;

use super::resources::{self, CgroupLimits, QUOTA_PERIOD};
use super::slices::{CgroupVersion, Slices};
use crate::stats::{CgroupStats, CpuStats, MemoryStats, Pressure, PressureStats};

/// The cgroup of all pods.
const ROOT: &str = "kubepods";
/// The name of version 2 where it is mounted beside the controllers of version 1.
const UNIFIED: &str = "unified";
/// The cgroups of QoS classes in it.
const CLASSES: [&str; 3] = ["", "burstable", "besteffort"];
/// What version 1 has for no limit: the largest number of whole pages.
const UNLIMITED: u64 = 1 << 62;
/// The controllers of version 2 whose files are read and written.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

/// How cgroups are named, and what makes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CgroupDriver {
    /// The agent and the runtime, as directories.
    Cgroupfs,
    /// systemd, as slices.
    Systemd,
}

impl CgroupDriver {
    /// The name in a KubeletConfiguration.
    pub(super) fn name(self) -> &'static str {
        match self {
            CgroupDriver::Cgroupfs => "cgroupfs",
            CgroupDriver::Systemd => "systemd",
        }
    }
}

/// Where cgroups are.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Hierarchy {
    /// Version 1: a directory by controller.
    V1(BTreeMap<String, PathBuf>),
    /// Version 2.
    V2(PathBuf),
}

/// The cgroups of this machine.
pub(super) struct Cgroups {
    /// `None` if they cannot be used.
    hierarchy: Option<Hierarchy>,
    driver: CgroupDriver,
    /// systemd, with its driver.
    slices: Option<Slices>,
    /// Whether the cgroup of all pods was made.
    has_root: AtomicBool,
    /// The limits of all pods together, once they are known.
    all_pods: Mutex<Option<CgroupLimits>>,
    /// The CPU requests of burstable pods, in millicores, by UID.
    burstable: Mutex<HashMap<Str, i64>>,
    /// The limits that pods have, by UID.
    limits: Mutex<HashMap<Str, CgroupLimits>>,
}

impl Cgroups {
    pub(super) fn driver(&self) -> CgroupDriver {
        self.driver
    }

    /// The cgroups of this machine, of which `kubepods` is made. If they cannot be written, a
    /// warning says so, and pods have none. While systemd does not make them, no pod starts.
    /// `system_bus` is the address of the bus of systemd, if it is not the usual one.
    pub(super) fn detect(driver: CgroupDriver, system_bus: Option<String>) -> Cgroups {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let cgroups = Cgroups {
            hierarchy: Hierarchy::from_mounts(&mounts),
            driver,
            slices: (driver == CgroupDriver::Systemd).then(|| Slices::new(system_bus)),
            has_root: AtomicBool::new(false),
            all_pods: Mutex::default(),
            burstable: Mutex::default(),
            limits: Mutex::default(),
        };
        if cgroups.hierarchy.is_none() {
            tracing::warn!("no cgroups are mounted, pods run without cgroups of their own");
        }
        match cgroups.make_root() {
            Ok(()) => cgroups,
            Err(error) if driver == CgroupDriver::Systemd => {
                tracing::error!(
                    %error,
                    "the runtime has the cgroup driver systemd, but its slices cannot be made: no pod is started or resized"
                );
                cgroups
            }
            Err(error) => {
                tracing::warn!(%error, "cannot write cgroups, pods run without cgroups of their own");
                Cgroups {
                    hierarchy: None,
                    ..cgroups
                }
            }
        }
    }

    fn make_root(&self) -> io::Result<()> {
        let all_pods = *self.all_pods.lock();
        self.make(&class_path(self.driver, ""), all_pods.as_ref())?;
        for class in &CLASSES[1..] {
            let least = CgroupLimits {
                cpu_shares: resources::shares(0),
                ..CgroupLimits::default()
            };
            self.make(&class_path(self.driver, class), Some(&least))?;
        }
        self.has_root.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Removes the cgroups of all pods, unless one of another program is there.
    pub(super) fn remove_root(&self) {
        let Some(hierarchy) = &self.hierarchy else {
            return;
        };
        for class in CLASSES.iter().rev() {
            let path = class_path(self.driver, class);
            match &self.slices {
                None => hierarchy.remove_empty(&path),
                // systemd would end what is in there.
                Some(_) if hierarchy.has_cgroups_in(&path) => {}
                Some(slices) => {
                    if let Err(error) = slices.remove(&path) {
                        tracing::warn!(%error, path, "cannot remove a slice of pods");
                    }
                }
            }
        }
    }

    /// All pods together get what is allocatable to them, before eviction.
    pub(super) fn limit_all_pods(&self, allocatable: &Value) {
        let amount = |name: &str| Quantity::parse_or_zero(allocatable[name].str());
        let limits = CgroupLimits {
            cpu_shares: resources::shares(amount("cpu").milli_value()),
            cpu_quota: None,
            memory: Some(amount("memory").value()).filter(|memory| *memory > 0),
        };
        *self.all_pods.lock() = Some(limits);
        if let Err(error) = self.limit(&class_path(self.driver, ""), &limits) {
            tracing::warn!(%error, "cannot limit the cgroup of all pods");
        }
    }

    /// Makes a cgroup, whose parent is there, and sets its limits.
    fn make(&self, path: &str, limits: Option<&CgroupLimits>) -> io::Result<()> {
        match (&self.hierarchy, &self.slices) {
            (None, _) => Ok(()),
            (Some(hierarchy), None) => hierarchy.make(path, limits),
            (Some(hierarchy), Some(slices)) => slices.make(path, hierarchy.version(), limits),
        }
    }

    fn limit(&self, path: &str, limits: &CgroupLimits) -> io::Result<()> {
        match (&self.hierarchy, &self.slices) {
            (None, _) => Ok(()),
            (Some(hierarchy), None) => hierarchy.limit(path, limits),
            (Some(hierarchy), Some(slices)) => slices.limit(path, hierarchy.version(), limits),
        }
    }

    /// Removes a cgroup and those below it, which have no processes.
    fn remove(&self, path: &str) -> io::Result<()> {
        let Some(hierarchy) = &self.hierarchy else {
            return Ok(());
        };
        if let Some(slices) = &self.slices {
            slices.remove(path)?;
        }
        hierarchy.remove(path)
    }

    /// The path of the cgroup of a pod of a QoS class; empty if pods have none.
    pub(super) fn pod_path(&self, class: &str, uid: &str) -> String {
        match &self.hierarchy {
            None => String::new(),
            Some(_) => pod_path(self.driver, class, uid),
        }
    }

    /// The path of the cgroup of all pods.
    pub(super) fn all_pods_path(&self) -> String {
        match self.driver {
            CgroupDriver::Cgroupfs => format!("/{ROOT}"),
            CgroupDriver::Systemd => format!("/{ROOT}.slice"),
        }
    }

    /// The paths of the cgroup of all pods and of those of QoS classes.
    pub(super) fn group_paths(&self) -> [String; 3] {
        let root = self.all_pods_path();
        CLASSES.map(|class| match (class, self.driver) {
            ("", _) => root.clone(),
            (class, CgroupDriver::Cgroupfs) => format!("{root}/{class}"),
            (class, CgroupDriver::Systemd) => format!("{root}/{ROOT}-{class}.slice"),
        })
    }

    /// Ensures that a pod has its cgroup, with its limits.
    pub(super) fn ensure_pod(&self, pod: &Value) -> io::Result<()> {
        if self.hierarchy.is_none() {
            return Ok(());
        }
        let (class, uid) = (quality_of_service(pod), pod["metadata"]["uid"].str());
        let (path, limits) = (self.pod_path(class, uid), resources::of_pod(pod));
        let make = || self.make(&path, Some(&limits));
        let made = match self.has_root.load(Ordering::Relaxed) {
            true => make(),
            false => Err(io::ErrorKind::NotFound.into()),
        };
        made.or_else(|_| {
            // Another node, which has gone, may have removed the cgroup of all pods.
            self.make_root()?;
            make()
        })?;
        self.limits.lock().insert(uid.into(), limits);
        self.count_burstable(class, uid, pod)
    }

    /// Gives burstable pods together the weight of this one, too.
    fn count_burstable(&self, class: &str, uid: &str, pod: &Value) -> io::Result<()> {
        if class != "Burstable" {
            return Ok(());
        }
        let request = resources::cpu_request(pod);
        self.burstable.lock().insert(uid.into(), request);
        self.share_burstable()
    }

    /// Changes the limits of a pod's cgroup to those of its resources. With `keeps_more`, those that
    /// it has stay where they are more.
    pub(super) fn update_pod(&self, pod: &Value, keeps_more: bool) -> io::Result<()> {
        if self.hierarchy.is_none() {
            // Its containers are limited by the runtime.
            return match pod["spec"]["resources"].is_empty() {
                true => Ok(()),
                false => Err(io::Error::other(
                    "pods have no cgroups on this machine, so that a pod as a whole cannot be limited",
                )),
            };
        }
        let (class, uid) = (quality_of_service(pod), pod["metadata"]["uid"].str());
        let (path, wanted) = (self.pod_path(class, uid), resources::of_pod(pod));
        let known = self.limits.lock().get(uid).copied();
        let known = known.or_else(|| self.read_limits(&path));
        let limits = match known.filter(|_| keeps_more) {
            Some(known) => known.union(wanted),
            None => wanted,
        };
        if known == Some(limits) {
            return Ok(());
        }
        self.limit(&path, &limits)?;
        self.limits.lock().insert(uid.into(), limits);
        self.count_burstable(class, uid, pod)
    }

    /// The limits of a cgroup that another agent has made, without its weight.
    fn read_limits(&self, path: &str) -> Option<CgroupLimits> {
        let figures = self.measure(path)?;
        Some(CgroupLimits {
            cpu_shares: 0,
            cpu_quota: figures.cpu_quota.filter(|quota| *quota > 0),
            memory: figures.memory.limit.and_then(|limit| limit.try_into().ok()),
        })
    }

    /// Removes the cgroup of a pod, which has no containers any more. An error if a part of it is left,
    /// such as that of a process which has not been reaped yet.
    pub(super) fn remove_pod(&self, uid: &str) -> io::Result<()> {
        let mut removed = Ok(());
        for class in ["Guaranteed", "Burstable", "BestEffort"] {
            removed = removed.and(self.remove(&self.pod_path(class, uid)));
        }
        self.limits.lock().remove(uid);
        let was_burstable = self.burstable.lock().remove(uid).is_some();
        if was_burstable && let Err(error) = self.share_burstable() {
            tracing::warn!(%error, "cannot set the CPU weight of burstable pods");
        }
        removed
    }

    /// The weight of all burstable pods is that of their requests.
    fn share_burstable(&self) -> io::Result<()> {
        let request: i64 = self.burstable.lock().values().sum();
        let limits = CgroupLimits {
            cpu_shares: resources::shares(request),
            ..CgroupLimits::default()
        };
        self.limit(&class_path(self.driver, CLASSES[1]), &limits)
    }

    /// The path of the cgroup of a container, which the runtime names by its ID.
    pub(super) fn container_path(&self, pod: &str, id: &str) -> Option<String> {
        let dir = self.hierarchy.as_ref()?.dir("memory", pod)?;
        let entries = fs::read_dir(dir).ok()?;
        let mut names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let name = names.find(|name| name.contains(id))?;
        Some(format!("{pod}/{name}"))
    }

    /// The figures of a cgroup; `None` if it is not there.
    pub(super) fn measure(&self, path: &str) -> Option<CgroupStats> {
        let hierarchy = self.hierarchy.as_ref()?;
        if path.is_empty() || !hierarchy.dir("memory", path)?.is_dir() {
            return None;
        }
        Some(hierarchy.measure(path))
    }

    /// The processes in a cgroup, without those below it.
    pub(super) fn processes(&self, path: &str) -> Option<Vec<u32>> {
        let hierarchy = self.hierarchy.as_ref().filter(|_| !path.is_empty());
        let dir = hierarchy?.dir("memory", path)?;
        let text = fs::read_to_string(dir.join("cgroup.procs")).ok()?;
        Some(text.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// A process in a cgroup or in those below it.
    pub(super) fn process(&self, path: &str) -> Option<u32> {
        let dir = self.hierarchy.as_ref()?.dir("memory", path)?;
        first_process(&dir)
    }
}

fn first_process(dir: &Path) -> Option<u32> {
    let own = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    let own = own.lines().find_map(|line| line.parse().ok());
    own.or_else(|| {
        let mut below = fs::read_dir(dir).ok()?.flatten().map(|entry| entry.path());
        below.find_map(|path| {
            if path.is_dir() {
                first_process(&path)
            } else {
                None
            }
        })
    })
}

/// The path of the cgroup of a QoS class; that of all pods for none.
fn class_path(driver: CgroupDriver, class: &str) -> String {
    match (driver, class) {
        (CgroupDriver::Cgroupfs, "") => format!("/{ROOT}"),
        (CgroupDriver::Cgroupfs, class) => format!("/{ROOT}/{class}"),
        (CgroupDriver::Systemd, "") => format!("/{ROOT}.slice"),
        (CgroupDriver::Systemd, class) => format!("/{ROOT}.slice/{ROOT}-{class}.slice"),
    }
}

fn pod_path(driver: CgroupDriver, class: &str, uid: &str) -> String {
    let class = match class {
        "Guaranteed" => CLASSES[0],
        "Burstable" => CLASSES[1],
        _ => CLASSES[2],
    };
    match (driver, class) {
        (CgroupDriver::Cgroupfs, "") => format!("/{ROOT}/pod{uid}"),
        (CgroupDriver::Cgroupfs, class) => format!("/{ROOT}/{class}/pod{uid}"),
        (CgroupDriver::Systemd, class) => {
            // A dash in the name of a slice is a level.
            let uid = uid.replace('-', "_");
            match class {
                "" => format!("/{ROOT}.slice/{ROOT}-pod{uid}.slice"),
                class => {
                    format!("/{ROOT}.slice/{ROOT}-{class}.slice/{ROOT}-{class}-pod{uid}.slice")
                }
            }
        }
    }
}

impl Hierarchy {
    /// Reads `/proc/self/mountinfo`. Where both versions are mounted, the controllers are in
    /// version 1.
    fn from_mounts(text: &str) -> Option<Hierarchy> {
        let mut by_controller = BTreeMap::new();
        let mut unified = None;
        for line in text.lines() {
            let Some((mount, system)) = line.split_once(" - ") else {
                continue;
            };
            let place = mount.split(' ').nth(4).unwrap_or_default();
            let system: Vec<&str> = system.split(' ').collect();
            match system[..] {
                ["cgroup2", ..] if unified.is_none() => unified = Some(PathBuf::from(place)),
                ["cgroup", _, options] => {
                    let names = options.split(',').filter(|name| *name != "rw");
                    for name in names {
                        let known = by_controller.entry(name.to_owned());
                        known.or_insert_with(|| PathBuf::from(place));
                    }
                }
                _ => {}
            }
        }
        match by_controller.contains_key("memory") && by_controller.contains_key("cpu") {
            true => {
                // Runtimes make cgroups of containers there, too, which are removed with the pod's.
                by_controller.extend(unified.map(|place| (UNIFIED.to_owned(), place)));
                Some(Hierarchy::V1(by_controller))
            }
            false => unified.map(Hierarchy::V2),
        }
    }

    fn version(&self) -> CgroupVersion {
        match self {
            Hierarchy::V1(_) => CgroupVersion::V1,
            Hierarchy::V2(_) => CgroupVersion::V2,
        }
    }

    /// The directory of a cgroup in a controller.
    fn dir(&self, controller: &str, path: &str) -> Option<PathBuf> {
        let root = match self {
            Hierarchy::V1(mounts) => mounts.get(controller)?,
            Hierarchy::V2(root) => root,
        };
        Some(root.join(path.trim_start_matches('/')))
    }

    /// Makes a cgroup, whose parent is there, and sets its limits.
    fn make(&self, path: &str, limits: Option<&CgroupLimits>) -> io::Result<()> {
        match self {
            Hierarchy::V1(_) => {
                for controller in ["cpu", "cpuacct", "memory", "pids"] {
                    if let Some(dir) = self.dir(controller, path) {
                        fs::create_dir_all(&dir)?;
                    }
                }
            }
            Hierarchy::V2(root) => {
                let dir = root.join(path.trim_start_matches('/'));
                let parent = dir.parent().unwrap_or(root);
                for controller in CONTROLLERS {
                    let control = parent.join("cgroup.subtree_control");
                    write(&control, format!("+{controller}"))?;
                }
                fs::create_dir_all(&dir)?;
                // The runtime sets what a container may use of the others.
                for controller in ["cpuset", "io", "hugetlb"] {
                    let control = parent.join("cgroup.subtree_control");
                    let _ = write(&control, format!("+{controller}"));
                }
            }
        }
        limits.map_or(Ok(()), |limits| self.limit(path, limits))
    }

    /// Sets the limits of a cgroup.
    fn limit(&self, path: &str, limits: &CgroupLimits) -> io::Result<()> {
        let file = |controller: &str, name: &str| {
            let dir = self.dir(controller, path);
            dir.unwrap_or_default().join(name)
        };
        match self {
            Hierarchy::V1(_) => {
                write(&file("cpu", "cpu.shares"), limits.cpu_shares.to_string())?;
                let quota = limits.cpu_quota.unwrap_or(-1);
                let set_quota = || write(&file("cpu", "cpu.cfs_quota_us"), quota.to_string());
                write(&file("cpu", "cpu.cfs_period_us"), QUOTA_PERIOD.to_string())?;
                set_quota()?;
                let memory = limits.memory.unwrap_or(-1);
                write(&file("memory", "memory.limit_in_bytes"), memory.to_string())
            }
            Hierarchy::V2(_) => {
                let weight = resources::weight(limits.cpu_shares);
                write(&file("cpu", "cpu.weight"), weight.to_string())?;
                let max =
                    |limit: Option<i64>| limit.map_or("max".into(), |limit| limit.to_string());
                let quota = format!("{} {QUOTA_PERIOD}", max(limits.cpu_quota));
                write(&file("cpu", "cpu.max"), quota)?;
                write(&file("memory", "memory.max"), max(limits.memory))
            }
        }
    }

    /// The directories of a cgroup in all controllers.
    fn dirs(&self, path: &str) -> impl Iterator<Item = PathBuf> {
        let roots: Vec<&PathBuf> = match self {
            Hierarchy::V1(mounts) => mounts.values().collect(),
            Hierarchy::V2(root) => vec![root],
        };
        let path = path.trim_start_matches('/').to_owned();
        roots.into_iter().map(move |root| root.join(&path))
    }

    /// Whether others are below a cgroup.
    fn has_cgroups_in(&self, path: &str) -> bool {
        let mut dirs = self.dirs(path);
        dirs.any(|dir| {
            let mut entries = fs::read_dir(dir).into_iter().flatten().flatten();
            entries.any(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        })
    }

    /// Removes a cgroup, unless others are below it.
    fn remove_empty(&self, path: &str) {
        for dir in self.dirs(path) {
            let _ = fs::remove_dir(dir);
        }
    }

    /// Removes a cgroup and those below it, which have no processes.
    fn remove(&self, path: &str) -> io::Result<()> {
        let mut removed = Ok(());
        for dir in self.dirs(path) {
            match remove_tree(&dir) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    let why = format!("{}: {error}", dir.display());
                    removed = Err(io::Error::new(error.kind(), why));
                }
                _ => {}
            }
        }
        removed
    }

    fn measure(&self, path: &str) -> CgroupStats {
        let read = |controller: &str, name: &str| {
            let file = self.dir(controller, path).map(|dir| dir.join(name));
            file.and_then(|file| fs::read_to_string(file).ok())
                .unwrap_or_default()
        };
        match self {
            Hierarchy::V1(_) => stats_v1(&read),
            Hierarchy::V2(_) => stats_v2(&read),
        }
    }
}

/// Reads a file of a controller; nothing if it is not there.
type ReadFile<'a> = &'a dyn Fn(&str, &str) -> String;

/// The figures of version 1. Pressure is only measured in version 2.
fn stats_v1(read: ReadFile) -> CgroupStats {
    let number = |controller: &str, name: &str| read(controller, name).trim().parse().ok();
    let memory = |name: &str| number("memory", &format!("memory.{name}"));
    let (cpu, stat) = (read("cpu", "cpu.stat"), read("memory", "memory.stat"));
    let usage: u64 = memory("usage_in_bytes").unwrap_or_default();
    let inactive_file = field(&stat, "total_inactive_file");
    CgroupStats {
        cpu: CpuStats {
            usage_ns: number("cpuacct", "cpuacct.usage").unwrap_or_default(),
            user_ns: number("cpuacct", "cpuacct.usage_user").unwrap_or_default(),
            system_ns: number("cpuacct", "cpuacct.usage_sys").unwrap_or_default(),
            periods: field(&cpu, "nr_periods"),
            throttled_periods: field(&cpu, "nr_throttled"),
            throttled_ns: field(&cpu, "throttled_time"),
            nano_cores: None,
        },
        memory: MemoryStats {
            usage,
            working_set: usage.saturating_sub(inactive_file),
            inactive_file,
            active_file: field(&stat, "total_active_file"),
            rss: field(&stat, "total_rss"),
            cache: field(&stat, "total_cache"),
            mapped_file: field(&stat, "total_mapped_file"),
            limit: memory("limit_in_bytes").filter(|limit| *limit < UNLIMITED),
            max_usage: memory("max_usage_in_bytes").unwrap_or_default(),
            failures: memory("failcnt").unwrap_or_default(),
            page_faults: field(&stat, "total_pgfault"),
            major_page_faults: field(&stat, "total_pgmajfault"),
            kernel: memory("kmem.usage_in_bytes").unwrap_or_default(),
            swap: optional_field(&stat, "total_swap"),
            swap_limit: memory("memsw.limit_in_bytes").filter(|limit| *limit < UNLIMITED),
        },
        cpu_shares: number("cpu", "cpu.shares"),
        cpu_quota: read("cpu", "cpu.cfs_quota_us").trim().parse().ok(),
        processes: number("pids", "pids.current"),
        max_processes: number("pids", "pids.max"),
        oom_kills: field(&read("memory", "memory.oom_control"), "oom_kill"),
        pressure: PressureStats::default(),
    }
}

/// The figures of version 2.
fn stats_v2(read: ReadFile) -> CgroupStats {
    let number = |controller: &str, name: &str| read(controller, name).trim().parse().ok();
    let memory = |name: &str| number("memory", &format!("memory.{name}"));
    let (cpu, stat) = (read("cpu", "cpu.stat"), read("memory", "memory.stat"));
    let micros = |name: &str| field(&cpu, name).saturating_mul(1000);
    let usage: u64 = memory("current").unwrap_or_default();
    let inactive_file = field(&stat, "inactive_file");
    let quota = read("cpu", "cpu.max");
    let pressure = |name: &str| Pressure::parse(&read("cpu", name));
    CgroupStats {
        cpu: CpuStats {
            usage_ns: micros("usage_usec"),
            user_ns: micros("user_usec"),
            system_ns: micros("system_usec"),
            periods: field(&cpu, "nr_periods"),
            throttled_periods: field(&cpu, "nr_throttled"),
            throttled_ns: micros("throttled_usec"),
            nano_cores: None,
        },
        memory: MemoryStats {
            usage,
            working_set: usage.saturating_sub(inactive_file),
            inactive_file,
            active_file: field(&stat, "active_file"),
            rss: field(&stat, "anon"),
            cache: field(&stat, "file"),
            mapped_file: field(&stat, "file_mapped"),
            limit: memory("max"),
            max_usage: memory("peak").unwrap_or_default(),
            failures: 0,
            page_faults: field(&stat, "pgfault"),
            major_page_faults: field(&stat, "pgmajfault"),
            kernel: field(&stat, "kernel"),
            swap: memory("swap.current"),
            swap_limit: memory("swap.max"),
        },
        cpu_shares: None,
        cpu_quota: quota.split(' ').next().and_then(|quota| quota.parse().ok()),
        processes: number("pids", "pids.current"),
        max_processes: number("pids", "pids.max"),
        oom_kills: field(&read("memory", "memory.events"), "oom_kill"),
        pressure: PressureStats {
            cpu: pressure("cpu.pressure"),
            memory: pressure("memory.pressure"),
            io: pressure("io.pressure"),
        },
    }
}

/// A number of a file with a name and a number in each line; zero if it is not there.
fn field(text: &str, name: &str) -> u64 {
    optional_field(text, name).unwrap_or_default()
}

fn optional_field(text: &str, name: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line?.trim().parse().ok()
}

/// Names the file in an error.
fn write(path: &Path, text: String) -> io::Result<()> {
    let named = |error: io::Error| {
        let message = format!("cannot write {text:?} to {}: {error}", path.display());
        io::Error::new(error.kind(), message)
    };
    fs::write(path, &text).map_err(named)
}

/// Removes the directories of cgroups; their files go with them.
fn remove_tree(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(dir)
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    #[test]
    fn controllers_are_found_where_they_are_mounted() {
        let v2 = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        let unified = Some(Hierarchy::V2("/sys/fs/cgroup".into()));
        assert_eq!(Hierarchy::from_mounts(v2), unified);
        let hybrid = "30 29 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
                      31 29 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                      32 29 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let Some(Hierarchy::V1(mounts)) = Hierarchy::from_mounts(hybrid) else {
            panic!("version 1");
        };
        assert_eq!(mounts["cpuacct"], Path::new("/sys/fs/cgroup/cpu,cpuacct"));
        assert_eq!(mounts["memory"], Path::new("/sys/fs/cgroup/memory"));
        assert_eq!(mounts[UNIFIED], Path::new("/sys/fs/cgroup/unified"));
        assert_eq!(
            Hierarchy::from_mounts("1 2 0:3 / /proc rw - proc proc rw\n"),
            None
        );
    }

    #[test]
    fn a_pod_as_a_whole_is_not_resized_without_cgroups() {
        let cgroups = Cgroups {
            hierarchy: None,
            driver: CgroupDriver::Cgroupfs,
            slices: None,
            has_root: AtomicBool::default(),
            all_pods: Mutex::default(),
            burstable: Mutex::default(),
            limits: Mutex::default(),
        };
        let resources = value!({ "limits": { "cpu": "1" } });
        let whole = value!({ "metadata": { "uid": "a" }, "spec": { "resources": resources } });
        let error = cgroups.update_pod(&whole, false).unwrap_err().to_string();
        assert!(error.starts_with("pods have no cgroups"), "{error}");
        let usual = value!({ "metadata": { "uid": "a" }, "spec": {} });
        cgroups.update_pod(&usual, false).unwrap();
    }

    #[test]
    fn paths_are_those_of_the_kubelet() {
        let (files, systemd) = (CgroupDriver::Cgroupfs, CgroupDriver::Systemd);
        for (driver, class, expected) in [
            (files, "Guaranteed", "/kubepods/poda-b"),
            (files, "Burstable", "/kubepods/burstable/poda-b"),
            (files, "BestEffort", "/kubepods/besteffort/poda-b"),
            (
                systemd,
                "Guaranteed",
                "/kubepods.slice/kubepods-poda_b.slice",
            ),
            (
                systemd,
                "Burstable",
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_b.slice",
            ),
        ] {
            assert_eq!(pod_path(driver, class, "a-b"), expected);
        }
    }

    /// Reads files from a table.
    fn reader<'a>(files: &'a [(&str, &str)]) -> impl Fn(&str, &str) -> String + 'a {
        move |_, name| {
            let found = files.iter().find(|(known, _)| *known == name);
            found.map_or_else(String::new, |(_, text)| (*text).to_owned())
        }
    }

    #[test]
    fn figures_of_version_1_are_read_as_the_kernel_writes_them() {
        let files = [
            ("cpuacct.usage", "5000\n"),
            ("cpuacct.usage_user", "3000\n"),
            (
                "cpu.stat",
                "nr_periods 7\nnr_throttled 2\nthrottled_time 900\n",
            ),
            ("cpu.shares", "102\n"),
            ("cpu.cfs_quota_us", "-1\n"),
            ("memory.usage_in_bytes", "1000\n"),
            ("memory.limit_in_bytes", "4096\n"),
            ("memory.failcnt", "3\n"),
            ("memory.kmem.usage_in_bytes", "64\n"),
            ("memory.memsw.limit_in_bytes", "9223372036854771712\n"),
            (
                "memory.stat",
                "rss 1\nswap 1\ntotal_rss 400\ntotal_inactive_file 200\ntotal_swap 12\n",
            ),
            (
                "memory.oom_control",
                "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
            ),
            ("pids.current", "9\n"),
            ("pids.max", "max\n"),
        ];
        let expected = CgroupStats {
            cpu: CpuStats {
                usage_ns: 5000,
                user_ns: 3000,
                periods: 7,
                throttled_periods: 2,
                throttled_ns: 900,
                ..CpuStats::default()
            },
            memory: MemoryStats {
                usage: 1000,
                working_set: 800,
                inactive_file: 200,
                rss: 400,
                limit: Some(4096),
                failures: 3,
                kernel: 64,
                swap: Some(12),
                ..MemoryStats::default()
            },
            cpu_shares: Some(102),
            cpu_quota: Some(-1),
            processes: Some(9),
            oom_kills: 2,
            ..CgroupStats::default()
        };
        assert_eq!(stats_v1(&reader(&files)), expected);
        assert_eq!(stats_v1(&reader(&[])), CgroupStats::default());
    }

    #[test]
    fn figures_of_version_2_are_read_as_the_kernel_writes_them() {
        let files = [
            (
                "cpu.stat",
                "usage_usec 5\nuser_usec 3\nsystem_usec 2\nthrottled_usec 1\n",
            ),
            ("cpu.max", "50000 100000\n"),
            (
                "cpu.pressure",
                "some avg10=1.50 avg60=0.00 avg300=0.00 total=7\n",
            ),
            (
                "io.pressure",
                "some avg10=0.00 avg60=0.00 avg300=0.00 total=8\n",
            ),
            ("memory.current", "1000\n"),
            ("memory.max", "max\n"),
            ("memory.peak", "2000\n"),
            ("memory.swap.current", "12\n"),
            ("memory.swap.max", "0\n"),
            (
                "memory.stat",
                "anon 400\nfile 500\nkernel 64\ninactive_file 200\nanon_thp 99\n",
            ),
            (
                "memory.events",
                "low 0\noom 3\noom_kill 2\noom_group_kill 1\n",
            ),
            ("pids.current", "9\n"),
            ("pids.max", "100\n"),
        ];
        let found = stats_v2(&reader(&files));
        let expected = CgroupStats {
            cpu: CpuStats {
                usage_ns: 5000,
                user_ns: 3000,
                system_ns: 2000,
                throttled_ns: 1000,
                ..CpuStats::default()
            },
            memory: MemoryStats {
                usage: 1000,
                working_set: 800,
                inactive_file: 200,
                rss: 400,
                cache: 500,
                max_usage: 2000,
                kernel: 64,
                swap: Some(12),
                swap_limit: Some(0),
                ..MemoryStats::default()
            },
            cpu_quota: Some(50_000),
            processes: Some(9),
            max_processes: Some(100),
            oom_kills: 2,
            pressure: found.pressure,
            ..CgroupStats::default()
        };
        assert_eq!(found, expected);
        let totals = [found.pressure.cpu, found.pressure.io].map(|it| it.unwrap().some.total);
        assert_eq!(totals, [7, 8]);
        assert_eq!(found.pressure.memory, None);
        assert_eq!(stats_v2(&reader(&[])), CgroupStats::default());
    }
}
