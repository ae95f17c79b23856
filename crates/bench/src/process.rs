//! CPU time and resident memory of processes, summed over pids.
//!
//! CPU time is the kernel's per-process clock, in nanoseconds, including threads that have ended. `/proc/PID/stat` counts
//! in ticks of 10 ms, and `/proc/PID/task/*/schedstat` loses threads that have ended. Child processes are not included.

use std::time::Duration;
use std::{fs, io};

/// Linux assigns pids below this. The clock of a larger one could be that of another process.
pub(crate) const MAX_PID: i32 = 1 << 22;

/// The processes of one server, for example kube-apiserver and etcd.
#[derive(Clone, Debug, Default)]
pub(crate) struct Processes(Vec<i32>);

/// Why a process cannot be measured.
#[derive(Debug, thiserror::Error)]
#[error("cannot measure process {pid}: {source}")]
pub(crate) struct MeasureError {
    pid: i32,
    source: io::Error,
}

impl Processes {
    pub(super) fn new(pids: Vec<i32>) -> Self {
        Self(pids)
    }

    /// The load generator itself, which takes CPU from a server on the same machine.
    pub(super) fn own() -> Self {
        Self(vec![std::process::id() as i32])
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// CPU time used since they started, by all of their threads.
    pub(super) fn cpu(&self) -> Result<Duration, MeasureError> {
        self.sum(cpu)
    }

    /// Resident memory in bytes.
    pub(super) fn resident(&self) -> Result<u64, MeasureError> {
        self.sum(resident)
    }

    fn sum<T: std::iter::Sum>(&self, measure: fn(i32) -> io::Result<T>) -> Result<T, MeasureError> {
        self.0
            .iter()
            .map(|&pid| measure(pid).map_err(|source| MeasureError { pid, source }))
            .sum()
    }
}

#[cfg(target_os = "linux")]
fn cpu(pid: i32) -> io::Result<Duration> {
    let clock = nix::time::clock_getcpuclockid(nix::unistd::Pid::from_raw(pid))?;
    Ok(nix::time::clock_gettime(clock)?.into())
}

#[cfg(not(target_os = "linux"))]
fn cpu(_pid: i32) -> io::Result<Duration> {
    Err(io::ErrorKind::Unsupported.into())
}

fn resident(pid: i32) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    parse_resident(&status)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no VmRSS in its status"))
}

/// The line `VmRSS:     1234 kB` of `/proc/PID/status`.
fn parse_resident(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn reads_resident_memory_from_a_status_file() {
        let status = "Name:\tetcd\nVmHWM:\t  900 kB\nVmRSS:\t    1234 kB\nRssAnon:\t 1 kB\n";
        assert_eq!(parse_resident(status), Some(1234 * 1024));
        assert_eq!(parse_resident("Name:\tkthreadd\n"), None);
    }

    #[test]
    fn cpu_time_includes_threads_that_have_ended() {
        let own = Processes::own();
        let before = own.cpu().unwrap();
        let spin = || {
            let begin = std::time::Instant::now();
            while begin.elapsed() < Duration::from_millis(30) {
                std::hint::black_box(0);
            }
        };
        std::thread::spawn(spin).join().unwrap();
        assert!(own.cpu().unwrap() - before > Duration::from_millis(5));
    }

    #[test]
    fn several_processes_are_summed() {
        let pid = std::process::id() as i32;
        let once = Processes::new(vec![pid]).resident().unwrap();
        let twice = Processes::new(vec![pid, pid]).resident().unwrap();
        assert!(twice > once + once / 2);
    }

    #[test]
    fn a_process_that_is_gone_is_named() {
        let error = Processes::new(vec![MAX_PID]).cpu().unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("cannot measure process 4194304"),
            "{error}"
        );
    }
}
