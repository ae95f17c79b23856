//! Do the commands of the handbook print what it says?
//!
//! The `sh` blocks of a page run in one shell, in order, with the real `mizzen`, kubectl and the programs of `examples/`,
//! in a temporary home. The `text` block after a block is its output: `…` stands for any text within a line, a line `…`
//! for any lines; columns may have other widths, addresses another port. A `yaml` block is a file of the directory.

use std::fs;
use std::net::TcpListener;
use std::process::Stdio;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{Instant, timeout_at};

use super::examples::{binaries, install_commands};
use super::{minor_version, skip};
use crate::command_line::is_installed;
use crate::handbook::{Page, pages, root};
use crate::process::STEP_TIMEOUT;

/// The first minor version of kubectl whose output the pages show.
const KUBECTL_MINOR: u32 = 31;

/// Ports that pages name, of programs beside the API server. Each run has its own.
const PORTS: [&str; 4] = ["8443", "8444", "12379", "12380"];

/// What the shell prints after a block, with its exit code.
const END: &str = "end-of-block";

/// The shell of one page.
struct Session {
    directory: TempDir,
    shell: Child,
    stdin: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    ports: Vec<String>,
    n_blocks: usize,
}

impl Session {
    async fn start() -> Session {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path();
        std::os::unix::fs::symlink(root().join("examples"), home.join("examples")).unwrap();
        install_commands(home);
        let mut path = home.join("bin").into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        let mut shell = Command::new("bash")
            .args(["--norc", "--noprofile"])
            .current_dir(home)
            .env("PATH", path)
            .env("HOME", home)
            .env("KUBECACHEDIR", home.join("cache"))
            .env("STEP_LOG", home.join("programs.log"))
            .env("MIZZEN_LOG", "error")
            .env_remove("KUBECONFIG")
            .env_remove("XDG_DATA_HOME")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut stdin = shell.stdin.take().unwrap();
        stdin.write_all(b"exec 2>&1\n").await.unwrap();
        let output = BufReader::new(shell.stdout.take().unwrap()).lines();
        Session {
            directory,
            shell,
            stdin,
            output,
            ports: free_ports(),
            n_blocks: 0,
        }
    }

    /// A text of the page with the ports of this run.
    fn localized(&self, text: &str) -> String {
        let ports = PORTS.iter().zip(&self.ports);
        ports.fold(text.to_owned(), |text, (named, port)| {
            text.replace(named, port)
        })
    }

    fn write_file(&self, name: &str, text: &str) {
        let path = self.directory.path().join(name);
        fs::create_dir_all(path.parent().expect("a file is in a directory")).unwrap();
        fs::write(path, self.localized(text)).unwrap();
    }

    /// Runs a block to its end, and until it and its programs have printed what is expected.
    async fn run(
        &mut self,
        block: &str,
        must_fail: bool,
        expected: Option<&str>,
    ) -> Result<(), String> {
        self.n_blocks += 1;
        let script = format!(".blocks/{}", self.n_blocks);
        self.write_file(&script, block);
        // Without an expected failure the first command that fails ends the shell.
        let (strict, lax) = if must_fail {
            (":", ":")
        } else {
            ("set -e", "set +e")
        };
        let line = format!("{strict}; . ./{script} </dev/null; code=$?; {lax}; echo {END} $code\n");
        self.stdin
            .write_all(line.as_bytes())
            .await
            .map_err(|error| error.to_string())?;
        let expected = expected.map(|text| words(&self.localized(text)));
        let deadline = Instant::now() + STEP_TIMEOUT;
        let mut printed: Vec<String> = Vec::new();
        let mut code = None;
        loop {
            let is_shown = expected
                .as_ref()
                .is_none_or(|expected| is_match(expected, &printed));
            if code.is_some() && is_shown {
                break;
            }
            // Programs in the background keep the pipe open when the shell has ended.
            let line = async {
                tokio::select! {
                    biased;
                    line = self.output.next_line() => line,
                    _ = self.shell.wait() => Ok(None),
                }
            };
            match timeout_at(deadline, line).await {
                Ok(Ok(Some(line))) => match line.split_once(END) {
                    // What is printed without a newline stays before the mark.
                    Some((last, found)) => {
                        printed.extend(
                            (!last.is_empty())
                                .then(|| words(last))
                                .into_iter()
                                .flatten(),
                        );
                        code = Some(found.trim().to_owned());
                    }
                    None => printed.extend(words(&line)),
                },
                Ok(_) => return Err(self.explain("a command failed", &printed)),
                Err(_) => return Err(self.explain("other output than the page has", &printed)),
            }
        }
        let has_failed = code.is_some_and(|code| code != "0");
        match has_failed == must_fail {
            true => Ok(()),
            false => Err(self.explain("the block must fail, and has not", &printed)),
        }
    }

    fn explain(&self, problem: &str, printed: &[String]) -> String {
        let log = fs::read_to_string(self.directory.path().join("programs.log"));
        let log = log.unwrap_or_default();
        let tail: Vec<&str> = log.lines().rev().take(20).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        let printed = printed.join("\n");
        format!(
            "{problem}\n--- printed\n{printed}\n--- log\n{}",
            tail.join("\n")
        )
    }
}

impl Drop for Session {
    /// The shell and all that it started. Clusters in the background are not in its process group.
    fn drop(&mut self) {
        if let Some(id) = self.shell.id() {
            let _ = killpg(Pid::from_raw(id as i32), Signal::SIGKILL);
        }
        let data = self.directory.path().join(".local/share");
        if data.join("mizzen").exists() {
            let _ = std::process::Command::new(env!("CARGO_BIN_EXE_mizzen"))
                .args(["down", "--all", "--force", "--timeout", "1s"])
                .env("XDG_DATA_HOME", data)
                .output();
        }
    }
}

/// Free ports that no other test gets from the kernel, which hands out higher ones.
fn free_ports() -> Vec<String> {
    let first = 20_000 + std::process::id() % 10_000;
    let free =
        (first..32_000).filter(|port| TcpListener::bind(("127.0.0.1", *port as u16)).is_ok());
    free.take(PORTS.len())
        .map(|port| port.to_string())
        .collect()
}

/// The lines of a text without differences that do not count: width of columns, ports of addresses, empty lines, and
/// the progress that commands print on a slow machine.
fn words(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| {
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut parts = line.split("127.0.0.1:");
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |line, rest| {
            let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
            line + "127.0.0.1:PORT" + rest
        })
    });
    lines
        .filter(|line| !line.is_empty() && !is_progress(line))
        .collect()
}

/// Whether a line is progress, such as "waiting until cluster dev stops … (11 s)".
fn is_progress(line: &str) -> bool {
    let seconds = line
        .rsplit_once(" … (")
        .and_then(|(_, rest)| rest.strip_suffix(" s)"));
    seconds.is_some_and(|seconds| seconds.parse::<u64>().is_ok())
}

/// Whether lines are those that are expected. A line `…` stands for any number of lines.
fn is_match(expected: &[String], printed: &[String]) -> bool {
    match expected.split_first() {
        None => printed.is_empty(),
        Some((first, rest)) if first == "…" => {
            (0..=printed.len()).any(|n_skipped| is_match(rest, &printed[n_skipped..]))
        }
        Some((first, rest)) => printed
            .split_first()
            .is_some_and(|(line, others)| is_line(first, line) && is_match(rest, others)),
    }
}

/// Whether a line is the one that is expected, where `…` stands for any text.
fn is_line(expected: &str, line: &str) -> bool {
    match expected.split_once('…') {
        None => expected == line,
        Some((before, after)) => line.strip_prefix(before).is_some_and(|rest| {
            let mut ends = rest.char_indices().map(|(i, _)| i).chain([rest.len()]);
            ends.any(|i| is_line(after, &rest[i..]))
        }),
    }
}

/// Runs all blocks of a page.
async fn check(name: &str) {
    let Some(minor) = minor_version().await else {
        return;
    };
    if minor < KUBECTL_MINOR {
        eprintln!(
            "SKIPPED: the pages show the output of kubectl 1.{KUBECTL_MINOR}, this is 1.{minor}"
        );
        return;
    }
    let pages = pages();
    let page = pages.iter().find(|page| page.name == name);
    let page = page.unwrap_or_else(|| panic!("there is no docs/{name}"));
    let mut blocks = page.blocks();
    blocks.retain(|block| block.not_run.is_none());
    let mut is_left_out = false;
    blocks.retain(|block| {
        // An output belongs to the commands before it.
        if block.info != "text" {
            let program = block.program.as_deref();
            is_left_out = program.is_some_and(|program| !is_installed(program));
        }
        !is_left_out
    });
    let steps = blocks.iter().filter(|block| block.info.starts_with("sh"));
    let started = steps.flat_map(|block| block.text.split("cargo run -p ").skip(1));
    let mut programs = started.filter_map(|rest| rest.split_whitespace().next());
    if let Some(missing) = programs.find(|program| !binaries().join(program).exists()) {
        skip(&format!("{missing} is not built; use --workspace"));
        return;
    }
    let mut session = Session::start().await;
    for (i, block) in blocks.iter().enumerate() {
        if let Some(file) = block.file_name() {
            session.write_file(file, &block.text);
        }
        if block.info.starts_with("sh") {
            let output = blocks.get(i + 1).filter(|next| next.info == "text");
            let output = output.map(|next| &*next.text);
            let outcome = session
                .run(&block.text, block.info == "sh fails", output)
                .await;
            if let Err(error) = outcome {
                panic!("docs/{name}:{}: {error}", block.line);
            }
        }
    }
}

/// A test per page with shell blocks.
macro_rules! pages_run {
    ($($test:ident: $page:literal,)*) => {
        const PAGES: &[&str] = &[$($page),*];
        $(
            #[tokio::test]
            async fn $test() {
                check($page).await;
            }
        )*
    };
}

pages_run! {
    the_first_cluster_starts: "handbook/01-first-cluster.md",
    a_request_travels: "handbook/02-a-request.md",
    kinds_are_listed_and_watched: "handbook/03-kinds-versions-watches.md",
    an_at_is_written_and_runs: "handbook/05-a-controller.md",
    custom_resources_are_validated_and_converted: "handbook/06-custom-resources.md",
    webhooks_and_policies_admit: "handbook/07-webhooks.md",
    a_pizza_is_served: "own-api-server.md",
    clusters_run_in_the_background: "command-line.md",
    manifests_are_generated: "generate.md",
    faults_are_traced: "handbook/10-faults.md",
    an_operator_is_packaged: "handbook/11-packaging.md",
    a_control_plane_is_operated: "handbook/12-operating.md",
    suites_move_from_other_control_planes: "handbook/13-moving.md",
    secrets_are_encrypted: "encryption.md",
    objects_are_stored_in_etcd: "etcd.md",
    simulated_pods_do_what_annotations_say: "simulated-nodes.md",
    envtest_assets_are_installed: "envtest.md",
    envtest_assets_of_java_are_installed: "java.md",
}

#[test]
fn every_page_with_shell_blocks_is_run() {
    let has_steps = |page: &Page| {
        let blocks = page.blocks();
        let mut run = blocks.iter().filter(|block| block.not_run.is_none());
        run.any(|block| block.info.starts_with("sh"))
    };
    let mut with_steps: Vec<String> = pages()
        .into_iter()
        .filter(has_steps)
        .map(|page| page.name)
        .collect();
    with_steps.sort();
    let mut run: Vec<&str> = PAGES.to_vec();
    run.sort_unstable();
    assert_eq!(with_steps, run);
}

#[test]
fn output_is_compared_line_by_line() {
    let check = |expected: &str, printed: &str| is_match(&words(expected), &words(printed));
    assert!(check(
        "NAME   AGE\nweb-…  3s\n",
        "NAME          AGE\nweb-5d4-x2x   3s\n"
    ));
    assert!(!check("web  3s\n", "web  4s\n"));
    assert!(!check("web  …s\n", "web  3s\nmore\n"));
    assert!(check("first\n…\nlast\n", "first\nsecond\nthird\nlast\n"));
    assert!(!check("first\n…\nlast\n", "first\nsecond\n"));
    assert!(check(
        "https://127.0.0.1:6443/api\n",
        "https://127.0.0.1:40001/api\n"
    ));
    assert!(!check("", "an error\n"));
    assert!(check(
        "stopped cluster dev\n",
        "waiting until cluster dev stops … (1 s)\nstopped cluster dev\n"
    ));
    assert!(!check("", "waiting … (for ever)\n"));
}
