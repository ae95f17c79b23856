//! A KMS plug-in for tests: the three gRPC calls on a Unix socket.
//!
//! It encrypts by XOR with the last byte of the key ID.

use parking_lot::Mutex;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use mizzen_object::proto::wire::{WireReader, put_bytes, put_message};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;

/// A plug-in that runs until it is dropped.
pub(crate) struct TestPlugin {
    pub socket: PathBuf,
    pub state: Arc<Mutex<TestPluginState>>,
    task: JoinHandle<()>,
}

/// How it responds.
pub(crate) struct TestPluginState {
    pub key_id: String,
    pub health: String,
    pub version: String,
    /// The key ID in responses to `Encrypt`, if it differs.
    pub encrypt_key_id: Option<String>,
    /// Whether it never responds.
    pub hangs: bool,
    /// The number of calls: Status, Encrypt, Decrypt.
    pub n_calls: [usize; 3],
}

impl TestPlugin {
    pub(crate) fn start(socket: &Path) -> TestPlugin {
        let state = TestPluginState {
            key_id: "key-1".into(),
            health: "ok".into(),
            version: "v2".into(),
            encrypt_key_id: None,
            hangs: false,
            n_calls: [0; 3],
        };
        let state = Arc::new(Mutex::new(state));
        let _ = std::fs::remove_file(socket);
        let listener = UnixListener::bind(socket).unwrap();
        let task = tokio::spawn(accept(listener, state.clone()));
        TestPlugin {
            socket: socket.into(),
            state,
            task,
        }
    }

    /// Changes how it responds.
    pub(crate) fn set(&self, change: impl FnOnce(&mut TestPluginState)) {
        change(&mut self.state.lock());
    }

    pub(crate) fn n_calls(&self) -> [usize; 3] {
        self.state.lock().n_calls
    }
}

impl Drop for TestPlugin {
    /// Closes the socket and all connections.
    fn drop(&mut self) {
        self.task.abort();
        let _ = std::fs::remove_file(&self.socket);
    }
}

async fn accept(listener: UnixListener, state: Arc<Mutex<TestPluginState>>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let state = state.clone();
        let service =
            hyper::service::service_fn(move |request| handle_call(request, state.clone()));
        let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        connections.spawn(async move { drop(connection.await) });
    }
}

type Framed = http_body_util::combinators::WithTrailers<
    Full<Bytes>,
    std::future::Ready<Option<Result<hyper::HeaderMap, Infallible>>>,
>;

async fn handle_call(
    request: Request<Incoming>,
    state: Arc<Mutex<TestPluginState>>,
) -> Result<Response<Framed>, Infallible> {
    assert_eq!(request.headers()["content-type"], "application/grpc");
    let method = request.uri().path().to_string();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    if state.lock().hangs {
        std::future::pending::<()>().await;
    }
    let outcome = state.lock().call(&method, &body[5..]);
    let (message, code, text) = match outcome {
        Ok(message) => (message, "0", String::new()),
        Err(problem) => (Vec::new(), "9", problem),
    };
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap());
    framed.put_slice(&message);
    let mut trailers = hyper::HeaderMap::new();
    trailers.insert("grpc-status", code.parse().unwrap());
    trailers.insert("grpc-message", text.parse().unwrap());
    let body = Full::new(framed.freeze()).with_trailers(std::future::ready(Some(Ok(trailers))));
    Ok(Response::builder()
        .header("content-type", "application/grpc")
        .body(body)
        .unwrap())
}

impl TestPluginState {
    fn call(&mut self, method: &str, message: &[u8]) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        match method {
            "/v2.KeyManagementService/Status" => {
                self.n_calls[0] += 1;
                put_bytes(1, self.version.as_bytes(), &mut out);
                put_bytes(2, self.health.as_bytes(), &mut out);
                put_bytes(3, self.key_id.as_bytes(), &mut out);
            }
            "/v2.KeyManagementService/Encrypt" => {
                self.n_calls[1] += 1;
                let key_id = self.encrypt_key_id.as_ref().unwrap_or(&self.key_id);
                put_bytes(1, &xor(&field(message, 1), key_id), &mut out);
                put_bytes(2, key_id.as_bytes(), &mut out);
                put_message(3, &mut out, |out| {
                    put_bytes(1, b"plugin.example.com", out);
                    put_bytes(2, b"a note", out);
                });
            }
            "/v2.KeyManagementService/Decrypt" => {
                self.n_calls[2] += 1;
                let key_id = String::from_utf8(field(message, 3)).unwrap();
                if !key_id.starts_with("key-") || field(&field(message, 4), 2) != b"a note" {
                    return Err("that is no key of mine".into());
                }
                put_bytes(1, &xor(&field(message, 1), &key_id), &mut out);
            }
            other => return Err(format!("no method {other}")),
        }
        Ok(out)
    }
}

/// Encrypts or decrypts.
fn xor(bytes: &[u8], key_id: &str) -> Vec<u8> {
    let last = key_id.bytes().last().unwrap();
    bytes.iter().map(|byte| byte ^ last).collect()
}

/// The content of a field that occurs once.
fn field(message: &[u8], tag: u32) -> Vec<u8> {
    let mut reader = WireReader::new(message);
    while let Some((found, content)) = reader.field().unwrap() {
        if found == tag {
            return content.bytes("field").unwrap().to_vec();
        }
    }
    Vec::new()
}
