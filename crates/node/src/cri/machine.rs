//! The capacity and the name of this machine.

use std::fs;
use std::path::Path;

use mizzen_value::{Value, value};
use nix::sys::statvfs::statvfs;

use super::resources::MachineResources;
use crate::runtime::MachineInfo;

/// Kubernetes: the most pods of a node (`maxPods`).
const MAX_PODS: &str = "110";

/// The capacity: CPUs, memory, and the file system of a directory.
pub(super) fn capacity(dir: &Path) -> Value {
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
    let memory = memory_kib(&read("/proc/meminfo")).unwrap_or_default();
    // The directory may not exist yet.
    let existing = dir.ancestors().find(|dir| dir.exists());
    let disk = existing.and_then(|dir| statvfs(dir).ok());
    let disk = disk.map_or(0, |disk| disk.blocks() * disk.fragment_size() / 1024);
    value!({
        "cpu": (cpus.to_string()),
        "ephemeral-storage": (format!("{disk}Ki")),
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "memory": (format!("{memory}Ki")),
        "pods": MAX_PODS,
    })
}

/// What limits of containers depend on.
pub(super) fn resources() -> MachineResources {
    let kib = memory_kib(&read("/proc/meminfo")).unwrap_or_default();
    let cgroups = Path::new("/sys/fs/cgroup");
    let has_cgroup_v2 = cgroups.join("cgroup.controllers").exists();
    // Kubernetes: the root of version 2 has no such file (kuberuntime_container_linux.go,
    // `checkSwapControllerAvailability`).
    let swap_file = match has_cgroup_v2 {
        true => {
            let own = unified_cgroup(&read("/proc/self/cgroup"));
            cgroups.join(own).join("memory.swap.max")
        }
        false => cgroups.join("memory/memory.memsw.limit_in_bytes"),
    };
    MachineResources {
        memory: i64::try_from(kib * 1024).unwrap_or(i64::MAX),
        has_cgroup_v2,
        limits_swap: swap_file.exists(),
    }
}

/// The cgroup of version 2 of a process, below the root.
fn unified_cgroup(text: &str) -> String {
    let mut lines = text.lines();
    let path = lines.find_map(|line| line.strip_prefix("0::/"));
    path.unwrap_or_default().to_owned()
}

fn memory_kib(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// The kernel, the operating system and the IDs of the machine.
pub(super) fn info() -> MachineInfo {
    let first_line = |path: &str| {
        read(path)
            .lines()
            .next()
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    MachineInfo {
        kernel_version: first_line("/proc/sys/kernel/osrelease"),
        os_image: os_image(&read("/etc/os-release")),
        machine_id: first_line("/etc/machine-id"),
        boot_id: first_line("/proc/sys/kernel/random/boot_id"),
    }
}

fn os_image(text: &str) -> String {
    let mut lines = text.lines();
    let name = lines.find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.unwrap_or("Linux").trim_matches('"').to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_system_are_read_as_linux_writes_them() {
        let text = "MemTotal:       16384256 kB\nMemFree:         1234 kB\n";
        assert_eq!(memory_kib(text), Some(16_384_256));
        assert_eq!(
            os_image("ID=debian\nPRETTY_NAME=\"Debian 12\"\n"),
            "Debian 12"
        );
        assert_eq!(os_image(""), "Linux");
        assert_eq!(unified_cgroup("0::/a.slice/b.scope\n"), "a.slice/b.scope");
        assert_eq!(unified_cgroup("1:name=systemd:/a\n0::/\n"), "");
    }

    #[test]
    fn the_capacity_of_this_machine_is_measured() {
        let capacity = capacity(Path::new("/nowhere/at/all"));
        assert_ne!(capacity["cpu"].str(), "0");
        assert_ne!(capacity["ephemeral-storage"].str(), "0Ki");
    }
}
