//! The real kubectl.

mod basics;
mod change;
mod create;
mod examples;
mod generate;
mod handbook;
mod legacy;
mod operate;
mod pizza;
mod read;
mod real_node;
mod stream;
mod top;

use std::path::PathBuf;
use std::process::{Output, Stdio};

use tokio::process::Command;
use tokio::time::timeout;

use crate::process::{Home, Process, STEP_TIMEOUT};

/// The minor version of kubectl that first has a subcommand or flag, or speaks a version of it that is still served.
/// Debian's kubectl is 1.20.
const SINCE: &[(&str, u32)] = &[
    ("api-resources -o", 27),
    ("apply -k", 21),
    ("auth whoami", 27),
    ("create cronjob", 21),
    ("create poddisruptionbudget", 22),
    ("create token", 24),
    ("debug", 23),
    ("describe cronjob", 21),
    ("describe hpa", 23),
    ("describe pdb", 22),
    ("events", 26),
    ("explain --recursive", 27),
    ("--for=jsonpath", 23),
    ("--from=cronjob", 21),
    ("--show-managed-fields", 21),
    ("--subresource", 24),
    ("top --sum", 23),
    ("--validate=strict", 25),
    // Before, an object that is not there was an error.
    ("wait --for=delete", 22),
];

/// A server and a kubectl for it.
struct Kubectl {
    home: Home,
    process: Process,
    minor_version: u32,
}

impl Kubectl {
    /// None, with a message, if there is no kubectl.
    async fn start() -> Option<Kubectl> {
        Kubectl::start_in(Home::in_memory()).await
    }

    async fn start_in(home: Home) -> Option<Kubectl> {
        let minor_version = minor_version().await?;
        let process = home.start().await;
        Some(Kubectl {
            home,
            process,
            minor_version,
        })
    }

    /// Whether this kubectl is older than a command; if so, the test leaves the command out and prints it.
    fn lacks(&self, arguments: &str) -> bool {
        let words =
            |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
        let given = words(arguments);
        let named = |name: &str| {
            let name = words(name);
            match name[0].starts_with("--") {
                true => given.iter().any(|word| word.starts_with(&name[0])),
                false => given[0] == name[0] && name[1..].iter().all(|word| given.contains(word)),
            }
        };
        let since = SINCE
            .iter()
            .filter(|(name, _)| named(name))
            .map(|(_, since)| *since)
            .max();
        let lacks = since.is_some_and(|since| self.minor_version < since);
        if lacks {
            eprintln!(
                "SKIPPED: kubectl 1.{} lacks: kubectl {arguments}",
                self.minor_version
            );
        }
        lacks
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(self.home.kubeconfig());
        // The cache of kubectl is separate for each server.
        command
            .env("HOME", self.home.path())
            .env("KUBECACHEDIR", self.home.path().join("cache"));
        command
            .args(arguments.split_whitespace())
            .current_dir(manifests());
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    async fn output(&self, mut command: Command) -> Output {
        timeout(STEP_TIMEOUT, command.output())
            .await
            .expect("kubectl ends in time")
            .unwrap()
    }

    /// The output of a command, which must succeed.
    async fn run(&self, arguments: &str) -> String {
        let output = self.output(self.command(arguments)).await;
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(
            output.status.success(),
            "kubectl {arguments}: {stdout}{stderr}"
        );
        stdout
    }

    /// The error of a command, which must fail.
    async fn refused(&self, arguments: &str) -> String {
        let output = self.output(self.command(arguments)).await;
        assert!(
            !output.status.success(),
            "kubectl {arguments} succeeded: {}",
            text(&output.stdout)
        );
        text(&output.stderr)
    }

    /// A command prints all of these, if this kubectl has it.
    async fn shows(&self, arguments: &str, words: &[&str]) {
        if self.lacks(arguments) {
            return;
        }
        let stdout = self.run(arguments).await;
        for word in words {
            assert!(
                stdout.contains(word),
                "kubectl {arguments}: no {word:?} in\n{stdout}"
            );
        }
    }
}

/// The minor version of kubectl. None, with a message, if it is not installed.
async fn minor_version() -> Option<u32> {
    let version = Command::new("kubectl")
        .args(["version", "--client", "--output=json"])
        .output()
        .await;
    let Ok(version) = version else {
        skip("no kubectl installed");
        return None;
    };
    let version: serde_json::Value = serde_json::from_slice(&version.stdout).unwrap();
    let minor = version["clientVersion"]["minor"].as_str().unwrap();
    Some(minor.trim_end_matches('+').parse().unwrap())
}

/// Says that a test is left out. In CI nothing may be left out.
pub(crate) fn skip(reason: &str) {
    let is_ci = std::env::var_os("CI").is_some_and(|ci| ci == "true");
    assert!(!is_ci, "{reason}");
    eprintln!("SKIPPED: {reason}");
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn manifests() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "cluster", "manifests"]
        .iter()
        .collect()
}
