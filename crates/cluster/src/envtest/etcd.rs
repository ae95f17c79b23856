//! `etcd`, as envtest starts it: a data directory and its health. The API server of this binary stores objects in the data
//! directory itself ([`StorageLocation`]); the etcd API is not served.

use std::convert::Infallible;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clap::Parser;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::StorageLocation;
use crate::command::{EtcdServer, Unsupported};
use crate::compose::stop_signal;

/// Kubernetes: the version of etcd that v1.36 is released with.
const VERSION: &str = "3.6.8";
/// The response at `/version`.
const VERSIONS: &str = r#"{"etcdserver":"3.6.8","etcdcluster":"3.6.0","storage":"3.6.0"}"#;
/// The limit of connections.
const MAX_CONNECTIONS: usize = 256;
/// How long a client may take to send its headers.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause after a connection could not be accepted, for example because all file descriptors are in use.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The first bytes of a connection of HTTP/2.
const HTTP2_PREFACE: &[u8] = b"PRI ";

/// The etcd of envtest suites: the data directory of Mizzen's kube-apiserver, and its health. It stores nothing itself and
/// does not serve the etcd API
#[derive(Parser)]
#[command(
    name = "etcd",
    display_name = "etcd Version:",
    version = VERSION,
    args_override_self = true,
    after_help = "Example:\n  etcd --data-dir=./etcd --listen-client-urls=http://127.0.0.1:2379 \
                  --advertise-client-urls=http://127.0.0.1:2379"
)]
struct Etcd {
    /// The name of this member
    #[arg(long, value_name = "NAME", default_value = "default")]
    name: String,
    /// Store objects in this directory [default: NAME.etcd]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Listen on these URLs, without TLS
    #[arg(
        long,
        value_name = "URL,…",
        value_delimiter = ',',
        default_value = "http://localhost:2379"
    )]
    listen_client_urls: Vec<String>,
    /// Acknowledge writes before they are on disk
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = false, action = clap::ArgAction::Set)]
    unsafe_no_fsync: bool,
    #[command(flatten)]
    _unsupported: Unsupported<EtcdServer>,
}

/// Serves until it is stopped.
pub(super) fn run(arguments: impl Iterator<Item = OsString>) -> Result<(), String> {
    let program = OsString::from("etcd");
    let args = Etcd::parse_from([program].into_iter().chain(arguments));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    runtime.block_on(args.serve())
}

impl Etcd {
    /// Serves until a signal stops the process.
    async fn serve(self) -> Result<(), String> {
        let stop = stop_signal().map_err(|error| format!("cannot start: {error}"))?;
        let mut listeners = Vec::new();
        for url in &self.listen_client_urls {
            listeners.push(bind(url).await?);
        }
        let location = Arc::new(self.storage_location()?);
        let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        for listener in listeners {
            let address = listener.local_addr();
            tokio::spawn(accept(listener, location.clone(), connections.clone()));
            // Kubernetes: the words of etcd 3.4, for which controller-runtime before 0.9 waits.
            if let Ok(address) = address {
                crate::log::print_error!("ready: serving insecure client requests on {address}");
            }
        }
        stop.await;
        Ok(())
    }

    /// Creates the data directory.
    fn storage_location(&self) -> Result<StorageLocation, String> {
        let data_dir = match &self.data_dir {
            Some(data_dir) => data_dir.clone(),
            None => format!("{}.etcd", self.name).into(),
        };
        let cannot_use =
            |error: std::io::Error| format!("cannot use {}: {error}", data_dir.display());
        std::fs::create_dir_all(&data_dir).map_err(cannot_use)?;
        let data_dir = data_dir.canonicalize().map_err(cannot_use)?;
        if data_dir.to_str().is_none() {
            return Err(format!("--data-dir {} is not UTF-8", data_dir.display()));
        }
        Ok(StorageLocation {
            data_dir,
            unsafe_no_fsync: self.unsafe_no_fsync,
        })
    }
}

/// Listens on the address of a URL.
async fn bind(url: &str) -> Result<TcpListener, String> {
    let Some(address) = url.strip_prefix("http://") else {
        return Err(format!(
            "--listen-client-urls {url}: only http:// is supported, as envtest uses it"
        ));
    };
    TcpListener::bind(address.trim_end_matches('/'))
        .await
        .map_err(|error| format!("cannot listen on {url}: {error}"))
}

async fn accept(
    listener: TcpListener,
    location: Arc<StorageLocation>,
    connections: Arc<Semaphore>,
) {
    let mut has_failed = false;
    while let Ok(permit) = connections.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let location = location.clone();
                tokio::spawn(async move {
                    serve_connection(stream, location).await;
                    drop(permit);
                });
            }
            Err(error) => {
                if !std::mem::replace(&mut has_failed, true) {
                    crate::log::print_error!("failed to accept connections: {error}");
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves HTTP/1.1, and HTTP/2 without negotiation as gRPC clients use it.
async fn serve_connection(stream: TcpStream, location: Arc<StorageLocation>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = respond(&request, &location);
        async move { Ok::<_, Infallible>(response) }
    });
    let mut start = [0; HTTP2_PREFACE.len()];
    let peeked = tokio::time::timeout(HEADER_TIMEOUT, stream.peek(&mut start)).await;
    let is_http2 = matches!(peeked, Ok(Ok(_))) && start == HTTP2_PREFACE;
    let io = TokioIo::new(stream);
    // What a client breaks off concerns that client only.
    let _ = match is_http2 {
        true => {
            http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .serve_connection(io, service)
                .await
        }
        false => {
            http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .serve_connection(io, service)
                .await
        }
    };
}

fn respond(request: &Request<Incoming>, location: &StorageLocation) -> Response<Full<Bytes>> {
    let is_grpc = request
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"));
    let (code, kind, body) = match request.uri().path() {
        "/health" => (
            200,
            "application/json",
            r#"{"health":"true","reason":""}"#.into(),
        ),
        "/version" => (200, "application/json", VERSIONS.into()),
        "/livez" | "/readyz" => (200, "text/plain; charset=utf-8", "ok\n".into()),
        StorageLocation::PATH => (200, "application/json", location.to_json()),
        _ if is_grpc => (200, "application/grpc", String::new()),
        _ => (
            404,
            "text/plain; charset=utf-8",
            "404 page not found\n".into(),
        ),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = StatusCode::from_u16(code).expect("a valid status code");
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, kind.parse().expect("a valid header"));
    if is_grpc {
        // 12 is UNIMPLEMENTED.
        headers.insert("grpc-status", header::HeaderValue::from_static("12"));
        let message = "the etcd of mizzen envtest does not serve the etcd API";
        headers.insert("grpc-message", header::HeaderValue::from_static(message));
    }
    response
}
