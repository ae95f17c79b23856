//! `mizzen init` and `mizzen create`, with the real binary.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use mizzen_testing::Cluster;
use tempfile::TempDir;

use crate::process::leave_package;

const MIZZEN: &str = env!("CARGO_BIN_EXE_mizzen");

const OVEN: &str =
    "create api --group shop --version v1alpha1 --kind Oven --namespaced --controller";

/// A directory in which `mizzen` runs.
struct Workbench {
    directory: TempDir,
}

impl Workbench {
    /// An empty one.
    fn empty() -> Workbench {
        let directory = tempfile::tempdir().unwrap();
        Workbench { directory }
    }

    /// One with a project.
    fn with_project(language: &str) -> Workbench {
        let bench = Workbench::empty();
        let init = format!("init --domain example.com --name shop --language {language}");
        bench.succeed("", &init);
        bench
    }

    /// Runs a program in a directory. Returns whether it succeeded, and what it prints.
    fn run(&self, program: &Path, directory: &str, arguments: &str) -> (bool, String) {
        let mut command = Command::new(program);
        command
            .env_remove("MIZZEN_SDK_PATH")
            .args(arguments.split(' '));
        command.current_dir(self.directory.path().join(directory));
        let output = command.output().unwrap();
        let printed = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(printed).unwrap())
    }

    #[track_caller]
    fn succeed(&self, directory: &str, arguments: &str) -> String {
        let (succeeded, printed) = self.run(Path::new(MIZZEN), directory, arguments);
        assert!(succeeded, "{arguments}: {printed}");
        printed
    }

    #[track_caller]
    fn fail(&self, directory: &str, arguments: &str) -> String {
        let (succeeded, printed) = self.run(Path::new(MIZZEN), directory, arguments);
        assert!(!succeeded, "{arguments}: {printed}");
        printed
    }

    #[track_caller]
    fn read(&self, path: &str) -> String {
        let text = fs::read_to_string(self.directory.path().join(path));
        text.unwrap_or_else(|error| panic!("{path}: {error}"))
    }
}

/// The root of the repository.
fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = package.ancestors().nth(2);
    root.expect("the package is in `crates`")
}

#[test]
fn a_project_uses_the_sdk_of_the_checkout_that_has_the_binary() {
    let bench = Workbench::empty();
    let printed = bench.succeed("", "init --domain example.com --name shop");
    let root = root().canonicalize().unwrap();
    let expected = format!("mizzen-sdk is that of the checkout {}\n", root.display());
    assert!(printed.contains(&expected), "{printed}");
    let line = format!("mizzen-sdk = {{ path = \"{}/crates/sdk\"", root.display());
    assert!(bench.read("shop/Cargo.toml").contains(&line));
}

#[test]
fn a_project_of_a_binary_outside_of_a_checkout_uses_the_release() {
    let bench = Workbench::empty();
    let installed = bench.directory.path().join("mizzen");
    fs::copy(MIZZEN, &installed).unwrap();
    let (succeeded, printed) = bench.run(&installed, "", "init --domain example.com --name shop");
    assert!(succeeded, "{printed}");
    let line = format!("mizzen-sdk = \"{}\"\n", env!("CARGO_PKG_VERSION"));
    assert!(bench.read("shop/Cargo.toml").contains(&line), "{printed}");
}

#[test]
fn a_second_run_keeps_edits_and_says_what_it_would_change() {
    let bench = Workbench::with_project("rust");
    let printed = bench.succeed("shop", &format!("{OVEN} --dry-run"));
    assert!(
        printed.contains("create       ./src/controllers/oven.rs"),
        "{printed}"
    );
    assert!(printed.contains("+pub mod oven;"), "{printed}");
    assert!(
        !bench
            .directory
            .path()
            .join("shop/src/controllers/oven.rs")
            .exists()
    );
    bench.succeed("shop", OVEN);
    let printed = bench.succeed("shop", OVEN);
    assert_eq!(printed, "next: mizzen generate, cargo test\n");

    let list = bench.directory.path().join("shop/src/controllers/mod.rs");
    let edited = bench.read("shop/src/controllers/mod.rs") + "// mine\n";
    fs::write(&list, &edited).unwrap();
    let rack = OVEN.replace("Oven", "Rack");
    let printed = bench.fail("shop", &rack);
    for expected in [
        "edited       ./src/controllers/mod.rs",
        "+pub mod rack;",
        "-// mine",
        "mizzen create: nothing was written: src/controllers/mod.rs was edited and would change",
    ] {
        assert!(printed.contains(expected), "no {expected} in {printed}");
    }
    assert_eq!(fs::read_to_string(&list).unwrap(), edited);
    bench.succeed("shop", &format!("{rack} --force"));
    assert!(
        bench
            .read("shop/src/controllers/mod.rs")
            .contains("pub mod rack;")
    );
}

#[test]
fn mistakes_are_named_with_an_example() {
    let bench = Workbench::with_project("rust");
    for (directory, arguments, expected) in [
        (
            "",
            "init --domain example.com --name Shop",
            "the name of a project \"Shop\" is not a DNS label",
        ),
        (
            "",
            "init --domain com --name other",
            "the domain \"com\" has no dot; for example example.com",
        ),
        (
            "",
            "init --domain example.org --name shop",
            "is a project with domain example.com",
        ),
        (
            "",
            "init --domain a.b --name c --sdk-path shop",
            "shop is no checkout of mizzen",
        ),
        ("", OVEN, "it has no file PROJECT; `mizzen init` makes one"),
        (
            "shop",
            "create api --group shop --version 1 --kind Oven",
            "the version \"1\" is not v1",
        ),
        (
            "shop",
            "create api --group shop --version v1 --kind oven",
            "the kind \"oven\" is not in CamelCase",
        ),
        (
            "shop",
            "create webhook --group shop --kind Oven",
            "choose the webhooks: --defaulting",
        ),
        (
            "shop",
            "create version --group shop --kind Oven --version v1",
            "the project has no kind Oven",
        ),
    ] {
        let printed = bench.fail(directory, arguments);
        assert!(printed.contains(expected), "no {expected} in {printed}");
    }
}

#[tokio::test]
async fn the_manifests_of_a_python_project_are_accepted() {
    let bench = Workbench::with_project("python");
    bench.succeed("shop", OVEN);
    let cluster = Cluster::builder().server_only().start().await;
    for path in ["crd/ovens.yaml", "rbac.yaml", "deployment.yaml"] {
        cluster
            .apply(&bench.read(&format!("shop/config/{path}")))
            .await;
    }
    let sample = bench.read("shop/config/samples/shop_v1alpha1_oven.yaml");
    cluster.apply(&sample).await;
}

/// The measure of the README. It compiles what a new project depends on, with the features that it asks for: minutes.
#[test]
fn a_new_user_gets_to_a_tested_operator_that_runs() {
    if std::env::var("CI").as_deref() != Ok("true") {
        eprintln!("SKIPPED: a new operator is compiled in CI only (CI=true)");
        return;
    }
    let bench = Workbench::empty();
    let bin = bench.directory.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let install = |name: &str, script: &str| {
        let file = bin.join(name);
        fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    };
    // Tests run side by side: a free port.
    install(
        "mizzen",
        &format!("if [ \"$1\" = up ]; then set -- \"$@\" --port 0; fi\nexec '{MIZZEN}' \"$@\""),
    );
    // The versions of this workspace, without a network.
    let lock = root().join("Cargo.lock");
    let cargo = env!("CARGO");
    install(
        "cargo",
        &format!(
            "[ -f Cargo.lock ] || cp '{}' .\nexec '{cargo}' \"$@\"",
            lock.display()
        ),
    );
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    // What this workspace has compiled is used, but its programs are not replaced: another one is called `manifests`, too.
    let build = Path::new(MIZZEN).ancestors().nth(2).unwrap();
    let mut script = Command::new("sh");
    leave_package(&mut script);
    let output = script
        .arg(root().join("crates/cluster/tests/cluster/new_operator.sh"))
        .current_dir(bench.directory.path())
        .env("PATH", path)
        .env("CARGO_NET_OFFLINE", "true")
        // No test of the operator is debugged here, and debug information takes a quarter of the time.
        .env("CARGO_PROFILE_DEV_DEBUG", "false")
        .env("CARGO_BUILD_BUILD_DIR", build)
        .env("CARGO_TARGET_DIR", bench.directory.path().join("target"))
        .output()
        .unwrap();
    let printed = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{printed}");
    println!("{printed}");
}
