//! How long a client may take, and what a request may break: time is virtual, the network is real.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use mizzen_apiserver::{Http, Options, UnsentLimits, User};
use mizzen_authorization::{Attributes, Authorizer, Decision, DecisionReason};
use mizzen_registry::BoxFuture;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;

use crate::network::Network;
use crate::rig::{CONFIG_MAPS, Rig};

/// What a client gets that says `bytes` and then nothing, and after how many seconds the server has hung up.
async fn hang_up(network: &Network, protocol: &str, bytes: &[u8]) -> (String, u64) {
    let mut stream = network.dial(protocol).await;
    let begin = Instant::now();
    stream.write_all(bytes).await.unwrap();
    stream.flush().await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    (
        String::from_utf8_lossy(&answer).into_owned(),
        begin.elapsed().as_secs(),
    )
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_tls_handshake_is_closed() {
    let rig = Rig::new().await;
    let network = Network::start(&rig.server).await;
    let mut stream = network.dial_plain().await;
    let begin = Instant::now();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(
        (10..12).contains(&begin.elapsed().as_secs()),
        "{:?}",
        begin.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn reading_a_request_head_times_out_after_half_a_minute() {
    let rig = Rig::new().await;
    let network = Network::start(&rig.server).await;
    for half in ["", "GET /readyz HT", "GET /readyz HTTP/1.1\r\nhost: x\r\n"] {
        let (answer, seconds) = hang_up(&network, "http/1.1", half.as_bytes()).await;
        assert!(
            (32..34).contains(&seconds),
            "{half:?}: {seconds} s, {answer}"
        );
    }
}

/// Kubernetes: IdleTimeout is 90 s, ReadHeaderTimeout 32 s (server/secure_serving.go).
#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_after_ninety_seconds_and_the_head_timeout_starts_at_its_first_byte()
 {
    const READY: &str = "GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n";
    let rig = Rig::new().await;
    let network = Network::start(&rig.server).await;
    for (thinks, says, expected) in [
        (0, "", 90),
        (80, READY, 80 + 90),
        (80, "G", 80 + 32),
        (89, "GET /readyz HTTP/1.1\r\nhost", 89 + 32),
    ] {
        let mut stream = network.dial("http/1.1").await;
        stream.write_all(READY.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
        let begin = Instant::now();
        tokio::time::sleep(Duration::from_secs(thinks)).await;
        stream.write_all(says.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        let answers = 1 + u64::from(says == READY);
        assert_eq!(
            String::from_utf8_lossy(&rest).matches("\r\n\r\nok").count() as u64,
            answers,
            "{says:?}"
        );
        let seconds = begin.elapsed().as_secs();
        assert!(
            (expected..expected + 2).contains(&seconds),
            "{says:?} after {thinks} s: {seconds} s"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn reading_a_body_times_out_with_the_request() {
    let rig = Rig::with(Options {
        request_timeout: 20,
        ..Options::default()
    })
    .await;
    let network = Network::start(&rig.server).await;
    // The second one is long-running.
    for path in [CONFIG_MAPS, "/debug/pprof/symbol"] {
        let half = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{{"
        );
        let (answer, seconds) = hang_up(&network, "http/1.1", half.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 504"), "{path}: {answer}");
        assert!((20..60).contains(&seconds), "{path}: {seconds} s");
    }
    assert_eq!(
        rig.get(CONFIG_MAPS).await.expect(200).names(),
        Vec::<String>::new()
    );
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_requests_is_closed() {
    let rig = Rig::new().await;
    let network = Network::start(&rig.server).await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    // A head that has no end is no request either.
    let half_head = b"\0\0\x01\x01\0\0\0\0\x01\x82";
    for bytes in [
        &b""[..],
        b"PRI * HT",
        preface,
        &[&preface[..], half_head].concat(),
    ] {
        let (_, seconds) = hang_up(&network, "h2", bytes).await;
        // Who does not answer to pings is dead even earlier.
        assert!(
            (40..200).contains(&seconds),
            "{seconds} s after {} bytes",
            bytes.len()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_that_the_client_does_not_read_times_out() {
    let rig = Rig::new().await;
    let text = "x".repeat(1_000_000);
    for number in 0..40 {
        rig.make(&format!("c{number}"), &text).await;
    }
    let network = Network::start(&rig.server).await;
    let mut stream = network.dial("http/1.1").await;
    let request = format!("GET {CONFIG_MAPS} HTTP/1.1\r\nhost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut start = [0; 12];
    stream.read_exact(&mut start).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 200");
    tokio::time::sleep(Duration::from_secs(120)).await;
    let mut rest = Vec::new();
    let read = stream.read_to_end(&mut rest).await;
    assert!(
        read.is_err() || rest.len() < 40_000_000,
        "{} bytes came after all",
        rest.len()
    );
}

/// A metric of the server.
async fn metric(rig: &Rig, line: &str) -> u64 {
    let text = rig.get("/metrics").await.expect(200).body.str().to_owned();
    let found = text
        .lines()
        .find_map(|text| text.strip_prefix(line))
        .unwrap_or_else(|| panic!("no {line}"));
    found.trim().parse::<f64>().unwrap() as u64
}

/// A list shares the store's memory until its objects are replaced; from then on it alone keeps them.
#[tokio::test(start_paused = true)]
async fn an_unread_list_counts_the_records_that_the_store_has_dropped() {
    const MB: u64 = 1_000_000;
    let unsent = UnsentLimits {
        per_user: 50 * MB,
        ..UnsentLimits::default()
    };
    let rig = Rig::with(Options {
        http: Http {
            unsent,
            ..Http::default()
        },
        ..Options::default()
    })
    .await;
    let text = "x".repeat(1_000_000);
    for number in 0..40 {
        rig.make(&format!("c{number}"), &text).await;
    }
    let network = Network::start(&rig.server).await;
    let request = format!("GET {CONFIG_MAPS} HTTP/1.1\r\nhost: x\r\n\r\n");
    let mut streams = Vec::new();
    for _ in 0..2 {
        let mut stream = network.dial("http/1.1").await;
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut start = [0; 12];
        stream.read_exact(&mut start).await.unwrap();
        assert_eq!(&start, b"HTTP/1.1 200");
        streams.push(stream);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    const CLOSED: &str = r#"mizzen_connections_closed_total{reason="unread"}"#;
    let charged = metric(&rig, "mizzen_unsent_response_bytes").await;
    assert!(
        (1..4 * MB).contains(&charged),
        "{charged} bytes are charged for two lists of 40 MB"
    );
    for number in 0..40 {
        rig.put(
            &format!("{CONFIG_MAPS}/c{number}"),
            &format!(r#"{{"metadata":{{"name":"c{number}"}}}}"#),
        )
        .await
        .expect(200);
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(metric(&rig, CLOSED).await, 1);
    let charged = metric(&rig, "mizzen_unsent_response_bytes").await;
    assert!(
        (40 * MB..45 * MB).contains(&charged),
        "{charged} bytes are charged for the list that is left"
    );
    // The older one is gone; the other one is still there to be read.
    let mut rest = Vec::new();
    let read = streams[0].read_to_end(&mut rest).await;
    assert!(
        read.is_err() || rest.len() < 40_000_000,
        "{} bytes came after all",
        rest.len()
    );
    rest.clear();
    while rest.len() < 40_000_000 {
        assert_ne!(
            streams[1].read_buf(&mut rest).await.unwrap(),
            0,
            "{} bytes came",
            rest.len()
        );
    }
}

/// One whose own code breaks when it is asked about somebody clumsy.
#[derive(Debug)]
struct Fragile;

impl Authorizer for Fragile {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Decision> {
        assert_ne!(attributes.user.name, "clumsy", "a bug");
        Box::pin(async { Decision::Allow(DecisionReason::default()) })
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_panics_gets_500_and_affects_no_other_request() {
    let authorizers: Vec<Arc<dyn Authorizer>> = vec![Arc::new(Fragile)];
    let rig = Rig::with(Options {
        authorizers,
        ..Options::default()
    })
    .await;
    for _ in 0..3 {
        let (user, headers) = (User::component("clumsy"), HeaderMap::new());
        let uri = CONFIG_MAPS.parse().unwrap();
        let answer = rig
            .server
            .call(Some(user), Method::GET, uri, headers, Bytes::new())
            .await;
        assert_eq!(answer.status(), 500);
        let reply = rig
            .call_as(User::component("careful"), &[], "GET", CONFIG_MAPS, "")
            .await
            .expect(200);
        assert_eq!(reply.names(), Vec::<String>::new());
        rig.post(CONFIG_MAPS, r#"{"metadata":{"generateName":"a"}}"#)
            .await
            .expect(201);
        rig.delete(CONFIG_MAPS, "").await.expect(200);
    }
    let metrics = rig.get("/metrics").await.expect(200);
    let inflight = r#"apiserver_current_inflight_requests{request_kind="readOnly"} 1"#;
    assert!(
        metrics.body.str().contains(inflight),
        "{}",
        metrics.body.str()
    );
}

/// A request that is given up is not counted as under way, and has not written anything by half.
#[tokio::test(start_paused = true)]
async fn a_cancelled_request_leaves_no_partial_write() {
    let rig = Rig::new().await;
    for number in 0..200 {
        let body = format!(r#"{{"metadata":{{"name":"c{number}"}}}}"#);
        let call = rig.post(CONFIG_MAPS, &body);
        // It is looked at a few times, and then no more.
        let mut call = std::pin::pin!(call);
        for _ in 0..number % 5 {
            let polled = std::future::poll_fn(|context| {
                std::task::Poll::Ready(call.as_mut().poll(context).is_ready())
            });
            if polled.await {
                break;
            }
        }
    }
    for name in rig.get(CONFIG_MAPS).await.expect(200).names() {
        let found = rig.get(&format!("{CONFIG_MAPS}/{name}")).await.expect(200);
        assert!(!found.body.at("metadata.uid").str().is_empty());
    }
    let metrics = rig.get("/metrics").await.expect(200);
    let text = metrics.body.str();
    assert!(
        text.contains(r#"inflight_requests{request_kind="mutating"} 0"#),
        "{text}"
    );
}

/// What a server says to these bytes until it hangs up.
async fn exchange(network: &Network, sent: &str) -> String {
    let mut connection = network.connect().await;
    connection.write_all(sent.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = connection.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_hash_is_a_character_of_the_target() {
    let rig = Rig::new().await;
    rig.make("a", "").await;
    let network = Network::start(&rig.server).await;
    for (method, target, code) in [
        ("GET", format!("{CONFIG_MAPS}/a"), "200"),
        ("GET", format!("{CONFIG_MAPS}/a#b"), "404"),
        ("DELETE", format!("{CONFIG_MAPS}/a#b"), "404"),
        ("GET", format!("{CONFIG_MAPS}?limit=1#b"), "400"),
        ("GET", format!("{CONFIG_MAPS}/a`"), "404"),
        ("GET", format!("{CONFIG_MAPS}/<a>"), "404"),
    ] {
        let request = format!("{method} {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        let answer = exchange(&network, &request).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {code}")),
            "{method} {target}: {answer}"
        );
    }
    rig.get(&format!("{CONFIG_MAPS}/a")).await.expect(200);
}

/// As v1.36.4 answers them.
#[tokio::test]
async fn request_lines_are_read_as_gos_server_reads_them() {
    const MALFORMED: &str = "400 Bad Request";
    const VERSION: &str = "505 HTTP Version Not Supported";
    let rig = Rig::new().await;
    let network = Network::start(&rig.server).await;
    for (line, expected) in [
        ("GET /api/v1/namespaces/%2Ffoo HTTP/1.1", "404 Not Found"),
        ("GET /%2Fapi/v1/namespaces HTTP/1.1", "404 Not Found"),
        ("GET //api/v1/namespaces HTTP/1.1", "404 Not Found"),
        ("GET * HTTP/1.1", "404 Not Found"),
        ("OPTIONS * HTTP/1.1", "200 OK"),
        ("GET /healthz?a=%zz HTTP/1.1", "200 OK"),
        ("GET /healthz HTTP/1.2", "200 OK"),
        ("GET http://example.com/healthz HTTP/1.1", "200 OK"),
        ("GET https://example.com:1/healthz?x=1 HTTP/1.1", "200 OK"),
        ("GET http:///healthz HTTP/1.1", "200 OK"),
        ("GET ftp://x/healthz HTTP/1.1", "200 OK"),
        ("GET http://example.com HTTP/1.1", "404 Not Found"),
        ("OPTIONS http://example.com HTTP/1.1", "404 Not Found"),
        ("GET example.com:443 HTTP/1.1", "404 Not Found"),
        ("GET mailto:x HTTP/1.1", "404 Not Found"),
        ("CONNECT example.com:443 HTTP/1.1", "404 Not Found"),
        ("GET /é HTTP/1.1", "404 Not Found"),
        ("GET /[x]{y}|\\^ HTTP/1.1", "404 Not Found"),
        ("GET %2Fapi/v1/namespaces HTTP/1.1", MALFORMED),
        ("GET api/v1/namespaces HTTP/1.1", MALFORMED),
        ("GET /api/v1/namespaces/%zz HTTP/1.1", MALFORMED),
        ("GET /api/v1/namespaces/%2 HTTP/1.1", MALFORMED),
        ("GET #x HTTP/1.1", MALFORMED),
        ("GET ?a=b HTTP/1.1", MALFORMED),
        ("GET  HTTP/1.1", MALFORMED),
        ("GET /a b HTTP/1.1", MALFORMED),
        ("GET /\u{1} HTTP/1.1", MALFORMED),
        ("GET http://ex ample/ HTTP/1.1", MALFORMED),
        ("GE T /healthz HTTP/1.1", MALFORMED),
        ("G@T /healthz HTTP/1.1", MALFORMED),
        ("GET /healthz http/1.1", MALFORMED),
        ("GET /healthz HTTP/0.9", VERSION),
        ("GET /healthz HTTP/2.0", VERSION),
    ] {
        let request = format!("{line}\r\nhost: x\r\nconnection: close\r\n\r\n");
        let answer = exchange(&network, &request).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {expected}")),
            "{line}: {answer}"
        );
        if [MALFORMED, VERSION].contains(&expected) {
            // The server hangs up whether or not it is asked to.
            let kept = exchange(&network, &format!("{line}\r\nhost: x\r\n\r\n")).await;
            assert!(kept.contains(&format!("\r\n\r\n{expected}")), "{kept}");
        }
    }
}

#[tokio::test]
async fn a_client_that_is_still_sending_reads_its_response() {
    const SIZE: usize = 4 << 20;
    let rig = Rig::new().await;
    let network = Network::start(&rig.server).await;
    let sized = format!("POST {CONFIG_MAPS} HTTP/1.1\r\nhost: x\r\ncontent-length: {SIZE}\r\n\r\n");
    let chunked = format!(
        "POST {CONFIG_MAPS} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n{SIZE:x}\r\n"
    );
    for head in [sized, chunked] {
        let mut connection = network.connect().await;
        let request = [head.into_bytes(), vec![b' '; SIZE]].concat();
        // It reads nothing before it has sent everything.
        connection.write_all(&request).await.unwrap();
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
        assert!(answer.contains("connection: close\r\n"), "{answer}");
    }
}

#[tokio::test]
async fn a_small_unread_body_keeps_the_connection_open() {
    let rig = Rig::new().await;
    let network = Network::start(&rig.server).await;
    let ready = "GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    for (size, n_answers) in [(1, 2), (200 << 10, 2), (300 << 10, 1)] {
        let body = "x".repeat(size);
        let unread =
            format!("GET /readyz HTTP/1.1\r\nhost: x\r\ncontent-length: {size}\r\n\r\n{body}");
        let answer = exchange(&network, &(unread + ready)).await;
        let found = answer.matches("HTTP/1.1 200 OK").count();
        assert_eq!(found, n_answers, "{size} bytes: {answer}");
    }
    // Without its body, and without a word of the server's that it should come.
    for head in [
        "content-length: 9",
        "content-length: 9\r\nexpect: 100-continue",
    ] {
        let unsent = format!("GET /readyz HTTP/1.1\r\nhost: x\r\n{head}\r\n\r\n");
        let answer = exchange(&network, &unsent).await;
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("connection: close\r\n"),
            "{head}: {answer}"
        );
    }
}
