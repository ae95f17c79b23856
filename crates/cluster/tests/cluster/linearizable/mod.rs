//! Concurrent clients of servers that are killed and paused see what one server could have answered.
//!
//! `servers` starts the servers of a run, maybe on `etcd` with a `network` between all of them, and `nemesis` disturbs them. `clients` and `watchers` send requests through a
//! `proxy` and record what they see; `mizzen-linearizability` checks that. The proxy forwards, unless a test plants a bug
//! in it, which the check must find. `coverage` counts what happened.
//!
//! `MIZZEN_HISTORIES=100` checks more histories than a test run does, `MIZZEN_SEED` repeats the choices of a run.

pub(crate) mod clients;
mod coverage;
pub(crate) mod etcd;
mod nemesis;
pub(crate) mod network;
pub(crate) mod proxy;
pub(crate) mod recorder;
pub(crate) mod servers;
pub(crate) mod watchers;

use std::sync::Arc;

use mizzen_linearizability::{History, Scope, check};
use tokio::task::JoinSet;

use self::clients::{RecordedClient, Workload};
use self::coverage::{Counts, ETCD_FAULTS, REQUESTS, SERVER_FAULTS};
use self::etcd::EtcdCluster;
use self::proxy::{PlantedBug, Proxy};
use self::recorder::{LABELS, PREFIX, Recorder};
use self::servers::Servers;
use crate::etcd_server;
use crate::process::Home;
use crate::random::{Random, rounds};

const N_CLIENTS: usize = 8;
const N_KEYS: usize = 5;
const N_SERVERS: usize = 3;
/// The number of requests of all clients.
const N_REQUESTS: usize = 480;

#[tokio::test(flavor = "multi_thread")]
async fn histories_on_disk_are_linearizable() {
    let start = async |_| Servers::start(vec![Home::on_disk()]).await;
    check_histories(start, &SERVER_FAULTS).await;
}

/// Three servers on three members of etcd, any of which fail, and so does the network between them. Each history has keys of
/// its own.
#[tokio::test(flavor = "multi_thread")]
async fn histories_of_three_servers_on_etcd_are_linearizable() {
    for program in etcd_server::installed().into_iter().rev().take(1) {
        let etcd = Arc::new(EtcdCluster::start(&program).await);
        let start = async |number: usize| {
            let prefix = format!("/history-{number}");
            Servers::start_on_etcd(etcd.clone(), N_SERVERS, &prefix).await
        };
        check_histories(start, &[&SERVER_FAULTS[..], &ETCD_FAULTS].concat()).await;
    }
}

/// Which objects are watched.
fn watched() -> [Scope; 5] {
    let key = format!("{PREFIX}0");
    let [one, other] = LABELS.map(|label| Scope::Label(label.into()));
    [Scope::All, Scope::All, Scope::Key(key), one, other]
}

/// Checks histories of servers, each of which has a number. Many of them have all `faults`.
async fn check_histories(start: impl AsyncFn(usize) -> Servers, faults: &[&'static str]) {
    let mut counts = Counts::default();
    let mut random = Random::from_env();
    let n_histories = rounds("MIZZEN_HISTORIES", 2);
    let (mut n_operations, mut n_unknown, mut n_relists) = (0, 0, 0);
    for number in 0..n_histories {
        let servers = start(number).await;
        let (history, counted) = record(servers, Proxy::default(), random.next(), true).await;
        assert_linearizable(&history);
        counts.merge(&counted);
        n_operations += history.operations.len() + history.reads.len() + history.lists.len();
        n_unknown += recorder::n_unknown(&history);
        n_relists += history.watches.len() - watched().len();
    }
    println!(
        "{n_histories} histories, {n_operations} requests, {n_unknown} without a response, \
         {n_relists} watches that had to list again"
    );
    println!("{counts}");
    let missing = counts.missing(n_histories, [&REQUESTS[..], faults].concat());
    assert!(missing.is_empty(), "never happened: {missing:?}");
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
    let (history, _) = record(servers, Proxy::with(bug), random.next(), false).await;
    assert!(is_found(&history, message), "{:?}", check(&history));
}

/// Whether the check says `message`.
fn is_found(history: &History, message: &str) -> bool {
    let violations = check(history);
    let mut lines = violations.iter().map(ToString::to_string);
    lines.any(|line| line.contains(message))
}

/// In how many histories at most a bug of one of several servers is found.
const N_PLANTED: usize = 3;

/// The bugs are those of the first of three servers on etcd. Meanwhile servers, members and connections fail as in other
/// histories, so that responses are lost, and watches go on at other servers.
#[tokio::test(flavor = "multi_thread")]
async fn bugs_of_one_of_three_servers_are_found_while_others_fail() {
    for program in etcd_server::installed().into_iter().rev().take(1) {
        let etcd = Arc::new(EtcdCluster::start(&program).await);
        let mut random = Random::from_env();
        for (bug, message) in [
            (PlantedBug::StaleRead, "not linearizable"),
            (PlantedBug::DroppedWrite, "not linearizable"),
            (PlantedBug::LostEvent, "watch "),
            (PlantedBug::MixedList, "list at "),
        ] {
            let mut n_histories = 0;
            let mut is_found_yet = false;
            while !is_found_yet {
                n_histories += 1;
                assert!(n_histories <= N_PLANTED, "{bug:?} is not found");
                let prefix = format!("/{bug:?}-{n_histories}");
                let servers = Servers::start_on_etcd(etcd.clone(), N_SERVERS, &prefix).await;
                let (history, counts) =
                    record(servers, Proxy::with(bug), random.next(), true).await;
                println!("{bug:?} {n_histories}: {counts}");
                is_found_yet = is_found(&history, message);
            }
        }
    }
}

/// Runs clients and watchers, and disturbs the servers meanwhile if `disturb` is set.
async fn record(servers: Servers, proxy: Proxy, seed: u64, disturb: bool) -> (History, Counts) {
    let mut random = Random(seed);
    let servers = Arc::new(servers);
    let recorder = Arc::new(Recorder::new(proxy, N_REQUESTS));
    let scopes = watched();
    let watchers = watchers::spawn(&scopes, &servers, &recorder, &mut random);
    let workload = Workload {
        keys: (0..N_KEYS).map(|n| format!("{PREFIX}{n}")).collect(),
        n_lists: 3,
        large: false,
    };
    let client = |number, seed| {
        RecordedClient::new(number, &servers, &recorder, Random(seed), workload.clone())
    };
    let mut clients = JoinSet::new();
    for number in 0..N_CLIENTS {
        clients.spawn(client(number, random.next()).run());
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
    recorder.proxy.fix();
    let last = client(N_CLIENTS, random.next()).write_last(&scopes).await;
    watchers::finish(watchers, &recorder, last).await;
    servers.stop().await;
    (recorder.history(), recorder.counts())
}

/// Expects that one server could have given all answers.
#[track_caller]
pub(crate) fn assert_linearizable(history: &History) {
    let violations = check(history);
    let lines: Vec<String> = violations.iter().map(ToString::to_string).collect();
    assert!(violations.is_empty(), "{}", lines.join("\n"));
}
