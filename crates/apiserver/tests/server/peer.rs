//! A little HTTPS server that behaves as a test wants: it answers, hangs, closes, or dies in the middle.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// What the server does with a request.
pub enum Reaction {
    /// It answers.
    Reply(u16, String),
    /// It says nothing.
    Hang,
    /// It closes the connection.
    Close,
    /// It begins a long answer and then closes the connection.
    Die(String),
    /// It begins a long answer and then says nothing more.
    Linger(String),
    /// It changes the protocol and sends back what it gets.
    Echo,
}

/// The server. It is gone when this is dropped.
pub struct Peer {
    /// Where it listens, on 127.0.0.1.
    pub port: u16,
    /// The certificate of whoever signed its own, as PEM.
    pub authority: String,
    seen: Arc<Mutex<Vec<Request<Bytes>>>>,
    connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

type React = Arc<dyn Fn(&Request<Bytes>) -> Reaction + Send + Sync>;

impl Peer {
    /// A server whose certificate is for `names`.
    pub async fn start(
        names: &[&str],
        react: impl Fn(&Request<Bytes>) -> Reaction + Send + Sync + 'static,
    ) -> Peer {
        let (config, authority) = certificates(names);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(AtomicUsize::new(0));
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let task =
            tokio::spawn(serve(listener, acceptor, Arc::new(react), seen.clone(), connections.clone()));
        Peer { port, authority, seen, connections, task }
    }

    /// A server that gives every request the same answer.
    pub async fn answering(code: u16, body: &str) -> Peer {
        let body = body.to_owned();
        Peer::start(&["127.0.0.1"], move |_| Reaction::Reply(code, body.clone())).await
    }

    /// Its authority as a `caBundle`.
    pub fn bundle(&self) -> String {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(&self.authority)
    }

    /// The requests that came.
    pub fn seen(&self) -> Vec<Request<Bytes>> {
        self.seen.lock().unwrap().clone()
    }
}

impl Peer {
    /// How many connections came.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn certificates(names: &[&str]) -> (ServerConfig, String) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(|name| (*name).into()).collect();
    let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    (config, authority.pem())
}

async fn serve(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    react: React,
    seen: Arc<Mutex<Vec<Request<Bytes>>>>,
    count: Arc<AtomicUsize>,
) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        count.fetch_add(1, Ordering::Relaxed);
        connections.spawn(talk(stream, acceptor.clone(), react.clone(), seen.clone()));
    }
}

async fn talk(stream: TcpStream, acceptor: TlsAcceptor, react: React, seen: Arc<Mutex<Vec<Request<Bytes>>>>) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let service = service_fn(move |request| answer(request, react.clone(), seen.clone()));
    let stream = TokioIo::new(stream);
    if is_http2 {
        let _ = http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await;
    } else {
        let _ = http1::Builder::new().serve_connection(stream, service).with_upgrades().await;
    }
}

async fn answer(
    mut request: Request<Incoming>,
    react: React,
    seen: Arc<Mutex<Vec<Request<Bytes>>>>,
) -> Result<Response<Script>, std::io::Error> {
    let upgrade = hyper::upgrade::on(&mut request);
    let (head, body) = request.into_parts();
    let upgraded = head.headers.contains_key(http::header::UPGRADE);
    let body = if upgraded {
        Bytes::new()
    } else {
        body.collect().await.map(|body| body.to_bytes()).unwrap_or_default()
    };
    let request = Request::from_parts(head, body);
    let reaction = react(&request);
    seen.lock().unwrap().push(request);
    let closed = || std::io::Error::other("closed as the test wants it");
    Ok(match reaction {
        Reaction::Reply(code, body) => json(code, Script(vec![Step::Say(body.into())])),
        Reaction::Hang => std::future::pending().await,
        Reaction::Close => return Err(closed()),
        Reaction::Die(body) => json(200, Script(vec![Step::Die, Step::Say(body.into())])),
        Reaction::Linger(body) => json(200, Script(vec![Step::Wait, Step::Say(body.into())])),
        Reaction::Echo => {
            tokio::spawn(async move {
                let stream = TokioIo::new(upgrade.await.unwrap());
                let (mut reader, mut writer) = tokio::io::split(stream);
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
            });
            let response =
                Response::builder().status(101).header("connection", "Upgrade").header("upgrade", "echo");
            response.body(Script(Vec::new())).unwrap()
        }
    })
}

fn json(code: u16, body: Script) -> Response<Script> {
    Response::builder().status(code).header("content-type", "application/json").body(body).unwrap()
}

/// A body that does something in the middle. The last step comes first.
struct Script(Vec<Step>);

enum Step {
    Say(Bytes),
    Wait,
    Die,
}

impl http_body::Body for Script {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        match self.0.pop() {
            None => Poll::Ready(None),
            Some(Step::Say(bytes)) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            Some(Step::Die) => Poll::Ready(Some(Err(std::io::Error::other("dies as the test wants it")))),
            Some(Step::Wait) => {
                self.0.push(Step::Wait);
                Poll::Pending
            }
        }
    }
}
