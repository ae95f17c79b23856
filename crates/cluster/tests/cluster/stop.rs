//! How a server stops: what is under way is finished, and nothing is torn off.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::client::{Client, dial};
use crate::process::{Home, Process, STEP_TIMEOUT};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Less than any of the server's limits on what a client may take.
const SOON: Duration = Duration::from_secs(8);

#[tokio::test]
async fn a_watch_ends_between_two_events() {
    for protocol in ["h2", "http/1.1"] {
        let mut process = Home::in_memory().start().await;
        let watcher = Client::connect(&process.address, &process.credentials, &[protocol]).await;
        let mut events = watcher.watch(&format!("{CONFIG_MAPS}?watch=1")).await;
        process
            .admin()
            .await
            .post(CONFIG_MAPS, r#"{"metadata":{"name":"seen"}}"#)
            .await
            .expect(201);
        assert_eq!(events.next_name().await, "ADDED seen");
        process.terminate();
        assert_eq!(events.next().await, None);
        assert_eq!(process.ended().await.code(), Some(0), "over {protocol}");
    }
}

#[tokio::test]
async fn idle_connections_do_not_delay_the_stop() {
    let mut process = Home::in_memory().start().await;
    let clients = [process.admin().await, process.admin().await];
    let http1 = Client::connect(&process.address, &process.credentials, &["http/1.1"]).await;
    clients[0].get("/readyz").await.expect(200);
    http1.get("/readyz").await.expect(200);
    process.terminate();
    assert_eq!(process.ended().await.code(), Some(0));
}

/// Who never asked anything, or not all of it, has nothing to wait for.
#[tokio::test]
async fn half_open_connections_do_not_delay_the_stop() {
    let mut process = Home::in_memory().start().await;
    let _silent = TcpStream::connect(&process.address).await.unwrap();
    let mut half = dial(&process.address, &process.credentials, &["http/1.1"]).await;
    half.write_all(b"GET /readyz HTTP/1.1\r\nhost: x\r\n")
        .await
        .unwrap();
    process.admin().await.get("/readyz").await.expect(200);
    process.terminate();
    let ended = timeout(SOON, process.ended())
        .await
        .expect("does not wait for them");
    assert_eq!(ended.code(), Some(0));
}

#[tokio::test]
async fn a_request_in_flight_is_answered_before_the_stop() {
    let home = Home::on_disk();
    let mut process = home.start().await;
    let mut stream = dial(&process.address, &process.credentials, &["http/1.1"]).await;
    let body = r#"{"metadata":{"name":"late"}}"#;
    let head = format!(
        "POST {CONFIG_MAPS} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let (first, rest) = body.split_at(10);
    stream
        .write_all(format!("{head}{first}").as_bytes())
        .await
        .unwrap();
    // The server has read the headers once it answers a later request.
    process.admin().await.get("/readyz").await.expect(200);

    process.terminate();
    accepts_nobody(&process).await;
    stream.write_all(rest.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    timeout(STEP_TIMEOUT, read)
        .await
        .expect("answered in time")
        .unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    assert_eq!(process.ended().await.code(), Some(0));

    let process = home.start().await;
    process
        .admin()
        .await
        .get(&format!("{CONFIG_MAPS}/late"))
        .await
        .expect(200);
}

/// Waits until the server does not accept connections.
async fn accepts_nobody(process: &Process) {
    let closed = async { while TcpStream::connect(&process.address).await.is_ok() {} };
    timeout(STEP_TIMEOUT, closed)
        .await
        .expect("stops accepting");
}

/// The harness of a language starts the server with a pipe and keeps its other end, so that no server outlives its test.
#[tokio::test]
async fn a_server_can_end_with_its_standard_input() {
    // Standard input is /dev/null, which is at its end from the start.
    let mut process = Home::in_memory().with("--stop-with-stdin").start().await;
    assert_eq!(process.ended().await.code(), Some(0));
}
