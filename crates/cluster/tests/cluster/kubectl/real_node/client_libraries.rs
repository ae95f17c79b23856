//! exec, attach, port-forward, cp and logs with client libraries of other languages: for a real and a simulated pod.

use std::path::Path;

use super::super::Kubectl;
use super::start_with;
use crate::containerd::PrivateContainerd;
use crate::packages::Environment;

/// A cluster with a pod `real` and a pod `simulated`.
async fn start(containerd: &PrivateContainerd, node: &str, n: u8) -> Option<Kubectl> {
    let kubectl = start_with(containerd, node, n, &["--nodes=1"]).await?;
    let pods = ["real", "simulated"];
    kubectl.run_pods("client-libraries.yaml", &pods).await;
    Some(kubectl)
}

/// Runs a script for both pods.
async fn run_script(environment: &Environment, kubectl: &Kubectl, program: &str, script: &Path) {
    for pod in ["simulated", "real"] {
        let mut command = environment.command(program);
        command
            .arg(script)
            .args([pod, pod])
            .env("KUBECONFIG", kubectl.home.kubeconfig());
        eprint!("{}", environment.run(&mut command).await);
    }
}

fn script(name: &str) -> std::path::PathBuf {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/kubectl/real_node");
    dir.join(name)
}

#[tokio::test]
async fn the_client_of_python_streams() {
    let Some(containerd) = PrivateContainerd::start().await else {
        return;
    };
    let Some(environment) = Environment::create().await else {
        return;
    };
    let Some(kubectl) = start(&containerd, "real-python", 226).await else {
        return;
    };
    environment.pip_install(["kubernetes"]).await;
    let python = environment.bin("python3").display().to_string();
    run_script(&environment, &kubectl, &python, &script("streams.py")).await;
}

#[tokio::test]
async fn the_client_of_javascript_streams() {
    let Some(containerd) = PrivateContainerd::start().await else {
        return;
    };
    let Some(environment) = Environment::create().await else {
        return;
    };
    let Some(kubectl) = start(&containerd, "real-node-js", 227).await else {
        return;
    };
    environment.ensure_node().await;
    let mut install = environment.command("npm");
    install.args(["install", "--no-audit", "--no-fund", "--loglevel=error"]);
    install.arg("@kubernetes/client-node@^2.0.1");
    environment.run(&mut install).await;
    // A module is resolved from the directory of the script.
    let local = environment.path().join("streams.mjs");
    std::fs::copy(script("streams.mjs"), &local).unwrap();
    run_script(&environment, &kubectl, "node", &local).await;
}
