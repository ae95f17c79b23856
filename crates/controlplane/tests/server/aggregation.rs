//! Other API servers under our name: who is there, what they say, and what happens when they go in the middle.

use std::time::Duration;

use http_body_util::BodyExt as _;
use mizzen_apiserver::TruncatedResponse;
use mizzen_value::{Value, json, value};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;

use crate::network::Network;
use crate::peer::{Peer, Reaction};
use crate::rig::Rig;

const SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const APIS: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
pub(crate) const THINGS: &str = "/apis/shop.example.com/v1/namespaces/default/things";
const NAME: &[&str] = &["shop.default.svc"];

/// An API server that serves things, besides what `react` does.
pub(crate) async fn shop(react: impl Fn(&str) -> Reaction + Send + Sync + 'static) -> Peer {
    Peer::start(NAME, move |request| match request.uri().path() {
        "/apis/shop.example.com/v1" => Reaction::Reply(
            200,
            r#"{"kind":"APIResourceList","groupVersion":"shop.example.com/v1","resources":[{"name":"things","singularName":"thing","namespaced":true,"kind":"Thing","verbs":["get","list"]}]}"#.into(),
        ),
        "/openapi/v3" => Reaction::Reply(
            200,
            r#"{"paths":{"apis/shop.example.com/v1":{"serverRelativeURL":"/openapi/v3/apis/shop.example.com/v1?hash=A"},"version":{"serverRelativeURL":"x"}}}"#.into(),
        ),
        "/openapi/v2" => Reaction::Reply(
            200,
            r##"{"paths":{"/apis/shop.example.com/v1/things":{"get":{"responses":{"200":{"schema":{"$ref":"#/definitions/Thing"}}}}},"/version":{}},"definitions":{"Thing":{"type":"object"},"Unused":{"type":"object"}}}"##.into(),
        ),
        path => react(path),
    })
    .await
}

fn found() -> Reaction {
    Reaction::Reply(200, r#"{"kind":"ThingList","items":[]}"#.into())
}

/// A slice with one endpoint of the service `shop`, which is not ready.
const SLICE: &str = r#"{"metadata":{"name":"shop-1","labels":{"kubernetes.io/service-name":"shop"}},"addressType":"IPv4","ports":[{"name":"","port":443}],"endpoints":[{"addresses":["10.1.2.3"],"conditions":{"ready":false}}]}"#;
/// An endpoint may not be on this machine, but a service may have another name for it.
const SERVICE: &str =
    r#"{"metadata":{"name":"shop"},"spec":{"type":"ExternalName","externalName":"localhost"}}"#;

fn api_service(bundle: &str, port: u16) -> String {
    let service = value!({
        "metadata": { "name": "v1.shop.example.com" },
        "spec": {
            "group": "shop.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 15,
            "caBundle": bundle, "service": { "namespace": "default", "name": "shop", "port": (i64::from(port)) }
        }
    });
    json::to_string(&service)
}

/// Lets the APIService point to a port where nobody is.
async fn lead_astray(rig: &Rig) -> String {
    let astray = r#"{"spec":{"service":{"port":1}}}"#;
    rig.patch(&format!("{APIS}/v1.shop.example.com"), astray)
        .await
        .expect(200);
    reason(rig, "FailedDiscoveryCheck").await
}

/// Waits until the condition is as `is` wants it; returns its reason and message.
async fn condition(rig: &Rig, is: impl Fn(&Value) -> bool) -> (String, String) {
    let mut events = rig
        .watch(&format!(
            "{APIS}?watch=true&fieldSelector=metadata.name%3Dv1.shop.example.com"
        ))
        .await;
    loop {
        let event = events.next().await.expect("the watch goes on");
        let conditions = event["object"]["status"]["conditions"].list();
        if let Some(found) = conditions.first().filter(|condition| is(condition)) {
            return (found["reason"].str().into(), found["message"].str().into());
        }
    }
}

async fn reason(rig: &Rig, wanted: &str) -> String {
    condition(rig, |condition| condition["reason"].str() == wanted)
        .await
        .1
}

/// A server in front of `peer`, which it has found.
async fn front(peer: &Peer) -> Rig {
    in_front(Rig::new().await, peer).await
}

/// The same server, in front of `peer`.
pub(crate) async fn in_front(rig: Rig, peer: &Peer) -> Rig {
    rig.server.aggregate().await.unwrap();
    rig.post(SERVICES, SERVICE).await.expect(201);
    rig.post(APIS, &api_service(&peer.bundle(), peer.port))
        .await
        .expect(201);
    assert_eq!(reason(&rig, "Passed").await, "all checks passed");
    rig
}

#[tokio::test]
async fn a_request_is_proxied_with_the_user_in_its_headers() {
    let peer = shop(|_| found()).await;
    let rig = front(&peer).await;
    assert_eq!(
        rig.get(&format!("{THINGS}?limit=5")).await.expect(200).body["kind"].str(),
        "ThingList"
    );
    rig.post(THINGS, r#"{"metadata":{"name":"a"}}"#)
        .await
        .expect(200);
    let seen = peer.seen();
    let [listed, made] = &seen[seen.len() - 2..] else {
        panic!("two requests")
    };
    assert_eq!(
        listed.uri().path_and_query().unwrap().as_str(),
        format!("{THINGS}?limit=5")
    );
    let said = |name: &str| listed.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(
        (
            said("x-remote-user").as_str(),
            said("x-remote-group").as_str()
        ),
        ("admin", "system:masters")
    );
    assert_eq!(
        (made.method().as_str(), made.body().as_ref()),
        ("POST", &br#"{"metadata":{"name":"a"}}"#[..])
    );
}

#[tokio::test]
async fn an_unavailable_api_service_says_why() {
    let peer = shop(|_| found()).await;
    let rig = Rig::new().await;
    rig.server.aggregate().await.unwrap();
    rig.post(APIS, &api_service(&peer.bundle(), peer.port))
        .await
        .expect(201);
    assert_eq!(
        reason(&rig, "ServiceNotFound").await,
        "service/shop in \"default\" is not present"
    );
    assert_eq!(
        rig.get(THINGS).await.expect(503).body.str(),
        "service unavailable\n"
    );
    assert_eq!(
        rig.get("/apis/shop.example.com").await.expect(200).body["kind"].str(),
        "APIGroup"
    );

    rig.post(
        SERVICES,
        r#"{"metadata":{"name":"shop"},"spec":{"ports":[{"port":80}]}}"#,
    )
    .await
    .expect(201);
    let message = format!(
        "service/shop in \"default\" is not listening on port {}",
        peer.port
    );
    assert_eq!(reason(&rig, "ServicePortError").await, message);
    let ports = format!(r#"{{"spec":{{"ports":[{{"port":{}}}]}}}}"#, peer.port);
    rig.patch(&format!("{SERVICES}/shop"), &ports)
        .await
        .expect(200);
    let message = "cannot find endpointslices for service/shop in \"default\"";
    assert_eq!(reason(&rig, "EndpointsNotFound").await, message);
    rig.post(SLICES, SLICE).await.expect(201);
    let message =
        "endpointslices for service/shop in \"default\" have no addresses with port name \"\"";
    assert_eq!(reason(&rig, "MissingEndpoints").await, message);
    rig.delete(&format!("{SERVICES}/shop"), "")
        .await
        .expect(200);
    rig.post(SERVICES, SERVICE).await.expect(201);
    assert_eq!(reason(&rig, "Passed").await, "all checks passed");
    rig.get(THINGS).await.expect(200);

    let message = lead_astray(&rig).await;
    let url = "https://localhost:1/apis/shop.example.com/v1";
    let start = format!("failing or missing response from {url}: Get \"{url}\": dial tcp ");
    assert!(
        message.starts_with(&start) && message.ends_with(":1: connect: connection refused"),
        "{message}"
    );
    rig.get(THINGS).await.expect(503);
    rig.delete(&format!("{APIS}/v1.shop.example.com"), "")
        .await
        .expect(200);
    assert_eq!(
        rig.get(THINGS).await.expect(404).body.str(),
        "404 page not found\n"
    );
}

#[tokio::test]
async fn a_server_with_an_untrusted_certificate_gets_no_request() {
    let peer = Peer::start(&["other.example.com"], |_| Reaction::Hang).await;
    let rig = Rig::new().await;
    rig.server.aggregate().await.unwrap();
    rig.post(SERVICES, SERVICE).await.expect(201);
    rig.post(APIS, &api_service(&peer.bundle(), peer.port))
        .await
        .expect(201);
    let message = reason(&rig, "FailedDiscoveryCheck").await;
    let expected = "tls: failed to verify certificate: x509: certificate is valid for other.example.com, not shop.default.svc";
    assert!(message.ends_with(expected), "{message}");
}

#[tokio::test]
async fn a_truncated_list_is_an_error() {
    let peer = shop(|_| Reaction::Begin(r#"{"kind":"ThingList","items":["#.into())).await;
    let rig = front(&peer).await;
    let answer = rig.send("GET", THINGS, "").await;
    assert_eq!(answer.status(), 200);
    peer.die();
    assert_eq!(
        answer.into_body().collect().await.err(),
        Some(TruncatedResponse)
    );
}

#[tokio::test]
async fn a_proxied_watch_streams_events_until_the_connection_breaks() {
    let peer = shop(|_| Reaction::Begin("{\"type\":\"ADDED\"}\n".into())).await;
    let rig = front(&peer).await;
    let mut body = rig
        .send("GET", &format!("{THINGS}?watch=1"), "")
        .await
        .into_body();
    assert_eq!(
        body.frame().await.unwrap().unwrap().into_data().unwrap(),
        "{\"type\":\"ADDED\"}\n"
    );
    peer.die();
    assert_eq!(body.frame().await.unwrap().err(), Some(TruncatedResponse));
}

#[tokio::test]
async fn openapi_includes_aggregated_servers() {
    let peer = shop(|path| match path {
        "/openapi/v3/apis/shop.example.com/v1" => {
            Reaction::Reply(200, r#"{"openapi":"3.0.0"}"#.into())
        }
        _ => Reaction::Reply(404, "{}".into()),
    })
    .await;
    let rig = front(&peer).await;
    let groups = rig.get("/apis").await.expect(200);
    let names: Vec<&str> = groups.body["groups"]
        .list()
        .iter()
        .map(|group| group["name"].str())
        .collect();
    assert_eq!(
        names.last(),
        Some(&"shop.example.com"),
        "a low priority comes last"
    );
    let resources = rig.get("/apis/shop.example.com/v1").await.expect(200);
    assert_eq!(
        resources.body["resources"].list()[0]["name"].str(),
        "things"
    );

    let all = rig.aggregated("/apis").await;
    let last = all["items"].list().last().unwrap();
    let version = &last["versions"].list()[0];
    assert_eq!(
        (last["metadata"]["name"].str(), version["freshness"].str()),
        ("shop.example.com", "Current")
    );
    assert_eq!(version["resources"].list()[0]["resource"].str(), "things");

    let index = rig.get("/openapi/v3").await.expect(200);
    let url = index.body["paths"]["apis/shop.example.com/v1"]["serverRelativeURL"].str();
    assert_eq!(url, "/openapi/v3/apis/shop.example.com/v1?hash=A");
    assert_eq!(
        rig.get(url).await.expect(200).body["openapi"].str(),
        "3.0.0"
    );
    let swagger = rig.get("/openapi/v2").await.expect(200);
    assert!(!swagger.body["paths"]["/apis/shop.example.com/v1/things"].is_null());
    assert!(!swagger.body["paths"]["/api/v1/pods"].is_null());
    assert!(!swagger.body["definitions"]["Thing"].is_null());
    assert!(swagger.body["definitions"]["Unused"].is_null());

    lead_astray(&rig).await;
    let all = rig.aggregated("/apis").await;
    let version = &all["items"].list().last().unwrap()["versions"].list()[0];
    assert_eq!(version["freshness"].str(), "Stale");
    assert_eq!(
        version["resources"].list()[0]["resource"].str(),
        "things",
        "what was learned last is still shown"
    );
}

#[tokio::test]
async fn a_hanging_server_delays_no_other_request() {
    let peer = Peer::start(NAME, |_| Reaction::Hang).await;
    let rig = Rig::new().await;
    rig.server.aggregate().await.unwrap();
    rig.post(SERVICES, SERVICE).await.expect(201);
    rig.post(APIS, &api_service(&peer.bundle(), peer.port))
        .await
        .expect(201);
    while peer.seen().is_empty() {
        tokio::task::yield_now().await;
    }
    let started = Instant::now();
    for path in [
        "/apis",
        "/apis/shop.example.com",
        "/openapi/v3",
        "/api/v1/namespaces",
    ] {
        rig.get(path).await.expect(200);
    }
    rig.get(THINGS).await.expect(503);
    rig.aggregated("/apis").await;
    assert!(
        started.elapsed() < Duration::from_secs(4),
        "{:?}",
        started.elapsed()
    );
}

/// Time is virtual here: it passes when nothing happens.
#[tokio::test(start_paused = true)]
async fn discovery_of_a_hanging_server_times_out() {
    let peer = Peer::start(NAME, |_| Reaction::Hang).await;
    let rig = Rig::new().await;
    rig.post(SERVICES, SERVICE).await.expect(201);
    let made = rig
        .post(APIS, &api_service(&peer.bundle(), peer.port))
        .await
        .expect(201);
    let mut there = made.body;
    there.set(
        "status",
        value!({ "conditions": [{ "type": "Available", "status": "True" }] }),
    );
    rig.put(
        &format!("{APIS}/v1.shop.example.com/status"),
        &json::to_string(&there),
    )
    .await
    .expect(200);
    let started = Instant::now();
    let answer = rig.get("/apis/shop.example.com/v1").await.expect(503);
    assert_eq!(
        answer.body.str(),
        "error trying to reach service: context deadline exceeded\n"
    );
    assert!(
        started.elapsed() <= Duration::from_secs(6),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn local_group_versions_have_api_services() {
    let rig = Rig::new().await;
    let orphan = r#"{"metadata":{"name":"v1.gone.example.com","labels":{"kube-aggregator.kubernetes.io/automanaged":"true"}},"spec":{"group":"gone.example.com","version":"v1","groupPriorityMinimum":1000,"versionPriority":100}}"#;
    rig.post(APIS, orphan).await.expect(201);
    rig.server.aggregate().await.unwrap();
    let apps = rig.get(&format!("{APIS}/v1.apps")).await.expect(200).body;
    assert_eq!(
        apps["metadata"]["labels"]["kube-aggregator.kubernetes.io/automanaged"].str(),
        "onstart"
    );
    assert_eq!(
        (
            apps["spec"]["groupPriorityMinimum"].int(),
            apps["spec"]["versionPriority"].int()
        ),
        (17800, 15)
    );
    assert_eq!(
        apps["status"]["conditions"].list()[0]["reason"].str(),
        "Local"
    );
    rig.get(&format!("{APIS}/v1.")).await.expect(200);
    rig.get(&format!("{APIS}/v1.apiregistration.k8s.io"))
        .await
        .expect(404);
    // What belongs to no custom group any more goes.
    while rig.get(&format!("{APIS}/v1.gone.example.com")).await.status == 200 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_upgraded_connection_is_a_tunnel() {
    let peer = shop(|_| Reaction::Echo).await;
    let rig = front(&peer).await;
    let network = Network::start(&rig.server).await;
    let mut stream = network.connect().await;
    let request = format!(
        "GET {THINGS}/a/exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let head = read_until(&mut stream, "\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    for word in ["hello;", "again;"] {
        stream.write_all(word.as_bytes()).await.unwrap();
        assert_eq!(read_until(&mut stream, ";").await, word);
    }
}

#[tokio::test]
async fn hop_by_hop_headers_are_dropped_and_the_client_is_named() {
    let peer = shop(|_| found()).await;
    let rig = front(&peer).await;
    let network = Network::start(&rig.server).await;
    let mut stream = network.connect().await;
    let request = format!(
        "GET {THINGS} HTTP/1.1\r\nHost: x\r\nConnection: x-secret, X-Remote-User\r\nX-Secret: 1\r\n\
         X-Remote-User: root\r\nProxy-Authorization: Basic abc\r\nKeep-Alive: timeout=5\r\n\
         X-Forwarded-For: 10.1.1.1\r\nX-Other: 2\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let head = read_until(&mut stream, "\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let seen = peer.seen().pop().unwrap();
    let said = |name: &str| {
        seen.headers()
            .get(name)
            .map(|value| value.to_str().unwrap().to_owned())
    };
    for name in [
        "x-secret",
        "proxy-authorization",
        "keep-alive",
        "connection",
    ] {
        assert_eq!(said(name), None, "{name}");
    }
    assert_eq!(said("x-other").as_deref(), Some("2"));
    assert_eq!(said("x-remote-user").as_deref(), Some("admin"));
    assert_eq!(
        said("x-forwarded-for").as_deref(),
        Some("10.1.1.1, 127.0.0.1")
    );
}

#[tokio::test]
async fn a_body_of_any_length_is_streamed_to_the_server() {
    let peer = shop(|_| found()).await;
    let rig = front(&peer).await;
    let network = Network::start(&rig.server).await;
    let mut stream = network.connect().await;
    let (chunk, count) = ("x".repeat(1 << 20), 5);
    let length = chunk.len() * count;
    let head = format!("POST {THINGS} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    for _ in 0..count {
        stream.write_all(chunk.as_bytes()).await.unwrap();
    }
    stream.flush().await.unwrap();
    let head = read_until(&mut stream, "\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(
        peer.seen().last().unwrap().body().len(),
        length,
        "more than we would read ourselves"
    );
}

pub(crate) async fn read_until(stream: &mut (impl AsyncRead + Unpin), end: &str) -> String {
    let mut text = String::new();
    while !text.ends_with(end) {
        text.push(char::from(stream.read_u8().await.unwrap()));
    }
    text
}
