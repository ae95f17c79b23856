//! The network side: TLS, HTTP/1.1 and HTTP/2, limits on what strangers may cost, and a quiet end.

use std::convert::Infallible;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header, request};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::server::TlsStream;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::Server;
use crate::aggregation::Streams;
use crate::answer::{self, Answer};
use crate::authentication::{Caller, Peer, Stranger};
use crate::close_notify::{CloseNotify, Lingers};
use crate::coalesce::Gather;
use crate::connection_limits::{Counted, GivenUp, Load, Verdict};
use crate::frame_budget::FrameBudget;
use crate::framing::{Ambiguous, Scanned, Scanner};
use crate::http2_path::PathScanner;
use crate::receive::{Unread, Whole};
use crate::request_line::{self, Fault};
use crate::tap::Tap;

/// How long a client may take to shake hands.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How many connections there may be at once.
const MAX_CONNECTIONS: usize = 16_384;
/// How much of a stream of events may wait for a slow reader. A connection has many streams.
const STREAM_BUFFER: usize = 128 * 1024;
/// How much may be encrypted and wait for the socket of a connection.
const SEND_BUFFER: usize = 32 * 1024;
/// How large the head of a request may be, as upstream has it.
const MAX_HEAD: usize = 1024 * 1024;
/// How many lines the head of a request may have over HTTP/1.1.
const MAX_HEADERS: usize = 1_000;
/// How many requests may be reset before anybody has looked at them. More is an attack (CVE-2023-44487), and ends the
/// connection.
const MAX_UNSEEN_RESETS: usize = 20;
/// How many streams a client may make us reset by breaking the rules of HTTP/2, before its connection is ended.
const MAX_FAULTS: usize = 256;

/// How to know a client by its certificate and those that came with it.
pub type Identify = Arc<dyn Fn(&[CertificateDer<'static>]) -> Peer + Send + Sync>;

/// Serves until `stop` is done, then lets what is under way finish for at most `grace`.
pub async fn listen(
    server: Server,
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    identify: Identify,
    stop: impl Future<Output = ()>,
    grace: Duration,
) {
    let acceptor = TlsAcceptor::from(tls);
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let ending = watch::Sender::new(false);
    let mut stop = pin!(stop);
    loop {
        let (stream, address) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = &mut stop => break,
        };
        // Nobody waits: a connection too many is closed.
        let Ok(place) = places.clone().try_acquire_owned() else {
            continue;
        };
        let connection = Connection {
            server: server.clone(),
            identify: identify.clone(),
            address,
            ending: ending.subscribe(),
        };
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            connection.run(acceptor, stream).await;
            drop(place);
        });
    }
    drop(listener);
    server.stop();
    ending.send_replace(true);
    let all = u32::try_from(MAX_CONNECTIONS).expect("a small number");
    let _ = timeout(grace, places.acquire_many(all)).await;
}

/// The other end of a connection.
struct Far {
    peer: Peer,
    address: IpAddr,
    /// When the client's certificate expires, in Unix seconds.
    expires: Option<i64>,
}

impl Far {
    /// Whom a request is from.
    fn caller(&self) -> Caller {
        Caller {
            claim: self.peer.claim(),
            address: Some(self.address),
        }
    }
}

struct Connection {
    server: Server,
    identify: Identify,
    address: SocketAddr,
    ending: watch::Receiver<bool>,
}

impl Connection {
    async fn run(self, acceptor: TlsAcceptor, stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let mut ending = self.ending.clone();
        let shaken = tokio::select! {
            shaken = timeout(HANDSHAKE, acceptor.accept(stream)) => shaken,
            _ = ending.wait_for(|ending| *ending) => return,
        };
        let Ok(Ok(mut stream)) = shaken else {
            let errors = &self.server.0.metrics.tls_handshake_errors;
            errors.fetch_add(1, Ordering::Relaxed);
            return;
        };
        stream.get_mut().1.set_buffer_limit(Some(SEND_BUFFER));
        let far = self.far(&stream);
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let (stream, lingers) = CloseNotify::new(stream);
        if is_http2 {
            self.serve_http2(stream, far).await;
        } else {
            self.serve_http1(stream, lingers, far).await;
        }
    }

    fn far(&self, stream: &TlsStream<TcpStream>) -> Arc<Far> {
        let shown = stream.get_ref().1.peer_certificates();
        let expires = shown.and_then(<[_]>::first).and_then(|own| {
            let (_, own) = X509Certificate::from_der(own).ok()?;
            Some(own.validity().not_after.timestamp())
        });
        Arc::new(Far {
            peer: shown.map_or(Peer::Stranger, |shown| (self.identify)(shown)),
            address: self.address.ip(),
            expires,
        })
    }

    async fn serve_http2(self, stream: CloseNotify, far: Arc<Far>) {
        let streams = self.server.0.options.http.max_streams;
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(streams)
            .max_pending_accept_reset_streams(MAX_UNSEEN_RESETS)
            .max_local_error_reset_streams(MAX_FAULTS)
            .initial_stream_window_size(256 * 1024)
            .initial_connection_window_size(streams.max(64) * 16 * 1024)
            .max_send_buf_size(STREAM_BUFFER)
            .max_header_list_size(u32::try_from(MAX_HEAD).expect("a small number"))
            .keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(15));
        let load = self.load();
        let (server, counted) = (self.server.clone(), load.clone());
        let service = service_fn(move |request| {
            if server.0.sends_away() {
                counted.send_away();
            }
            handle(server.clone(), far.clone(), &counted, request)
        });
        let stream = Tap::new(stream, FrameBudget::new());
        let stream = Gather::new(Scanned::new(stream, PathScanner::default()));
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        self.attend(connection, load, http2::Connection::graceful_shutdown)
            .await;
    }

    async fn serve_http1(self, stream: CloseNotify, lingers: Lingers, far: Arc<Far>) {
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            // The library's time-out counts idleness, too.
            .header_read_timeout(None)
            .max_header_size(MAX_HEAD)
            .max_headers(MAX_HEADERS)
            .max_buf_size(MAX_HEAD);
        let load = self.load();
        let (server, counted) = (self.server.clone(), load.clone());
        let (scanner, ambiguous) = Scanner::new(MAX_HEAD);
        let stream = Scanned::new(Tap::new(stream, load.time_heads()), scanner);
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(ambiguous.clone());
            request.extensions_mut().insert(lingers.clone());
            handle(server.clone(), far.clone(), &counted, request)
        });
        let connection = builder
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        self.attend(
            connection,
            load,
            http1::UpgradeableConnection::graceful_shutdown,
        )
        .await;
    }

    fn load(&self) -> Load {
        let patience = Duration::from_secs(self.server.0.options.request_timeout);
        Load::new(patience, self.server.0.unsent.connect())
    }

    /// Lets a connection go on until its client has gone, costs too much, or the server stops.
    async fn attend<C: Future>(mut self, connection: C, load: Load, leave: fn(Pin<&mut C>)) {
        let mut connection = pin!(connection);
        let mut is_leaving = false;
        loop {
            tokio::select! {
                _ = &mut connection => return,
                _ = self.ending.wait_for(|ending| *ending) => break,
                verdict = load.verdict() => match verdict {
                    Verdict::TooMuch => return,
                    Verdict::Idle if is_leaving => return,
                    Verdict::Idle | Verdict::GoAway => {
                        is_leaving = true;
                        leave(connection.as_mut());
                    }
                },
            }
        }
        leave(connection.as_mut());
        tokio::select! {
            _ = connection => {}
            () = load.answered() => {}
        }
    }
}

/// Answers a request. Its body is read when it is known who sends it and that they may.
fn handle(
    server: Server,
    far: Arc<Far>,
    load: &Load,
    mut request: Request<Incoming>,
) -> impl Future<Output = Result<Response<Counted>, Infallible>> + use<> {
    let upgrade = request
        .headers()
        .contains_key(header::UPGRADE)
        .then(|| hyper::upgrade::on(&mut request));
    let (head, body) = request.into_parts();
    let given_up = GivenUp::default();
    let (streams, unread) = match body.is_end_stream() && upgrade.is_none() {
        true => (Streams::default(), None),
        false => {
            let (body, unread) = Whole::new(body, head.version, given_up.clone());
            (Streams::new(body.boxed_unsync(), upgrade), Some(unread))
        }
    };
    let (sent_away, is_head) = (load.clone(), head.method == Method::HEAD);
    let (lingers, expects_continue) = (
        head.extensions.get::<Lingers>().cloned(),
        head.headers.contains_key(header::EXPECT),
    );
    let answer = async move {
        let mut answer = serve(server, far, head, streams, sent_away).await;
        if let (Some(unread), Some(lingers)) = (unread, lingers) {
            end_request(&mut answer, unread, expects_continue, &lingers).await;
        }
        if is_head {
            without_body(answer)
        } else {
            answer
        }
    };
    let counted = load.during(given_up, answer);
    async { Ok(counted.await) }
}

async fn serve(
    server: Server,
    far: Arc<Far>,
    head: request::Parts,
    streams: Streams,
    load: Load,
) -> Answer {
    if let Some(fault) = request_line::fault(&head.uri) {
        return match fault {
            Fault::Malformed => hang_up(400, "400 Bad Request"),
            Fault::Version => hang_up(
                505,
                "505 HTTP Version Not Supported: unsupported protocol version",
            ),
        };
    }
    if let Err(problem) = check_host(&head).and_then(|()| check_length(&head)) {
        return hang_up(400, &format!("400 Bad Request: {problem}"));
    }
    // Go: what is asked of the server as a whole is not asked of a handler (net/http, globalOptionsHandler).
    if head.method == Method::OPTIONS && head.uri.path() == "*" {
        return Answer::new(answer::Body::from(""));
    }
    if let Some(expires) = far.expires {
        let metrics = &server.0.metrics.credentials;
        metrics.certificate(expires - server.0.registry.now());
    }
    let answer = server
        .call_of(
            far.caller(),
            head.method,
            head.uri,
            head.headers,
            Bytes::new(),
            streams,
        )
        .await;
    if head.version == Version::HTTP_2 && answer.extensions().get::<Stranger>().is_some() {
        load.send_away();
    }
    answer
}

/// Lets a client read its answer that is still sending a body over HTTP/1.1. Go: net/http reads a little more, or hangs up, but not at
/// once.
async fn end_request(
    answer: &mut Answer,
    unread: Unread,
    expects_continue: bool,
    lingers: &Lingers,
) {
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS || unread.drain(expects_continue).await {
        return;
    }
    let close = HeaderValue::from_static("close");
    answer.headers_mut().insert(header::CONNECTION, close);
    lingers.set();
}

/// Which host is meant must be said once, in letters that a host can have. Kubernetes: in Go's words.
fn check_host(head: &request::Parts) -> Result<(), &'static str> {
    let may_be = |byte: &u8| byte.is_ascii_alphanumeric() || b"!$%&'()*+,-.:;=[]_~".contains(byte);
    let mut hosts = head.headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (_, Some(_)) => Err("too many Host headers"),
        (Some(host), None) if !host.as_bytes().iter().all(may_be) => Err("malformed Host header"),
        (None, None) if head.version == Version::HTTP_11 => Err("missing required Host header"),
        _ => Ok(()),
    }
}

/// A body has one length.
fn check_length(head: &request::Parts) -> Result<(), &'static str> {
    match head.extensions.get::<Ambiguous>() {
        Some(ambiguous) if ambiguous.is_set() => Err("both Content-Length and Transfer-Encoding"),
        _ => Ok(()),
    }
}

/// Answers what is not HTTP, and ends the connection.
fn hang_up(code: u16, text: &str) -> Answer {
    let mut answer = answer::answer(code, "text/plain; charset=utf-8", text.to_owned());
    answer
        .headers_mut()
        .insert(header::CONNECTION, HeaderValue::from_static("close"));
    answer
}

/// The head of an answer, which says how long the rest would be.
fn without_body(answer: Answer) -> Answer {
    let length = answer.body().size_hint().exact();
    let mut answer = answer.map(|_| answer::Body::from(""));
    if let Some(length) = length {
        answer
            .headers_mut()
            .entry(header::CONTENT_LENGTH)
            .or_insert(length.into());
    }
    answer
}
