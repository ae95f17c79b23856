//! The real kubectl, as people type it.

mod basics;
mod change;
mod create;
mod legacy;
mod look;
mod operate;
mod pizza;

use std::path::PathBuf;
use std::process::{Output, Stdio};

use tokio::process::Command;
use tokio::time::timeout;

use crate::process::{Home, PATIENCE, Process};

/// A server and a kubectl that knows it.
struct Kubectl {
    home: Home,
    process: Process,
}

impl Kubectl {
    /// None, loudly, where there is no kubectl.
    async fn start() -> Option<Kubectl> {
        Kubectl::start_in(Home::in_memory()).await
    }

    async fn start_in(home: Home) -> Option<Kubectl> {
        let version = Command::new("kubectl").args(["version", "--client"]).output().await;
        if version.is_err() {
            eprintln!("SKIPPED: no kubectl installed");
            return None;
        }
        let process = home.start().await;
        Some(Kubectl { home, process })
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(self.home.kubeconfig());
        // What kubectl remembers of a server stays with this one.
        command.env("HOME", self.home.path()).env("KUBECACHEDIR", self.home.path().join("cache"));
        command.args(arguments.split_whitespace()).current_dir(manifests());
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    async fn output(&self, mut command: Command) -> Output {
        timeout(PATIENCE, command.output()).await.expect("kubectl ends in time").unwrap()
    }

    /// What a command prints; it must succeed.
    async fn run(&self, arguments: &str) -> String {
        let output = self.output(self.command(arguments)).await;
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "kubectl {arguments}: {stdout}{stderr}");
        stdout
    }

    /// What a command complains of; it must fail.
    async fn refused(&self, arguments: &str) -> String {
        let output = self.output(self.command(arguments)).await;
        assert!(!output.status.success(), "kubectl {arguments} succeeded: {}", text(&output.stdout));
        text(&output.stderr)
    }

    /// A command prints all of these.
    async fn shows(&self, arguments: &str, words: &[&str]) {
        let stdout = self.run(arguments).await;
        for word in words {
            assert!(stdout.contains(word), "kubectl {arguments}: no {word:?} in\n{stdout}");
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn manifests() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "cluster", "manifests"].iter().collect()
}
