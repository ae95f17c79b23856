//! What does the process use? The metrics that Prometheus' clients have of every process.

use std::fs;

use mizzen_metrics::{Collector, Families};
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};
use nix::sys::time::TimeValLike as _;

/// In how many parts of a second the kernel says when a process started: fixed for programs on every architecture that
/// matters here.
const USER_HZ: f64 = 100.0;

/// The metrics of this process.
#[derive(Debug)]
pub(crate) struct ProcessMetrics {
    /// Whether they say when it started; an API server says so itself.
    pub has_start_time: bool,
}

impl Collector for ProcessMetrics {
    fn collect(&self, families: &mut Families) {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        if let Some(seconds) = cpu_seconds() {
            families
                .counter(
                    "process_cpu_seconds_total",
                    "Total user and system CPU time spent in seconds.",
                )
                .add(&[], seconds);
        }
        let limit = getrlimit(Resource::RLIMIT_NOFILE).ok();
        let open = fs::read_dir("/proc/self/fd").ok();
        let network = fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
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
                start_time().filter(|_| self.has_start_time),
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
    let others = interfaces.filter(|(name, _)| name.trim() != "lo");
    let bytes = others
        .filter_map(|(_, columns)| columns.split_whitespace().nth(column)?.parse::<f64>().ok());
    (!dev.is_empty()).then(|| bytes.sum())
}

fn cpu_seconds() -> Option<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Some(micros as f64 / 1e6)
}

/// A line of `/proc/self/status`, in bytes.
fn kibibytes(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<f64>().ok()? * 1024.0)
}

fn start_time() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let boot = fs::read_to_string("/proc/stat").ok()?;
    Some(boot_time(&boot)? + start_ticks(&stat)? / USER_HZ)
}

/// When the process started, counted from the boot. Fields are counted from behind the name of the command, which may
/// contain anything.
fn start_ticks(stat: &str) -> Option<f64> {
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(19)?
        .parse()
        .ok()
}

/// When the system booted, in seconds since 1970.
fn boot_time(stat: &str) -> Option<f64> {
    stat.lines()
        .find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_behind_the_name() {
        let stat =
            "7 (a ) b) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 9 0 1234 1000000 321 1844674";
        assert_eq!(start_ticks(stat), Some(1234.0));
        assert_eq!(
            boot_time("cpu 1\nbtime 1700000000\n"),
            Some(1_700_000_000.0)
        );
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
    fn this_process_uses_memory_and_files() {
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
