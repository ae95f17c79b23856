//! exec, attach, port-forward and proxies: what the kubelet of a pod's node is asked, and what the client gets.

use std::time::Duration;

use mizzen_controlplane::Options;
use mizzen_value::{Value, value};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;

use crate::aggregation::read_until;
use crate::network::Network;
use crate::peer::{Peer, Reaction};
use crate::policy::enforce;
use crate::rig::{CONFIG_MAPS, Rig};
use crate::webhook;

pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";

/// A node whose kubelet is `peer`.
pub(crate) async fn add_node(rig: &Rig, name: &str, peer: &Peer, runtime: &str) {
    let node = value!({
        "metadata": { "name": name },
        "status": {
            "addresses": [{ "type": "InternalIP", "address": "127.0.0.1" }],
            "daemonEndpoints": { "kubeletEndpoint": { "Port": (i64::from(peer.port)) } },
            "nodeInfo": { "containerRuntimeVersion": runtime }
        }
    });
    let mut bare = node.clone();
    bare.remove("status");
    rig.post("/api/v1/nodes", &mizzen_value::json::to_string(&bare))
        .await
        .expect(201);
    let status = mizzen_value::json::to_string(&value!({ "status": (node["status"].clone()) }));
    rig.patch(&format!("/api/v1/nodes/{name}/status"), &status)
        .await
        .expect(200);
}

/// A pod with two containers on a node, or on none.
pub(crate) async fn add_pod(rig: &Rig, name: &str, node: &str) {
    let mut pod = value!({
        "metadata": { "name": name },
        "spec": { "containers": [
            { "name": "a", "image": "i", "ports": [{ "containerPort": 8080 }] },
            { "name": "b", "image": "i" }
        ] }
    });
    if !node.is_empty() {
        pod.entry("spec").set("nodeName", node);
    }
    rig.post(PODS, &mizzen_value::json::to_string(&pod))
        .await
        .expect(201);
}

const UPGRADE: [(&str, &str); 2] = [("connection", "Upgrade"), ("upgrade", "SPDY/3.1")];

async fn message(rig: &Rig, headers: &[(&'static str, &str)], path: &str, code: u16) -> String {
    let user = mizzen_apiserver::User::master("admin");
    rig.call_as(user, headers, "POST", &format!("{PODS}/{path}"), "")
        .await
        .expect(code)
        .message()
        .to_owned()
}

#[tokio::test]
async fn a_stream_to_an_unknown_target_is_rejected_in_upstreams_words() {
    let rig = Rig::new().await;
    let peer = Peer::answering(200, "ok").await;
    add_node(&rig, "one", &peer, "containerd://2.0.0").await;
    add_pod(&rig, "placed", "one").await;
    add_pod(&rig, "unplaced", "").await;
    for (path, code, said) in [
        ("none/exec", 404, "pods \"none\" not found"),
        (
            "placed/exec",
            400,
            "a container name must be specified for pod placed, choose one of: [a b]",
        ),
        (
            "placed/attach?container=c",
            400,
            "container c is not valid for pod placed",
        ),
        (
            "unplaced/exec?container=a",
            400,
            "pod unplaced does not have a host assigned",
        ),
        (
            "unplaced/portforward",
            400,
            "pod unplaced does not have a host assigned",
        ),
        (
            "placed/exec?container=a&dryRun=All",
            400,
            "dryRun is not supported",
        ),
        (
            "placed/portforward?ports=x",
            400,
            "cannot convert to []int32: strconv.ParseUint: parsing \"x\": invalid syntax",
        ),
    ] {
        assert_eq!(message(&rig, &UPGRADE, path, code).await, said, "{path}");
    }
    let plain = "Upgrade request required";
    assert_eq!(
        message(&rig, &[], "placed/exec?container=a", 400).await,
        plain
    );
    assert_eq!(message(&rig, &[], "placed/portforward", 400).await, plain);
    assert!(peer.seen().is_empty());
}

/// The head of an answer to a request with an upgrade, and the connection behind it.
async fn open(
    network: &Network,
    path: &str,
) -> (
    String,
    tokio_rustls::client::TlsStream<tokio::net::TcpStream>,
) {
    let mut stream = network.connect().await;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\nAuthorization: Bearer secret\r\n\
         X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    (read_until(&mut stream, "\r\n\r\n").await, stream)
}

#[tokio::test]
async fn a_kubelet_that_cannot_speak_a_websocket_subprotocol_is_not_asked_to() {
    let rig = Rig::new().await;
    let peer = Peer::answering(200, "ok").await;
    for name in ["old", "new"] {
        add_node(&rig, name, &peer, "containerd://2.0.0").await;
        add_pod(&rig, name, name).await;
    }
    let declares = r#"{"status":{"declaredFeatures":["ExtendWebSocketsToKubelet"]}}"#;
    rig.patch("/api/v1/nodes/new/status", declares)
        .await
        .expect(200);
    let refused = "unable to upgrade: the kubelet of node old does not declare ExtendWebSocketsToKubelet, use SPDY";
    // The request of a test has no connection.
    let tunnel = "request connection cannot be hijacked";
    for (pod, stream, protocols, code, said) in [
        (
            "old",
            "exec?container=a&stdout=1",
            "v5.channel.k8s.io",
            400,
            refused,
        ),
        (
            "old",
            "attach?container=a&stdout=1",
            "v5.channel.k8s.io",
            400,
            refused,
        ),
        (
            "old",
            "portforward",
            "SPDY/3.1+portforward.k8s.io",
            400,
            refused,
        ),
        (
            "old",
            "exec?container=a&stdout=1",
            "v4.channel.k8s.io",
            500,
            tunnel,
        ),
        (
            "new",
            "exec?container=a&stdout=1",
            "v5.channel.k8s.io",
            500,
            tunnel,
        ),
        (
            "new",
            "portforward",
            "SPDY/3.1+portforward.k8s.io",
            500,
            tunnel,
        ),
    ] {
        let headers = [
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-protocol", protocols),
        ];
        let path = format!("{pod}/{stream}");
        assert_eq!(message(&rig, &headers, &path, code).await, said, "{path}");
    }
    assert!(peer.seen().is_empty());
}

#[tokio::test]
async fn a_stream_is_a_tunnel_to_the_kubelet() {
    let rig = Rig::new().await;
    let peer = Peer::start(&["127.0.0.1"], |_| Reaction::Echo).await;
    add_node(&rig, "one", &peer, "containerd://2.0.0").await;
    add_pod(&rig, "p", "one").await;
    let network = Network::start(&rig.server).await;
    for (path, asked) in [
        (
            "exec?container=b&command=sh&command=-c&command=echo+a%3Bb&stdin=true&stdout=true&tty=true",
            "/exec/default/p/b?command=sh&command=-c&command=echo+a%3Bb&input=1&output=1&tty=1",
        ),
        (
            "attach?container=a&stderr=true",
            "/attach/default/p/a?error=1",
        ),
        (
            "portforward?ports=80,81",
            "/portForward/default/p?port=80%2C81",
        ),
    ] {
        let (head, mut stream) = open(&network, &format!("{PODS}/p/{path}")).await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        stream.write_all(b"hello;").await.unwrap();
        assert_eq!(read_until(&mut stream, ";").await, "hello;");
        let seen = peer.seen().pop().unwrap();
        assert_eq!(seen.uri().path_and_query().unwrap().as_str(), asked);
        assert_eq!(
            seen.headers()["x-stream-protocol-version"],
            "v4.channel.k8s.io"
        );
        assert!(
            !seen.headers().contains_key("authorization"),
            "what proves who asks stays here"
        );
    }
}

#[tokio::test]
async fn a_rejection_by_the_kubelet_is_passed_on_in_its_words() {
    let rig = Rig::new().await;
    let peer = Peer::start(&["127.0.0.1"], |request| match request.uri().path() {
        "/exec/default/p/a" => Reaction::Reply(500, "container not found (\"a\")".into()),
        _ => Reaction::Reply(200, "no upgrade".into()),
    })
    .await;
    add_node(&rig, "one", &peer, "containerd://2.0.0").await;
    add_pod(&rig, "p", "one").await;
    let network = Network::start(&rig.server).await;
    let (head, mut stream) =
        open(&network, &format!("{PODS}/p/exec?container=a&stdout=true")).await;
    assert!(head.starts_with("HTTP/1.1 500 "), "{head}");
    assert!(
        read_until(&mut stream, "(\"a\")")
            .await
            .ends_with("container not found (\"a\")")
    );
    let (head, mut stream) = open(
        &network,
        &format!("{PODS}/p/attach?container=a&stdout=true"),
    )
    .await;
    assert!(head.starts_with("HTTP/1.1 500 "), "{head}");
    let body = read_until(&mut stream, "500}").await;
    assert!(
        body.contains("invalid upgrade response: status code 200"),
        "{body}"
    );
    drop(peer);
    let (head, mut stream) = open(&network, &format!("{PODS}/p/portforward")).await;
    assert!(head.starts_with("HTTP/1.1 500 "), "{head}");
    let body = read_until(&mut stream, "500}").await;
    assert!(
        body.contains("error dialing backend: dial tcp 127.0.0.1:"),
        "{body}"
    );
}

#[tokio::test]
async fn webhooks_and_policies_reject_connections() {
    let rig = Rig::new().await;
    let peer = Peer::start(&["127.0.0.1"], |request| {
        let review = mizzen_value::json::parse(request.body()).unwrap();
        let asked = &review["request"];
        let answer = value!({
            "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
            "response": { "uid": (asked["uid"].clone()), "allowed": false, "status": { "message": "no shells" } }
        });
        Reaction::Reply(200, mizzen_value::json::to_string(&answer))
    })
    .await;
    add_pod(&rig, "p", "").await;
    let hooks = value!({
        "metadata": { "name": "no-exec" },
        "webhooks": [{
            "name": "no-exec.example.com",
            "clientConfig": { "url": (format!("https://127.0.0.1:{}/", peer.port)), "caBundle": (peer.bundle()) },
            "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CONNECT"], "resources": ["pods/exec"] }],
            "admissionReviewVersions": ["v1"], "sideEffects": "None"
        }]
    });
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    rig.post(path, &mizzen_value::json::to_string(&hooks))
        .await
        .expect(201);
    let said = message(
        &rig,
        &UPGRADE,
        "p/exec?container=a&command=ls&stdout=true",
        400,
    )
    .await;
    assert_eq!(
        said,
        "admission webhook \"no-exec.example.com\" denied the request: no shells"
    );
    let review = mizzen_value::json::parse(peer.seen().pop().unwrap().body()).unwrap();
    let asked = &review["request"];
    assert_eq!(asked["operation"].str(), "CONNECT");
    assert_eq!(asked["kind"]["kind"].str(), "PodExecOptions");
    assert_eq!(
        (asked["name"].str(), asked["subResource"].str()),
        ("p", "exec")
    );
    let options = value!({
        "kind": "PodExecOptions", "apiVersion": "v1", "stdout": true, "container": "a", "command": ["ls"]
    });
    assert_eq!(asked["object"], options);
    assert!(asked["options"].is_null() && asked["oldObject"].is_null());
    // Other connections are none of its business.
    let unplaced = "pod p does not have a host assigned";
    assert_eq!(
        message(&rig, &UPGRADE, "p/attach?container=a", 400).await,
        unplaced
    );
    let policy = value!({
        "metadata": { "name": "no-attach" },
        "spec": {
            "matchConstraints": { "resourceRules": [
                { "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CONNECT"], "resources": ["pods/attach"] }
            ] },
            "validations": [{ "expression": "!object.stdin", "message": "no typing" }]
        }
    });
    let group = "/apis/admissionregistration.k8s.io/v1";
    let policies = format!("{group}/validatingadmissionpolicies");
    rig.post(&policies, &mizzen_value::json::to_string(&policy))
        .await
        .expect(201);
    let binding = r#"{"metadata":{"name":"b"},"spec":{"policyName":"no-attach","validationActions":["Deny"]}}"#;
    rig.post(
        &format!("{group}/validatingadmissionpolicybindings"),
        binding,
    )
    .await
    .expect(201);
    let said = message(&rig, &UPGRADE, "p/attach?container=a&stdin=true", 422).await;
    assert!(said.ends_with("denied request: no typing"), "{said}");
}

#[tokio::test]
async fn webhooks_and_policies_change_the_options_of_a_connection() {
    let rig = Rig::new().await;
    let kubelet = Peer::start(&["127.0.0.1"], |request| {
        match request.headers().contains_key("upgrade") {
            true => Reaction::Echo,
            false => Reaction::Reply(200, "answered".into()),
        }
    })
    .await;
    add_node(&rig, "one", &kubelet, "simulated://0.1.0").await;
    add_pod(&rig, "p", "one").await;
    let peer = webhook::webhook(|request| {
        webhook::patched(match request["subResource"].str() {
            "exec" => {
                r#"[{"op":"replace","path":"/container","value":"b"},{"op":"add","path":"/command/0","value":"nice"},
                    {"op":"remove","path":"/stdin"}]"#
            }
            _ => r#"[{"op":"replace","path":"/path","value":"/public"}]"#,
        })
    })
    .await;
    let hooks = ["pods/exec", "nodes/proxy"].map(|resource| {
        let name = resource.replace('/', "-");
        webhook::hook(&name, &peer, webhook::rules("", "v1", "CONNECT", resource))
    });
    webhook::configure(&rig, webhook::MUTATING, "m", hooks.into()).await;
    for (resource, mutation) in [
        (
            "pods/attach",
            value!({ "patchType": "ApplyConfiguration", "applyConfiguration": {
                "expression": "Object{container: \"b\", tty: true}" } }),
        ),
        (
            "pods/portforward",
            value!({ "patchType": "JSONPatch", "jsonPatch": {
                "expression": "[JSONPatch{op: \"replace\", path: \"/ports/0\", value: 90}]" } }),
        ),
    ] {
        let rule = value!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CONNECT"], "resources": [resource] });
        let spec = value!({ "matchConstraints": { "resourceRules": [(rule)] }, "mutations": [(mutation)] });
        let name = resource.replace('/', "-");
        enforce(&rig, "mutating", &name, &spec, &Value::object()).await;
    }
    let network = Network::start(&rig.server).await;
    for (path, asked) in [
        (
            "exec?container=a&command=sh&stdin=true&stdout=true",
            "/exec/default/p/b?command=nice&command=sh&output=1",
        ),
        (
            "attach?container=a&stdin=true",
            "/attach/default/p/b?input=1&tty=1",
        ),
        (
            "portforward?ports=80,81",
            "/portForward/default/p?port=90%2C81",
        ),
    ] {
        let (head, _) = open(&network, &format!("{PODS}/p/{path}")).await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        let seen = kubelet.seen().pop().unwrap();
        assert_eq!(seen.uri().path_and_query().unwrap().as_str(), asked);
    }
    rig.get("/api/v1/nodes/one/proxy/secret?a=b")
        .await
        .expect(200);
    let seen = kubelet.seen().pop().unwrap();
    assert_eq!(seen.uri().path_and_query().unwrap().as_str(), "/public?a=b");
}

#[tokio::test]
async fn a_pod_is_proxied_by_its_address_or_through_its_simulated_node() {
    let rig = Rig::new().await;
    let kubelet = Peer::answering(502, "connect: connection refused").await;
    add_node(&rig, "simulated", &kubelet, "simulated://0.1.0").await;
    for (name, node, address) in [
        ("far", "simulated", "10.244.0.5"),
        ("own", "simulated", "127.0.0.1"),
    ] {
        add_pod(&rig, name, node).await;
        let status =
            format!(r#"{{"status":{{"podIP":"{address}","podIPs":[{{"ip":"{address}"}}]}}}}"#);
        rig.patch(&format!("{PODS}/{name}/status"), &status)
            .await
            .expect(200);
    }
    add_pod(&rig, "waiting", "simulated").await;
    let get = async |path: &str| rig.get(&format!("{PODS}/{path}")).await;
    let refused = get("far/proxy/x?y=z").await.expect(503);
    let said =
        "error trying to reach service: dial tcp 10.244.0.5:8080: connect: connection refused";
    assert_eq!(refused.message(), said);
    let seen = kubelet.seen().pop().unwrap();
    assert_eq!(
        seen.uri().path_and_query().unwrap().as_str(),
        "/tunnel/default/far?port=8080"
    );
    let said =
        "error trying to reach service: dial tcp 10.244.0.5:443: connect: connection refused";
    assert_eq!(
        get("https:far:443/proxy/").await.expect(503).message(),
        said
    );
    assert_eq!(
        get("own/proxy/").await.expect(400).message(),
        "address not allowed"
    );
    assert_eq!(
        get("waiting/proxy/").await.expect(400).message(),
        "address not allowed"
    );
    assert_eq!(
        get("ftp:far:1/proxy/").await.expect(400).message(),
        "invalid pod request \"ftp:far:1\""
    );
    assert_eq!(
        get("none/proxy/").await.expect(404).message(),
        "pods \"none\" not found"
    );
    let moved = rig.send("GET", &format!("{PODS}/far/proxy?a=b"), "").await;
    assert_eq!(moved.status(), 301);
    assert_eq!(
        moved.headers()["location"],
        format!("{PODS}/far/proxy/?a=b")
    );
}

#[tokio::test]
async fn a_service_is_proxied_to_pods_that_its_endpoints_name() {
    let rig = Rig::new().await;
    let kubelet = Peer::answering(502, "connect: connection refused").await;
    add_node(&rig, "simulated", &kubelet, "simulated://0.1.0").await;
    add_pod(&rig, "p", "simulated").await;
    let status = r#"{"status":{"podIP":"10.244.0.5","podIPs":[{"ip":"10.244.0.5"}]}}"#;
    rig.patch(&format!("{PODS}/p/status"), status)
        .await
        .expect(200);
    let service = r#"{"metadata":{"name":"web"},"spec":{"ports":[{"name":"http","port":80,"targetPort":8080}]}}"#;
    rig.post("/api/v1/namespaces/default/services", service)
        .await
        .expect(201);
    let get = async |id: &str, code: u16| {
        let path = format!("/api/v1/namespaces/default/services/{id}/proxy/");
        rig.get(&path).await.expect(code).message().to_owned()
    };
    assert_eq!(
        get("web:http", 404).await,
        "services \"web\" not found",
        "its endpoints are missing"
    );
    let endpoints = |address: &str, name: &str| {
        format!(
            r#"{{"metadata":{{"name":"web"}},"subsets":[{{"addresses":[{{"ip":"{address}","targetRef":{{"kind":"Pod","namespace":"default","name":"{name}"}}}}],"ports":[{{"name":"http","port":8080}}]}}]}}"#
        )
    };
    let path = "/api/v1/namespaces/default/endpoints";
    rig.post(path, &endpoints("10.9.9.9", "p"))
        .await
        .expect(201);
    assert_eq!(
        get("web:http", 503).await,
        "no endpoints available for service \"web:http\"",
        "no pod's address"
    );
    rig.put(&format!("{path}/web"), &endpoints("10.244.0.5", "p"))
        .await
        .expect(200);
    let refused =
        "error trying to reach service: dial tcp 10.244.0.5:8080: connect: connection refused";
    assert_eq!(get("web:http", 503).await, refused);
    assert_eq!(get("web:80", 503).await, refused);
    assert_eq!(
        get("web:81", 503).await,
        "no service port 81 found for service \"web\""
    );
    assert_eq!(
        get("web", 503).await,
        "no endpoints available for service \"web\"",
        "its port has a name"
    );
    assert_eq!(
        get("web:x:y:z", 400).await,
        "invalid service request \"web:x:y:z\""
    );
}

#[tokio::test(start_paused = true)]
async fn a_long_running_request_has_no_timeout() {
    const LATER: Duration = Duration::from_secs(600);
    let rig = Rig::new().await;
    let kubelet = Peer::start(&["127.0.0.1"], |request| {
        let code = match request.uri().path().starts_with("/tunnel") {
            true => 502,
            false => 200,
        };
        Reaction::Later(LATER, code, "late".into())
    })
    .await;
    add_node(&rig, "simulated", &kubelet, "simulated://0.1.0").await;
    add_pod(&rig, "p", "simulated").await;
    let status = r#"{"status":{"podIP":"10.244.0.5","podIPs":[{"ip":"10.244.0.5"}]}}"#;
    rig.patch(&format!("{PODS}/p/status"), status)
        .await
        .expect(200);
    for (method, path, code) in [
        ("GET", "p/log?container=a", 200),
        ("GET", "p/log?container=a&follow=true&timeout=1s", 200),
        ("GET", "p/proxy/x", 503),
        ("POST", "p/proxy/x?timeout=1s", 503),
    ] {
        let begin = Instant::now();
        let answer = rig.send(method, &format!("{PODS}/{path}"), "").await;
        assert_eq!(answer.status(), code, "{path}");
        assert!(
            (LATER..2 * LATER).contains(&begin.elapsed()),
            "{path}: {:?}",
            begin.elapsed()
        );
    }
}

#[tokio::test]
async fn a_log_request_may_skip_the_verification_of_the_kubelet() {
    let other = Peer::answering(200, "").await;
    let rig = Rig::with(Options {
        kubelet_authority: Some(other.authority.clone()),
        ..Options::default()
    })
    .await;
    let kubelet = Peer::answering(200, "line").await;
    add_node(&rig, "one", &kubelet, "containerd://2.0.0").await;
    add_pod(&rig, "p", "one").await;
    let log = async |query: &str| {
        rig.get(&format!("{PODS}/p/log?container=a{query}"))
            .await
            .status
    };
    assert_eq!(log("").await, 500);
    assert_eq!(log("&insecureSkipTLSVerifyBackend=true").await, 200);
    assert_eq!(log("").await, 500, "it is for one request");
    assert_eq!(log("&insecureSkipTLSVerifyBackend=false").await, 500);
}

/// The bytes of WebSocket messages, as far as they are short: each has two bytes before it.
async fn read_message(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> (u8, Vec<u8>) {
    let (kind, short) = (
        stream.read_u8().await.unwrap(),
        stream.read_u8().await.unwrap(),
    );
    let length = match short {
        126 => usize::from(stream.read_u16().await.unwrap()),
        short => usize::from(short),
    };
    let mut message = vec![0; length];
    stream.read_exact(&mut message).await.unwrap();
    (kind, message)
}

const TEXT: u8 = 0x81;
const BINARY: u8 = 0x82;
const CLOSE: u8 = 0x88;
/// A ping of a client, with a mask of zeros.
const PING: &[u8] = b"\x89\x81\0\0\0\0?";
const PONG: u8 = 0x8a;

/// Opens a WebSocket. Returns the head of the response.
async fn open_websocket(
    network: &Network,
    path: &str,
    more: &str,
) -> (
    String,
    tokio_rustls::client::TlsStream<tokio::net::TcpStream>,
) {
    let mut stream = network.connect().await;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nAuthorization: Bearer secret\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    (read_until(&mut stream, "\r\n\r\n").await, stream)
}

#[tokio::test]
async fn a_log_is_read_over_a_websocket() {
    let rig = Rig::new().await;
    let kubelet = Peer::answering(200, "line").await;
    add_node(&rig, "one", &kubelet, "containerd://2.0.0").await;
    add_pod(&rig, "p", "one").await;
    let network = Network::start(&rig.server).await;
    let path = format!("{PODS}/p/log?container=a");
    for (protocol, expected) in [
        ("binary.k8s.io", (BINARY, b"line".to_vec())),
        ("base64.binary.k8s.io", (TEXT, b"bGluZQ==".to_vec())),
    ] {
        let more = format!("Sec-WebSocket-Protocol: {protocol}\r\n");
        let (head, mut stream) = open_websocket(&network, &path, &more).await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        let lower = head.to_ascii_lowercase();
        assert!(
            lower.contains(&format!("sec-websocket-protocol: {protocol}\r\n")),
            "{head}"
        );
        // The first message tells that the log has begun.
        assert_eq!(read_message(&mut stream).await, (expected.0, Vec::new()));
        assert_eq!(read_message(&mut stream).await, expected);
        let normal = 1000_u16.to_be_bytes().to_vec();
        assert_eq!(read_message(&mut stream).await, (CLOSE, normal));
        assert_eq!(
            stream.read_u8().await.unwrap_err().kind(),
            std::io::ErrorKind::UnexpectedEof
        );
    }
    let unknown = "Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n";
    let (head, _) = open_websocket(&network, &path, unknown).await;
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    // Errors are those of any request.
    let missing = format!("{PODS}/missing/log");
    let (head, _) = open_websocket(&network, &missing, "").await;
    assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
}

#[tokio::test]
async fn a_watch_over_a_websocket_has_a_message_per_event() {
    let rig = Rig::new().await;
    for name in ["a", "b"] {
        let made = format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
        rig.post(CONFIG_MAPS, &made).await.expect(201);
    }
    let network = Network::start(&rig.server).await;
    let path = format!("{CONFIG_MAPS}?watch=true&resourceVersion=0");
    let (head, _) = open_websocket(&network, &path, "").await;
    assert!(
        head.starts_with("HTTP/1.1 403 "),
        "without an origin: {head}"
    );
    let origin = "Origin: http://localhost\r\n";
    let (head, mut stream) = open_websocket(&network, &path, origin).await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    let mut next = async || {
        let (kind, message) = read_message(&mut stream).await;
        let event = mizzen_value::json::parse(&message).unwrap();
        (
            kind,
            event["type"].str().to_owned(),
            event["object"]["metadata"]["name"].str().to_owned(),
        )
    };
    let event = |kind: &str, name: &str| (TEXT, kind.to_owned(), name.to_owned());
    assert_eq!(next().await, event("ADDED", "a"));
    assert_eq!(next().await, event("ADDED", "b"));
    let change = r#"{"data":{"k":"v"}}"#;
    rig.patch(&format!("{CONFIG_MAPS}/a"), change)
        .await
        .expect(200);
    assert_eq!(next().await, event("MODIFIED", "a"));
    stream.write_all(PING).await.unwrap();
    assert_eq!(read_message(&mut stream).await, (PONG, b"?".to_vec()));
    // In protobuf a message is an event without its length.
    let protobuf = format!("{origin}Accept: application/vnd.kubernetes.protobuf;stream=watch\r\n");
    let (head, mut stream) = open_websocket(&network, &path, &protobuf).await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    let (kind, message) = read_message(&mut stream).await;
    assert_eq!((kind, &message[..7]), (BINARY, &b"\x0a\x05ADDED"[..]));
    // The server closes a watch at its end.
    let short = format!("{path}&timeoutSeconds=1&fieldSelector=metadata.name=none");
    let (_, mut stream) = open_websocket(&network, &short, origin).await;
    assert_eq!(read_message(&mut stream).await.0, CLOSE);
}

/// A node of which the status says this.
async fn add_addressed_node(rig: &Rig, name: &str, addresses: &str) {
    let node = format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
    rig.post("/api/v1/nodes", &node).await.expect(201);
    let status = format!(r#"{{"status":{{"addresses":{addresses}}}}}"#);
    rig.patch(&format!("/api/v1/nodes/{name}/status"), &status)
        .await
        .expect(200);
}

#[tokio::test]
async fn a_node_is_proxied_to_its_kubelet() {
    let rig = Rig::new().await;
    let kubelet = Peer::answering(200, "answered").await;
    add_node(&rig, "one", &kubelet, "simulated://0.1.0").await;
    let port = kubelet.port;
    for (method, path, asked) in [
        ("GET", "one/proxy/", "/".to_owned()),
        ("GET", "one/proxy/metrics?a=b", "/metrics?a=b".into()),
        ("GET", "one/proxy/stats//summary/", "/stats/summary/".into()),
        ("POST", "one/proxy", "/".into()),
        ("DELETE", "one/proxy/x", "/x".into()),
        ("GET", &format!("one:{port}/proxy/x%20y"), "/x%20y".into()),
        ("GET", &format!("http:one:{port}/proxy/x"), "/x".into()),
    ] {
        let user = mizzen_apiserver::User::master("admin");
        let secret = [("authorization", "Bearer secret")];
        let path = format!("/api/v1/nodes/{path}");
        rig.call_as(user, &secret, method, &path, "")
            .await
            .expect(200);
        let seen = kubelet.seen().pop().unwrap();
        assert_eq!(seen.method(), method);
        assert_eq!(seen.uri().path_and_query().unwrap().as_str(), asked);
        let (asked, _) = path.split_once('?').unwrap_or((&path, ""));
        assert_eq!(seen.headers()["x-forwarded-uri"], asked);
        assert!(
            !seen.headers().contains_key("authorization"),
            "what proves who asks stays here"
        );
    }
    let moved = rig.send("GET", "/api/v1/nodes/one/proxy?a=b", "").await;
    assert_eq!(moved.status(), 301);
    assert_eq!(moved.headers()["location"], "/api/v1/nodes/one/proxy/?a=b");
}

#[tokio::test]
async fn a_node_that_cannot_be_proxied_is_rejected_in_upstreams_words() {
    let rig = Rig::new().await;
    let kubelet = Peer::answering(200, "answered").await;
    add_node(&rig, "simulated", &kubelet, "simulated://0.1.0").await;
    add_node(&rig, "real", &kubelet, "containerd://2.0.0").await;
    add_addressed_node(
        &rig,
        "link-local",
        r#"[{"type":"InternalIP","address":"169.254.169.254"}]"#,
    )
    .await;
    add_addressed_node(
        &rig,
        "strange",
        r#"[{"type":"Strange","address":"10.1.1.1"},{"type":"Odd","address":"x"}]"#,
    )
    .await;
    let (port, refused) = (kubelet.port, "address not allowed");
    for (path, code, said) in [
        // What listens on this machine is for this machine; what answers for simulated nodes is the exception.
        ("real/proxy/", 400, refused),
        (&format!("real:{port}/proxy/"), 400, refused),
        ("simulated:81/proxy/", 400, refused),
        ("https:simulated:81/proxy", 400, refused),
        ("link-local/proxy/", 400, refused),
        ("link-local:80/proxy/latest", 400, refused),
        ("none/proxy/", 404, "nodes \"none\" not found"),
        (
            "ftp:real:80/proxy/",
            400,
            "invalid node request \"ftp:real:80\"",
        ),
        ("a:b:c:d/proxy/", 400, "invalid node request \"a:b:c:d\""),
        (
            "simulated/proxy/?dryRun=All",
            400,
            "dryRun is not supported",
        ),
        (
            "strange/proxy/",
            500,
            "no preferred addresses found; known addresses: [{Strange 10.1.1.1} {Odd x}]",
        ),
    ] {
        let answer = rig.get(&format!("/api/v1/nodes/{path}")).await;
        assert_eq!(answer.expect(code).message(), said, "{path}");
    }
    rig.get("/api/v1/namespaces/default/nodes/simulated/proxy/")
        .await
        .expect(404);
    rig.call("TRACE", "/api/v1/nodes/simulated/proxy/", "")
        .await
        .expect(405);
    assert!(kubelet.seen().is_empty());
}

#[tokio::test]
async fn an_upgrade_is_proxied_to_a_node() {
    let rig = Rig::new().await;
    let kubelet = Peer::start(&["127.0.0.1"], |_| Reaction::Echo).await;
    add_node(&rig, "one", &kubelet, "simulated://0.1.0").await;
    let network = Network::start(&rig.server).await;
    let path = "/api/v1/nodes/one/proxy/exec/default/p/c?command=sh";
    let (head, mut stream) = open(&network, path).await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    stream.write_all(b"hello;").await.unwrap();
    assert_eq!(read_until(&mut stream, ";").await, "hello;");
    let seen = kubelet.seen().pop().unwrap();
    assert_eq!(
        seen.uri().path_and_query().unwrap().as_str(),
        "/exec/default/p/c?command=sh"
    );
    assert!(!seen.headers().contains_key("authorization"));
}
