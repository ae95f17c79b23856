//! The command line as a user meets it: clusters in the background, contexts, help, completion, manual pages, exit codes.
//!
//! Every test is a user with a home directory of its own, so that they run side by side.

mod clusters;
mod contexts;
mod documentation;
mod images;
mod output;
mod real_nodes;

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::timeout;

use crate::process::STEP_TIMEOUT;

/// A user, whose clusters are stopped at the end of the test.
struct User {
    home: TempDir,
}

/// The outcome of a command.
#[derive(Debug)]
struct Outcome {
    code: i32,
    stdout: String,
    stderr: String,
}

impl User {
    fn new() -> User {
        User {
            home: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self) -> &Path {
        self.home.path()
    }

    /// The directory of the default cluster.
    fn root(&self) -> PathBuf {
        self.path().join(".local/share/mizzen")
    }

    /// A program in the home of this user.
    fn program(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("HOME", self.path())
            .env("KUBECACHEDIR", self.path().join("cache"))
            .env_remove("XDG_DATA_HOME")
            .env_remove("KUBECONFIG")
            .env_remove("NO_COLOR")
            .env_remove("MIZZEN_LOG")
            .current_dir(self.path())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = self.program(env!("CARGO_BIN_EXE_mizzen"));
        command.args(arguments.split_whitespace());
        command
    }

    /// The outcome of `mizzen` with these arguments.
    async fn mizzen(&self, arguments: &str) -> Outcome {
        Outcome::of(self.command(arguments)).await
    }

    /// The standard output of `mizzen` with these arguments, which must succeed.
    async fn succeed(&self, arguments: &str) -> String {
        self.mizzen(arguments).await.expect(0).stdout
    }

    /// The status of a cluster in JSON, whatever the exit code.
    async fn status(&self, name: &str) -> Value {
        let outcome = self
            .mizzen(&format!("status --name {name} --output json"))
            .await;
        let list: Value = serde_json::from_str(&outcome.stdout).unwrap();
        list["clusters"][0].clone()
    }

    /// Sends a signal to the process of a cluster, and returns its pid.
    async fn signal(&self, name: &str, signal: Signal) -> i32 {
        let pid = self.status(name).await["pid"].as_i64().unwrap();
        let pid = i32::try_from(pid).unwrap();
        kill(Pid::from_raw(pid), signal).unwrap();
        pid
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let stopped = std::process::Command::new(env!("CARGO_BIN_EXE_mizzen"))
            .args(["down", "--all", "--force", "--timeout=20s"])
            .env("HOME", self.path())
            .env_remove("XDG_DATA_HOME")
            .stdin(Stdio::null())
            .output();
        if !stopped.is_ok_and(|output| output.status.success()) {
            eprintln!("clusters in {} still run", self.path().display());
        }
    }
}

impl From<Output> for Outcome {
    fn from(output: Output) -> Outcome {
        Outcome {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Outcome {
    async fn of(mut command: Command) -> Outcome {
        let output: Output = timeout(STEP_TIMEOUT, command.output())
            .await
            .expect("it ends in time")
            .unwrap();
        Outcome::from(output)
    }

    #[track_caller]
    fn expect(self, code: i32) -> Outcome {
        assert_eq!(self.code, code, "{self:?}");
        self
    }

    /// Standard error has all of these.
    #[track_caller]
    fn with_error(self, parts: &[&str]) -> Outcome {
        for part in parts {
            assert!(self.stderr.contains(part), "no {part:?} in {self:?}");
        }
        self
    }
}

/// Whether a program is installed; if not, the test leaves a step out and prints it.
pub(crate) fn is_installed(program: &str) -> bool {
    let found = std::process::Command::new("which").arg(program).output();
    let is_installed = found.is_ok_and(|output| output.status.success());
    if !is_installed {
        eprintln!("SKIPPED: no {program} installed");
    }
    is_installed
}
