//! Serving flags: CORS, HSTS, advertised address, timeouts.

use http_body_util::Full;
use hyper::Request;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::client::{Client, dial};
use crate::process::{Home, Process, STEP_TIMEOUT};

/// The response headers of a request without a body.
async fn head(process: &Process, request: &str) -> String {
    let mut stream = dial(
        &process.address,
        &process.credentials.anonymous(),
        &["http/1.1"],
    )
    .await;
    let request = format!("{request}\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = timeout(STEP_TIMEOUT, stream.read_to_end(&mut answer))
        .await
        .expect("an answer");
    let text = String::from_utf8_lossy(&answer).to_lowercase();
    text.split("\r\n\r\n")
        .next()
        .unwrap_or_default()
        .to_string()
}

#[tokio::test]
async fn cors_preflight_requests_get_cors_headers() {
    let home = Home::in_memory()
        .with("--cors-allowed-origins=//console\\.example(:|$)")
        .with("--strict-transport-security-directives=max-age=60,includeSubDomains");
    let process = home.start().await;
    let asked = head(
        &process,
        "OPTIONS /api/v1/pods HTTP/1.1\r\norigin: https://console.example",
    )
    .await;
    assert!(asked.starts_with("http/1.1 204"), "{asked}");
    assert!(
        asked.contains("access-control-allow-origin: https://console.example"),
        "{asked}"
    );
    assert!(asked.contains("audit-id: "), "{asked}");
    let refused = head(
        &process,
        "GET /api/v1/pods HTTP/1.1\r\norigin: https://console.example",
    )
    .await;
    assert!(refused.starts_with("http/1.1 403"), "{refused}");
    assert!(
        refused.contains("access-control-allow-credentials: true"),
        "{refused}"
    );
    assert!(
        refused.contains("strict-transport-security: max-age=60; includesubdomains"),
        "{refused}"
    );
    for request in [
        "OPTIONS /api/v1/pods HTTP/1.1\r\norigin: https://console.example.evil",
        "OPTIONS /api/v1/pods HTTP/1.1",
    ] {
        let answer = head(&process, request).await;
        assert!(
            !answer.contains("access-control") && !answer.starts_with("http/1.1 204"),
            "{answer}"
        );
    }
}

/// About every fiftieth request causes a GOAWAY; no request is lost.
#[tokio::test]
async fn goaway_loses_no_request() {
    let process = Home::in_memory().with("--goaway-chance=0.02").start().await;
    let client = process.admin().await;
    let mut answered = 0;
    loop {
        let request = Request::get(client.uri("/readyz"))
            .body(Full::default())
            .unwrap();
        match client.fetch(request).await {
            Ok(answer) => assert_eq!(answer.status, 200),
            Err(_) => break,
        }
        answered += 1;
        assert!(answered < 5_000, "nobody was sent away");
    }
    println!("sent away after {answered} requests");
    process.admin().await.get("/readyz").await.expect(200);
}

#[tokio::test]
async fn a_stopping_server_is_not_ready_first() {
    let mut process = Home::in_memory()
        .with("--shutdown-delay-duration=1h")
        .start()
        .await;
    let client = process.admin().await;
    client.get("/readyz").await.expect(200);
    process.terminate();
    let unready = async { while client.get("/readyz").await.status == 200 {} };
    timeout(STEP_TIMEOUT, unready)
        .await
        .expect("not ready any more");
    client.get("/livez").await.expect(200);
    let another = Client::connect(&process.address, &process.credentials, &["h2"]).await;
    another
        .post("/api/v1/namespaces", r#"{"metadata":{"name":"late"}}"#)
        .await
        .expect(201);
    // A second signal stops the server at once.
    process.terminate();
    process.ended().await;
}

#[tokio::test]
async fn a_watch_lasts_as_long_as_the_flag_says() {
    let process = Home::in_memory()
        .with("--min-request-timeout=1")
        .start()
        .await;
    let mut events = process
        .admin()
        .await
        .watch("/api/v1/configmaps?watch=1&resourceVersion=0")
        .await;
    while events.next().await.is_some() {}
}
