//! Concurrent clients of servers that are killed and paused see what one server could have answered.
//!
//! `servers` starts the servers of a run and `nemesis` disturbs them. `clients` and `watchers` send requests through a
//! `proxy` and record what they see; `mizzen-linearizability` checks that. The proxy forwards, unless a test plants a bug
//! in it, which the check must find.
//!
//! `MIZZEN_HISTORIES=100` checks more histories than a test run does, `MIZZEN_SEED` repeats the choices of a run.

mod clients;
mod nemesis;
mod proxy;
mod recorder;
mod servers;
mod watchers;

use std::sync::Arc;

use mizzen_linearizability::{History, check};
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::clients::RecordedClient;
use self::proxy::{PlantedBug, Proxy};
use self::recorder::Recorder;
use self::servers::Servers;
use self::watchers::Watcher;
use crate::process::{Home, STEP_TIMEOUT};
use crate::random::{Random, rounds};

const N_CLIENTS: usize = 8;
const N_WATCHERS: usize = 2;
/// The number of requests of each client.
const N_REQUESTS: usize = 60;

#[tokio::test(flavor = "multi_thread")]
async fn histories_on_disk_are_linearizable() {
    check_histories(|| vec![Home::on_disk()]).await;
}

/// Checks histories of the servers of `homes`.
pub(crate) async fn check_histories(homes: impl Fn() -> Vec<Home>) {
    let mut random = Random::from_env();
    let n_histories = rounds("MIZZEN_HISTORIES", 2);
    let (mut n_operations, mut n_unknown, mut n_relists) = (0, 0, 0);
    for number in 0..n_histories {
        let servers = Servers::start(homes()).await;
        let history = record(servers, Proxy::default(), random.next(), true).await;
        let violations = check(&history);
        let lines: Vec<String> = violations.iter().map(ToString::to_string).collect();
        assert!(
            violations.is_empty(),
            "history {number}:\n{}",
            lines.join("\n")
        );
        n_operations += history.operations.len() + history.lists.len();
        n_unknown += recorder::n_unknown(&history);
        n_relists += history.watches.len() - N_WATCHERS;
    }
    println!(
        "{n_histories} histories, {n_operations} requests, {n_unknown} without a response, \
         {n_relists} watches that had to list again"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_read_is_found() {
    check_found(PlantedBug::StaleRead, "not linearizable").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledged_write_that_is_dropped_is_found() {
    check_found(PlantedBug::DroppedWrite, "not linearizable").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_event_is_found() {
    check_found(PlantedBug::LostEvent, "watch ").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_two_revisions_is_found() {
    check_found(PlantedBug::MixedList, "list at ").await;
}

/// Expects that the check finds a bug that is in the proxy.
async fn check_found(bug: PlantedBug, message: &str) {
    let mut random = Random::from_env();
    let servers = Servers::start(vec![Home::in_memory()]).await;
    let history = record(servers, Proxy::with(bug), random.next(), false).await;
    let violations: Vec<String> = check(&history).iter().map(ToString::to_string).collect();
    let is_found = violations.iter().any(|line| line.contains(message));
    assert!(is_found, "{violations:?}");
}

/// Runs clients and watchers, and disturbs the servers meanwhile if `disturb` is set.
async fn record(servers: Servers, proxy: Proxy, seed: u64, disturb: bool) -> History {
    let mut random = Random(seed);
    let servers = Arc::new(servers);
    let recorder = Arc::new(Recorder::new(proxy));
    let mut watchers = JoinSet::new();
    for number in 0..N_WATCHERS {
        let random = Random(random.next());
        watchers.spawn(Watcher::new(number, &servers, &recorder, random).run());
    }
    let mut clients = JoinSet::new();
    for number in 0..N_CLIENTS {
        let client = RecordedClient::new(number, &servers, &recorder, Random(random.next()));
        clients.spawn(client.run(N_REQUESTS));
    }
    let all_requests = async { while clients.join_next().await.transpose().unwrap().is_some() {} };
    match disturb {
        true => {
            let nemesis = nemesis::disturb(&servers, &recorder, Random(random.next()));
            tokio::join!(all_requests, nemesis);
        }
        false => all_requests.await,
    }
    // What the watchers must have seen before they end: all of it, up to a last write.
    let last = RecordedClient::new(N_CLIENTS, &servers, &recorder, Random(random.next()));
    recorder.end_at(last.write_last().await);
    let ended = async { while watchers.join_next().await.transpose().unwrap().is_some() {} };
    timeout(STEP_TIMEOUT, ended)
        .await
        .expect("watches see the last write");
    servers.stop().await;
    recorder.history()
}
