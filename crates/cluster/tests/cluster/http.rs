//! Anonymous and broken clients are rejected.

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::client::{Client, dial};
use crate::frames::{
    DATA, END_HEADERS, END_STREAM, GO_AWAY, HEADERS, RESET, Wire, frame, head, literal,
};
use crate::process::{Home, Process, STEP_TIMEOUT};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MIB: usize = 1024 * 1024;

/// Checks that the server still works.
pub(crate) async fn check_alive(process: &Process) {
    process
        .admin()
        .await
        .get("/api/v1/namespaces/default")
        .await
        .expect(200);
}

/// Sends raw bytes over HTTP/1.1; returns the response until the connection is closed.
async fn raw(process: &Process, bytes: &[u8]) -> String {
    let mut stream = dial(&process.address, &process.credentials, &["http/1.1"]).await;
    let mut answer = Vec::new();
    let talk = async {
        // The server may close the connection before it has read all.
        let _ = stream.write_all(bytes).await;
        let _ = stream.read_to_end(&mut answer).await;
    };
    timeout(STEP_TIMEOUT, talk)
        .await
        .expect("the server hangs up");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn http1_and_http2_get_the_same_response() {
    let process = Home::in_memory().start().await;
    let mut answers = Vec::new();
    for protocol in ["http/1.1", "h2"] {
        let client = Client::connect(&process.address, &process.credentials, &[protocol]).await;
        client.get("/version").await.expect(200);
        answers.push(
            client
                .get("/api/v1/namespaces/default")
                .await
                .expect(200)
                .json(),
        );
    }
    assert_eq!(answers[0], answers[1]);
    // Without ALPN the protocol is HTTP/1.1.
    let client = Client::connect(&process.address, &process.credentials, &[]).await;
    client.get("/version").await.expect(200);
}

#[tokio::test]
async fn a_response_to_head_has_only_headers() {
    let process = Home::in_memory().start().await;
    let answer = raw(
        &process,
        b"HEAD /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    )
    .await;
    assert!(
        answer.contains("content-length: 2\r\n") && answer.ends_with("\r\n\r\n"),
        "{answer}"
    );
    let mut wire = Wire::open(&process, &[]).await;
    for (stream, path) in [
        (1, "/version"),
        (3, "/readyz"),
        (5, "/api/v1/namespaces"),
        (7, "/none"),
    ] {
        assert!(
            wire.write(&frame(
                HEADERS,
                END_HEADERS | END_STREAM,
                stream,
                &head("HEAD", path)
            ))
            .await
        );
        let answer = loop {
            let frame = wire.next().await.expect("an answer");
            if [HEADERS, DATA, RESET].contains(&frame.kind) {
                break frame;
            }
        };
        assert_eq!(
            (answer.kind, answer.flags & END_STREAM),
            (HEADERS, END_STREAM),
            "{path}"
        );
    }
}

/// Kubernetes: HTTP/2 is dear, and who has not said who they are gets one answer for it (UnauthenticatedHTTP2DOSMitigation).
#[tokio::test]
async fn an_unauthenticated_connection_is_closed_after_one_request() {
    let process = Home::in_memory().start().await;
    let anonymous = process.credentials.anonymous();
    let token = [head("GET", "/version"), literal(0x0f, "")[..1].to_vec()].concat();
    let token = [&token[..], &[0x08], &literal(0, "Bearer forged")[1..]].concat();
    for question in [
        head("GET", "/version"),
        head("GET", "/api/v1/secrets"),
        token,
    ] {
        let mut wire = Wire::open_as(&process, &anonymous, &[]).await;
        assert!(
            wire.write(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &question))
                .await
        );
        let mut kinds = Vec::new();
        while let Some(frame) = wire.next().await {
            kinds.push(frame.kind);
        }
        assert!(
            kinds.contains(&HEADERS) && kinds.contains(&GO_AWAY),
            "{kinds:?}"
        );
    }
    let admin = process.admin().await;
    for _ in 0..3 {
        admin.get("/version").await.expect(200);
    }
}

#[tokio::test]
async fn a_request_has_one_host() {
    let process = Home::in_memory().start().await;
    for (version, hosts, expected) in [
        ("1.1", "", "missing required Host header"),
        ("1.1", "host: a\r\nhost: a\r\n", "too many Host headers"),
        ("1.1", "host: a b\r\n", "malformed Host header"),
        ("1.0", "", ""),
        ("1.1", "host:\r\n", ""),
        ("1.1", "host: [::1]:6443\r\n", ""),
    ] {
        let request = format!("GET /version HTTP/{version}\r\n{hosts}connection: close\r\n\r\n");
        let answer = raw(&process, request.as_bytes()).await;
        let (status, body) = match expected {
            "" => ("200 OK", String::new()),
            problem => ("400 Bad Request", format!("400 Bad Request: {problem}")),
        };
        assert!(
            answer.starts_with(&format!("HTTP/{version} {status}")),
            "{hosts:?}: {answer}"
        );
        assert!(answer.ends_with(&body), "{hosts:?}: {answer}");
    }
}

#[tokio::test]
async fn an_anonymous_client_reads_nothing() {
    let process = Home::in_memory().start().await;
    let secret = r#"{"metadata":{"name":"hidden"},"stringData":{"password":"swordfish"}}"#;
    process
        .admin()
        .await
        .post("/api/v1/namespaces/default/secrets", secret)
        .await
        .expect(201);
    let anonymous = process.anonymous().await;
    for path in [
        "/api/v1/secrets",
        "/api/v1/secrets?watch=1",
        "/api/v1/watch/secrets",
        "/api/v1/namespaces/default/secrets/hidden",
        "/api/v1/namespaces/default/secrets/absent",
        "/api/v1/namespaces/default/nonsense",
        "/apis/nonsense/v1/nonsense",
        "/api",
        "/apis",
        "/openapi/v2",
        "/metrics",
        "/",
    ] {
        let answer = anonymous.get(path).await;
        assert!(
            matches!(answer.status, 401 | 403),
            "{path}: {}",
            answer.text()
        );
        assert!(!answer.text().contains("swordfish"), "{path}");
        assert_eq!(answer.json()["kind"], "Status", "{path}");
    }
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        let answer = anonymous
            .call(method, "/api/v1/namespaces/default/secrets/hidden", secret)
            .await;
        assert_eq!(answer.status, 403, "{method}: {}", answer.text());
    }
    anonymous.get("/readyz").await.expect(200);
}

#[tokio::test]
async fn an_unknown_token_is_rejected() {
    let process = Home::in_memory().start().await;
    let anonymous = process.anonymous().await;
    for token in ["forged", "é", "\u{fffd}"] {
        let request = Request::get(anonymous.uri("/healthz"))
            .header("authorization", format!("Bearer {token}"));
        let answer = anonymous
            .fetch(request.body(Full::default()).unwrap())
            .await
            .unwrap();
        assert_eq!(answer.status, 401, "{token}: {}", answer.text());
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_rejected() {
    let process = Home::in_memory().start().await;
    let client = process.admin().await;
    let body = format!(
        r#"{{"metadata":{{"name":"big"}},"data":{{"a":"{}"}}}}"#,
        "x".repeat(3 * MIB)
    );
    let answer = client.post(CONFIG_MAPS, body).await.expect(413).json();
    assert_eq!(answer["reason"], "RequestEntityTooLarge");
    client.get("/readyz").await.expect(200);

    let announced = format!(
        "POST {CONFIG_MAPS} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n",
        4 * MIB
    );
    let answer = raw(&process, announced.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");

    let mut chunked =
        format!("POST {CONFIG_MAPS} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
            .into_bytes();
    for _ in 0..4 {
        chunked.extend_from_slice(format!("{MIB:x}\r\n{}\r\n", " ".repeat(MIB)).as_bytes());
    }
    // The server may close the connection before everything is sent, so there may be no response.
    let answer = raw(&process, &chunked).await;
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 413"),
        "{answer}"
    );
    check_alive(&process).await;
}

#[tokio::test]
async fn a_malformed_body_is_rejected() {
    let process = Home::in_memory().start().await;
    let (json, yaml, proto) = (
        "application/json",
        "application/yaml",
        "application/vnd.kubernetes.protobuf",
    );
    let deep = |open: &str, close: &str| {
        [open.repeat(100_000), close.repeat(100_000)]
            .concat()
            .into_bytes()
    };
    let in_data =
        |text: Vec<u8>| [br#"{"metadata":{"name":"a"},"data":"#, &text[..], b"}"].concat();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        (json, b"".to_vec()),
        (json, b"{".to_vec()),
        (json, b"nul".to_vec()),
        (json, b"[]".to_vec()),
        (json, b"\"text\"".to_vec()),
        (json, b"\xff\xfe{}".to_vec()),
        (json, b"{\"metadata\":{\"name\":\"a\"}}trailing".to_vec()),
        (json, b"{\"metadata\":{\"name\":\"\\ud800\"}}".to_vec()),
        (json, b"{\"metadata\":{\"name\":\"a\\u0000b\"}}".to_vec()),
        (
            json,
            br#"{"metadata":{"name":"a","generation":1e400}}"#.to_vec(),
        ),
        (json, br#"{"metadata":{"name":"a"},"data":[1]}"#.to_vec()),
        (json, deep("[", "]")),
        (json, deep("{\"a\":", "}")),
        (json, in_data(deep("{\"a\":[", "]}"))),
        (json, br#"{"metadata":"#.repeat(100_000)),
        (yaml, b"\xff\xfe".to_vec()),
        (yaml, b"{".to_vec()),
        (yaml, b"a: b: c".to_vec()),
        (yaml, b"metadata: {name: y}".to_vec()),
        (yaml, deep("[", "]")),
        (yaml, deep("- ", "")),
        (yaml, billion_laughs()),
        (yaml, b"a: &a [*a]".to_vec()),
        (proto, b"".to_vec()),
        (proto, b"k8s\0".to_vec()),
        (proto, b"k8s\0\x0a\xff\xff\xff\xff\x0f".to_vec()),
        (proto, [b"k8s\0".to_vec(), vec![0x0b; 1000]].concat()),
        (proto, b"not protobuf".to_vec()),
        ("text/plain", b"{}".to_vec()),
        ("nonsense", b"{}".to_vec()),
    ];
    let client = process.admin().await;
    for (media_type, body) in cases {
        let start = String::from_utf8_lossy(&body[..body.len().min(40)]).into_owned();
        let request = Request::post(client.uri(CONFIG_MAPS)).header("content-type", media_type);
        let answer = client
            .fetch(request.body(Full::new(body.into())).unwrap())
            .await
            .unwrap();
        assert!(
            (400..500).contains(&answer.status),
            "{media_type} {start:?}: {} {}",
            answer.status,
            answer.text()
        );
        assert_eq!(answer.json()["kind"], "Status", "{media_type} {start:?}");
    }
    let list = client.get(CONFIG_MAPS).await.expect(200).json();
    assert_eq!(list["items"], serde_json::json!([]));
}

/// A kilobyte of YAML that expands to terabytes.
fn billion_laughs() -> Vec<u8> {
    let mut text = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..12 {
        let items = vec![format!("*a{}", level - 1); 10].join(",");
        text += &format!("a{level}: &a{level} [{items}]\n");
    }
    text.into_bytes()
}

#[tokio::test]
async fn a_malformed_patch_is_rejected() {
    let process = Home::in_memory().start().await;
    let client = process.admin().await;
    let made = client
        .post(CONFIG_MAPS, r#"{"metadata":{"name":"a"},"data":{"a":"b"}}"#)
        .await
        .expect(201)
        .json();
    let (merge, strategic) = (
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
    );
    let (patch, apply) = (
        "application/json-patch+json",
        "application/apply-patch+yaml",
    );
    let cases: Vec<(&str, Vec<u8>)> = vec![
        (merge, b"".to_vec()),
        (merge, b"[]".to_vec()),
        (merge, b"{".to_vec()),
        (
            merge,
            [b"{\"data\":".repeat(50_000), b"}".repeat(50_000)].concat(),
        ),
        (merge, br#"{"data":5}"#.to_vec()),
        (strategic, b"[]".to_vec()),
        (strategic, br#"{"$patch":"nonsense"}"#.to_vec()),
        (strategic, br#"{"data":{"$patch":7}}"#.to_vec()),
        (
            strategic,
            [b"{\"data\":".repeat(50_000), b"}".repeat(50_000)].concat(),
        ),
        (patch, b"{}".to_vec()),
        (patch, br#"[{"op":"nonsense","path":"/data"}]"#.to_vec()),
        (patch, br#"[{"op":"remove","path":"/none/none"}]"#.to_vec()),
        (
            patch,
            br#"[{"op":"copy","from":"/data","path":"/data/c"}]"#.to_vec(),
        ),
        (patch, copy_bomb()),
        (
            patch,
            [
                &b"["[..],
                &b"{\"op\":\"test\",\"path\":\"/kind\",\"value\":1},".repeat(20_000),
                b"{}]",
            ]
            .concat(),
        ),
        (apply, b"a: b: c".to_vec()),
        (apply, billion_laughs()),
        ("application/nonsense", b"{}".to_vec()),
    ];
    for (media_type, body) in cases {
        let start = String::from_utf8_lossy(&body[..body.len().min(40)]).into_owned();
        let uri = client.uri(&format!("{CONFIG_MAPS}/a?fieldManager=test"));
        let request = Request::patch(uri).header("content-type", media_type);
        let answer = client
            .fetch(request.body(Full::new(body.into())).unwrap())
            .await
            .unwrap();
        // Kubernetes: structural errors in strategic patches and applied objects are 500.
        assert!(
            (400..=500).contains(&answer.status),
            "{media_type} {start:?}: {} {}",
            answer.status,
            answer.text()
        );
        assert_eq!(answer.json()["kind"], "Status", "{media_type} {start:?}");
    }
    assert_eq!(
        client
            .get(&format!("{CONFIG_MAPS}/a"))
            .await
            .expect(200)
            .json(),
        made
    );
}

/// A JSON Patch that doubles an annotation repeatedly.
fn copy_bomb() -> Vec<u8> {
    let mut operations = vec![r#"{"op":"add","path":"/x","value":{"a":"0123456789"}}"#.to_owned()];
    for level in 0..40 {
        operations.push(format!(r#"{{"op":"copy","from":"/x","path":"/y"}},{{"op":"add","path":"/y/l{level}","value":{{}}}},{{"op":"copy","from":"/x","path":"/y/l{level}/c"}},{{"op":"move","from":"/y","path":"/x"}}"#));
    }
    format!("[{}]", operations.join(",")).into_bytes()
}

#[tokio::test]
async fn a_header_block_that_is_too_large_is_rejected() {
    let process = Home::in_memory().start().await;
    let long = format!(
        "GET /readyz HTTP/1.1\r\nhost: x\r\nx: {}\r\nconnection: close\r\n\r\n",
        "y".repeat(2 * MIB)
    );
    let answer = raw(&process, long.as_bytes()).await;
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
        "{answer}"
    );

    let many = "x: y\r\n".repeat(10_000);
    let answer = raw(
        &process,
        format!("GET /readyz HTTP/1.1\r\nhost: x\r\n{many}\r\n").as_bytes(),
    )
    .await;
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
        "{answer}"
    );

    let client = process.admin().await;
    let request = Request::get(client.uri("/readyz")).header("x", "y".repeat(2 * MIB));
    let answer = client.fetch(request.body(Full::default()).unwrap()).await;
    assert!(answer.is_err() || answer.is_ok_and(|answer| answer.status == 431));
    check_alive(&process).await;
}

/// Kubernetes: the statuses are what the original answers to the same paths.
#[tokio::test]
async fn malformed_paths_are_not_found() {
    let process = Home::in_memory().start().await;
    let long = format!("/api/v1/namespaces/{}", "a".repeat(60_000));
    let mut wrong = Vec::new();
    for (path, expected) in [
        ("//", 404),
        ("//api/v1/namespaces", 404),
        ("/api//v1/namespaces", 404),
        ("/api/v1//namespaces", 404),
        ("/api/v1/namespaces//configmaps", 200),
        ("/api/v1/namespaces/default/configmaps//", 200),
        ("/..", 404),
        ("/../api/v1/namespaces", 404),
        ("/api/v1/../v1/namespaces", 404),
        ("/api/v1/namespaces/../namespaces", 404),
        ("/api/v1/namespaces/default/configmaps/..", 400),
        ("/api/v1/namespaces/default/configmaps/%2e%2e", 400),
        ("/%2e%2e/%2e%2e/etc/passwd", 404),
        ("/api/v1/namespaces/default/configmaps/a%00b", 404),
        ("/api/v1/namespaces/default/configmaps/a%2fb", 404),
        ("/api/v1/namespaces/default/configmaps/%ff", 404),
        ("/api/v1/namespaces/default/configmaps/%", 400),
        ("/api/v1/namespaces/default/configmaps/%zz", 400),
        ("/api/v1/namespaces/default/configmaps/a/b/c/d/e", 404),
        ("/api/v1/namespaces/default/configmaps/a?%zz=%", 404),
        ("/openapi/v3/../../etc/passwd", 404),
        ("/openapi/v3/apis/none/v1", 404),
        ("/readyz/none", 404),
        ("/readyz/", 404),
        ("/none", 404),
        ("*", 404),
        ("none", 400),
        (&long, 404),
    ] {
        let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        let answer = raw(&process, head.as_bytes()).await;
        let status: u16 = answer
            .get(9..12)
            .and_then(|digits| digits.parse().ok())
            .unwrap_or_default();
        if status != expected {
            wrong.push(format!(
                "{}: {status} instead of {expected}",
                &path[..path.len().min(60)]
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    check_alive(&process).await;
}

#[tokio::test]
async fn names_that_are_paths_are_not_stored() {
    let process = Home::in_memory().start().await;
    let client = process.admin().await;
    for name in ["..", ".", "a/b", "a%2fb", "A", "a b", ""] {
        let body = format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
        client.post(CONFIG_MAPS, body).await.expect(422);
    }
    client
        .post(
            "/api/v1/namespaces/..%2fdefault/configmaps",
            r#"{"metadata":{"name":"a"}}"#,
        )
        .await
        .expect(404);
}

#[tokio::test]
async fn a_connection_without_tls_is_closed() {
    let process = Home::in_memory().start().await;
    for bytes in [
        &b"GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n"[..],
        b"\0\0\0\0",
        &[0xff; 10_000],
        b"\x16\x03\x01\xff\xff",
    ] {
        let mut stream = TcpStream::connect(&process.address).await.unwrap();
        let _ = stream.write_all(bytes).await;
        stream.shutdown().await.ok();
        let mut answer = Vec::new();
        let _ = timeout(STEP_TIMEOUT, stream.read_to_end(&mut answer))
            .await
            .expect("the server hangs up");
        assert!(!answer.starts_with(b"HTTP/1.1 200"));
    }
    check_alive(&process).await;
}

#[tokio::test]
async fn idle_connections_do_not_block_other_clients() {
    let process = Home::in_memory().start().await;
    let (mut silent, mut half) = (Vec::new(), Vec::new());
    for _ in 0..200 {
        silent.push(TcpStream::connect(&process.address).await.unwrap());
    }
    for _ in 0..50 {
        let mut stream = dial(&process.address, &process.credentials, &["http/1.1"]).await;
        stream
            .write_all(b"POST /api/v1/namespaces HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n")
            .await
            .unwrap();
        half.push(stream);
    }
    check_alive(&process).await;
}

#[tokio::test]
async fn a_pipelined_smuggling_attempt_is_rejected() {
    let process = Home::in_memory().start().await;
    let head = format!(
        "POST {CONFIG_MAPS} HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n{{}}   GET / HTTP/1.1\r\n\r\n"
    );
    let answer = raw(&process, head.as_bytes()).await;
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 400"),
        "{answer}"
    );
    for (first, second) in [
        ("content-length: 4", "transfer-encoding: chunked"),
        ("Transfer-Encoding:chunked", "CONTENT-LENGTH:4"),
    ] {
        let head = format!(
            "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\nGET /healthz HTTP/1.1\r\nhost: x\r\n{first}\r\n{second}\r\n\r\n0\r\n\r\nGET /readyz HTTP/1.1\r\nhost: x\r\n\r\n"
        );
        let answer = raw(&process, head.as_bytes()).await;
        assert!(
            answer.contains("400 Bad Request: both Content-Length and Transfer-Encoding"),
            "{answer}"
        );
        assert_eq!(answer.matches("HTTP/1.1 400").count(), 1, "{answer}");
        assert!(answer.matches("HTTP/1.1 200").count() <= 1, "{answer}");
    }
    check_alive(&process).await;
}

const N_UPDATES: usize = 5_000;
const N_WRITERS: usize = 8;

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_watcher_delays_no_other_and_uses_bounded_memory() {
    let process = Home::in_memory().start().await;
    let client = process.admin().await;
    for number in 0..N_WRITERS {
        client
            .post(CONFIG_MAPS, config_map(number, 0))
            .await
            .expect(201);
    }
    let watch = format!("GET {CONFIG_MAPS}?watch=1&resourceVersion=0 HTTP/1.1\r\nhost: x\r\n\r\n");
    let mut stuck = dial(&process.address, &process.credentials, &["http/1.1"]).await;
    stuck.write_all(watch.as_bytes()).await.unwrap();
    let _stuck_too = process
        .admin()
        .await
        .watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=0"))
        .await;
    let mut reader = process
        .admin()
        .await
        .watch(&format!("{CONFIG_MAPS}?watch=1"))
        .await;

    let before = process.resident_bytes();
    let mut writers = JoinSet::new();
    for number in 0..N_WRITERS {
        let client = process.admin().await;
        writers.spawn(async move {
            for round in 1..=N_UPDATES / N_WRITERS {
                let path = format!("{CONFIG_MAPS}/c{number}");
                client
                    .call("PUT", &path, config_map(number, round))
                    .await
                    .expect(200);
            }
        });
    }
    for _ in 0..N_WRITERS + N_UPDATES / N_WRITERS * N_WRITERS {
        assert_ne!(
            reader.next().await.expect("an event")["type"],
            "ERROR",
            "the one who reads misses nothing"
        );
    }
    writers.join_all().await;
    let growth = process.resident_bytes().saturating_sub(before);
    println!(
        "{} MB more memory after {N_UPDATES} updates",
        growth / 1_000_000
    );
    assert!(
        growth < 150_000_000,
        "{} MB more memory",
        growth / 1_000_000
    );
    check_alive(&process).await;
}

fn config_map(number: usize, round: usize) -> Bytes {
    let text = format!("{round:010}").repeat(1024);
    format!(r#"{{"metadata":{{"name":"c{number}"}},"data":{{"text":"{text}"}}}}"#).into()
}
