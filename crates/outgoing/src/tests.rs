//! Requests to a real HTTPS server, and the errors when they fail.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use mizzen_object::Kind;
use mizzen_registry::{Create, Registry, Resource, Store};
use mizzen_value::clock::{Clock, Random};
use mizzen_value::{Value, json, value};
use tokio::time::Instant;

use super::{CallLimit, OutgoingClient, ServiceReference, ServiceResolver, WebhookClient};
use peer::{Peer, Reaction};

mod certificates;

#[path = "../tests/server/peer.rs"]
#[allow(dead_code, reason = "tests from outside do more with it")]
mod peer;

struct Noon;

impl Clock for Noon {
    fn now(&self) -> (i64, u32) {
        (1_800_000_000, 0)
    }
}

impl Random for Noon {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }
}

/// A registry with the built-in kinds, and a client that resolves its Services.
struct Services {
    registry: Registry,
    client: OutgoingClient,
}

impl Services {
    fn new() -> Services {
        let registry = Registry::new(
            Store::in_memory(Default::default()),
            Arc::new(Noon),
            Arc::new(Noon),
        );
        let find =
            |group: &str, version: &str, plural: &str| resource(&registry, group, version, plural);
        let services = ServiceResolver::new(&registry, find, "127.0.0.1:1");
        let client = OutgoingClient::new(&registry, None, services);
        Services { registry, client }
    }

    async fn create(&self, group: &str, plural: &str, namespace: &str, object: Value) {
        let resource = resource(&self.registry, group, "v1", plural).unwrap();
        let create = Create::new(&resource, namespace, object);
        self.registry.create(create).await.map(drop).unwrap();
    }
}

fn resource(registry: &Registry, group: &str, version: &str, plural: &str) -> Option<Resource> {
    static KINDS: LazyLock<Vec<Kind>> = LazyLock::new(|| mizzen_kinds::catalog().kinds);
    let kind = KINDS.iter().find(|kind| {
        kind.gvk.group == group && kind.gvk.version == version && kind.plural == plural
    })?;
    Some(Resource::new(registry.store(), kind.clone(), None))
}

fn client() -> OutgoingClient {
    Services::new().client
}

async fn post(client: &OutgoingClient, url: &str, bundle: &str, milliseconds: u64) -> String {
    let hook = WebhookClient::parse(&value!({ "url": url, "caBundle": bundle }));
    let until = Instant::now() + Duration::from_millis(milliseconds);
    let limit = CallLimit { until, bytes: 1000 };
    match hook
        .post(client, "timeout=3s", Bytes::from_static(b"{}"), limit)
        .await
    {
        Ok(body) => format!("answered {}", String::from_utf8_lossy(&body)),
        Err(error) => error.to_string(),
    }
}

/// Posts to a server with the given behaviour and compares the outcome. `$` stands for the server's address.
async fn check(
    names: &[&str],
    react: impl Fn() -> Reaction + Send + Sync + 'static,
    expected: &str,
) {
    let peer = Peer::start(names, move |_| react()).await;
    let address = format!("127.0.0.1:{}", peer.port);
    let said = post(
        &client(),
        &format!("https://{address}/hook"),
        &peer.bundle(),
        400,
    )
    .await;
    assert_eq!(said.replace(&address, "$"), expected);
}

const HERE: &[&str] = &["127.0.0.1"];

#[tokio::test]
async fn a_response_is_returned_whole() {
    check(
        HERE,
        || Reaction::Reply(200, r#"{"a":1}"#.into()),
        r#"answered {"a":1}"#,
    )
    .await;
}

#[tokio::test]
async fn a_hanging_server_times_out() {
    check(
        HERE,
        || Reaction::Hang,
        r#"Post "https://$/hook?timeout=3s": context deadline exceeded"#,
    )
    .await;
}

#[tokio::test]
async fn a_response_that_stalls_times_out() {
    let expected = "unexpected error when reading response body. Please retry. Original error: ";
    check(
        HERE,
        || Reaction::Begin("{".into()),
        &format!("{expected}context deadline exceeded"),
    )
    .await;
}

#[tokio::test]
async fn a_too_large_response_is_rejected() {
    let expected = "unexpected error when reading response body. Please retry. Original error: ";
    let large = || Reaction::Reply(200, "x".repeat(2000));
    check(
        HERE,
        large,
        &format!("{expected}the response is larger than 1000 bytes"),
    )
    .await;
}

#[tokio::test]
async fn a_certificate_for_another_name_is_rejected() {
    let expected = r#"Post "https://$/hook?timeout=3s": tls: failed to verify certificate: x509: cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs"#;
    check(&["other.example.com"], || Reaction::Hang, expected).await;
}

#[tokio::test]
async fn a_certificate_of_an_unknown_authority_is_rejected() {
    let (peer, other) = (
        Peer::answering(200, "{}").await,
        Peer::answering(200, "{}").await,
    );
    let said = post(
        &client(),
        &format!("https://127.0.0.1:{}/", peer.port),
        &other.bundle(),
        900,
    )
    .await;
    let expected = "tls: failed to verify certificate: x509: certificate signed by unknown authority (possibly because of \
                    \"x509: ECDSA verification failure\" while trying to verify candidate authority certificate \"rcgen self \
                    signed cert\")";
    assert!(said.ends_with(expected), "{said}");
}

#[tokio::test]
async fn an_error_response_is_quoted() {
    let quoted = r#"an error on the server ("unknown") has prevented the request from succeeding"#;
    check(HERE, || Reaction::Reply(500, "boo".into()), quoted).await;
    let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"not today"}"#;
    check(HERE, || Reaction::Reply(500, status.into()), "not today").await;
    check(
        HERE,
        || Reaction::Reply(404, "".into()),
        "the server could not find the requested resource",
    )
    .await;
}

#[tokio::test]
async fn a_refused_connection_is_reported_as_in_go() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let said = post(&client(), &format!("https://{address}"), "", 900).await;
    let expected = format!(
        "Post \"https://{address}/?timeout=3s\": dial tcp {address}: connect: connection refused"
    );
    assert_eq!(said, expected);
}

#[tokio::test]
async fn a_connection_closed_without_a_response_is_an_end_of_file() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    let peer = Peer::answering(200, "{}").await;
    let said = post(
        &client(),
        &format!("https://{address}/"),
        &peer.bundle(),
        900,
    )
    .await;
    let ends = ["EOF", "read tcp: read: connection reset by peer"];
    assert!(
        ends.iter()
            .any(|end| said == format!("Post \"https://{address}/?timeout=3s\": {end}")),
        "{said}"
    );
}

#[tokio::test]
async fn connections_are_reused() {
    let peer = Peer::answering(200, "{}").await;
    let (client, url) = (client(), format!("https://127.0.0.1:{}/", peer.port));
    for _ in 0..5 {
        assert_eq!(
            post(&client, &url, &peer.bundle(), 900).await,
            "answered {}"
        );
    }
    assert_eq!((peer.seen().len(), peer.connections()), (5, 1));
}

#[tokio::test]
async fn the_error_names_a_missing_service() {
    let hook = WebhookClient::parse(
        &value!({ "service": { "namespace": "a", "name": "b", "path": "/c" } }),
    );
    let limit = CallLimit {
        until: Instant::now() + Duration::from_secs(1),
        bytes: 1000,
    };
    let error = hook
        .post(&client(), "timeout=3s", Bytes::new(), limit)
        .await
        .unwrap_err();
    assert_eq!(
        error.0,
        format!(
            "Post {}: service \"b\" not found",
            json::quote("https://b.a.svc:443/c?timeout=3s")
        )
    );
}

#[tokio::test]
async fn a_service_resolves_to_its_ready_endpoints() {
    let cluster = Services::new();
    let services = cluster.client.services();
    let make = async |group: &str, plural: &str, object: Value| {
        cluster.create(group, plural, "a", object).await;
    };
    let resolve = |name: &str, port: u16| {
        let service = ServiceReference {
            namespace: "a".into(),
            name: name.into(),
            port,
        };
        services
            .resolve(&service)
            .unwrap_or_else(|status| status.message)
    };
    make("", "services", value!({ "metadata": { "name": "b", "namespace": "a" }, "spec": {
        "type": "ClusterIP", "clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"], "sessionAffinity": "None",
        "internalTrafficPolicy": "Cluster", "ports": [{ "name": "https", "port": 443, "protocol": "TCP", "targetPort": 1 }] } }))
    .await;
    assert_eq!(resolve("b", 443), "10.0.0.7:443");
    assert_eq!(
        resolve("b", 80),
        "no service port 80 found for service \"b\""
    );
    make(
        "discovery.k8s.io",
        "endpointslices",
        value!({
        "metadata": { "name": "b-1", "namespace": "a", "labels": { "kubernetes.io/service-name": "b" } },
        "addressType": "IPv4", "ports": [{ "name": "https", "port": 8443, "protocol": "TCP" }],
        "endpoints": [
            { "addresses": ["10.1.2.3"], "conditions": { "ready": false } },
            { "addresses": ["10.1.2.4"] }
        ] }),
    )
    .await;
    assert_eq!(resolve("b", 443), "10.1.2.4:8443");
    let own = ServiceReference {
        namespace: "default".into(),
        name: "kubernetes".into(),
        port: 443,
    };
    assert_eq!(services.resolve(&own).unwrap(), "127.0.0.1:1");
}

/// Posts to a path of a server that redirects from `/1` on; returns the outcome and the requests that it got.
async fn redirected(
    code: u16,
    path: &str,
    lead: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
) -> (String, Vec<String>) {
    let react = move |request: &http::Request<Bytes>| match lead(request.uri().path()) {
        Some(location) => Reaction::Redirect(code, location),
        None => Reaction::Reply(200, "{}".into()),
    };
    let peer = Peer::start(HERE, react).await;
    let address = format!("127.0.0.1:{}", peer.port);
    let said = post(
        &client(),
        &format!("https://{address}{path}"),
        &peer.bundle(),
        900,
    )
    .await;
    let seen = peer.seen().into_iter().map(|request| {
        let (head, body) = request.into_parts();
        format!(
            "{} {} {}",
            head.method,
            head.uri.path_and_query().unwrap(),
            String::from_utf8_lossy(&body)
        )
    });
    (said.replace(&address, "$"), seen.collect())
}

#[tokio::test]
async fn redirects_are_followed_as_go_follows_them() {
    let lead = |path: &str| (path == "/1").then(|| "/2?x".to_owned());
    for code in [307, 308] {
        let (said, seen) = redirected(code, "/1", lead).await;
        assert_eq!(
            (said.as_str(), seen),
            (
                "answered {}",
                vec!["POST /1?timeout=3s {}".into(), "POST /2?x {}".into()]
            )
        );
    }
    for code in [301, 302, 303] {
        let (said, seen) = redirected(code, "/1", lead).await;
        assert_eq!(
            (said.as_str(), seen),
            (
                "answered {}",
                vec!["POST /1?timeout=3s {}".into(), "GET /2?x ".into()]
            )
        );
    }
    let (said, seen) = redirected(304, "/1", lead).await;
    assert_eq!(
        said,
        "the server responded with the status code 304 but did not return more information"
    );
    assert_eq!(seen.len(), 1);
}

#[tokio::test]
async fn a_client_stops_after_ten_redirects() {
    let (said, seen) = redirected(307, "/1", |path| Some(format!("{path}1"))).await;
    assert_eq!(said, r#"Post "/11111111111": stopped after 10 redirects"#);
    assert_eq!(seen.len(), 10);
    let (said, _) = redirected(307, "/1", |_| Some("http://127.0.0.1/".into())).await;
    assert_eq!(
        said,
        r#"Post "http://127.0.0.1/": unsupported protocol scheme "http""#
    );
    let (said, seen) = redirected(307, "/1", |_| Some(String::new())).await;
    assert_eq!(
        said,
        "the server responded with the status code 307 but did not return more information"
    );
    assert_eq!(seen.len(), 1);
}

#[tokio::test]
async fn paths_are_cleaned_before_they_are_called() {
    for (path, expected) in [
        ("//a//b/", "/a/b"),
        ("", "/"),
        ("/", "/"),
        ("/a/../b/./c", "/b/c"),
        ("/a%20b", "/a%20b"),
        ("/a?b=c", "/a"),
    ] {
        let (said, seen) = redirected(307, path, |_| None).await;
        assert_eq!(
            (said.as_str(), seen),
            (
                "answered {}",
                vec![format!("POST {expected}?timeout=3s {{}}")]
            )
        );
    }
    let hook = WebhookClient::parse(
        &value!({ "service": { "namespace": "a", "name": "b", "path": "//c//d/" } }),
    );
    let limit = CallLimit {
        until: Instant::now() + Duration::from_secs(1),
        bytes: 1000,
    };
    let error = hook
        .post(&client(), "", Bytes::new(), limit)
        .await
        .unwrap_err();
    assert_eq!(
        error.0,
        r#"Post "https://b.a.svc:443/c/d": service "b" not found"#
    );
}

#[tokio::test]
async fn pods_on_simulated_nodes_are_never_dialled() {
    let cluster = Services::new();
    let services = cluster.client.services();
    let make = async |group: &str, plural: &str, namespace: &str, object: Value| {
        cluster.create(group, plural, namespace, object).await;
    };
    let node = |name: &str, runtime: &str| value!({ "metadata": { "name": name }, "status": { "nodeInfo": { "containerRuntimeVersion": runtime } } });
    let resolve = || {
        let service = ServiceReference {
            namespace: "a".into(),
            name: "b".into(),
            port: 443,
        };
        services
            .resolve(&service)
            .unwrap_or_else(|status| status.message)
    };
    make(
        "",
        "services",
        "a",
        value!({ "metadata": { "name": "b", "namespace": "a" }, "spec": {
        "type": "ClusterIP", "clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"], "sessionAffinity": "None",
        "selector": { "app": "b" }, "internalTrafficPolicy": "Cluster",
        "ports": [{ "name": "https", "port": 443, "protocol": "TCP", "targetPort": 1 }] } }),
    )
    .await;
    assert_eq!(
        resolve(),
        "10.0.0.7:443",
        "without nodes there may be a data plane"
    );
    make("", "nodes", "", node("node-0", "simulated://0.1.0")).await;
    assert_eq!(resolve(), "no endpoints available for service \"b\"");
    let slice = |name: &str, address: &str, node: &str| {
        value!({
            "metadata": { "name": name, "namespace": "a", "labels": { "kubernetes.io/service-name": "b" } },
            "addressType": "IPv4", "ports": [{ "name": "https", "port": 8443, "protocol": "TCP" }],
            "endpoints": [{ "addresses": [address], "nodeName": node, "conditions": { "ready": true } }]
        })
    };
    make(
        "discovery.k8s.io",
        "endpointslices",
        "a",
        slice("b-1", "10.244.0.5", "node-0"),
    )
    .await;
    let said = "service \"a/b\" has simulated endpoints only: 10.244.0.5:8443 is a pod on node \"node-0\", which runs no \
                containers";
    assert_eq!(resolve(), said);
    let hook = WebhookClient::parse(
        &value!({ "service": { "namespace": "a", "name": "b", "path": "/c" } }),
    );
    let limit = CallLimit {
        until: Instant::now() + Duration::from_secs(1),
        bytes: 1000,
    };
    let error = hook
        .post(&cluster.client, "timeout=3s", Bytes::new(), limit)
        .await
        .unwrap_err();
    assert!(error.0.ends_with(said), "{error}");
    make("", "nodes", "", node("real", "containerd://2.0.0")).await;
    make(
        "discovery.k8s.io",
        "endpointslices",
        "a",
        slice("b-2", "10.1.2.4", "real"),
    )
    .await;
    assert_eq!(resolve(), "10.1.2.4:8443", "a real endpoint is chosen");
}
