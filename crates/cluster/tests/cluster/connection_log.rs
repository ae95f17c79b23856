//! The logs of standalone components that cannot reach the server or lack permissions.

use std::path::Path;
use std::process::Output;

use tokio::process::Command;
use tokio::time::timeout;

use crate::process::{Home, LoggedCommand, STEP_TIMEOUT, command};

async fn ended(mut command: Command) -> Output {
    timeout(STEP_TIMEOUT, command.output())
        .await
        .expect("it ends by itself")
        .unwrap()
}

/// Writes a changed kubeconfig.
fn with(home: &Home, name: &str, change: impl Fn(&str) -> String) -> std::path::PathBuf {
    let text = std::fs::read_to_string(home.kubeconfig()).unwrap();
    let file = home.path().join(name);
    std::fs::write(&file, change(&text)).unwrap();
    file
}

#[tokio::test]
async fn the_log_names_an_unreachable_server_and_the_reason() {
    let home = Home::in_memory();
    let process = home.start().await;
    let expected = format!(
        "cannot reach https://{}: Connection refused",
        process.address
    );
    process.stop().await;
    for arguments in [
        &["controllers"][..],
        &["scheduler", "--no-leader-elect"],
        &["node"],
    ] {
        let mut command = LoggedCommand::start(arguments, &home.kubeconfig());
        let line = command.line().await;
        assert!(line.contains(&expected), "{arguments:?}: {line}");
    }
    let Output { status, stderr, .. } =
        ended(command(&["trace", "deployment/web"], &home.kubeconfig())).await;
    let said = String::from_utf8(stderr).unwrap();
    assert!(!status.success() && said.contains(&expected), "{said}");
}

#[tokio::test]
async fn the_log_names_a_server_with_an_untrusted_certificate() {
    let (home, other) = (Home::in_memory(), Home::in_memory());
    let (process, _other) = tokio::join!(home.start(), other.start());
    let authority = |text: &str| {
        text.lines()
            .find(|line| line.contains("certificate-authority-data"))
            .unwrap()
            .to_owned()
    };
    let theirs = authority(&std::fs::read_to_string(other.kubeconfig()).unwrap());
    let untrusted = with(&home, "untrusted", |text| {
        text.replace(&authority(text), &theirs)
    });
    let nonsense = with(&home, "nonsense", |text| {
        text.replace(&authority(text), "    certificate-authority-data: Zm9v")
    });
    let said = ended(command(&["controllers"], &nonsense)).await.stderr;
    let said = String::from_utf8(said).unwrap();
    assert!(
        said.contains("nonsense: the certificate authority of the cluster has no certificate"),
        "{said}"
    );
    let line = LoggedCommand::start(&["controllers"], &untrusted)
        .line()
        .await;
    let expected = format!(
        "cannot reach https://{}: invalid peer certificate",
        process.address
    );
    assert!(line.contains(&expected), "{line}");
}

#[tokio::test]
async fn a_missing_permission_is_logged_once() {
    let home = Home::on_disk();
    let process = home.start().await;
    let joe = Command::new(env!("CARGO_BIN_EXE_mizzen"))
        .args([
            "kubeconfig",
            "--user",
            "joe",
            "--server",
            &format!("https://{}", process.address),
        ])
        .arg("--data-dir")
        .arg(home.data_dir())
        .output();
    let file = home.path().join("joe");
    std::fs::write(&file, joe.await.unwrap().stdout).unwrap();
    let line = LoggedCommand::start(&["controllers"], &file).line().await;
    let lease = "User \"joe\" cannot get resource \"leases\" in API group \"coordination.k8s.io\" in the namespace \"kube-system\"";
    assert!(line.contains(lease), "{line}");
    let mut scheduler = LoggedCommand::start(&["scheduler", "--no-leader-elect"], &file);
    let mut said = std::collections::HashSet::new();
    for _ in 0..10 {
        let line = scheduler.line().await;
        let what = line
            .split_once("forbids: ")
            .unwrap_or_else(|| panic!("{line}"))
            .1
            .to_owned();
        assert!(
            what.starts_with("User \"joe\" cannot list resource"),
            "{what}"
        );
        assert!(said.insert(what.clone()), "said twice: {what}");
    }
    process.stop().await;
}

#[tokio::test]
async fn invalid_node_names_and_capacities_are_rejected() {
    for (argument, value, expected) in [
        (
            "--name",
            "UPPER_",
            "a lowercase RFC 1123 subdomain must consist of",
        ),
        ("--capacity", "cpu=-1", "cpu=-1 is negative"),
        (
            "--capacity",
            "a b=1",
            "\"a b\" is not the name of a resource",
        ),
    ] {
        let Output { status, stderr, .. } =
            ended(command(&["node", argument, value], Path::new("none"))).await;
        let said = String::from_utf8(stderr).unwrap();
        assert!(
            status.code() == Some(2) && said.contains(expected),
            "{value}: {said}"
        );
    }
}

#[tokio::test]
async fn nodes_are_reported_as_running_once_they_are_registered() {
    let home = Home::in_memory();
    let process = home.start().await;
    let line = LoggedCommand::start(&["node", "--nodes", "40"], &home.kubeconfig())
        .line()
        .await;
    assert_eq!(line, "40 simulated nodes are running");
    let leases = process
        .admin()
        .await
        .get("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")
        .await;
    assert_eq!(
        leases.expect(200).json()["items"].as_array().unwrap().len(),
        40
    );
}

#[tokio::test]
async fn node_errors_of_the_api_server_are_printed() {
    let home = Home::in_memory();
    let _process = home.start().await;
    let mut nodes = LoggedCommand::start(&["node", "--capacity", "pods=1500m"], &home.kubeconfig());
    let line = nodes.line().await;
    assert!(
        line.contains("status.capacity.pods: Invalid value: \"1500m\": must be an integer"),
        "{line}"
    );
    assert!(!line.contains("Status {"), "{line}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn nothing_panics_when_output_is_closed() {
    let home = Home::in_memory();
    let full = || {
        std::fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap()
    };
    let mut nobody = command(&["controllers"], Path::new("none"));
    let status = timeout(STEP_TIMEOUT, nobody.stderr(full()).status())
        .await
        .expect("it ends by itself")
        .unwrap();
    assert_eq!(status.code(), Some(1));
    let process = home.start().await;
    process.stop().await;
    let mut waiting = command(&["node"], &home.kubeconfig())
        .stderr(full())
        .spawn()
        .unwrap();
    // By then it has logged several times that the server is unreachable.
    let ended = timeout(std::time::Duration::from_secs(2), waiting.wait()).await;
    assert!(ended.is_err(), "{ended:?}");
}
