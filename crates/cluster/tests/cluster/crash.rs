//! Durability after a kill, and errors of damaged data.

use std::fs;
use std::path::PathBuf;
use std::process::Output;
use std::sync::Arc;

use mizzen_linearizability::{History, Outcome, Scope};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::etcd_server;
use crate::linearizable::assert_linearizable;
use crate::linearizable::clients::{RecordedClient, Workload};
use crate::linearizable::etcd::{EtcdCluster, N_MEMBERS};
use crate::linearizable::proxy::Proxy;
use crate::linearizable::recorder::{PREFIX, Recorder};
use crate::linearizable::servers::Servers;
use crate::linearizable::watchers;
use crate::process::Home;
use crate::random::{Random, rounds};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const N_WRITERS: usize = 32;
const N_WATCHERS: usize = 4;
/// How often one server is killed in a test run.
pub(crate) const N_ROUNDS: usize = 8;
/// The number of objects of each writer.
const N_NAMES: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_write_is_lost_after_a_kill() {
    check_kills(Servers::start(vec![Home::on_disk()]).await, N_ROUNDS).await;
}

/// Three servers on three members of etcd, all of which are killed.
#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_write_is_lost_after_a_kill_of_servers_and_members_of_etcd() {
    for program in etcd_server::installed().into_iter().rev().take(1) {
        let etcd = Arc::new(EtcdCluster::start(&program).await);
        check_kills(Servers::start_on_etcd(etcd, 3, "/crash").await, 3).await;
    }
}

/// Kills servers, and members of the etcd below them, during writes: no acknowledged write is lost, none that was rejected is
/// there, and watches have no gap and no repeat. `MIZZEN_CRASH_ROUNDS=500` kills more often than a test run does.
pub(crate) async fn check_kills(servers: Servers, n_rounds: usize) {
    let mut random = Random::from_env();
    let n_rounds = rounds("MIZZEN_CRASH_ROUNDS", n_rounds);
    let servers = Arc::new(servers);
    let recorder = Arc::new(Recorder::new(Proxy::default(), usize::MAX));
    let scopes = [const { Scope::All }; N_WATCHERS];
    let watchers = watchers::spawn(&scopes, &servers, &recorder, &mut random);
    let client = |number: usize, seed| {
        let workload = Workload {
            keys: (0..N_NAMES)
                .map(|n| format!("{PREFIX}{number}-{n}"))
                .collect(),
            n_lists: 0,
            large: true,
        };
        RecordedClient::new(number, &servers, &recorder, Random(seed), workload)
    };
    let mut writers = JoinSet::new();
    for number in 0..N_WRITERS {
        writers.spawn(client(number, random.next()).run());
    }
    let mut reader = client(N_WRITERS, random.next());
    for _ in 0..n_rounds {
        let n_requests = 2 * N_WRITERS + random.below(250) as usize;
        recorder.attempted(recorder.n_attempts() + n_requests).await;
        match servers.etcd().filter(|_| random.below(2) == 0) {
            // The member is away for some requests.
            Some(etcd) => {
                let over = recorder.attempted(recorder.n_attempts() + N_WRITERS);
                etcd.kill(random.below(N_MEMBERS as u64) as usize, over)
                    .await;
            }
            None => {
                servers
                    .kill(random.below(servers.len() as u64) as usize)
                    .await;
            }
        }
        reader.list().await;
    }
    recorder.stop_clients();
    writers.join_all().await;
    let last = reader.write_last(&scopes).await;
    watchers::finish(watchers, &recorder, last).await;
    servers.stop().await;
    let history = recorder.history();
    assert_linearizable(&history);
    summarize(&history, n_rounds);
}

fn summarize(history: &History, n_rounds: usize) {
    let count = |outcome: fn(&Outcome) -> bool| {
        let operations = history.operations.iter().map(|it| &it.outcome);
        operations.filter(|it| outcome(it)).count()
    };
    let n_acknowledged = count(|it| matches!(it, Outcome::Stored { .. } | Outcome::Deleted));
    let n_rejected = count(|it| {
        matches!(
            it,
            Outcome::NotFound | Outcome::AlreadyExists | Outcome::Conflict
        )
    });
    let n_unknown = count(|it| *it == Outcome::Unknown);
    let n_events: usize = history.watches.iter().map(|it| it.events.len()).sum();
    let n_relists = history.watches.len() - N_WATCHERS;
    println!(
        "{n_rounds} kills, {n_acknowledged} acknowledged writes, {n_rejected} rejected requests, \
         {n_unknown} without a response; {n_events} events, {n_relists} watches that had to list again"
    );
    assert!(
        n_acknowledged > n_rounds * N_WRITERS / 2,
        "{n_acknowledged} writes were acknowledged"
    );
}

#[tokio::test]
async fn a_second_server_in_the_same_data_directory_is_rejected() {
    let home = Home::on_disk();
    let process = home.start().await;
    check_refused(
        home.fail_to_start(0).await,
        &["/data runs already (pid ", &process.address],
    );
    process.admin().await.get("/readyz").await.expect(200);
    process.stop().await;
}

#[tokio::test]
async fn the_error_names_a_secure_port_in_use() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    check_refused(
        Home::in_memory().fail_to_start(port).await,
        &[&port.to_string(), "in use"],
    );
}

#[tokio::test]
async fn the_error_names_an_unusable_data_directory() {
    let home = Home::on_disk();
    fs::write(home.data_dir(), "a file").unwrap();
    check_refused(home.fail_to_start(0).await, &["data", "ot a directory"]);
}

#[tokio::test]
async fn a_log_with_a_changed_byte_is_rejected_and_not_changed() {
    check_damage(|bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
    })
    .await;
}

#[tokio::test]
async fn a_truncated_log_is_rejected_and_not_changed() {
    check_damage(|bytes| bytes.truncate(bytes.len() / 2)).await;
}

#[tokio::test]
async fn a_log_full_of_zeros_is_rejected_and_not_changed() {
    check_damage(|bytes| bytes.fill(0)).await;
}

/// Damages the log of a stopped server, and expects an error and unchanged files.
async fn check_damage(damage: impl FnOnce(&mut Vec<u8>)) {
    let home = Home::on_disk();
    let process = home.start().await;
    let client = process.admin().await;
    for number in 0..20 {
        let body = format!(
            r#"{{"metadata":{{"name":"n{number}"}},"data":{{"a":"{}"}}}}"#,
            "x".repeat(500)
        );
        client.post(CONFIG_MAPS, body).await.expect(201);
    }
    process.stop().await;

    let log = log_file(&home);
    let mut bytes = fs::read(&log).unwrap();
    damage(&mut bytes);
    fs::write(&log, &bytes).unwrap();
    check_refused(
        home.fail_to_start(0).await,
        &[log.to_str().unwrap(), "damaged"],
    );
    assert_eq!(fs::read(&log).unwrap(), bytes);
}

#[tokio::test]
async fn a_key_that_is_missing_beside_data_is_not_generated() {
    let home = Home::on_disk();
    home.start().await.stop().await;
    for (name, remedy) in [
        ("sa.key", "--service-account-signing-key-file"),
        ("ca.crt", "backup"),
        ("ca.key", "backup"),
    ] {
        let file = home.data_dir().join(name);
        let kept = fs::read(&file).unwrap();
        fs::remove_file(&file).unwrap();
        let named = format!("{} is missing beside existing data", file.display());
        check_refused(home.fail_to_start(0).await, &[&named, remedy]);
        assert!(!file.exists());
        fs::write(&file, kept).unwrap();
    }
    home.start().await.stop().await;
}

fn log_file(home: &Home) -> PathBuf {
    let files = fs::read_dir(home.data_dir())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    files
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .max()
        .expect("a log")
}

/// Asserts a failed start with a one-line error.
#[track_caller]
fn check_refused(output: Output, words: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "it started");
    for word in words {
        assert!(text.contains(word), "no {word:?} in {text:?}");
    }
    assert!(!text.contains("panicked"), "{text}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "",
        "it said that it is ready"
    );
}
