//! The time of a server from exec until `/readyz` returns 200.
//!
//! The command may write the kubeconfig file (a new port, new certificates), so each attempt reads it again.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::Options;
use super::client::{ApiCall, ApiConnection, ApiEndpoint};
use super::progress::ProgressDisplay;
use super::report::StartUp;

const N_RUNS: u64 = 5;
const READY_WITHIN: Duration = Duration::from_secs(120);
const STOPPED_WITHIN: Duration = Duration::from_secs(90);
/// The time between attempts. Finer than tokio's timer, because some servers start in a few milliseconds.
const POLL: Duration = Duration::from_micros(250);
/// Kept of standard error.
const TAIL_BYTES: usize = 2000;

/// Why a server could not be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServerStartError {
    #[error("{} names a server that is already running", kubeconfig.display())]
    Occupied { kubeconfig: std::path::PathBuf },
    #[error("cannot run {command:?}")]
    Spawn { command: String, source: io::Error },
    #[error("the command ended ({status}) before it was ready: {stderr}")]
    Ended { status: ExitStatus, stderr: String },
    #[error("not ready after {} s: {stderr}", READY_WITHIN.as_secs())]
    Late { stderr: String },
    #[error("cannot stop the command")]
    Stop(#[source] io::Error),
}

/// Starts and stops the command several times.
pub(crate) async fn measure(options: &Options, command: &str) -> Result<StartUp, ServerStartError> {
    let progress = ProgressDisplay::new();
    let line = progress.line("start", Some(N_RUNS));
    let mut runs = Vec::new();
    for _ in 0..N_RUNS {
        if (ReadyProbe {
            options,
            connection: None,
        })
        .is_ready()
        .await
        {
            return Err(ServerStartError::Occupied {
                kubeconfig: options.kubeconfig.clone(),
            });
        }
        runs.push(measure_run(options, command).await?);
        line.ticks
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
    Ok(StartUp::new(command, &runs))
}

/// Starts the command once. Returns the time until it is ready.
async fn measure_run(options: &Options, command: &str) -> Result<Duration, ServerStartError> {
    let begin = Instant::now();
    let mut server = ServerProcess::start(command)?;
    let mut probe = ReadyProbe {
        options,
        connection: None,
    };
    while !probe.is_ready().await {
        if let Some(status) = server.child.try_wait().map_err(ServerStartError::Stop)? {
            return Err(ServerStartError::Ended {
                status,
                stderr: server.stderr_tail().await,
            });
        }
        if begin.elapsed() > READY_WITHIN {
            server.stop().await?;
            return Err(ServerStartError::Late {
                stderr: server.stderr_tail().await,
            });
        }
        // Blocks the thread on purpose: no other task runs, and timers are too coarse.
        std::thread::sleep(POLL);
        tokio::task::yield_now().await;
    }
    let took = begin.elapsed();
    server.stop().await?;
    Ok(took)
}

/// Requests `/readyz`, over the same connection once there is one.
struct ReadyProbe<'a> {
    options: &'a Options,
    connection: Option<ApiConnection>,
}

impl ReadyProbe<'_> {
    async fn is_ready(&mut self) -> bool {
        if self.connection.is_none() {
            self.connection = self.connect().await;
        }
        let Some(connection) = &mut self.connection else {
            return false;
        };
        let response = connection.fetch(&ApiCall::get("/readyz")).await;
        // Without a status code the connection is broken.
        if response
            .as_ref()
            .is_err_and(|error| error.status().is_none())
        {
            self.connection = None;
        }
        response.is_ok()
    }

    async fn connect(&self) -> Option<ApiConnection> {
        let (file, context) = (&self.options.kubeconfig, self.options.context.as_deref());
        let endpoint = ApiEndpoint::load(file, context).await.ok()?;
        endpoint.connect().await.ok()
    }
}

/// A running command in a process group of its own; it gets SIGTERM when dropped.
struct ServerProcess {
    child: Child,
    group: Pid,
    stderr: JoinHandle<String>,
}

impl ServerProcess {
    fn start(command: &str) -> Result<Self, ServerStartError> {
        let failed = |source| ServerStartError::Spawn {
            command: command.to_owned(),
            source,
        };
        let mut child = parse_command(command)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let pid = child.id().expect("it was not waited for") as i32;
        let mut stderr = child.stderr.take().expect("it is piped");
        let read_tail = async move {
            let mut tail = Vec::new();
            while let Ok(1..) = stderr.read_buf(&mut tail).await {
                let surplus = tail.len().saturating_sub(TAIL_BYTES);
                tail.drain(..surplus);
            }
            String::from_utf8_lossy(&tail).trim().to_owned()
        };
        Ok(Self {
            child,
            group: Pid::from_raw(pid),
            stderr: tokio::spawn(read_tail),
        })
    }

    /// Sends SIGTERM to the process group, and SIGKILL after a timeout.
    async fn stop(&mut self) -> Result<(), ServerStartError> {
        killpg(self.group, Signal::SIGTERM)
            .map_err(|error| ServerStartError::Stop(error.into()))?;
        if timeout(STOPPED_WITHIN, self.child.wait()).await.is_err() {
            let _ = killpg(self.group, Signal::SIGKILL);
            self.child.wait().await.map_err(ServerStartError::Stop)?;
        }
        Ok(())
    }

    /// The end of its standard error.
    async fn stderr_tail(&mut self) -> String {
        timeout(Duration::from_secs(1), &mut self.stderr)
            .await
            .ok()
            .and_then(Result::ok)
            .unwrap_or_default()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = killpg(self.group, Signal::SIGTERM);
        }
    }
}

/// A command of plain words runs without a shell, which would be part of the measurement.
fn parse_command(command: &str) -> Command {
    let plain = !command.contains([
        '"', '\'', '\\', '$', '`', '&', '|', ';', '<', '>', '(', ')', '*', '?', '~', '\n',
    ]);
    let mut words = command.split_whitespace();
    match words
        .next()
        .filter(|program| plain && !program.contains('='))
    {
        Some(program) => {
            let mut direct = Command::new(program);
            direct.args(words);
            direct
        }
        None => {
            let mut shell = Command::new("sh");
            shell.args(["-c", command]);
            shell
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_command_that_needs_a_shell_gets_one() {
        let program = |command| parse_command(command).as_std().get_program().to_owned();
        assert_eq!(program("mizzen apiserver --in-memory"), "mizzen");
        assert_eq!(program("mizzen apiserver --data-dir $HOME/m"), "sh");
        assert_eq!(program("RUST_LOG=info mizzen up"), "sh");
    }
}
