//! Do the programs of `examples/` do what their README files say?
//!
//! The steps of a README are the test: the real `mizzen`, the program and kubectl run as processes, as a user starts them.
//! The PATH of the steps has a `mizzen` and a `cargo` of the test. They start the binaries of this build, at free ports.

use std::collections::VecDeque;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::{minor_version, skip, text};
use crate::process::STEP_TIMEOUT;

/// The steps of a README, in order.
struct Walkthrough {
    steps: VecDeque<String>,
    /// The working directory.
    directory: TempDir,
    /// The processes in the background.
    programs: Vec<Child>,
}

/// The directory with the binaries of this build.
pub(super) fn binaries() -> &'static Path {
    let mizzen = Path::new(env!("CARGO_BIN_EXE_mizzen"));
    mizzen.parent().expect("a binary is in a directory")
}

/// The directory `examples` of the repository.
pub(super) fn examples() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = package.ancestors().nth(2);
    root.expect("the package is in `crates`").join("examples")
}

/// The blocks of indented lines in a README before `## Output`, a step per line.
fn steps(readme: &str) -> VecDeque<String> {
    let (steps, _) = readme.split_once("## Output").unwrap_or((readme, ""));
    let steps = steps.lines().filter_map(|line| line.strip_prefix("    "));
    steps.map(str::to_owned).collect()
}

/// Adds `mizzen` and `cargo` to `bin` of a directory: they start the binaries of this build, servers at free ports. What
/// programs of `cargo run` log goes to the file `STEP_LOG`, if that is set.
pub(super) fn install_commands(directory: &Path) {
    let binaries = binaries().display();
    let mizzen = format!(
        "case $1,$2 in\n\
         *,--help) ;;\n\
         up,* | apiserver,*) set -- \"$@\" --port 0 ;;\n\
         esac\n\
         exec '{binaries}/mizzen' \"$@\""
    );
    let log = "2>>\"${STEP_LOG:-/dev/stderr}\"";
    // cargo run -p PACKAGE [--example NAME] [-- ARGUMENTS], and what `mizzen generate` runs:
    // cargo run --quiet --bin manifests -- ARGUMENTS
    let cargo = format!(
        "if [ \"$2\" = --quiet ]; then shift 5; exec '{binaries}/manifests' \"$@\"; fi\n\
         program=$3; shift 3\n\
         if [ \"$1\" = --example ]; then program=examples/$2; shift 2; fi\n\
         if [ \"$1\" = -- ]; then shift; fi\n\
         if [ \"$1\" = --local ]; then set -- \"$@\" --port 0; fi\n\
         exec '{binaries}'/$program \"$@\" {log}"
    );
    let bin = directory.join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    for (name, script) in [("mizzen", mizzen), ("cargo", cargo)] {
        let file = bin.join(name);
        std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
    }
}

impl Walkthrough {
    /// The README of an example whose program is `binary`. None, with a message, without kubectl or the program.
    async fn of(example: &str, binary: &str) -> Option<Walkthrough> {
        minor_version().await?;
        // Packages of the workspace are built with `--workspace`, and not with `-p mizzen-cluster`.
        if !binaries().join(binary).exists() {
            skip(&format!("{binary} is not built; use --workspace"));
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        symlink(examples(), directory.path().join("examples")).unwrap();
        let readme = std::fs::read_to_string(examples().join(example).join("README.md")).unwrap();
        let walkthrough = Walkthrough {
            steps: steps(&readme),
            directory,
            programs: Vec::new(),
        };
        install_commands(walkthrough.directory.path());
        Some(walkthrough)
    }

    /// A line of shell in the working directory.
    fn shell(&self, line: &str) -> Command {
        let (directory, mut path) = (self.directory.path(), self.directory.path().join("bin"));
        path.as_mut_os_string().push(":");
        path.as_mut_os_string()
            .push(std::env::var_os("PATH").unwrap_or_default());
        let mut command = Command::new("sh");
        command
            .args(["-c", line])
            .current_dir(directory)
            .env("PATH", path)
            // What the step `export KUBECONFIG=…` says.
            .env("KUBECONFIG", directory.join("kubeconfig"))
            .env("HOME", directory)
            .env("KUBECACHEDIR", directory.join("cache"))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// The next step of the README, which has these words.
    #[track_caller]
    fn take(&mut self, words: &str) -> String {
        let step = self.steps.pop_front().unwrap_or_default();
        assert!(step.contains(words), "{words:?} is not the step {step:?}");
        step
    }

    /// Runs the next step to its end. Returns what it prints.
    async fn run(&mut self, words: &str) -> String {
        let step = self.take(words);
        let (succeeded, output) = self.output(&step).await;
        assert!(succeeded, "{step}: {output}");
        output
    }

    /// Runs the next step, which must fail. Returns what it prints.
    async fn refused(&mut self, words: &str) -> String {
        let step = self.take(words);
        let (succeeded, output) = self.output(&step).await;
        assert!(!succeeded, "{step} succeeded: {output}");
        output
    }

    /// Whether a line of shell succeeds, and what it prints.
    async fn output(&self, line: &str) -> (bool, String) {
        let output = timeout(STEP_TIMEOUT, self.shell(line).output());
        let output = output.await.expect("the step ends in time").unwrap();
        let printed = text(&output.stdout) + &text(&output.stderr);
        (output.status.success(), printed)
    }

    /// Runs the next step in the background, and waits for its first line: then it is ready.
    async fn start(&mut self, words: &str) {
        let step = self.take(words);
        let program = self.read_until(step.trim_end_matches('&'), "").await;
        self.programs.push(program);
    }

    /// Runs the next step, which watches, until it has printed a line with `expected`.
    async fn watch(&mut self, words: &str, expected: &str) {
        let step = self.take(words);
        self.read_until(&step, expected).await;
    }

    /// Starts a line of shell, and reads its output up to a line with `expected`.
    async fn read_until(&self, line: &str, expected: &str) -> Child {
        let mut command = self.shell(&format!("exec {line}"));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut printed = Vec::new();
        let found = async {
            while let Some(line) = lines.next_line().await.unwrap() {
                // Columns are one space apart.
                let words: Vec<&str> = line.split_whitespace().collect();
                printed.push(words.join(" "));
                if printed[printed.len() - 1].contains(expected) {
                    return true;
                }
            }
            false
        };
        let found = timeout(STEP_TIMEOUT, found).await;
        assert_eq!(found, Ok(true), "{line}: no {expected:?} in {printed:#?}");
        // A program that prints more must not get a broken pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        child
    }

    /// Stops the last program in the background with SIGTERM, as Kubernetes does. It ends without an error.
    async fn terminate(&mut self) {
        let mut program = self.programs.pop().expect("a program runs");
        let id = i32::try_from(program.id().expect("it runs")).unwrap();
        kill(Pid::from_raw(id), Signal::SIGTERM).unwrap();
        let ended = timeout(STEP_TIMEOUT, program.wait()).await;
        let ended = ended.expect("it ends in time").unwrap();
        assert_eq!(ended.code(), Some(0));
    }

    /// All steps have run.
    #[track_caller]
    fn finish(self) {
        assert!(self.steps.is_empty(), "more steps: {:?}", self.steps);
    }
}

#[tokio::test]
async fn an_at_runs_its_command() {
    let Some(mut readme) = Walkthrough::of("at", "at").await else {
        return;
    };
    readme.start("mizzen up").await;
    readme.run("export KUBECONFIG").await;
    let created = readme.run("--crd | kubectl apply").await;
    assert!(created.contains("ats.cnat.programming-kubernetes.info created"));
    readme.run("wait --for=condition=Established").await;
    readme.start("cargo run -p at").await;
    readme.run("at.yaml").await;
    readme.watch("get ats -w", "DONE").await;
    assert_eq!(readme.run("logs example-at-pod").await, "YAY\n");
    readme.run("delete at").await;
    readme.finish();
}

#[tokio::test]
async fn a_foo_has_a_deployment() {
    let Some(mut readme) = Walkthrough::of("foo", "foo").await else {
        return;
    };
    readme.start("mizzen up").await;
    readme.run("export KUBECONFIG").await;
    readme.run("--crd | kubectl apply").await;
    readme.run("wait --for=condition=Established").await;
    readme.start("cargo run -p foo").await;
    readme.run("foo.yaml").await;
    readme
        .watch("get foos -w", "example-foo example-foo 1")
        .await;
    let deployment = readme.run("get deployment example-foo").await;
    assert!(deployment.contains("1/1"), "{deployment}");
    let description = readme.run("describe foo").await;
    assert!(description.contains("Foo synced successfully"));
    readme.run("create deployment taken").await;
    readme.run("taken.yaml").await;
    let expected = "Resource \"taken\" already exists and is not managed by Foo";
    readme.watch("reason=ErrResourceExists", expected).await;
    readme.finish();
}

#[tokio::test]
async fn a_bucket_is_removed_before_its_object() {
    let Some(mut readme) = Walkthrough::of("finalizer", "finalizer").await else {
        return;
    };
    readme.start("mizzen up").await;
    readme.run("export KUBECONFIG").await;
    readme.run("--crd | kubectl apply").await;
    readme.run("wait --for=condition=Established").await;
    readme.start("cargo run -p finalizer").await;
    readme.run("bucket.yaml").await;
    // An ID is a UID, the only word with a dash after the region.
    readme.watch("get buckets -w", "-").await;
    assert_eq!(readme.run("ls buckets").await.lines().count(), 1);
    readme.run("delete bucket photos").await;
    assert_eq!(readme.run("ls buckets").await, "");
    readme.finish();
}

#[tokio::test]
async fn a_backup_is_defaulted_converted_and_validated() {
    let Some(mut readme) = Walkthrough::of("webhook", "backup-webhook").await else {
        return;
    };
    readme.start("mizzen up").await;
    readme.run("export KUBECONFIG").await;
    readme.start("cargo run -p backup-webhook").await;
    readme.run("backup.yaml").await;
    let backup = readme.run("get backups.v2.example.com").await;
    for expected in ["claim: data", "schedule: 0 3 * * *", "days: 7"] {
        assert!(backup.contains(expected), "no {expected} in {backup}");
    }
    let refused = readme.refused("invalid.yaml").await;
    for expected in ["must have five fields", "must be at least 1"] {
        assert!(refused.contains(expected), "no {expected} in {refused}");
    }
    readme.terminate().await;
    readme.finish();
}

#[tokio::test]
async fn a_scheduler_plugin_selects_a_node_of_the_tier() {
    let Some(mut readme) = Walkthrough::of("scheduler-plugin", "scheduler-plugin").await else {
        return;
    };
    readme.start("mizzen up").await;
    readme.run("export KUBECONFIG").await;
    readme.run("label node").await;
    readme.start("cargo run -p scheduler-plugin").await;
    readme.run("pods.yaml").await;
    readme.run("wait --for=condition=Ready").await;
    let pods = readme.run("get pods -o wide").await;
    let n_pods_on = |node: &str| pods.lines().filter(|pod| pod.contains(node)).count();
    assert!(
        [n_pods_on("node-2"), n_pods_on("node-3")].contains(&2),
        "{pods}"
    );
    readme.run("silver.yaml").await;
    let expected = "node(s) were not in tier silver";
    readme.watch("reason=FailedScheduling", expected).await;
    readme.terminate().await;
    readme.finish();
}

#[tokio::test]
async fn clients_print_what_their_readme_says() {
    let Some(mut readme) = Walkthrough::of("clients", "examples/typed").await else {
        return;
    };
    readme.start("mizzen up").await;
    readme.run("export KUBECONFIG").await;
    // Programs of the README first, then all others.
    let page = std::fs::read_to_string(examples().join("clients/README.md")).unwrap();
    let (_, output) = page.split_once("## Output").unwrap();
    let expected_of = |program: &str| -> String {
        let (_, section) = output.split_once(&format!("### {program}\n")).unwrap();
        let section = section.split("### ").next().unwrap();
        let lines = section.lines().filter_map(|line| line.strip_prefix("    "));
        lines.map(|line| format!("{line}\n")).collect()
    };
    for program in ["config", "typed"] {
        let printed = readme.run(&format!("--example {program}")).await;
        assert_eq!(printed, expected_of(program));
    }
    for program in output.lines().filter_map(|line| line.strip_prefix("### ")) {
        // Pods of other programs may still be there.
        if program != "config" {
            let line = format!("cargo run -p clients --example {program}");
            let printed = readme.output(&line).await;
            assert_eq!(printed, (true, expected_of(program)));
        }
    }
    readme.run("access.yaml").await;
    readme.run("job.yaml").await;
    readme.run("wait --for=condition=Complete").await;
    readme.finish();
}
