//! One `mizzen` process in a directory of its own: started, ready, stopped or killed.
//!
//! With `MIZZEN_TEST_ETCD=URL` servers that would store objects in memory or on disk store them in this etcd, each
//! [`Home`] below a prefix of its own: `MIZZEN_TEST_ETCD=… cargo nextest run --workspace --test cluster kubectl::`.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::time::timeout;

use crate::client::{Client, Credentials};

/// The timeout of a step of a test, on a slow and busy machine.
pub(crate) const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// A directory for servers, one after the other.
pub(crate) struct Home {
    dir: TempDir,
    data: bool,
    /// `apiserver` or `up`.
    command: &'static str,
    /// Further arguments.
    arguments: Vec<String>,
    /// Whether the log of the server is kept.
    logs: Option<&'static str>,
}

impl Home {
    /// For servers with --in-memory.
    pub(crate) fn in_memory() -> Home {
        Home {
            dir: tempfile::tempdir().unwrap(),
            data: false,
            command: "apiserver",
            arguments: Vec::new(),
            logs: None,
        }
    }

    /// For servers with a data directory.
    pub(crate) fn on_disk() -> Home {
        Home {
            dir: tempfile::tempdir().unwrap(),
            data: true,
            command: "apiserver",
            arguments: Vec::new(),
            logs: None,
        }
    }

    /// For `mizzen up`.
    pub(crate) fn whole(self) -> Home {
        Home {
            command: "up",
            ..self
        }
    }

    /// For `mizzen apiserver`.
    pub(crate) fn alone(self) -> Home {
        Home {
            command: "apiserver",
            ..self
        }
    }

    /// The same with one more argument.
    pub(crate) fn with(mut self, argument: impl Into<String>) -> Home {
        self.arguments.push(argument.into());
        self
    }

    /// The same, with the log at trace, which is kept.
    pub(crate) fn logging(self) -> Home {
        self.filtered("trace")
    }

    /// The same, with a log filter; the log is kept.
    pub(crate) fn filtered(self, filter: &'static str) -> Home {
        let logs = Some(filter);
        Home { logs, ..self }
    }

    /// The log of the servers.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path().join("stderr")).unwrap()
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.path().join("data")
    }

    /// Copies the certificates and keys of another data directory.
    pub(crate) fn copy_keys(&self, from: &Path) {
        std::fs::create_dir_all(self.data_dir()).unwrap();
        for name in [
            "ca.crt",
            "ca.key",
            "front-proxy-ca.crt",
            "front-proxy-ca.key",
            "sa.key",
        ] {
            std::fs::copy(from.join(name), self.data_dir().join(name)).unwrap();
        }
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.path().join("kubeconfig")
    }

    /// The command that starts a server on a free port, which later arguments may change.
    fn command(&self) -> Command {
        self.command_of(Command::new(env!("CARGO_BIN_EXE_mizzen")))
    }

    /// The same, with `command` in place of the binary.
    fn command_of(&self, mut command: Command) -> Command {
        command
            .arg(self.command)
            .arg("--kubeconfig")
            .arg(self.kubeconfig());
        let is_own = |argument: &String| argument.starts_with("--etcd");
        let etcd = std::env::var_os("MIZZEN_TEST_ETCD");
        let etcd = etcd.filter(|_| !self.arguments.iter().any(is_own));
        if self.data || etcd.is_some() {
            command.arg("--data-dir").arg(self.data_dir());
        } else {
            command.arg("--in-memory");
        }
        if let Some(servers) = etcd {
            let prefix = Path::new("/").join(self.path().file_name().unwrap());
            command.arg("--etcd-servers").arg(servers);
            command.arg("--etcd-prefix").arg(prefix);
        }
        if let Some(filter) = self.logs {
            let file = std::fs::File::create(self.path().join("stderr")).unwrap();
            command.env("MIZZEN_LOG", filter).stderr(file);
        }
        command
            .args(&self.arguments)
            .current_dir(self.path())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// A server that is ready.
    pub(crate) async fn start(&self) -> Process {
        self.start_with(&[]).await
    }

    /// A server with these arguments, too, that is ready.
    pub(crate) async fn start_with(&self, arguments: &[&str]) -> Process {
        self.run(self.command(), "0", arguments).await
    }

    /// A server at this port that is ready.
    pub(crate) async fn start_at(&self, port: &str) -> Process {
        self.run(self.command(), port, &[]).await
    }

    /// A server on a host of this name, with these arguments, too, that is ready. See [`has_host_names`].
    pub(crate) async fn start_on(&self, host: &str, arguments: &[&str]) -> Process {
        let mut command = on_host(host);
        command.arg(env!("CARGO_BIN_EXE_mizzen"));
        self.run(self.command_of(command), "0", arguments).await
    }

    /// A server that is ready; none if it ends before it is.
    pub(crate) async fn try_start(&self) -> Option<Process> {
        self.try_run(self.command(), "0", &[]).await
    }

    async fn run(&self, command: Command, port: &str, arguments: &[&str]) -> Process {
        let started = self.try_run(command, port, arguments).await;
        started.expect("the server says that it is ready before it ends")
    }

    async fn try_run(
        &self,
        mut command: Command,
        port: &str,
        arguments: &[&str],
    ) -> Option<Process> {
        let mut child = command
            .args(["--port", port])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = timeout(STEP_TIMEOUT, stdout.next_line())
            .await
            .expect("ready in time")
            .unwrap()?;
        let address = line
            .split("https://")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        let address = address
            .unwrap_or_else(|| panic!("no address in {line:?}"))
            .to_owned();
        let credentials = Credentials::read(&self.kubeconfig());
        Some(Process {
            child,
            address,
            line,
            credentials,
            _stdout: stdout,
        })
    }

    /// The output of a server that fails to start.
    pub(crate) async fn fail_to_start(&self, port: u16) -> Output {
        self.fail_with(&["--port", &port.to_string()]).await
    }

    /// The output of a server that fails to start with these arguments.
    pub(crate) async fn fail_with(&self, arguments: &[&str]) -> Output {
        let child = self.command().args(arguments).output();
        timeout(STEP_TIMEOUT, child)
            .await
            .expect("ends by itself")
            .unwrap()
    }
}

/// A command that runs the command in its arguments, in the same process, on a host of this name.
fn on_host(host: &str) -> Command {
    let mut command = Command::new("unshare");
    if !nix::unistd::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--uts", "sh", "-c", r#"hostname "$0" && exec "$@""#, host]);
    command
}

/// Whether servers can run on hosts of names of their own. If not, the test is skipped.
pub(crate) async fn has_host_names() -> bool {
    let tried = on_host("mizzen").arg("true").output().await;
    let is_possible = tried.is_ok_and(|output| output.status.success());
    let is_ci = std::env::var_os("CI").is_some_and(|ci| ci == "true");
    assert!(is_possible || !is_ci, "unshare --uts must be possible");
    if !is_possible {
        eprintln!("SKIPPED: unshare --uts is not possible");
    }
    is_possible
}

/// A server that is ready.
pub(crate) struct Process {
    child: Child,
    /// `host:port`.
    pub address: String,
    /// Its ready message.
    pub line: String,
    pub credentials: Credentials,
    /// Keeps the standard output of the server open.
    _stdout: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// An anonymous client. Over HTTP/2 each of its connections would be closed after one request.
    pub(crate) async fn anonymous(&self) -> Client {
        Client::connect(&self.address, &self.credentials.anonymous(), &["http/1.1"]).await
    }

    /// A client of the administrator, over HTTP/2.
    pub(crate) async fn admin(&self) -> Client {
        Client::connect(&self.address, &self.credentials, &["h2"]).await
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::SIGTERM);
    }

    /// Waits for its exit status.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        timeout(STEP_TIMEOUT, self.child.wait())
            .await
            .expect("ends in time")
            .unwrap()
    }

    /// Stops it with SIGTERM.
    pub(crate) async fn stop(mut self) {
        self.terminate();
        let status = self.ended().await;
        assert_eq!(status.code(), Some(0), "{status}");
    }

    /// Kills it with SIGKILL.
    pub(crate) async fn kill(mut self) {
        self.signal(Signal::SIGKILL);
        self.ended().await;
    }

    /// Stops it from running until `resume`; its connections stay open.
    pub(crate) fn pause(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Lets it run again after `pause`.
    pub(crate) fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Its resident memory in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id().expect("it runs")).unwrap()
    }
}

/// A command and its standard error.
pub(crate) struct LoggedCommand {
    _child: Child,
    said: Lines<BufReader<ChildStderr>>,
}

impl LoggedCommand {
    /// Runs it against the server of a kubeconfig.
    pub(crate) fn start(arguments: &[&str], kubeconfig: &Path) -> LoggedCommand {
        let mut child = command(arguments, kubeconfig)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stderr.take().unwrap()).lines();
        LoggedCommand {
            _child: child,
            said,
        }
    }

    /// The next line.
    pub(crate) async fn line(&mut self) -> String {
        let line = timeout(STEP_TIMEOUT, self.said.next_line())
            .await
            .expect("it says something");
        line.unwrap().expect("it goes on")
    }
}

/// Removes what cargo says about the package whose test runs: below another cargo, build scripts would see a change of it
/// and run again, and all that depends on them would be compiled again.
pub(crate) fn leave_package(command: &mut std::process::Command) {
    let about_package = [
        "CARGO_PKG_",
        "CARGO_MANIFEST_",
        "CARGO_BIN_",
        "CARGO_CRATE_",
    ];
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name == "OUT_DIR" || about_package.iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(&*name);
        }
    }
}

/// A command against the server of a kubeconfig. A component serves at no port unless the arguments name one: several tests
/// run at a time.
pub(crate) fn command(arguments: &[&str], kubeconfig: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mizzen"));
    let is_component = ["controllers", "scheduler", "node"].contains(&arguments[0]);
    let has_port = arguments
        .iter()
        .any(|argument| argument.starts_with("--secure-port"));
    let arguments = arguments.iter().copied();
    let no_port = (is_component && !has_port).then_some("--secure-port=0");
    let arguments = arguments.chain(no_port);
    command
        .args(arguments)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}
