//! Endpoints at which no usable runtime is.

use std::convert::Infallible;
use std::path::Path;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use mizzen_cri::CriClient;
use tokio::net::UnixListener;

async fn refusal(endpoint: &str) -> String {
    match CriClient::connect(endpoint).await {
        Ok(client) => panic!("connected to {}", client.endpoint()),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn a_missing_runtime_is_named_with_a_way_to_get_one() {
    let error = refusal("unix:///nowhere/containerd.sock").await;
    let expected =
        "no container runtime at unix:///nowhere/containerd.sock: the socket does not exist. ";
    assert!(error.starts_with(expected), "{error}");
    assert!(error.contains("apt install containerd"), "{error}");
    assert_eq!(
        refusal("localhost:80").await,
        "\"localhost:80\" is not an endpoint such as \"unix:///run/containerd/containerd.sock\""
    );
}

#[tokio::test]
async fn a_socket_without_a_server_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("a.sock");
    drop(UnixListener::bind(&socket).unwrap());
    let error = refusal(socket.to_str().unwrap()).await;
    assert!(
        error.contains("cannot connect to the container runtime at unix://"),
        "{error}"
    );
}

/// Serves gRPC that answers every call with a status code.
fn serve_code(socket: &Path, code: &'static str) -> tokio::task::JoinHandle<()> {
    let listener = UnixListener::bind(socket).unwrap();
    let respond = move |_: Request<Incoming>| async move {
        let response = Response::builder()
            .header("content-type", "application/grpc")
            .header("grpc-status", code)
            .header("grpc-message", "unknown service runtime.v1.RuntimeService")
            .body(Empty::<Bytes>::new());
        Ok::<_, Infallible>(response.unwrap())
    };
    tokio::spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let connection = builder.serve_connection(TokioIo::new(stream), service_fn(respond));
            connections.spawn(async move { drop(connection.await) });
        }
    })
}

#[tokio::test]
async fn a_runtime_without_version_1_is_too_old() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("old.sock");
    let server = serve_code(&socket, "12");
    let error = refusal(socket.to_str().unwrap()).await;
    assert!(error.contains("does not serve CRI v1"), "{error}");
    server.abort();
}

#[tokio::test]
async fn another_failure_is_reported_with_its_code() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("failing.sock");
    let server = serve_code(&socket, "13");
    let error = refusal(socket.to_str().unwrap()).await;
    assert!(
        error.ends_with(
            "fails: rpc error: code = Internal desc = unknown service runtime.v1.RuntimeService"
        ),
        "{error}"
    );
    server.abort();
}
