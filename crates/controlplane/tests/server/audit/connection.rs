//! How requests end: completed, by a client that leaves, by a panic; here and behind an aggregated server.

use std::sync::Arc;
use std::time::Duration;

use mizzen_apiserver::{Options, User};
use mizzen_authorization::{Attributes, AttributesTarget, Authorizer, Decision, DecisionReason};
use mizzen_registry::BoxFuture;
use mizzen_value::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use super::{ALL, Audited, METADATA, line};
use crate::aggregation::{THINGS, in_front, read_until, shop};
use crate::network::Network;
use crate::peer::{Peer, Reaction};
use crate::rig::{CONFIG_MAPS, Rig};
use crate::streams::{PODS, add_node, add_pod};

/// Panics when asked about `/panic`, and never answers when asked about `/hang`; otherwise it is slow, and agrees.
#[derive(Debug)]
struct Moody;

impl Authorizer for Moody {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Decision> {
        let AttributesTarget::NonResource(path) = attributes.target else {
            return Box::pin(async { Decision::NoOpinion(DecisionReason::default()) });
        };
        Box::pin(async move {
            match path {
                "/panic" => panic!("oh no"),
                "/hang" => std::future::pending().await,
                _ => tokio::time::sleep(Duration::from_secs(2)).await,
            }
            Decision::Allow(DecisionReason::default())
        })
    }
}

async fn moody() -> Audited {
    let options = Options {
        authorizers: vec![Arc::new(Moody)],
        ..Options::default()
    };
    Audited::with(METADATA, |_| {}, options).await
}

fn jane() -> User {
    User {
        name: "jane".into(),
        ..User::default()
    }
}

async fn as_jane(rig: Rig, path: &'static str) -> u16 {
    rig.call_as(jane(), &[], "GET", path, "").await.status
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_audited() {
    let audited = moody().await;
    assert_eq!(as_jane(audited.rig.clone(), "/panic").await, 500);
    let events = audited.events();
    assert_eq!(
        events.iter().map(line).collect::<Vec<_>>(),
        ["RequestReceived get //", "Panic get // 500"]
    );
    let status = &events[1]["responseStatus"];
    assert_eq!(
        (status["message"].str(), status["reason"].str()),
        ("APIServer panic'd: oh no", "InternalError")
    );
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_early_is_audited() {
    let audited = moody().await;
    let gone = timeout(
        Duration::from_secs(5),
        as_jane(audited.rig.clone(), "/hang"),
    )
    .await;
    assert!(gone.is_err());
    let events = audited.events();
    assert_eq!(
        events.iter().map(line).collect::<Vec<_>>(),
        ["RequestReceived get //", "ResponseComplete get // 200"]
    );
    assert_eq!(
        events[1]["responseStatus"]["message"].str(),
        "Connection closed early"
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_times_out_is_audited() {
    let audited = moody().await;
    assert_eq!(as_jane(audited.rig.clone(), "/hang").await, 504);
    assert_eq!(line(&audited.last()), "ResponseComplete get // 504");
}

#[tokio::test(start_paused = true)]
async fn the_latency_of_a_slow_request_is_annotated() {
    let audited = moody().await;
    assert_eq!(as_jane(audited.rig.clone(), "/slow").await, 404);
    let event = audited.last();
    let said = |what: &str| {
        event["annotations"][format!("apiserver.latency.k8s.io/{what}").as_str()]
            .str()
            .to_owned()
    };
    let said = ["authorization", "total", "impersonation"].map(said);
    assert_eq!(said, ["2s", "2s", ""]);
}

/// The events of requests for things, once there are so many.
async fn things(audited: &Audited, wanted: usize) -> Vec<Value> {
    events_of(audited, "things", "", wanted).await
}

/// So many events about a resource, or a subresource.
async fn events_of(
    audited: &Audited,
    resource: &str,
    subresource: &str,
    wanted: usize,
) -> Vec<Value> {
    let mut found = Vec::new();
    for _ in 0..500 {
        let about = |event: &Value| {
            let object = &event["objectRef"];
            object["resource"].str() == resource
                && (subresource.is_empty() || object["subresource"].str() == subresource)
        };
        found.extend(audited.events().into_iter().filter(about));
        if found.len() >= wanted {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    found
}

#[tokio::test]
async fn an_aggregated_request_is_audited_without_objects() {
    let peer = shop(|_| Reaction::Reply(200, r#"{"kind":"ThingList","items":[]}"#.into())).await;
    let audited = Audited::by(ALL).await;
    let rig = in_front(audited.rig.clone(), &peer).await;
    rig.get(THINGS).await.expect(200);
    let events = things(&audited, 2).await;
    let lines: Vec<_> = events.iter().map(line).collect();
    assert_eq!(
        lines,
        [
            "RequestReceived list things//",
            "ResponseComplete list things// 200"
        ]
    );
    assert!(events[1]["responseObject"].is_null());
    let seen = peer.seen();
    let passed_on = seen.last().unwrap().headers()["audit-id"]
        .to_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        events[1]["auditID"].str(),
        passed_on,
        "it can be found again there"
    );
}

#[tokio::test]
async fn an_upgraded_connection_is_audited_at_its_start_and_end() {
    let peer = shop(|_| Reaction::Echo).await;
    let audited = Audited::by(ALL).await;
    let rig = in_front(audited.rig.clone(), &peer).await;
    let network = Network::start(&rig.server).await;
    let mut stream = network.connect().await;
    let request = format!(
        "GET {THINGS}/a/exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    read_until(&mut stream, "\r\n\r\n").await;
    stream.write_all(b"hunter-0;").await.unwrap();
    assert_eq!(read_until(&mut stream, ";").await, "hunter-0;");
    let begun: Vec<_> = things(&audited, 2).await.iter().map(line).collect();
    assert_eq!(
        begun,
        [
            "RequestReceived get things/exec/a",
            "ResponseStarted get things/exec/a 101"
        ]
    );
    drop(stream);
    let ended = things(&audited, 1).await;
    assert_eq!(line(&ended[0]), "ResponseComplete get things/exec/a 101");
    assert_eq!(
        ended[0]["sourceIPs"].list()[0].str(),
        "127.0.0.1",
        "the connection says from where it comes"
    );
    assert!(
        !std::fs::read_to_string(&audited.path)
            .unwrap()
            .contains("hunter-0")
    );
}

#[tokio::test]
async fn an_exec_is_audited_with_its_command_and_without_its_data() {
    let peer = Peer::start(&["127.0.0.1"], |_| Reaction::Echo).await;
    let audited = Audited::by(ALL).await;
    add_node(&audited.rig, "one", &peer, "containerd://2.0.0").await;
    add_pod(&audited.rig, "p", "one").await;
    let network = Network::start(&audited.rig.server).await;
    let mut stream = network.connect().await;
    let path = format!("{PODS}/p/exec?container=a&command=env&stdin=true&stdout=true");
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    read_until(&mut stream, "\r\n\r\n").await;
    stream.write_all(b"hunter-0;").await.unwrap();
    assert_eq!(read_until(&mut stream, ";").await, "hunter-0;");
    let begun = events_of(&audited, "pods", "exec", 2).await;
    let lines: Vec<_> = begun.iter().map(line).collect();
    assert_eq!(
        lines,
        [
            "RequestReceived get pods/exec/p",
            "ResponseStarted get pods/exec/p 101"
        ]
    );
    assert_eq!(begun[1]["requestURI"].str(), path);
    drop(stream);
    let ended = events_of(&audited, "pods", "exec", 1).await;
    assert_eq!(line(&ended[0]), "ResponseComplete get pods/exec/p 101");
    let log = std::fs::read_to_string(&audited.path).unwrap();
    assert!(!log.contains("hunter-0"));
}

#[tokio::test]
async fn a_watch_is_audited_as_complete_when_its_connection_closes() {
    let audited = Audited::by(METADATA).await;
    let network = Network::start(&audited.rig.server).await;
    let mut stream = network.connect().await;
    let request = format!("GET {CONFIG_MAPS}?watch=true HTTP/1.1\r\nHost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    read_until(&mut stream, "\r\n\r\n").await;
    drop(stream);
    for _ in 0..500 {
        if let Some(event) = audited
            .events()
            .last()
            .filter(|event| event["stage"].str() == "ResponseComplete")
        {
            return assert_eq!(line(event), "ResponseComplete watch configmaps// 200");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the watch is not over");
}

#[tokio::test]
async fn a_body_that_is_too_large_is_audited() {
    let audited = Audited::by(METADATA).await;
    let network = Network::start(&audited.rig.server).await;
    let mut stream = network.connect().await;
    let request =
        format!("POST {CONFIG_MAPS} HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    assert!(
        read_until(&mut stream, "\r\n\r\n")
            .await
            .starts_with("HTTP/1.1 413 ")
    );
    let event = audited.last();
    assert_eq!(line(&event), "ResponseComplete create configmaps// 413");
    assert_eq!(
        event["responseStatus"]["reason"].str(),
        "RequestEntityTooLarge"
    );
    assert_eq!(event["user"]["username"].str(), "admin");
}
