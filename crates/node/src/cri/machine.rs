//! The capacity and the name of this machine.

use std::fs;
use std::path::Path;

use mizzen_value::quantity::{Quantity, QuantityFormat};
use mizzen_value::{Value, value};
use nix::sys::statvfs::statvfs;

use super::resources::MachineResources;
use crate::runtime::MachineInfo;

/// Kubernetes: the most pods of a node (`maxPods`).
const MAX_PODS: &str = "110";

/// The capacity: CPUs, memory, huge pages, and the file system of a directory.
pub(super) fn capacity(dir: &Path) -> Value {
    let memory = memory_kib(&read("/proc/meminfo")).unwrap_or_default();
    // The directory may not exist yet.
    let existing = dir.ancestors().find(|dir| dir.exists());
    let disk = existing.and_then(|dir| statvfs(dir).ok());
    let disk = disk.map_or(0, |disk| disk.blocks() * disk.fragment_size() / 1024);
    let mut capacity = value!({
        "cpu": (cpus().to_string()),
        "ephemeral-storage": (format!("{disk}Ki")),
    });
    for (name, amount) in huge_pages(Path::new("/sys/kernel/mm/hugepages")) {
        capacity.set(name.as_str(), amount);
    }
    capacity.set("memory", format!("{memory}Ki"));
    capacity.set("pods", MAX_PODS);
    capacity
}

/// The CPUs of the machine, whatever this process may use of them. Kubernetes: cadvisor, those that
/// are online.
pub(super) fn cpus() -> u64 {
    let own = || std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64);
    online(&read("/sys/devices/system/cpu/online")).unwrap_or_else(own)
}

/// The number of CPUs in a list such as `0-3,8`.
fn online(text: &str) -> Option<u64> {
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    text.trim().split(',').map(count).sum()
}

/// The huge pages of each size as resources, by name.
fn huge_pages(dir: &Path) -> Vec<(String, String)> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let found = entries.filter_map(|entry| {
        let count = fs::read_to_string(entry.path().join("nr_hugepages")).ok()?;
        huge_page(entry.file_name().to_str()?, &count)
    });
    let mut found: Vec<(String, String)> = found.collect();
    found.sort();
    found
}

/// The resource of a directory such as `hugepages-2048kB` with so many pages.
fn huge_page(dir: &str, count: &str) -> Option<(String, String)> {
    let kib: i64 = dir
        .strip_prefix("hugepages-")?
        .strip_suffix("kB")?
        .parse()
        .ok()?;
    let size = kib.checked_mul(1024)?;
    let total = size.checked_mul(count.trim().parse().ok()?)?;
    let text = |bytes: i64| Quantity::from_int(bytes, QuantityFormat::Binary).to_string();
    Some((format!("hugepages-{}", text(size)), text(total)))
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
    fn cpus_are_those_that_are_online() {
        for (text, expected) in [
            ("0\n", Some(1)),
            ("0-3\n", Some(4)),
            ("0-1,4,6-7\n", Some(5)),
            ("", None),
            ("3-1\n", None),
            ("0-x\n", None),
        ] {
            assert_eq!(online(text), expected, "{text:?}");
        }
    }

    #[test]
    fn huge_pages_are_resources_by_their_size() {
        let dir = tempfile::tempdir().unwrap();
        for (name, count) in [
            ("hugepages-2048kB", "10\n"),
            ("hugepages-1048576kB", "0\n"),
            ("hugepages-64kB", "x"),
            ("other", "1\n"),
        ] {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join("nr_hugepages"), count).unwrap();
        }
        let expected = [("hugepages-1Gi", "0"), ("hugepages-2Mi", "20Mi")];
        let expected = expected.map(|(name, amount)| (name.to_owned(), amount.to_owned()));
        assert_eq!(huge_pages(dir.path()), expected);
        assert!(huge_pages(&dir.path().join("none")).is_empty());
    }

    #[test]
    fn the_capacity_of_this_machine_is_measured() {
        let capacity = capacity(Path::new("/nowhere/at/all"));
        assert_ne!(capacity["cpu"].str(), "0");
        assert_ne!(capacity["ephemeral-storage"].str(), "0Ki");
    }
}
