//! Denial of service: no client may slow down other clients, whatever it sends.
//!
//! Every attack runs against the real server over TLS. It must end in bounded time and memory, while another client
//! is served.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::client::{Client, dial, dial_narrow};
use crate::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, HEADERS, PING, PRIORITY, RESET,
    SETTINGS, WINDOW_UPDATE, Wire, field, frame, head, literal,
};
use crate::process::{Home, Process, STEP_TIMEOUT};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MB: u64 = 1_000_000;
/// The response time of another client during an attack, on a busy machine.
const SOON: Duration = Duration::from_secs(10);

/// A server under attack, and its memory before.
struct Target {
    process: Process,
    bystander: Client,
    before: u64,
    _home: Home,
}

impl Target {
    async fn start() -> Target {
        let home = Home::in_memory();
        let process = home.start().await;
        let bystander = process.admin().await;
        bystander.get("/readyz").await.expect(200);
        let before = process.resident_bytes();
        Target {
            process,
            bystander,
            before,
            _home: home,
        }
    }

    /// Checks that another client is served in bounded time, on an old and a new connection, and that the server has grown by at
    /// most this many megabytes.
    #[track_caller]
    fn check(&self, most: u64) -> impl Future<Output = ()> {
        let growth = self.process.resident_bytes().saturating_sub(self.before) / MB;
        assert!(
            growth <= most,
            "{growth} MB more memory, expected at most {most}"
        );
        async {
            let begin = Instant::now();
            let served = async {
                self.bystander
                    .get("/api/v1/namespaces/default")
                    .await
                    .expect(200);
                self.process
                    .admin()
                    .await
                    .get("/api/v1/namespaces/default")
                    .await
                    .expect(200);
            };
            timeout(SOON, served).await.expect("others are served");
            println!("others were served in {:?}", begin.elapsed());
        }
    }

    async fn metric(&self, line: &str) -> i64 {
        let text = self.bystander.get("/metrics").await.expect(200).text();
        let found = text.lines().find_map(|text| text.strip_prefix(line));
        found
            .unwrap_or_else(|| panic!("no {line}"))
            .trim()
            .parse::<f64>()
            .unwrap() as i64
    }
}

#[tokio::test]
async fn rapid_resets_close_the_connection() {
    let target = Target::start().await;
    let mut wire = Wire::open(&target.process, &[]).await;
    let mut sent = 0;
    for batch in 0..1_000u32 {
        let mut bytes = Vec::new();
        for number in 0..100 {
            let stream = 2 * (batch * 100 + number) + 1;
            bytes.extend(frame(
                HEADERS,
                END_HEADERS | END_STREAM,
                stream,
                &head("GET", "/api/v1/pods"),
            ));
            bytes.extend(frame(RESET, 0, stream, &8u32.to_be_bytes()));
        }
        if !wire.write(&bytes).await {
            break;
        }
        sent += 100;
    }
    println!("{sent} requests were sent");
    if let Some(reason) = wire.goodbye().await {
        assert_eq!(reason, ENHANCE_YOUR_CALM);
    }
    target.check(50).await;
}

/// The requests are started before they are reset: their work must be cancelled, too.
#[tokio::test]
async fn many_cancelled_requests_close_the_connection() {
    let target = Target::start().await;
    // With the codes CANCEL and NO_ERROR.
    for reason in [8u32, 0] {
        let mut wire = Wire::open(&target.process, &[]).await;
        let mut sent = 0;
        // Few at a time, so that they are started when they are reset.
        for batch in 0..1_000u32 {
            let streams: Vec<u32> = (0..10)
                .map(|number| 2 * (batch * 10 + number) + 1)
                .collect();
            let begun: Vec<u8> = streams
                .iter()
                .flat_map(|at| frame(HEADERS, END_HEADERS, *at, &head("POST", CONFIG_MAPS)))
                .collect();
            let reset: Vec<u8> = streams
                .iter()
                .flat_map(|at| frame(RESET, 0, *at, &reason.to_be_bytes()))
                .collect();
            if !wire.write(&begun).await || !wire.answered_ping().await || !wire.write(&reset).await
            {
                break;
            }
            sent += 10;
        }
        println!("{sent} requests were given up");
        assert!(sent < 1_500, "the server took {sent} requests");
        target.check(50).await;
    }
    let inflight = r#"apiserver_current_inflight_requests{request_kind="mutating"}"#;
    assert_eq!(target.metric(inflight).await, 0);
}

impl Wire {
    /// Whether the server has read everything.
    async fn answered_ping(&mut self) -> bool {
        if !self.write(&frame(PING, 0, 0, b"received")).await {
            return false;
        }
        while let Some(frame) = self.next().await {
            if frame.kind == PING && frame.payload == b"received" {
                return true;
            }
        }
        false
    }
}

#[tokio::test]
async fn an_endless_header_block_closes_the_connection() {
    let target = Target::start().await;
    for payload in [&[][..], &[0x82; 16_000]] {
        let mut wire = Wire::open(&target.process, &[]).await;
        assert!(
            wire.write(&frame(HEADERS, END_STREAM, 1, &head("GET", "/readyz")))
                .await
        );
        let mut sent = 0;
        while sent < 10_000
            && wire
                .write(&frame(CONTINUATION, 0, 1, payload).repeat(10))
                .await
        {
            sent += 10;
        }
        println!("{sent} continuations were sent");
        // Data may be in flight; in the end the server does not wait for more.
        if let Some(reason) = wire.goodbye().await {
            assert_ne!(reason, 0);
        }
    }
    target.check(50).await;
}

/// One long field is indexed and then referenced a thousand times by a byte each.
#[tokio::test]
async fn a_header_block_that_decompresses_too_large_is_rejected() {
    let target = Target::start().await;
    let mut block = head("GET", "/readyz");
    block.extend([&[0x40, 1, b'y'][..], &literal(0, &"x".repeat(3_900))[1..]].concat());
    block.extend(vec![0xbe; 10_000]);
    for _ in 0..20 {
        let mut wire = Wire::open(&target.process, &[]).await;
        wire.write(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &block))
            .await;
        let mut is_refused = true;
        while let Some(frame) = wire.next().await {
            match frame.kind {
                // 431 is a literal: it is not in the static table.
                HEADERS => is_refused = frame.payload.windows(3).any(|bytes| bytes == b"431"),
                RESET => {}
                DATA => panic!("an answer"),
                _ => continue,
            }
            break;
        }
        assert!(is_refused);
    }
    target.check(100).await;
}

#[tokio::test]
async fn a_flood_of_pings_and_settings_is_cheap() {
    let target = Target::start().await;
    for question in [frame(PING, 0, 0, b"received"), frame(SETTINGS, 0, 0, &[])] {
        let mut wire = Wire::open(&target.process, &[]).await;
        let batch = question.repeat(1_000);
        let mut sent = 0;
        // Responses are never read, so the server stops reading.
        while sent < 300_000 && wire.write(&batch).await {
            sent += 1_000;
            if sent % 100_000 == 0 {
                target.check(50).await;
            }
        }
        println!("{sent} were taken");
        target.check(50).await;
    }
}

#[tokio::test]
async fn a_client_that_reads_no_response_uses_bounded_memory() {
    let target = Target::start().await;
    for number in 0..8 {
        let body = format!(
            r#"{{"metadata":{{"name":"c{number}"}},"data":{{"a":"{}"}}}}"#,
            "x".repeat(1_000_000)
        );
        target.bystander.post(CONFIG_MAPS, body).await.expect(201);
    }
    let before = target.process.resident_bytes();
    // The client grants no window, or more than it will read.
    let (none, all) = ([0, 4, 0, 0, 0, 0], [0, 4, 0x7f, 0xff, 0xff, 0xff]);
    let mut wires = Vec::new();
    for settings in [none, all] {
        for path in [
            CONFIG_MAPS.to_string(),
            format!("{CONFIG_MAPS}?watch=1&resourceVersion=0"),
        ] {
            let mut wire = Wire::open(&target.process, &settings).await;
            wire.write(&frame(8, 0, 0, &0x7fff_0000u32.to_be_bytes()))
                .await;
            for number in 0..100u32 {
                let block = head("GET", &path);
                wire.write(&frame(
                    HEADERS,
                    END_HEADERS | END_STREAM,
                    2 * number + 1,
                    &block,
                ))
                .await;
            }
            wires.push(wire);
        }
    }
    target.bystander.get(CONFIG_MAPS).await.expect(200);
    let growth = target.process.resident_bytes().saturating_sub(before) / MB;
    println!("{growth} MB for 400 answers of 8 MB that nobody reads");
    assert!(growth < 200, "{growth} MB");
    target.check(1_000).await;
}

/// Empty frames of an unauthenticated peer: on no stream, and on a closed one.
#[tokio::test]
async fn empty_frames_close_the_connection_of_an_unauthenticated_peer() {
    let target = Target::start().await;
    let anonymous = target.process.credentials.anonymous();
    for (name, flood) in [
        ("PRIORITY", frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 16])),
        (
            "WINDOW_UPDATE",
            frame(WINDOW_UPDATE, 0, 0, &1u32.to_be_bytes()),
        ),
        ("unknown", frame(0xbe, 0, 0, b"anything")),
    ] {
        let mut wire = Wire::open_as(&target.process, &anonymous, &[]).await;
        for _ in 0..20 {
            wire.write(&flood.repeat(1_000)).await;
        }
        // Long before the timeout of a client that does not answer pings.
        let ended = async { while wire.next().await.is_some() {} };
        timeout(SOON, ended)
            .await
            .unwrap_or_else(|_| panic!("the server takes {name} frames without end"));
        target.check(50).await;
    }
}

/// A client that acknowledges every DATA frame twice, as some libraries do, is not treated as a flood.
#[tokio::test]
async fn a_client_that_acknowledges_every_frame_gets_its_response() {
    let target = Target::start().await;
    fill(&target, 1_000, 4_000).await;
    let mut wire = Wire::open(&target.process, &[]).await;
    for stream in [1u32, 3, 5] {
        wire.write(&frame(
            HEADERS,
            END_HEADERS | END_STREAM,
            stream,
            &head("GET", CONFIG_MAPS),
        ))
        .await;
        let mut received = 0;
        loop {
            let answer = wire.next().await.expect("the connection goes on");
            if answer.kind != DATA {
                continue;
            }
            received += answer.payload.len();
            if answer.flags & END_STREAM != 0 {
                break;
            }
            let room = u32::try_from(answer.payload.len().max(1))
                .unwrap()
                .to_be_bytes();
            let update = [
                frame(WINDOW_UPDATE, 0, 0, &room),
                frame(WINDOW_UPDATE, 0, stream, &room),
            ]
            .concat();
            assert!(wire.write(&update).await);
        }
        assert!(received > 4_000_000, "{received} bytes");
    }
}

/// Stores `n` objects of `size` bytes each.
async fn fill(target: &Target, n: usize, size: usize) {
    let mut writers = JoinSet::new();
    for writer in 0..8 {
        let client = target.bystander.clone();
        writers.spawn(async move {
            for number in (writer..n).step_by(8) {
                let text = "x".repeat(size);
                let body =
                    format!(r#"{{"metadata":{{"name":"c{number}"}},"data":{{"a":"{text}"}}}}"#);
                client.post(CONFIG_MAPS, body).await.expect(201);
            }
        });
    }
    writers.join_all().await;
}

/// Connections that grant no window and ask for a list of 4 MB on 100 streams each, as one user.
async fn ask_and_read_nothing(target: &Target, n_connections: usize, user: &[u8]) -> Vec<Wire> {
    let block = [head("GET", CONFIG_MAPS), user.to_vec()].concat();
    let mut wires = Vec::new();
    for _ in 0..n_connections {
        let mut wire = Wire::open(&target.process, &[0, 4, 0, 0, 0, 0]).await;
        let requests =
            (0..100u32).flat_map(|at| frame(HEADERS, END_HEADERS | END_STREAM, 2 * at + 1, &block));
        wire.write(&requests.collect::<Vec<u8>>()).await;
        wires.push(wire);
    }
    wires
}

/// The memory of responses that are not read is bounded, whether seats limit their number or only bytes do: members of
/// system:masters are exempt from flow control.
#[tokio::test]
async fn unread_responses_are_bounded_over_all_connections() {
    let target = Target::start().await;
    fill(&target, 1_000, 4_000).await;
    let binding = r#"{"metadata":{"name":"viewer"},
        "roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"},
        "subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"viewer"}]}"#;
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    target.bystander.post(bindings, binding).await.expect(201);
    let before = target.process.resident_bytes();
    let growth = || target.process.resident_bytes().saturating_sub(before) / MB;

    let viewer = ask_and_read_nothing(&target, 40, &field("impersonate-user", "viewer")).await;
    target.check(1_000).await;
    let of_viewer = growth();
    println!("{of_viewer} MB for 4,000 lists of a user with a role");
    assert!(of_viewer < 150, "{of_viewer} MB");
    drop(viewer);

    let mut masters = Vec::new();
    for number in 0..8 {
        let name = field("impersonate-user", &format!("master{number}"));
        let user = [name, field("impersonate-group", "system:masters")].concat();
        masters.extend(ask_and_read_nothing(&target, 10, &user).await);
    }
    target.check(2_000).await;
    let of_masters = growth();
    println!("{of_masters} MB for 8,000 lists of exempt users");
    assert!(of_masters < 750, "{of_masters} MB");
    assert!(
        target
            .metric(r#"mizzen_connections_closed_total{reason="unread"}"#)
            .await
            > 0
    );
}

/// Watchers over HTTP/1.1 that never read. Each has 4 MB of events to receive; without a limit on unsent bytes the
/// server would hold all of them.
#[tokio::test]
async fn a_stalled_http1_watcher_uses_bounded_memory() {
    const N_WATCHERS: u64 = 100;
    // About 240 KB in a debug build on an idle machine; resident memory varies with the load.
    const LIMIT_KB: u64 = 600;
    let target = Target::start().await;
    fill(&target, 1_000, 4_000).await;
    let before = target.process.resident_bytes();
    let watch = format!("GET {CONFIG_MAPS}?watch=1&resourceVersion=0 HTTP/1.1\r\nhost: x\r\n\r\n");
    let mut watchers = Vec::new();
    for _ in 0..N_WATCHERS {
        let credentials = &target.process.credentials;
        let mut stream = dial_narrow(&target.process.address, credentials, &["http/1.1"]).await;
        stream.write_all(watch.as_bytes()).await.unwrap();
        let mut start = [0; 12];
        timeout(STEP_TIMEOUT, stream.read_exact(&mut start))
            .await
            .expect("an answer")
            .unwrap();
        watchers.push(stream);
    }
    target.check(1_000).await;
    let each = target.process.resident_bytes().saturating_sub(before) / N_WATCHERS / 1_000;
    println!("{each} KB for a watcher that does not read");
    assert!(each < LIMIT_KB, "{each} KB");
}

/// An unauthenticated or unauthorized request is rejected before its body is read.
#[tokio::test]
async fn a_body_is_not_read_if_the_request_is_rejected() {
    let target = Target::start().await;
    let anonymous = target.process.credentials.anonymous();
    for (credentials, token, expected) in [
        (&anonymous, "", "HTTP/1.1 403"),
        (
            &anonymous,
            "authorization: Bearer forged\r\n",
            "HTTP/1.1 401",
        ),
    ] {
        let mut stream = dial(&target.process.address, credentials, &["http/1.1"]).await;
        let head = format!(
            "POST {CONFIG_MAPS} HTTP/1.1\r\nhost: x\r\n{token}content-length: 3000000\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        timeout(STEP_TIMEOUT, stream.read_exact(&mut answer))
            .await
            .expect("an answer")
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), expected);
    }
    // The same a hundred times, with as much of the bodies as the server reads.
    let mut wires = Vec::new();
    for _ in 0..10 {
        let mut wire = Wire::open_as(&target.process, &anonymous, &[]).await;
        for number in 0..100u32 {
            let stream = 2 * number + 1;
            let mut bytes = frame(HEADERS, END_HEADERS, stream, &head("POST", CONFIG_MAPS));
            bytes.extend(frame(DATA, 0, stream, &[b' '; 16_000]).repeat(3));
            wire.write(&bytes).await;
        }
        wires.push(wire);
    }
    target.check(100).await;
}

/// The responses of v1.36.4: the index of the status in HPACK's static table, or a reset of the stream.
#[tokio::test]
async fn http2_paths_are_parsed_as_in_go() {
    const OK: Option<u8> = Some(0x88);
    const NOT_FOUND: Option<u8> = Some(0x8d);
    let target = Target::start().await;
    for (method, path, expected) in [
        ("OPTIONS", "*", OK),
        ("GET", "*", NOT_FOUND),
        ("GET", "/readyz", OK),
        ("GET", "/readyz#x", NOT_FOUND),
        ("GET", "/readyz?a#x", OK),
        ("GET", "/<x y>", NOT_FOUND),
        ("GET", "/é", NOT_FOUND),
        ("GET", "/%2Freadyz", NOT_FOUND),
        ("GET", "/api/v1/namespaces/%2Ffoo", NOT_FOUND),
        ("GET", "/readyz%zz", None),
        ("GET", "/\u{7f}", None),
        ("GET", "?a", None),
        ("GET", "readyz", None),
        ("GET", "%2Freadyz", None),
        ("GET", "http://x/readyz", None),
    ] {
        let mut wire = Wire::open(&target.process, &[]).await;
        let request = frame(HEADERS, END_HEADERS | END_STREAM, 1, &head(method, path));
        wire.write(&request).await;
        let answered = loop {
            let answer = wire.next().await.expect("an answer");
            match answer.kind {
                HEADERS => break Some(answer.payload[0]),
                RESET => {
                    assert_eq!(answer.payload, 1u32.to_be_bytes(), "PROTOCOL_ERROR");
                    break None;
                }
                _ => {}
            }
        };
        assert_eq!(answered, expected, "{method} {path}");
    }
    target.check(50).await;
}

/// Kubernetes: Go reads none of more than ten thousand pairs.
#[tokio::test]
async fn a_query_with_too_many_pairs_is_ignored() {
    let target = Target::start().await;
    for (pairs, remaining) in [(1_000, true), (12_000, false)] {
        let path = format!("/api/v1/namespaces?limit=1{}", "&a=b".repeat(pairs));
        let list = target.bystander.get(&path).await.expect(200).json();
        assert_eq!(
            list["metadata"]["remainingItemCount"].is_number(),
            remaining,
            "{pairs}"
        );
    }
    // A query of a megabyte is rejected by the library, or parsed quickly.
    let mut stream = dial(
        &target.process.address,
        &target.process.credentials,
        &["http/1.1"],
    )
    .await;
    let long = format!(
        "GET /readyz?{} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        "a&".repeat(400_000)
    );
    stream.write_all(long.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = timeout(STEP_TIMEOUT, stream.read_to_end(&mut answer))
        .await
        .expect("an answer");
    assert!(String::from_utf8_lossy(&answer).starts_with("HTTP/1.1 414"));
    target.check(50).await;
}

/// Empty chunks, and endless extensions and trailers.
#[tokio::test]
async fn an_endless_chunked_body_is_rejected() {
    let target = Target::start().await;
    let head =
        format!("POST {CONFIG_MAPS} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n");
    let trailers = format!("0\r\n{}", "x: y\r\n".repeat(1_000));
    let endless = [
        format!("1;{}", "a".repeat(65_536)),
        "1\r\n \r\n".repeat(10_000),
        trailers,
    ];
    for piece in endless {
        let mut stream = dial(
            &target.process.address,
            &target.process.credentials,
            &["http/1.1"],
        )
        .await;
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut sent = 0;
        let pour = async {
            while sent < 64 << 20 && stream.write_all(piece.as_bytes()).await.is_ok() {
                sent += piece.len();
            }
        };
        let _ = timeout(STEP_TIMEOUT, pour).await;
        println!("{} KB of {:?}… were taken", sent >> 10, &piece[..6]);
        assert!(sent < 64 << 20, "the server took everything");
    }
    target.check(50).await;
}

/// Metrics count only resources that are served, whatever clients request.
#[tokio::test]
async fn requests_for_missing_resources_leave_no_metrics() {
    let target = Target::start().await;
    let anonymous = target.process.anonymous().await;
    for number in 0..200 {
        anonymous
            .get(&format!("/apis/g{number}.example/v1/things"))
            .await;
        target
            .bystander
            .get(&format!("/api/v1/namespaces/default/pods/a/none{number}"))
            .await;
        target
            .bystander
            .get(&format!("/api/v1/none{number}%22"))
            .await;
    }
    let text = target.bystander.get("/metrics").await.expect(200).text();
    assert!(
        !text.contains("g17.example") && !text.contains("none17"),
        "{text}"
    );
}
