//! A server whose etcd does not answer: health names etcd, reads of the cache and running watches go on, everything
//! else fails with the reason, and afterwards the watches have no gap.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::client::{Answer, Client, Events};
use crate::etcd_server::{Cluster, Options, installed};
use crate::linearizable::network::{Between, Cut, End, Network};
use crate::process::{Home, Process, STEP_TIMEOUT};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// The deadline of a call to etcd.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// How much later a response may come on a busy machine.
const SLACK: Duration = Duration::from_secs(5);
/// Between two requests of a client that waits.
const PAUSE: Duration = Duration::from_millis(20);
/// How long health checks wait for etcd.
const HEALTH: &str = "--etcd-healthcheck-timeout=300ms";
const READINESS: &str = "--etcd-readycheck-timeout=300ms";

/// An etcd that keeps what it has acknowledged when it is killed.
fn durable() -> Options {
    Options {
        is_durable: true,
        ..Options::default()
    }
}

fn home() -> Home {
    Home::on_disk().with(HEALTH).with(READINESS)
}

async fn create(client: &Client, name: &str) -> Answer {
    let object = json!({ "metadata": { "name": name } });
    client.post(CONFIG_MAPS, object.to_string()).await
}

fn names(list: &Value) -> BTreeSet<String> {
    let items = list["items"].as_array().unwrap().iter();
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
    items.map(name).collect()
}

/// A watch after all that is there.
async fn watch(client: &Client) -> Events {
    let list = client.get(CONFIG_MAPS).await.expect(200).json();
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!("{CONFIG_MAPS}?watch=true&resourceVersion={version}");
    client.watch(&path).await
}

/// Adds what the watch tells to `seen`, up to the creation of `last`. Nothing is told twice.
async fn see_until(events: &mut Events, seen: &mut BTreeSet<String>, last: &str) {
    while !seen.contains(last) {
        let event = events.next_name().await;
        let name = event.strip_prefix("ADDED ").expect("only creations");
        assert!(seen.insert(name.to_owned()), "{name} is told twice");
    }
}

/// Creates `last`, and asserts that the watch has told every object of the list once.
async fn check_without_gap(client: &Client, events: &mut Events, mut seen: BTreeSet<String>) {
    create(client, "last").await.expect(201);
    see_until(events, &mut seen, "last").await;
    assert_eq!(
        names(&client.get(CONFIG_MAPS).await.expect(200).json()),
        seen
    );
}

/// What is there before the outage.
fn before() -> BTreeSet<String> {
    BTreeSet::from(["before".to_owned()])
}

/// The health endpoints name etcd and fail.
async fn check_unhealthy(client: &Client) {
    for (path, checks) in [
        ("/livez?verbose", &["etcd"][..]),
        ("/readyz", &["etcd", "etcd-readiness"]),
        ("/healthz", &["etcd"]),
    ] {
        let unwell = client.get(path).await.expect(500).text();
        let failed: Vec<_> = unwell
            .lines()
            .filter_map(|line| line.strip_prefix("[-]"))
            .collect();
        let expected = checks
            .iter()
            .map(|name| format!("{name} failed: reason withheld"));
        assert_eq!(failed, expected.collect::<Vec<_>>(), "{path}");
    }
    let own = client.get("/readyz/etcd").await.expect(500).text();
    assert!(own.contains("error getting data from etcd: "), "{own}");
}

/// The names of the objects in the cache, as it is.
async fn cached_names(client: &Client) -> BTreeSet<String> {
    let path = format!("{CONFIG_MAPS}?resourceVersion=0");
    names(&client.get(&path).await.expect(200).json())
}

/// What is answered from the cache.
async fn check_cached(client: &Client) {
    assert_eq!(cached_names(client).await, before());
    let own = format!("{CONFIG_MAPS}/before?resourceVersion=0");
    client.get(&own).await.expect(200);
}

/// Writes and consistent reads fail by the deadline, with this status and reason.
async fn check_failing(client: &Client, status: u16, reason: &str) {
    let began = Instant::now();
    let own = format!("{CONFIG_MAPS}/before");
    let answers = tokio::join!(
        create(client, "unknown"),
        client.get(CONFIG_MAPS),
        client.get(&own)
    );
    for answer in [answers.0, answers.1, answers.2] {
        let text = answer.text();
        assert_eq!(answer.status, status, "{text}");
        assert!(text.contains(reason), "{text}");
    }
    let elapsed = began.elapsed();
    assert!(elapsed < CALL_TIMEOUT + SLACK, "after {elapsed:?}");
}

/// Waits until the server is ready again.
async fn recover(client: &Client) {
    let ready = async {
        while client.get("/readyz").await.status != 200 {
            sleep(PAUSE).await;
        }
    };
    timeout(STEP_TIMEOUT, ready).await.expect("it recovers");
    client.get("/livez").await.expect(200);
}

/// A server with an object, and a watch.
struct Served {
    client: Client,
    events: Events,
    _server: Process,
    _home: Home,
}

impl Served {
    async fn start(etcd: &Cluster) -> Served {
        let home = home();
        let server = home
            .start_with(&["--etcd-servers", &etcd.endpoint(0)])
            .await;
        let client = server.admin().await;
        create(&client, "before").await.expect(201);
        Served {
            events: watch(&client).await,
            client,
            _server: server,
            _home: home,
        }
    }
}

#[tokio::test]
async fn while_etcd_is_paused_calls_fail_by_their_deadline_and_the_cache_is_served() {
    for etcd in installed().into_iter().take(1) {
        let etcd = etcd.start(durable()).await;
        let mut served = Served::start(&etcd).await;
        let client = &served.client;
        etcd.pause(0);
        check_unhealthy(client).await;
        check_cached(client).await;
        let endpoint = etcd.endpoint(0);
        let reason = format!("context deadline exceeded: no response from {endpoint}");
        check_failing(client, 504, &reason).await;
        check_unhealthy(client).await;
        check_cached(client).await;
        etcd.resume(0);
        recover(client).await;
        // The write that timed out may have been executed nevertheless: watch and list agree on it.
        check_without_gap(client, &mut served.events, before()).await;
    }
}

#[tokio::test]
async fn while_etcd_is_dead_calls_fail_with_the_reason_and_it_goes_on_after_a_restart() {
    for etcd in installed().into_iter().take(1) {
        let mut etcd = etcd.start(durable()).await;
        let mut served = Served::start(&etcd).await;
        let client = &served.client;
        etcd.kill(0);
        check_unhealthy(client).await;
        check_cached(client).await;
        let reason = format!("connection to {}: ", etcd.endpoint(0));
        check_failing(client, 500, &reason).await;
        check_cached(client).await;
        etcd.restart(0).await;
        recover(client).await;
        check_without_gap(client, &mut served.events, before()).await;
    }
}

#[tokio::test]
async fn a_server_that_was_cut_off_has_what_another_wrote_meanwhile() {
    for etcd in installed().into_iter().take(1) {
        let etcd = etcd.start(Options::default()).await;
        let network = Network::new();
        let target = etcd.endpoint(0).rsplit(':').next().unwrap().parse();
        let port = network.port(End::Server(0), 0, target.unwrap()).await;
        let through_network = format!("http://127.0.0.1:{port}");
        let home = home();
        let start = async |etcd: &str| home.start_with(&["--etcd-servers", etcd]).await;
        let (cut_off, writer) = (
            start(&through_network).await,
            start(&etcd.endpoint(0)).await,
        );
        let (client, writer) = (cut_off.admin().await, writer.admin().await);
        create(&writer, "before").await.expect(201);
        let (mut events, mut seen) = (watch(&client).await, before());
        for cut in [Cut::Reset, Cut::Hold] {
            network.cut(Between::Server(0), cut);
            check_unhealthy(&client).await;
            for n in 0..5 {
                let created = create(&writer, &format!("{cut:?}-{n}").to_lowercase()).await;
                created.expect(201);
            }
            assert_eq!(cached_names(&client).await, seen);
            network.heal();
            recover(&client).await;
            let last = format!("{cut:?}-4").to_lowercase();
            see_until(&mut events, &mut seen, &last).await;
        }
        check_without_gap(&client, &mut events, seen).await;
    }
}
