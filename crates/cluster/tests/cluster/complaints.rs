//! What the parts that run alone say when they cannot work: who, where and why, and no more than helps.

use std::path::Path;
use std::process::Output;

use tokio::process::Command;
use tokio::time::timeout;

use crate::process::{Home, PATIENCE, Speaking, command};

async fn ended(mut command: Command) -> Output {
    timeout(PATIENCE, command.output())
        .await
        .expect("it ends by itself")
        .unwrap()
}

/// Writes a kubeconfig in which a part is another.
fn with(home: &Home, name: &str, change: impl Fn(&str) -> String) -> std::path::PathBuf {
    let text = std::fs::read_to_string(home.kubeconfig()).unwrap();
    let file = home.path().join(name);
    std::fs::write(&file, change(&text)).unwrap();
    file
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_with_the_reason() {
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
        let mut command = Speaking::start(arguments, &home.kubeconfig());
        let line = command.line().await;
        assert!(line.contains(&expected), "{arguments:?}: {line}");
    }
    let Output { status, stderr, .. } =
        ended(command(&["trace", "deployment/web"], &home.kubeconfig())).await;
    let said = String::from_utf8(stderr).unwrap();
    assert!(!status.success() && said.contains(&expected), "{said}");
}

#[tokio::test]
async fn a_server_that_nobody_vouches_for_is_named_with_the_reason() {
    let (home, other) = (Home::in_memory(), Home::in_memory());
    let (process, _other) = tokio::join!(home.start(), other.start());
    let authority = |text: &str| {
        text.lines()
            .find(|line| line.contains("certificate-authority-data"))
            .unwrap()
            .to_owned()
    };
    let theirs = authority(&std::fs::read_to_string(other.kubeconfig()).unwrap());
    let stranger = with(&home, "stranger", |text| {
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
    let line = Speaking::start(&["controllers"], &stranger).line().await;
    let expected = format!(
        "cannot reach https://{}: invalid peer certificate",
        process.address
    );
    assert!(line.contains(&expected), "{line}");
}

#[tokio::test]
async fn who_may_not_do_what_is_said_once() {
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
    let line = Speaking::start(&["controllers"], &file).line().await;
    let lease = "User \"joe\" cannot get resource \"leases\" in API group \"coordination.k8s.io\" in the namespace \"kube-system\"";
    assert!(line.contains(lease), "{line}");
    let mut scheduler = Speaking::start(&["scheduler", "--no-leader-elect"], &file);
    let mut said = std::collections::HashSet::new();
    for _ in 0..10 {
        let line = scheduler.line().await;
        let what = line
            .split_once("refuses: ")
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
async fn nodes_that_no_server_would_take_are_refused_at_once() {
    for (argument, value, expected) in [
        (
            "--name",
            "UPPER_",
            "a lowercase RFC 1123 subdomain must consist of",
        ),
        ("--capacity", "cpu=-1", "cpu=-1 is less than nothing"),
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
async fn nodes_are_said_to_be_at_work_when_they_are() {
    let home = Home::in_memory();
    let process = home.start().await;
    let line = Speaking::start(&["node", "--nodes", "40"], &home.kubeconfig())
        .line()
        .await;
    assert_eq!(line, "40 simulated nodes are at work");
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
async fn what_the_server_says_of_a_node_is_shown_in_its_words() {
    let home = Home::in_memory();
    let _process = home.start().await;
    let mut nodes = Speaking::start(&["node", "--capacity", "pods=1500m"], &home.kubeconfig());
    let line = nodes.line().await;
    assert!(
        line.contains("status.capacity.pods: Invalid value: \"1500m\": must be an integer"),
        "{line}"
    );
    assert!(!line.contains("Status {"), "{line}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn nothing_panics_because_nobody_listens() {
    let home = Home::in_memory();
    let full = || {
        std::fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap()
    };
    let mut nobody = command(&["controllers"], Path::new("none"));
    let status = timeout(PATIENCE, nobody.stderr(full()).status())
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
    // It has said that it reaches nobody, or tried to, several times by then.
    let ended = timeout(std::time::Duration::from_secs(2), waiting.wait()).await;
    assert!(ended.is_err(), "{ended:?}");
}
