//! Clusters in the background: `mizzen up --detach`, `mizzen status`, `mizzen down`.

use std::net::TcpListener;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use tokio::time::timeout;

use super::User;
use crate::process::STEP_TIMEOUT;

#[tokio::test]
async fn a_cluster_in_the_background_is_listed_and_stopped() {
    let user = User::new();
    let said = user.succeed("up --detach --name dev --nodes 2").await;
    let lines: Vec<&str> = said.lines().collect();
    let [ready, background] = lines[..] else {
        panic!("{said}");
    };
    assert!(
        ready.starts_with("Mizzen is ready at https://127.0.0.1:"),
        "{said}"
    );
    assert!(
        background.ends_with("stop it with: mizzen down --name dev"),
        "{said}"
    );
    let directory = user.root().join("dev");
    let log = directory.join("mizzen.log");
    assert!(
        background.contains(log.to_str().unwrap()) && log.exists(),
        "{said}"
    );

    let status = user.status("dev").await;
    let address = status["address"].as_str().unwrap().to_owned();
    assert!(ready.contains(&address), "{status}");
    assert_eq!(status["state"], "ready");
    assert_eq!(status["nodes"], 2);
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(status["dataDir"], directory.to_str().unwrap());
    assert_eq!(status["log"], log.to_str().unwrap());
    let pid = status["pid"].to_string();
    assert!(background.contains(&format!("(pid {pid},")), "{said}");
    let table = user.succeed("status").await;
    let row = table.lines().find(|line| line.starts_with("dev ")).unwrap();
    for cell in [" ready ", &address, &pid, directory.to_str().unwrap()] {
        assert!(row.contains(cell), "{table}");
    }
    let yaml = user.succeed("status --name dev -o yaml").await;
    assert!(
        yaml.contains("\n  name: dev\n") || yaml.contains("- name: dev\n"),
        "{yaml}"
    );

    for arguments in ["up --name dev", "up --name dev --detach"] {
        let again = user.mizzen(arguments).await.expect(4);
        again.with_error(&["cluster dev runs already", &format!("pid {pid}"), &address]);
    }
    let stopped = user.succeed("down --name dev").await;
    assert_eq!(stopped, format!("stopped cluster dev (pid {pid})\n"));
    let status = user.mizzen("status --name dev").await.expect(3);
    status
        .with_error(&["cluster dev is not running; start it with: mizzen up --name dev --detach"]);
    assert_eq!(user.status("dev").await["state"], "stopped");
    assert_eq!(
        user.succeed("down --name dev").await,
        "cluster dev is not running\n"
    );

    // The port is kept, for contexts that name it.
    user.succeed("up --detach --name dev").await;
    assert_eq!(user.status("dev").await["address"], address);
    assert!(directory.join("mizzen.log.1").exists());
    user.succeed("down --name dev --purge").await;
    assert!(!directory.exists(), "every file of a server is deleted");
    user.mizzen("down --name dev").await.expect(3);
    user.mizzen("status --name dev").await.expect(3);
    let said = user.succeed("status").await;
    assert_eq!(
        said,
        "there are no clusters; start one with: mizzen up --detach\n"
    );
}

/// A pid file would name a process that has nothing to do with the cluster.
#[tokio::test]
async fn the_pid_of_a_killed_cluster_is_not_trusted() {
    let user = User::new();
    user.succeed("up --detach --name dev").await;
    let pid = user.signal("dev", Signal::SIGKILL).await;
    while user.status("dev").await["state"] != "stopped" {}
    let record = user.root().join("dev/cluster.json");
    let text = std::fs::read_to_string(&record).unwrap();
    let own = format!("\"pid\":{}", std::process::id());
    let text = text.replace(&format!("\"pid\":{pid}"), &own);
    assert!(text.contains(&own), "{text}");
    std::fs::write(&record, text).unwrap();

    assert_eq!(user.status("dev").await["state"], "stopped");
    assert_eq!(
        user.succeed("down --name dev").await,
        "cluster dev is not running\n"
    );
    user.succeed("up --detach --name dev").await;
    assert_eq!(user.status("dev").await["state"], "ready");
}

#[tokio::test]
async fn a_failure_in_the_background_is_shown() {
    let user = User::new();
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = holder.local_addr().unwrap().port();
    let failed = user
        .mizzen(&format!("up --detach --name dev --port {port}"))
        .await;
    failed.expect(1).with_error(&[&format!(
        "mizzen up: port {port} is in use by another process"
    )]);
    let failed = user
        .mizzen("up --detach --name other --scheduler-config none.yaml")
        .await;
    failed.expect(1).with_error(&["none.yaml"]);
    user.mizzen("up --detach --name other --nodes many")
        .await
        .expect(2)
        .with_error(&["invalid value 'many'"]);
    assert_eq!(user.status("dev").await["state"], "stopped");
    user.succeed("down --name dev --purge").await;
    assert!(!user.root().join("dev").exists());
}

#[tokio::test]
async fn a_start_is_listed_and_can_be_interrupted() {
    let user = User::new();
    // The server waits for a configuration that is never written.
    mkfifo(&user.path().join("fifo"), Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    let parent = user
        .command("up --detach --name dev --scheduler-config fifo")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let status = loop {
        let status = user.mizzen("status --name dev").await;
        if status.code != 3 {
            break status.expect(5);
        }
    };
    assert!(status.stdout.contains(" starting "), "{status:?}");
    status.with_error(&["cluster dev is starting"]);
    let again = user.mizzen("up --detach --name dev").await.expect(4);
    again.with_error(&["cluster dev runs already (pid "]);

    let pid = i32::try_from(parent.id().unwrap()).unwrap();
    kill(Pid::from_raw(pid), Signal::SIGINT).unwrap();
    let output = timeout(STEP_TIMEOUT, parent.wait_with_output()).await;
    let output = output.expect("it ends in time").unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert_eq!(user.status("dev").await["state"], "stopped");
}

#[tokio::test]
async fn of_two_starts_at_the_same_time_one_succeeds() {
    let user = User::new();
    let arguments = "up --detach --name dev --in-memory";
    let (a, b) = tokio::join!(user.mizzen(arguments), user.mizzen(arguments));
    let (won, lost) = if a.code == 0 { (a, b) } else { (b, a) };
    won.expect(0);
    lost.expect(4).with_error(&["cluster dev runs already"]);
    assert_eq!(user.status("dev").await["state"], "ready");
    let files = std::fs::read_dir(user.root().join("dev")).unwrap();
    let logs = files
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("mizzen.log"));
    assert_eq!(logs.collect::<Vec<_>>(), ["mizzen.log"]);
}

#[tokio::test]
async fn clusters_run_side_by_side() {
    let user = User::new();
    let (default, dev) = tokio::join!(
        user.succeed("up --detach --port 0"),
        user.succeed("up --detach --name dev --in-memory"),
    );
    assert!(
        default.ends_with("stop it with: mizzen down\n"),
        "{default}"
    );
    assert!(
        dev.ends_with("stop it with: mizzen down --name dev\n"),
        "{dev}"
    );
    let table = user.succeed("status").await;
    let names: Vec<&str> = table
        .lines()
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    assert_eq!(names, ["NAME", "default", "dev"]);

    // The directory of the default cluster has the other one in it.
    let said = user.succeed("down --purge").await;
    assert!(
        said.contains("deleted the data of cluster default\n"),
        "{said}"
    );
    assert!(!user.root().join("ca.crt").exists());
    assert_eq!(user.status("dev").await["state"], "ready");
    let said = user.succeed("down --all --purge").await;
    assert!(said.contains("stopped cluster dev"), "{said}");
    assert_eq!(user.succeed("down --all").await, "there are no clusters\n");
}

#[tokio::test]
async fn a_cluster_that_hangs_is_not_ready_and_can_be_killed() {
    let user = User::new();
    user.succeed("up --detach --name dev --in-memory").await;
    user.signal("dev", Signal::SIGSTOP).await;
    let status = user.mizzen("status --name dev").await.expect(5);
    assert!(status.stdout.contains(" not ready "), "{status:?}");
    status.with_error(&["cluster dev is not ready"]);
    let failed = user
        .mizzen("down --name dev --timeout 2500ms")
        .await
        .expect(1);
    failed.with_error(&[
        "waiting until cluster dev stops … (",
        "did not stop within 2 s",
        "mizzen down --name dev --force",
    ]);
    user.succeed("down --name dev --timeout 0s --force").await;
    assert_eq!(user.status("dev").await["state"], "stopped");
}

#[tokio::test]
async fn a_data_directory_is_a_cluster_without_a_name() {
    let user = User::new();
    std::fs::create_dir(user.path().join("data")).unwrap();
    std::fs::write(user.path().join("data/notes.txt"), "mine").unwrap();
    let said = user.succeed("up --detach --data-dir ./data --port 0").await;
    let directory = user.path().join("data");
    assert!(
        said.ends_with(&format!("mizzen down --data-dir {}\n", directory.display())),
        "{said}"
    );
    user.succeed("status --data-dir ./data").await;
    user.mizzen("apiserver --data-dir ./data --port 0")
        .await
        .expect(4);
    let said = user.succeed("down --data-dir ./data --purge").await;
    assert!(said.contains("data, which has other files\n"), "{said}");
    let left: Vec<_> = std::fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["notes.txt"]);
    user.mizzen("down --data-dir ./data --purge")
        .await
        .expect(3);
    user.mizzen("down --data-dir /nowhere").await.expect(3);
}

#[tokio::test]
async fn arguments_that_name_no_cluster_are_rejected() {
    let user = User::new();
    for (arguments, expected) in [
        (
            "up --name Dev",
            "a lowercase RFC 1123 label must consist of",
        ),
        ("up --name envtest", "this name is reserved"),
        ("down --name a.b", "must not contain dots"),
        ("up --name dev --data-dir ./data", "cannot be used with"),
        ("up --detach --in-memory", "add --name to --in-memory"),
        ("down --all --name dev", "cannot be used with"),
        (
            "status --output table",
            "[possible values: text, json, yaml]",
        ),
    ] {
        user.mizzen(arguments)
            .await
            .expect(2)
            .with_error(&[expected]);
    }
    assert!(!user.root().exists());
}
