//! What does the process use? The metrics that Prometheus' clients have of every process.

use std::fmt::Write as _;
use std::fs;

use mizzen_apiserver::metrics::Measured;
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

impl Measured for ProcessMetrics {
    fn write_metrics(&self, out: &mut String) {
        let mut metric = |name: &str, kind: &str, help: &str, value: Option<f64>| {
            if let Some(value) = value {
                let _ = writeln!(
                    out,
                    "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}"
                );
            }
        };
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let cpu = "Total user and system CPU time spent in seconds.";
        metric("process_cpu_seconds_total", "counter", cpu, cpu_seconds());
        let limit = getrlimit(Resource::RLIMIT_NOFILE)
            .ok()
            .map(|(soft, _)| soft as f64);
        metric(
            "process_max_fds",
            "gauge",
            "Maximum number of open file descriptors.",
            limit,
        );
        let open = fs::read_dir("/proc/self/fd")
            .ok()
            .map(|open| open.count() as f64);
        metric(
            "process_open_fds",
            "gauge",
            "Number of open file descriptors.",
            open,
        );
        let resident = kibibytes(&status, "VmRSS:");
        metric(
            "process_resident_memory_bytes",
            "gauge",
            "Resident memory size in bytes.",
            resident,
        );
        let start = "Start time of the process since unix epoch in seconds.";
        metric(
            "process_start_time_seconds",
            "gauge",
            start,
            start_time().filter(|_| self.has_start_time),
        );
        let virtual_memory = kibibytes(&status, "VmSize:");
        metric(
            "process_virtual_memory_bytes",
            "gauge",
            "Virtual memory size in bytes.",
            virtual_memory,
        );
    }
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
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_uses_memory_and_files() {
        let mut text = String::new();
        ProcessMetrics {
            has_start_time: true,
        }
        .write_metrics(&mut text);
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
