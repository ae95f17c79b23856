//! How events get where they go, and what happens if they do not.

use std::path::Path;
use std::time::Duration;

use mizzen_apiserver::Options;
use mizzen_audit::{
    AuditLogFormat, AuditOptions, AuditWebhookOptions, BatchOptions, Delivery, DeliveryMode,
    LogFile, Throttle, Truncation,
};
use mizzen_value::{Value, json};
use tokio::time::Instant;

use super::{ALL, Audited, METADATA, delivery, log_file, policy};
use crate::peer::{Peer, Reaction};
use crate::rig::{CONFIG_MAPS, Rig};

async fn counted(rig: &Rig, name: &str) -> Option<u64> {
    let text = rig.get("/metrics").await.expect(200).body;
    let line = text
        .str()
        .lines()
        .find(|line| line.starts_with(&format!("apiserver_audit_{name} ")));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
}

#[tokio::test(start_paused = true)]
async fn audit_events_are_counted() {
    let audited = Audited::by("{level: None, verbs: [get]}, {level: Metadata}").await;
    let before = counted(&audited.rig, "event_total").await.unwrap();
    audited.rig.make("one", "x").await;
    audited
        .rig
        .get(&format!("{CONFIG_MAPS}/one"))
        .await
        .expect(200);
    assert_eq!(counted(&audited.rig, "event_total").await, Some(before + 2));
    assert_eq!(
        counted(&audited.rig, "level_total{level=\"Metadata\"}").await,
        Some(2),
        "with the first namespace"
    );
    assert_eq!(
        counted(&audited.rig, "level_total{level=\"None\"}").await,
        Some(5),
        "with the metrics"
    );
    assert_eq!(
        counted(&audited.rig, "requests_rejected_total").await,
        Some(0)
    );
}

#[tokio::test(start_paused = true)]
async fn the_legacy_format_is_one_line() {
    let audited = Audited::with(
        METADATA,
        |log| log.format = AuditLogFormat::Legacy,
        Options::default(),
    )
    .await;
    let headers = [
        ("audit-id", "1"),
        ("user-agent", "t"),
        ("impersonate-user", "jane"),
    ];
    let admin = mizzen_apiserver::User::master("admin");
    audited
        .rig
        .call_as(admin, &headers, "GET", CONFIG_MAPS, "")
        .await
        .expect(403);
    let text = audited.text();
    let expected = r#"2027-01-15T08:00:00Z AUDIT: id="1" stage="ResponseComplete" ip="<unknown>" method="list" user="admin" groups="\"system:masters\",\"system:authenticated\"" as="jane" asgroups="\"system:authenticated\"" user-agent="t" namespace="default" uri="/api/v1/namespaces/default/configmaps" response="403""#;
    assert_eq!(text.lines().last(), Some(expected));
    assert!(
        text.lines()
            .next()
            .unwrap()
            .ends_with(r#"response="<deferred>""#)
    );
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_delays_no_request_and_is_counted() {
    let audited = Audited::with(
        METADATA,
        |log| log.path = "/dev/full".into(),
        Options::default(),
    )
    .await;
    audited.rig.make("one", "x").await;
    assert_eq!(
        counted(&audited.rig, "error_total{plugin=\"log\"}").await,
        Some(5),
        "two of each write, and this one"
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_fails_if_a_blocking_backend_cannot_write_its_event() {
    let change = |log: &mut LogFile| {
        log.path = "/dev/full".into();
        log.delivery = delivery(DeliveryMode::BlockingStrict);
    };
    let rules = "{level: None, verbs: [get]}, {level: None, resources: [{resources: [namespaces]}]}, {level: Metadata}";
    let audited = Audited::with(rules, change, Options::default()).await;
    let refused = audited
        .rig
        .post(CONFIG_MAPS, r#"{"metadata":{"name":"one"}}"#)
        .await
        .expect(500);
    let expected =
        format!("Internal Server Error: \"{CONFIG_MAPS}\": failed to store audit event\n");
    assert_eq!(refused.body.str(), expected);
    audited
        .rig
        .get(&format!("{CONFIG_MAPS}/one"))
        .await
        .expect(404);
    assert_eq!(
        counted(&audited.rig, "requests_rejected_total").await,
        Some(1)
    );
}

#[tokio::test(start_paused = true)]
async fn buffered_events_are_written_when_the_server_stops() {
    let change = |log: &mut LogFile| {
        let batch = BatchOptions {
            size: 400,
            ..delivery(DeliveryMode::Batch).batch
        };
        log.delivery = Delivery {
            batch,
            ..delivery(DeliveryMode::Batch)
        };
    };
    let audited = Audited::with(METADATA, change, Options::default()).await;
    audited.rig.make("one", "x").await;
    assert_eq!(audited.lines(), [""; 0]);
    audited.rig.server.close().await;
    let expected = [
        "RequestReceived create configmaps//",
        "ResponseComplete create configmaps//one 201",
    ];
    assert_eq!(audited.lines()[2..], expected);
    audited.rig.make("two", "x").await;
    assert_eq!(
        counted(&audited.rig, "error_total{plugin=\"buffered\"}").await,
        Some(3),
        "nobody listens any more"
    );
}

#[tokio::test(start_paused = true)]
async fn a_large_event_is_truncated_or_lost() {
    let change = |log: &mut LogFile| {
        log.delivery.truncation = Some(Truncation {
            event: 1500,
            batch: 10_000,
        })
    };
    let audited = Audited::with(ALL, change, Options::default()).await;
    audited.rig.make("small", "x").await;
    assert!(!audited.last()["requestObject"].is_null());
    audited.rig.make("large", &"x".repeat(2000)).await;
    let event = audited.last();
    assert!(event["requestObject"].is_null() && event["responseObject"].is_null());
    assert_eq!(event["annotations"]["audit.k8s.io/truncated"].str(), "true");
    let agent = "a".repeat(1024);
    let admin = mizzen_apiserver::User::master("admin");
    audited
        .rig
        .call_as(
            admin,
            &[("user-agent", &agent)],
            "GET",
            &format!("{CONFIG_MAPS}?x={agent}"),
            "",
        )
        .await
        .expect(200);
    assert_eq!(audited.lines(), [""; 0]);
    assert_eq!(
        counted(&audited.rig, "error_total{plugin=\"truncate\"}").await,
        Some(2)
    );
}

/// A kubeconfig that leads to a server.
fn kubeconfig(directory: &Path, port: u16, bundle: &str) -> std::path::PathBuf {
    let path = directory.join("kubeconfig");
    let text = format!(
        "{{current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], users: [{{name: u, user: {{token: t}}}}], \
         clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:{port}/audit?x=1', certificate-authority-data: {bundle}}}}}]}}"
    );
    std::fs::write(&path, text).unwrap();
    path
}

async fn sending(port: u16, bundle: &str, delivery: Delivery) -> Rig {
    let directory = tempfile::tempdir().unwrap();
    let file = kubeconfig(directory.path(), port, bundle);
    let webhook = AuditWebhookOptions::load(&file, Duration::from_secs(10), delivery).unwrap();
    let rules = "{level: None, verbs: [get]}, {level: Metadata, omitStages: [RequestReceived]}";
    let setup = AuditOptions {
        policy: policy(rules),
        log: None,
        webhook: Some(webhook),
    };
    Rig::with(Options {
        audit: Some(setup),
        ..Options::default()
    })
    .await
}

fn batches(size: usize) -> Delivery {
    let throttle = Some(Throttle {
        rate: 10.0,
        burst: 15,
    });
    let batch = BatchOptions {
        buffer: 10,
        size,
        wait: Duration::from_secs(30),
        throttle,
    };
    Delivery {
        mode: DeliveryMode::Batch,
        batch,
        truncation: None,
    }
}

fn lists(peer: &Peer) -> Vec<Value> {
    peer.seen()
        .iter()
        .map(|request| json::parse(request.body()).unwrap())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_webhook_gets_batches_of_events() {
    let peer = Peer::answering(200, "{}").await;
    let rig = sending(peer.port, &peer.bundle(), batches(2)).await;
    rig.make("one", "x").await;
    rig.make("two", "x").await;
    rig.server.close().await;
    let request = &peer.seen()[0];
    assert_eq!(
        request.uri().path_and_query().unwrap().as_str(),
        "/audit",
        "as client-go makes it"
    );
    assert_eq!(request.headers()["authorization"], "Bearer t");
    let lists = lists(&peer);
    let sizes: Vec<usize> = lists
        .iter()
        .map(|list| list["items"].list().len())
        .collect();
    assert_eq!(sizes.iter().sum::<usize>(), 3);
    assert_eq!(sizes.len(), 2);
    assert_eq!(
        (lists[0]["kind"].str(), lists[0]["apiVersion"].str()),
        ("EventList", "audit.k8s.io/v1")
    );
    let item = &lists[0]["items"].list()[0];
    assert_eq!(
        (item["level"].str(), item["kind"].str()),
        ("Metadata", ""),
        "in a list an event does not say what it is"
    );
}

#[tokio::test(start_paused = true)]
async fn a_batch_waits_for_more_events_for_a_bounded_time() {
    let peer = Peer::answering(200, "{}").await;
    let rig = sending(peer.port, &peer.bundle(), batches(400)).await;
    let began = Instant::now();
    rig.make("one", "x").await;
    while peer.seen().is_empty() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let waited = began.elapsed();
    assert!(
        (Duration::from_secs(30)..Duration::from_secs(40)).contains(&waited),
        "{waited:?}"
    );
    assert_eq!(lists(&peer)[0]["items"].list().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_sent_to_an_unreachable_webhook_five_times() {
    let rig = sending(1, "", batches(1)).await;
    let began = Instant::now();
    rig.make("one", "x").await;
    assert!(
        began.elapsed() < Duration::from_secs(1),
        "nobody waits for it"
    );
    while counted(&rig, "error_total{plugin=\"webhook\"}").await != Some(2) {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    // 10 s, 15 s, 22.5 s and 33.75 s, each a little longer by chance.
    let took = began.elapsed();
    assert!(
        (Duration::from_secs(81)..Duration::from_secs(110)).contains(&took),
        "{took:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_recovers_gets_every_event() {
    let calls = std::sync::atomic::AtomicUsize::new(0);
    let peer = Peer::start(&["127.0.0.1"], move |_| {
        match calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 | 1 => Reaction::Reply(503, String::new()),
            _ => Reaction::Reply(200, "{}".into()),
        }
    })
    .await;
    let rig = sending(peer.port, &peer.bundle(), batches(3)).await;
    rig.make("one", "x").await;
    rig.make("two", "x").await;
    while peer.seen().len() < 3 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let lists = lists(&peer);
    assert_eq!(lists[0], lists[2]);
    assert_eq!(lists[2]["items"].list().len(), 3);
    assert_eq!(counted(&rig, "error_total{plugin=\"webhook\"}").await, None);
}

#[tokio::test(start_paused = true)]
async fn an_unresponsive_webhook_delays_blocking_requests_only() {
    let peer = Peer::start(&["127.0.0.1"], |_| Reaction::Hang).await;
    let rig = sending(peer.port, &peer.bundle(), batches(1)).await;
    let began = Instant::now();
    rig.make("one", "x").await;
    assert!(
        began.elapsed() < Duration::from_secs(1),
        "nobody waits for it"
    );
    let strict = sending(
        peer.port,
        &peer.bundle(),
        Delivery {
            mode: DeliveryMode::Blocking,
            ..batches(1)
        },
    )
    .await;
    let began = Instant::now();
    strict.make("one", "x").await;
    assert!(
        began.elapsed() >= Duration::from_secs(30),
        "each attempt may take half a minute"
    );
}

#[tokio::test(start_paused = true)]
async fn the_audit_log_is_private_and_created_at_start() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let log = log_file(directory.path().join("a/b/audit.log"));
    log.create().unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode(&log.path), mode(log.path.parent().unwrap())),
        (0o600, 0o700)
    );
    assert!(log_file("/proc/nowhere/audit.log".into()).create().is_err());
}
