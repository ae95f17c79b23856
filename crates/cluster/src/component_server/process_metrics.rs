//! The process metrics of Prometheus clients.

use std::fs;

use mizzen_metrics::{Collector, Families};
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};
use nix::sys::time::TimeValLike as _;

/// The unit of start times in `/proc`, per second: fixed on all supported architectures.
const USER_HZ: f64 = 100.0;

/// The metrics of this process.
#[derive(Debug)]
pub(crate) struct ProcessMetrics {
    /// Whether they include the start time, which an API server has itself.
    pub has_start_time: bool,
}

impl Collector for ProcessMetrics {
    fn collect(&self, families: &mut Families) {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let status = read("/proc/self/status");
        if let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) {
            let cpu = [usage.user_time(), usage.system_time()];
            let micros: i64 = cpu.iter().map(|time| time.num_microseconds()).sum();
            families
                .counter(
                    "process_cpu_seconds_total",
                    "Total user and system CPU time spent in seconds.",
                )
                .add(&[], micros as f64 / 1e6);
        }
        let limit = getrlimit(Resource::RLIMIT_NOFILE).ok();
        let open = fs::read_dir("/proc/self/fd").ok();
        let network = read("/proc/self/net/dev");
        for (name, help, bytes) in [
            (
                "process_network_receive_bytes_total",
                "Number of bytes received by the process over the network.",
                network_bytes(&network, 0),
            ),
            (
                "process_network_transmit_bytes_total",
                "Number of bytes sent by the process over the network.",
                network_bytes(&network, 8),
            ),
        ] {
            if let Some(bytes) = bytes {
                families.counter(name, help).add(&[], bytes);
            }
        }
        for (name, help, value) in [
            (
                "process_max_fds",
                "Maximum number of open file descriptors.",
                limit.map(|(soft, _)| soft as f64),
            ),
            (
                "process_open_fds",
                "Number of open file descriptors.",
                open.map(|open| open.count() as f64),
            ),
            (
                "process_resident_memory_bytes",
                "Resident memory size in bytes.",
                kibibytes(&status, "VmRSS:"),
            ),
            (
                "process_start_time_seconds",
                "Start time of the process since unix epoch in seconds.",
                start_time(&read("/proc/self/stat"), &read("/proc/stat"))
                    .filter(|_| self.has_start_time),
            ),
            (
                "process_virtual_memory_bytes",
                "Virtual memory size in bytes.",
                kibibytes(&status, "VmSize:"),
            ),
            (
                "process_virtual_memory_max_bytes",
                "Maximum amount of virtual memory available in bytes.",
                getrlimit(Resource::RLIMIT_AS)
                    .ok()
                    .map(|(soft, _)| soft as f64),
            ),
        ] {
            if let Some(value) = value {
                families.gauge(name, help).add(&[], value);
            }
        }
    }
}

/// The bytes of all interfaces but loopback in a column of `/proc/self/net/dev`.
fn network_bytes(dev: &str, column: usize) -> Option<f64> {
    let interfaces = dev.lines().filter_map(|line| line.split_once(':'));
    let external = interfaces.filter(|(name, _)| name.trim() != "lo");
    let bytes = external
        .filter_map(|(_, columns)| columns.split_whitespace().nth(column)?.parse::<f64>().ok());
    (!dev.is_empty()).then(|| bytes.sum())
}

/// A line of `/proc/self/status`, in bytes.
fn kibibytes(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<f64>().ok()? * 1024.0)
}

/// The start time of the process in seconds since 1970, from `/proc/self/stat` and `/proc/stat`. Fields are counted after the
/// name of the command, which may contain any character.
fn start_time(own: &str, system: &str) -> Option<f64> {
    let (_, fields) = own.rsplit_once(')')?;
    let ticks: f64 = fields.split_whitespace().nth(19)?.parse().ok()?;
    let boot = |line: &str| line.strip_prefix("btime ")?.trim().parse::<f64>().ok();
    Some(system.lines().find_map(boot)? + ticks / USER_HZ)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_parsed() {
        let stat =
            "7 (a ) b) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 9 0 1234 1000000 321 1844674";
        let started = start_time(stat, "cpu 1\nbtime 1700000000\n");
        assert_eq!(started, Some(1_700_000_012.34));
        assert_eq!(
            kibibytes("VmSize:\t 7 kB\nVmRSS:\t   2 kB\n", "VmRSS:"),
            Some(2048.0)
        );
        let dev = "Inter-| Receive | Transmit\n    lo: 9 1 0 0 0 0 0 0 9 1\n  eth0: 5 1 0 0 0 0 0 0 7 1\n";
        assert_eq!(
            (network_bytes(dev, 0), network_bytes(dev, 8)),
            (Some(5.0), Some(7.0))
        );
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_has_memory_and_files() {
        let metrics = ProcessMetrics {
            has_start_time: true,
        };
        let text = Families::of(&[&metrics]).to_string();
        for name in [
            "process_resident_memory_bytes ",
            "process_open_fds ",
            "process_start_time_seconds ",
        ] {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            assert!(
                line.is_some_and(|line| line.parse::<f64>().unwrap() > 0.0),
                "{name} in {text}"
            );
        }
    }
}
