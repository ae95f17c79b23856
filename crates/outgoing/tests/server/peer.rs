//! A little HTTPS server that behaves as a test wants: it answers, hangs, closes, or dies in the middle.

use parking_lot::Mutex;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// What the server does with a request.
pub(crate) enum Reaction {
    /// It answers.
    Reply(u16, String),
    /// It leads elsewhere.
    #[allow(dead_code, reason = "tests from inside ask")]
    Redirect(u16, String),
    /// It answers after a while.
    #[allow(dead_code, reason = "tests from outside ask")]
    Later(std::time::Duration, u16, String),
    /// It says nothing.
    Hang,
    /// It closes the connection.
    Close,
    /// It begins a long answer, which goes on until [`Peer::die`] breaks it off.
    Begin(String),
    /// It changes the protocol and sends back what it gets.
    Echo,
}

/// The server. It is gone when this is dropped.
pub(crate) struct Peer {
    /// Where it listens, on 127.0.0.1.
    pub port: u16,
    /// The certificate of whoever signed its own, as PEM.
    pub authority: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

type React = dyn Fn(&Request<Bytes>) -> Reaction + Send + Sync;

struct Shared {
    react: Box<React>,
    seen: Mutex<Vec<Request<Bytes>>>,
    connections: AtomicUsize,
    dying: watch::Sender<bool>,
}

impl Peer {
    /// A server whose certificate is for `names`.
    pub(crate) async fn start(
        names: &[&str],
        react: impl Fn(&Request<Bytes>) -> Reaction + Send + Sync + 'static,
    ) -> Peer {
        let (config, authority) = certificates(names);
        Peer::serving(config, authority, react).await
    }

    /// A server with certificates of the test's own, and the PEM of who is to be trusted for them.
    pub(crate) async fn serving(
        config: ServerConfig,
        authority: String,
        react: impl Fn(&Request<Bytes>) -> Reaction + Send + Sync + 'static,
    ) -> Peer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            react: Box::new(react),
            seen: Mutex::default(),
            connections: AtomicUsize::new(0),
            dying: watch::Sender::new(false),
        });
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let task = tokio::spawn(serve(listener, acceptor, shared.clone()));
        Peer {
            port,
            authority,
            shared,
            task,
        }
    }

    /// A server that gives every request the same answer.
    pub(crate) async fn answering(code: u16, body: &str) -> Peer {
        let body = body.to_owned();
        Peer::start(&["127.0.0.1"], move |_| Reaction::Reply(code, body.clone())).await
    }

    /// Its authority as a `caBundle`.
    pub(crate) fn bundle(&self) -> String {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(&self.authority)
    }

    /// The requests that came.
    pub(crate) fn seen(&self) -> Vec<Request<Bytes>> {
        self.shared.seen.lock().clone()
    }

    /// How many connections came.
    #[allow(dead_code, reason = "tests from inside ask")]
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Breaks off the answers that have begun.
    pub(crate) fn die(&self) {
        self.shared.dying.send_replace(true);
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
    let certificate = CertificateParams::new(names)
        .unwrap()
        .signed_by(&key, &issuer)
        .unwrap();
    (tls(vec![certificate.der().clone()], &key), authority.pem())
}

/// TLS with these certificates, the server's own first.
pub(crate) fn tls(chain: Vec<CertificateDer<'static>>, key: &KeyPair) -> ServerConfig {
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        shared.connections.fetch_add(1, Ordering::Relaxed);
        connections.spawn(talk(stream, acceptor.clone(), shared.clone()));
    }
}

async fn talk(stream: TcpStream, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let service = service_fn(move |request| answer(request, shared.clone()));
    let stream = TokioIo::new(stream);
    if is_http2 {
        let _ = http2::Builder::new(TokioExecutor::new())
            .serve_connection(stream, service)
            .await;
    } else {
        let _ = http1::Builder::new()
            .serve_connection(stream, service)
            .with_upgrades()
            .await;
    }
}

async fn answer(
    mut request: Request<Incoming>,
    shared: Arc<Shared>,
) -> io::Result<Response<Script>> {
    let upgrade = hyper::upgrade::on(&mut request);
    let (head, body) = request.into_parts();
    let upgraded = head.headers.contains_key(http::header::UPGRADE);
    let body = if upgraded {
        Bytes::new()
    } else {
        whole(body).await
    };
    let request = Request::from_parts(head, body);
    let reaction = (shared.react)(&request);
    shared.seen.lock().push(request);
    Ok(match reaction {
        Reaction::Reply(code, body) => json(
            code,
            Script {
                said: Some(body.into()),
                end: None,
            },
        ),
        Reaction::Redirect(code, location) => {
            let head = Response::builder()
                .status(code)
                .header("location", location);
            head.body(Script {
                said: None,
                end: None,
            })
            .unwrap()
        }
        Reaction::Later(pause, code, body) => {
            tokio::time::sleep(pause).await;
            json(
                code,
                Script {
                    said: Some(body.into()),
                    end: None,
                },
            )
        }
        Reaction::Hang => std::future::pending().await,
        Reaction::Close => return Err(io::Error::other("closed as the test wants it")),
        Reaction::Begin(body) => {
            let mut dying = shared.dying.subscribe();
            let end = async move { drop(dying.wait_for(|dying| *dying).await) };
            json(
                200,
                Script {
                    said: Some(body.into()),
                    end: Some(Box::pin(end)),
                },
            )
        }
        Reaction::Echo => {
            tokio::spawn(echo(upgrade));
            let head = Response::builder()
                .status(101)
                .header("connection", "Upgrade")
                .header("upgrade", "echo");
            head.body(Script {
                said: None,
                end: None,
            })
            .unwrap()
        }
    })
}

async fn whole(body: Incoming) -> Bytes {
    body.collect()
        .await
        .map(|body| body.to_bytes())
        .unwrap_or_default()
}

async fn echo(upgrade: hyper::upgrade::OnUpgrade) {
    let (mut reader, mut writer) = tokio::io::split(TokioIo::new(upgrade.await.unwrap()));
    let _ = tokio::io::copy(&mut reader, &mut writer).await;
}

fn json(code: u16, body: Script) -> Response<Script> {
    Response::builder()
        .status(code)
        .header("content-type", "application/json")
        .body(body)
        .unwrap()
}

/// A body that says something, and perhaps then waits to be broken off.
struct Script {
    said: Option<Bytes>,
    end: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl http_body::Body for Script {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Some(said) = self.said.take().filter(|said| !said.is_empty()) {
            return Poll::Ready(Some(Ok(Frame::data(said))));
        }
        let Some(end) = &mut self.end else {
            return Poll::Ready(None);
        };
        end.as_mut()
            .poll(context)
            .map(|()| Some(Err(io::Error::other("dies as the test wants it"))))
    }
}
