//! `mizzen up --detach`: the same command in the background.
//!
//! The parent starts this binary with the same arguments and `--detached-log FILE`, and waits for its ready line on a pipe.
//! The child begins a session of its own, locks the cluster, and only then makes FILE the log of the cluster: of two
//! parents at the same time one child gets the lock, and the log of the other is removed.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

use crate::clusters::{BusyCluster, ClusterDirectory, ClusterDirectoryError};
use crate::log::{print_error, write_output};
use crate::terminal::{Palette, Progress, Tone};

/// How much of the log of a failed start is shown.
const N_LINES: usize = 20;

/// Why there is no cluster in the background.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DetachError {
    /// The cluster runs already, or its directory cannot be used.
    #[error(transparent)]
    Busy(#[from] BusyCluster),
    /// The directory cannot be created.
    #[error(transparent)]
    Directory(#[from] ClusterDirectoryError),
    /// The process cannot be started.
    #[error("cannot start a process in the background: {0}")]
    Start(#[from] io::Error),
    /// The process ended before it was ready; it has printed why.
    #[error("")]
    Ended(u8),
    /// The process was killed before it was ready.
    #[error("the process in the background was killed by signal {signal}; its log is {}", log.display())]
    Killed {
        /// The signal.
        signal: i32,
        /// The log.
        log: PathBuf,
    },
    /// The user pressed Ctrl-C, or the command was terminated.
    #[error("interrupted; the cluster was stopped")]
    Interrupted,
}

/// Starts the cluster of this process's arguments in the background, and waits until it is ready.
pub(super) fn start(directory: &ClusterDirectory) -> Result<(), DetachError> {
    BusyCluster::check(directory)?;
    directory.create()?;
    let log = directory
        .path
        .join(format!("mizzen.log.{}", std::process::id()));
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(start_and_wait(directory, &log))
}

async fn start_and_wait(directory: &ClusterDirectory, log: &Path) -> Result<(), DetachError> {
    let file: File = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(log)
        .map_err(ClusterDirectoryError::at(log))?;
    // Handled from here on, so that the child never outlives an interrupted parent.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut child = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .arg("--detached-log")
        .arg(log)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(file)
        .spawn()?;
    let stdout = child.stdout.take().expect("standard output is a pipe");
    let mut lines = BufReader::new(stdout).lines();
    let progress = Progress::start(format!(
        "waiting until cluster {} is ready",
        directory.title()
    ));
    let interrupted = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    let line = tokio::select! {
        line = lines.next_line() => line?,
        () = interrupted => {
            if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
            }
            child.wait().await?;
            let _ = fs::remove_file(log);
            return Err(DetachError::Interrupted);
        }
    };
    drop(progress);
    let Some(line) = line else {
        return Err(explain(child.wait().await?, directory, log));
    };
    // The child writes to a pipe, which has no colours.
    let ready = "Mizzen is ready";
    let painted = Palette::stdout().paint(Tone::Good, ready);
    match line.strip_prefix(ready) {
        Some(rest) => write_output(format_args!("{painted}{rest}")),
        None => write_output(format_args!("{line}")),
    }
    write_output(format_args!(
        "It runs in the background (pid {}, log {}); stop it with: mizzen down{}",
        child.id().unwrap_or_default(),
        directory.log().display(),
        directory.arguments()
    ));
    Ok(())
}

/// Prints the errors of a child that ended before it was ready.
fn explain(status: ExitStatus, directory: &ClusterDirectory, log: &Path) -> DetachError {
    // A child that has locked the cluster has renamed its log.
    let (text, file) = match fs::read_to_string(log) {
        Ok(text) => {
            let _ = fs::remove_file(log);
            (text, None)
        }
        Err(_) => {
            let file = directory.log();
            (fs::read_to_string(&file).unwrap_or_default(), Some(file))
        }
    };
    let lines: Vec<&str> = text.lines().collect();
    for line in &lines[lines.len().saturating_sub(N_LINES)..] {
        print_error!("{line}");
    }
    match (status.code(), status.signal()) {
        (None, Some(signal)) => DetachError::Killed {
            signal,
            log: file.unwrap_or_else(|| log.into()),
        },
        (code, _) => {
            let code = code.and_then(|code| u8::try_from(code).ok());
            DetachError::Ended(code.filter(|code| *code > 0).unwrap_or(1))
        }
    }
}
