//! What `mizzen generate` writes: installed by kubectl and Helm, with the permissions that the operator needs.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use tokio::process::Command;
use tokio::time::timeout;

use super::examples::{binaries, examples};
use super::{Kubectl, skip, text};
use crate::process::{Home, STEP_TIMEOUT};

/// The manifests of the example `at`.
fn config() -> PathBuf {
    examples().join("at/config")
}

/// The ServiceAccount of the operator.
const USER: &str = "system:serviceaccount:at-system:at";

/// What the ServiceAccount may do, and what it may not.
const PERMISSIONS: &[(&str, bool)] = &[
    ("watch ats --all-namespaces", true),
    ("update ats --subresource=status -n default", true),
    ("update ats -n default", false),
    ("create pods -n default", true),
    ("delete pods -n default", false),
    ("create pods --subresource=exec -n default", false),
    ("create events -n default", true),
    ("get secrets -n at-system", false),
    ("create leases -n at-system", true),
    ("update leases/at -n at-system", true),
    ("update leases/other -n at-system", false),
    ("create leases -n default", false),
    ("get nodes", false),
    ("patch clusterroles/at", false),
];

async fn check_permissions(kubectl: &Kubectl) {
    for (question, is_allowed) in PERMISSIONS {
        let command = format!("auth can-i --as={USER} {question}");
        let output = kubectl.output(kubectl.command(&command)).await;
        let answer = text(&output.stdout);
        let expected = if *is_allowed { "yes" } else { "no" };
        assert_eq!(answer.trim(), expected, "{question}");
    }
}

#[tokio::test]
async fn an_operator_is_installed_by_kustomize_and_runs_as_its_own_service_account() {
    let Some(kubectl) = Kubectl::start_in(Home::in_memory().whole()).await else {
        return;
    };
    let operator = binaries().join("at");
    if !operator.exists() {
        return skip("at is not built; use --workspace");
    }
    if kubectl.lacks("apply -k") || kubectl.lacks("create token") {
        return;
    }
    let config = config();
    let config = config.display();
    kubectl.run(&format!("apply -k {config}/default")).await;
    let rollout = "rollout status deployment/at -n at-system --timeout=60s";
    kubectl.shows(rollout, &["successfully rolled out"]).await;
    let account = "get pods -n at-system -o jsonpath={.items[*].spec.serviceAccountName}";
    assert_eq!(kubectl.run(account).await, "at");
    check_permissions(&kubectl).await;

    // The process that the image would contain, with a token of its ServiceAccount.
    let token = kubectl.run("create token at -n at-system").await;
    let kubeconfig = kubectl.home.path().join("at.kubeconfig");
    std::fs::copy(kubectl.home.kubeconfig(), &kubeconfig).unwrap();
    let file = format!("--kubeconfig={}", kubeconfig.display());
    for command in [
        format!("config set-credentials at --token={} {file}", token.trim()),
        format!("config set-context --current --user=at {file}"),
    ] {
        kubectl.run(&command).await;
    }
    if !kubectl.lacks("auth whoami") {
        let user = kubectl.run(&format!("auth whoami {file}")).await;
        assert!(user.contains(USER), "{user}");
    }
    let log = kubectl.home.path().join("at.log");
    let mut process = Command::new(operator)
        .arg(&file)
        .arg("--leader-elect")
        .envs([("POD_NAMESPACE", "at-system"), ("POD_NAME", "at-0")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&log).unwrap())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let manifest = examples().join("at/manifests/at.yaml");
    kubectl
        .run(&format!("apply -f {}", manifest.display()))
        .await;
    let done = "wait --for=jsonpath={.status.phase}=DONE at/example-at --timeout=60s";
    let output = kubectl.output(kubectl.command(done)).await;
    let printed = std::fs::read_to_string(&log).unwrap();
    assert!(output.status.success(), "{}{printed}", text(&output.stderr));
    let holder = "get lease at -n at-system -o jsonpath={.spec.holderIdentity}";
    assert_eq!(kubectl.run(holder).await, "at-0");
    kubectl
        .shows("get events", &["Created pod example-at-pod"])
        .await;
    process.kill().await.unwrap();
    let printed = std::fs::read_to_string(&log).unwrap();
    assert!(!printed.contains("forbidden"), "{printed}");

    // Overlays change the same objects.
    let production = format!("apply -k {config}/overlays/production");
    kubectl
        .shows(
            &production,
            &[
                "deployment.apps/at configured",
                "poddisruptionbudget.policy/at created",
            ],
        )
        .await;
    kubectl.shows(rollout, &["successfully rolled out"]).await;
    kubectl
        .shows("get deployment at -n at-system", &["2/2"])
        .await;
    let development = format!("kustomize {config}/overlays/development");
    kubectl.shows(&development, &["value: debug"]).await;
    kubectl
        .run(&format!(
            "delete -k {config}/overlays/production --wait=false"
        ))
        .await;
}

/// Runs helm; None, with a message, if it is not installed.
async fn helm(home: &Path, arguments: &str) -> Option<Output> {
    let mut command = Command::new("helm");
    command
        .args(arguments.split_whitespace())
        .env("KUBECONFIG", home.join("kubeconfig"))
        .env("HOME", home)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = timeout(STEP_TIMEOUT, command.output()).await;
    match output.expect("helm ends in time") {
        Ok(output) => Some(output),
        Err(_) => {
            eprintln!("SKIPPED: no helm installed");
            None
        }
    }
}

#[tokio::test]
async fn a_chart_is_installed_upgraded_and_uninstalled_by_helm() {
    let Some(kubectl) = Kubectl::start_in(Home::in_memory().whole()).await else {
        return;
    };
    let chart = config().join("charts/at");
    let chart = chart.display();
    let namespace = "--namespace at-system";
    let wait = "--wait --timeout 60s";
    for (arguments, words) in [
        (format!("lint --strict {chart}"), "0 chart(s) failed"),
        (
            format!("install at {chart} {namespace} --create-namespace {wait}"),
            "as the ServiceAccount at",
        ),
        (
            format!(
                "upgrade at {chart} {namespace} --set replicas=2 --set extraArgs={{--crd}} {wait}"
            ),
            "STATUS: deployed",
        ),
    ] {
        let Some(output) = helm(kubectl.home.path(), &arguments).await else {
            return;
        };
        let printed = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success(), "helm {arguments}: {printed}");
        assert!(printed.contains(words), "helm {arguments}: {printed}");
    }
    check_permissions(&kubectl).await;
    kubectl
        .shows("get deployment at -n at-system", &["2/2"])
        .await;
    let arguments =
        "get deployment at -n at-system -o jsonpath={.spec.template.spec.containers[0].args}";
    assert_eq!(
        kubectl.run(arguments).await,
        r#"["--endpoints=0.0.0.0:8080","--leader-elect","--crd"]"#
    );

    let values = "--set serviceAccount.create=false --set serviceAccount.name=shared \
                  --set leaderElection.enabled=false --set image.digest=sha256:0 --set nodeSelector.disk=ssd";
    let rendered = helm(
        kubectl.home.path(),
        &format!("template at {chart} -n other {values}"),
    )
    .await;
    let rendered = text(&rendered.unwrap().stdout);
    for (word, is_expected) in [
        ("kind: ServiceAccount\nmetadata", false),
        ("leader-elect", false),
        ("serviceAccountName: shared", true),
        ("image: registry.example.com/at@sha256:0", true),
        ("disk: ssd", true),
        ("namespace: other", true),
    ] {
        assert_eq!(
            rendered.contains(word),
            is_expected,
            "{word:?} in {rendered}"
        );
    }
    let removed = helm(
        kubectl.home.path(),
        &format!("uninstall at {namespace} --wait"),
    )
    .await;
    assert!(removed.unwrap().status.success());
    // Helm keeps the objects of users, and so their definitions.
    kubectl
        .shows("get crd", &["ats.cnat.programming-kubernetes.info"])
        .await;
    assert_eq!(
        kubectl
            .run("get deployments,serviceaccounts -n at-system -o name")
            .await,
        "serviceaccount/default\n"
    );
}

/// Runs `mizzen generate`: whether it succeeds, its output and its errors.
async fn generate(home: &Home, arguments: &str) -> (bool, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mizzen"));
    command
        .arg("generate")
        .args(arguments.split_whitespace())
        .env("KUBECONFIG", home.kubeconfig())
        .current_dir(home.path())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = timeout(STEP_TIMEOUT, command.output());
    let output = output.await.expect("it ends in time").unwrap();
    let is_success = output.status.success();
    (is_success, text(&output.stdout), text(&output.stderr))
}

#[tokio::test]
async fn types_of_a_file_and_of_a_cluster_are_the_same() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    let file = config().join("crd/cnat.programming-kubernetes.info_ats.yaml");
    let file = file.display();
    kubectl.run(&format!("apply -f {file}")).await;
    let name = "ats.cnat.programming-kubernetes.info";
    let (is_success, from_file, errors) =
        generate(&kubectl.home, &format!("rust --from-crd {file}")).await;
    assert!(is_success, "{errors}");
    assert!(from_file.contains("pub struct AtSpec {"), "{from_file}");
    let output = "--output at.rs";
    let (is_success, _, errors) = generate(
        &kubectl.home,
        &format!("rust --from-cluster {name} {output}"),
    )
    .await;
    assert!(is_success, "{errors}");
    let from_cluster = std::fs::read_to_string(kubectl.home.path().join("at.rs")).unwrap();
    assert_eq!(from_cluster, from_file);

    for (arguments, expected) in [
        ("".into(), "no package here"),
        (
            format!("rust --from-crd {file} others.example.com"),
            "has no CustomResourceDefinition others.example.com",
        ),
        (
            format!("rust --from-crd {file} --version v7"),
            "its versions are v1alpha1",
        ),
        (
            "rust --from-cluster others.example.com".into(),
            "\"others.example.com\" not found",
        ),
        (
            "rust --from-crd missing.yaml".into(),
            "missing.yaml: No such file",
        ),
        ("rust".into(), "--from-crd"),
    ] {
        let (is_success, _, errors) = generate(&kubectl.home, &arguments).await;
        assert!(!is_success, "mizzen generate {arguments} succeeded");
        assert!(
            errors.contains(expected),
            "mizzen generate {arguments}: {errors}"
        );
    }
}

#[tokio::test]
async fn manifests_are_written_by_the_program_of_the_package() {
    let directory = tempfile::tempdir().unwrap();
    let at = |path: &str| directory.path().join(path);
    for folder in ["bin", "operator/src/bin"] {
        std::fs::create_dir_all(at(folder)).unwrap();
    }
    std::fs::write(
        at("operator/Cargo.toml"),
        "[package]\nname = \"operator\"\n",
    )
    .unwrap();
    std::fs::write(at("operator/src/bin/manifests.rs"), "fn main() {}\n").unwrap();
    // Stands for the real cargo, which would compile the operator.
    let cargo = "#!/bin/sh\necho \"$(basename \"$PWD\"): $*\"\nexit \"${CODE:-0}\"\n";
    std::fs::write(at("bin/cargo"), cargo).unwrap();
    std::fs::set_permissions(at("bin/cargo"), Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", at("bin").display());
    let run = async |arguments: &str, code: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mizzen"));
        command.args(arguments.split_whitespace());
        command.envs([("PATH", path.as_str()), ("CODE", code)]);
        command.current_dir(at("operator/src")).kill_on_drop(true);
        let output = timeout(STEP_TIMEOUT, command.output());
        output.await.expect("it ends in time").unwrap()
    };
    let output = run("generate manifests --check --output deploy", "0").await;
    assert!(output.status.success());
    let expected = "operator: run --quiet --bin manifests -- --check --output deploy\n";
    assert_eq!(text(&output.stdout), expected);
    let output = run("generate", "3").await;
    assert!(!output.status.success());
    assert_eq!(
        text(&output.stdout),
        "operator: run --quiet --bin manifests --\n"
    );
    let errors = text(&output.stderr);
    assert!(errors.contains("exit status: 3"), "{errors}");
}
