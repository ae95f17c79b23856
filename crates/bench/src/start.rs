//! From exec to ready: how long a server takes until `/readyz` answers 200.
//!
//! The command may write the kubeconfig itself (a new port, new certificates), so the file is read again at each try.

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
use super::client::{Call, Connection, Endpoint};
use super::progress::Progress;
use super::report::StartUp;

const N_RUNS: u64 = 5;
const READY_WITHIN: Duration = Duration::from_secs(120);
const STOPPED_WITHIN: Duration = Duration::from_secs(90);
/// Between two tries. Finer than tokio's timer, because there are servers that start in few milliseconds.
const POLL: Duration = Duration::from_micros(250);

/// Why a server could not be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("{} leads to a server that already runs", kubeconfig.display())]
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
pub(crate) async fn measure(options: &Options, command: &str) -> Result<StartUp, StartError> {
    let progress = Progress::new();
    let line = progress.line("start", Some(N_RUNS));
    let mut runs = Vec::new();
    for _ in 0..N_RUNS {
        if (Probe {
            options,
            connection: None,
        })
        .is_ready()
        .await
        {
            return Err(StartError::Occupied {
                kubeconfig: options.kubeconfig.clone(),
            });
        }
        runs.push(one_run(options, command).await?);
        line.ticks
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
    Ok(StartUp::new(command, &runs))
}

async fn one_run(options: &Options, command: &str) -> Result<Duration, StartError> {
    let begin = Instant::now();
    let mut server = Server::start(command)?;
    let mut probe = Probe {
        options,
        connection: None,
    };
    while !probe.is_ready().await {
        if let Some(status) = server.child.try_wait().map_err(StartError::Stop)? {
            return Err(StartError::Ended {
                status,
                stderr: server.last_words().await,
            });
        }
        if begin.elapsed() > READY_WITHIN {
            server.stop().await?;
            return Err(StartError::Late {
                stderr: server.last_words().await,
            });
        }
        // Blocks the thread on purpose: between two tries there is nothing else to do, and timers are too coarse.
        std::thread::sleep(POLL);
        tokio::task::yield_now().await;
    }
    let took = begin.elapsed();
    server.stop().await?;
    Ok(took)
}

/// Asks `/readyz`, over the same connection once there is one.
struct Probe<'a> {
    options: &'a Options,
    connection: Option<Connection>,
}

impl Probe<'_> {
    async fn is_ready(&mut self) -> bool {
        if self.connection.is_none() {
            self.connection = self.connect().await;
        }
        let Some(connection) = &mut self.connection else {
            return false;
        };
        let answer = connection.fetch(&Call::get("/readyz")).await;
        // A refusal comes from a server that is up; anything else means that the connection is of no use.
        if answer.as_ref().is_err_and(|error| error.status().is_none()) {
            self.connection = None;
        }
        answer.is_ok()
    }

    async fn connect(&self) -> Option<Connection> {
        let (file, context) = (&self.options.kubeconfig, self.options.context.as_deref());
        let endpoint = Endpoint::load(file, context).await.ok()?;
        endpoint.connect().await.ok()
    }
}

/// A running command, in a process group of its own; killed if it is dropped.
struct Server {
    child: Child,
    group: Pid,
    stderr: JoinHandle<String>,
}

impl Server {
    fn start(command: &str) -> Result<Self, StartError> {
        let failed = |source| StartError::Spawn {
            command: command.to_owned(),
            source,
        };
        let mut child = words(command)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let pid = child.id().expect("nobody has waited for it") as i32;
        let stderr = child.stderr.take().expect("it is piped");
        Ok(Self {
            child,
            group: Pid::from_raw(pid),
            stderr: tokio::spawn(keep_end(stderr)),
        })
    }

    /// SIGTERM to the whole group, SIGKILL if it does not listen.
    async fn stop(&mut self) -> Result<(), StartError> {
        killpg(self.group, Signal::SIGTERM).map_err(|error| StartError::Stop(error.into()))?;
        if timeout(STOPPED_WITHIN, self.child.wait()).await.is_err() {
            let _ = killpg(self.group, Signal::SIGKILL);
            self.child.wait().await.map_err(StartError::Stop)?;
        }
        Ok(())
    }

    /// The end of what it wrote to standard error.
    async fn last_words(&mut self) -> String {
        timeout(Duration::from_secs(1), &mut self.stderr)
            .await
            .ok()
            .and_then(Result::ok)
            .unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = killpg(self.group, Signal::SIGTERM);
        }
    }
}

/// Words separated by blanks are run directly, so that no shell is part of the measurement; anything else needs one.
fn words(command: &str) -> Command {
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

async fn keep_end(mut stderr: impl tokio::io::AsyncRead + Unpin) -> String {
    const KEPT: usize = 2000;
    let mut end = Vec::new();
    while let Ok(1..) = stderr.read_buf(&mut end).await {
        let surplus = end.len().saturating_sub(KEPT);
        end.drain(..surplus);
    }
    String::from_utf8_lossy(&end).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_command_that_needs_a_shell_gets_one() {
        let program = |command| words(command).as_std().get_program().to_owned();
        assert_eq!(program("mizzen apiserver --in-memory"), "mizzen");
        assert_eq!(program("mizzen apiserver --data-dir $HOME/m"), "sh");
        assert_eq!(program("RUST_LOG=info mizzen up"), "sh");
    }
}
