//! The listener: TLS, HTTP/1.1 and HTTP/2, limits per connection, and graceful shutdown.

use std::convert::Infallible;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, Version, header, request};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use mizzen_authentication::{Identify, PeerIdentity, RequestOrigin};
use mizzen_serving::request_line::{self, RequestLineFault};
use mizzen_serving::{
    Ambiguous, Cancelled, CloseNotify, CloseReason, Coalesce, ConnectionTracker, FrameBudget,
    InspectedStream, LingerFlag, PathScanner, RequestScanner, RewrittenStream, TrackedBody,
    WholeBody,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::Server;
use crate::aggregation::RequestStreams;
use crate::chain::{self, IncomingRequest, Unauthenticated};
use crate::response::{self, Response};

/// How long a TLS handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How many connections there may be at once.
const MAX_CONNECTIONS: usize = 16_384;
/// How much of an HTTP/2 stream is buffered for a slow reader. A connection has many streams.
const STREAM_BUFFER: usize = 128 * 1024;
/// How much encrypted data of a connection may wait for its socket.
const SEND_BUFFER: usize = 32 * 1024;
/// How large the head of a request may be, as upstream.
const MAX_HEAD: usize = 1024 * 1024;
/// How many lines the head of a request may have over HTTP/1.1.
const MAX_HEADERS: usize = 1_000;
/// How many requests may be reset before they are handled. More is an attack (CVE-2023-44487) and closes the connection.
const MAX_UNSEEN_RESETS: usize = 20;
/// How many streams the server resets for protocol errors before it closes the connection.
const MAX_FAULTS: usize = 256;

/// Where and how a server is served.
pub struct SecureServing {
    /// The socket, already bound.
    pub listener: TcpListener,
    /// Certificates and client authentication.
    pub tls: Arc<ServerConfig>,
    /// Identifies clients by their certificates.
    pub identify: Identify,
    /// How long requests may continue after the server stops accepting.
    pub grace: Duration,
}

/// Serves until `stop` resolves, then waits for the requests in flight.
pub async fn listen(server: Server, serving: SecureServing, stop: impl Future<Output = ()>) {
    let SecureServing {
        listener,
        tls,
        identify,
        grace,
    } = serving;
    let acceptor = TlsAcceptor::from(tls);
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let ending = watch::Sender::new(false);
    let mut stop = pin!(stop);
    loop {
        let (stream, address) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = &mut stop => break,
        };
        // Above the limit a connection is closed, not queued.
        let Ok(place) = places.clone().try_acquire_owned() else {
            continue;
        };
        let connection = ClientConnection {
            server: server.clone(),
            identify: identify.clone(),
            address,
            ending: ending.subscribe(),
        };
        connection.spawn(acceptor.clone(), stream, place);
    }
    drop(listener);
    server.stop();
    ending.send_replace(true);
    let all = u32::try_from(MAX_CONNECTIONS).expect("a small number");
    let _ = timeout(grace, places.acquire_many(all)).await;
}

/// The client of a connection.
struct RemotePeer {
    peer: PeerIdentity,
    address: IpAddr,
    /// When the client's certificate expires, in Unix seconds.
    expires: Option<i64>,
}

struct ClientConnection {
    server: Server,
    identify: Identify,
    address: SocketAddr,
    ending: watch::Receiver<bool>,
}

impl ClientConnection {
    /// Serves the connection in a task. Neither generic nor async: the task is compiled in this crate, once, and not
    /// in each crate that calls `listen`.
    fn spawn(self, acceptor: TlsAcceptor, stream: TcpStream, place: OwnedSemaphorePermit) {
        tokio::spawn(async move {
            self.run(acceptor, stream).await;
            drop(place);
        });
    }

    async fn run(self, acceptor: TlsAcceptor, stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let mut ending = self.ending.clone();
        let handshake = tokio::select! {
            handshake = timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)) => handshake,
            _ = ending.wait_for(|ending| *ending) => return,
        };
        let Ok(Ok(mut stream)) = handshake else {
            let errors = &self.server.0.metrics.tls_handshake_errors;
            errors.fetch_add(1, Ordering::Relaxed);
            return;
        };
        stream.get_mut().1.set_buffer_limit(Some(SEND_BUFFER));
        let certificates = stream.get_ref().1.peer_certificates();
        let expires = certificates.and_then(<[_]>::first).and_then(|leaf| {
            let (_, leaf) = X509Certificate::from_der(leaf).ok()?;
            Some(leaf.validity().not_after.timestamp())
        });
        let peer = Arc::new(RemotePeer {
            peer: certificates.map_or(PeerIdentity::NoCertificate, |chain| (self.identify)(chain)),
            address: self.address.ip(),
            expires,
        });
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let (stream, linger) = CloseNotify::new(stream);
        if is_http2 {
            self.serve_http2(stream, peer).await;
        } else {
            self.serve_http1(stream, linger, peer).await;
        }
    }

    async fn serve_http2(self, stream: CloseNotify, peer: Arc<RemotePeer>) {
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
        let tracker = self.tracker();
        let (server, requests) = (self.server.clone(), tracker.clone());
        let service = service_fn(move |request| {
            if server.0.sends_away() {
                requests.request_goaway();
            }
            handle(server.clone(), peer.clone(), &requests, request)
        });
        let stream = InspectedStream::new(stream, FrameBudget::default());
        let stream = RewrittenStream::new(stream, PathScanner::default());
        let shared = tracker.clone();
        let stream = Coalesce::new(stream, move || shared.is_shared());
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        self.drive(connection, tracker, http2::Connection::graceful_shutdown)
            .await;
    }

    async fn serve_http1(self, stream: CloseNotify, linger: LingerFlag, peer: Arc<RemotePeer>) {
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            // hyper counts idle time as well; `tracker` times the heads.
            .header_read_timeout(None)
            .max_header_size(MAX_HEAD)
            .max_headers(MAX_HEADERS)
            .max_buf_size(MAX_HEAD);
        let tracker = self.tracker();
        let (server, requests) = (self.server.clone(), tracker.clone());
        let (scanner, ambiguous) = RequestScanner::new(MAX_HEAD);
        let stream =
            RewrittenStream::new(InspectedStream::new(stream, tracker.time_heads()), scanner);
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(ambiguous.clone());
            request.extensions_mut().insert(linger.clone());
            handle(server.clone(), peer.clone(), &requests, request)
        });
        let connection = builder
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        self.drive(
            connection,
            tracker,
            http1::UpgradeableConnection::graceful_shutdown,
        )
        .await;
    }

    fn tracker(&self) -> ConnectionTracker {
        let read_timeout = Duration::from_secs(self.server.0.options.request_timeout);
        ConnectionTracker::new(read_timeout, self.server.0.unsent.connect())
    }

    /// Drives a connection until the client closes it, it exceeds a limit, or the server stops.
    async fn drive<C: Future>(
        mut self,
        connection: C,
        tracker: ConnectionTracker,
        shutdown: fn(Pin<&mut C>),
    ) {
        let mut connection = pin!(connection);
        let mut is_shutting_down = false;
        loop {
            tokio::select! {
                _ = &mut connection => return,
                _ = self.ending.wait_for(|ending| *ending) => break,
                reason = tracker.close_reason() => match reason {
                    CloseReason::LimitExceeded => return,
                    CloseReason::Idle if is_shutting_down => return,
                    CloseReason::Idle | CloseReason::GoAway => {
                        is_shutting_down = true;
                        shutdown(connection.as_mut());
                    }
                },
            }
        }
        shutdown(connection.as_mut());
        tokio::select! {
            _ = connection => {}
            () = tracker.drained() => {}
        }
    }
}

/// Handles a request. Its body is read after it has been authorized.
fn handle(
    server: Server,
    peer: Arc<RemotePeer>,
    tracker: &ConnectionTracker,
    mut request: Request<Incoming>,
) -> impl Future<Output = Result<http::Response<TrackedBody>, Infallible>> + use<> {
    let upgrade = request
        .headers()
        .contains_key(header::UPGRADE)
        .then(|| hyper::upgrade::on(&mut request));
    let (head, body) = request.into_parts();
    let cancelled = Cancelled::default();
    let (streams, unread) = match body.is_end_stream() && upgrade.is_none() {
        true => (RequestStreams::default(), None),
        false => {
            let (body, unread) = WholeBody::new(body, head.version, cancelled.clone());
            (
                RequestStreams::new(body.boxed_unsync(), upgrade),
                Some(unread),
            )
        }
    };
    let linger = head.extensions.get::<LingerFlag>().cloned();
    let expects_continue = head.headers.contains_key(header::EXPECT);
    let is_head = head.method == Method::HEAD;
    let requests = tracker.clone();
    let answer = async move {
        let mut answer = serve(server, peer, head, streams, requests).await;
        // Over HTTP/1.1 a client that is still sending its body must be able to read the response. Go: net/http drains a
        // little, or closes the connection after a delay.
        if let (Some(unread), Some(linger)) = (unread, linger)
            && answer.status() != StatusCode::SWITCHING_PROTOCOLS
            && !unread.drain(expects_continue).await
        {
            let close = HeaderValue::from_static("close");
            answer.headers_mut().insert(header::CONNECTION, close);
            linger.set();
        }
        if !is_head {
            return answer;
        }
        // The response to HEAD has the length of the body that GET would have.
        let length = answer.body().size_hint().exact();
        let mut answer = answer.map(|_| response::Body::from(""));
        if let Some(length) = length {
            let headers = answer.headers_mut();
            headers
                .entry(header::CONTENT_LENGTH)
                .or_insert(length.into());
        }
        answer
    };
    let tracked = tracker.during(cancelled, answer);
    async { Ok(tracked.await) }
}

/// Rejects what Go's net/http rejects, and passes the rest to the handler chain.
async fn serve(
    server: Server,
    peer: Arc<RemotePeer>,
    head: request::Parts,
    streams: RequestStreams,
    tracker: ConnectionTracker,
) -> Response {
    if let Some(fault) = request_line::fault(&head.uri) {
        return match fault {
            RequestLineFault::Malformed => hang_up(400, "400 Bad Request"),
            RequestLineFault::Version => hang_up(
                505,
                "505 HTTP Version Not Supported: unsupported protocol version",
            ),
        };
    }
    if let Err(problem) = check_host_and_length(&head) {
        return hang_up(400, &format!("400 Bad Request: {problem}"));
    }
    // Go: `OPTIONS *` is for the server as a whole and reaches no handler (net/http, globalOptionsHandler).
    if head.method == Method::OPTIONS && head.uri.path() == "*" {
        return Response::new(response::Body::from(""));
    }
    if let Some(expires) = peer.expires {
        let authenticator = &server.0.authenticator;
        authenticator.record_client_certificate(expires - server.0.registry.now());
    }
    let request = IncomingRequest {
        caller: RequestOrigin {
            claim: peer.peer.claim(),
            address: Some(peer.address),
        },
        method: head.method,
        uri: head.uri,
        headers: head.headers,
        body: Bytes::new(),
        streams,
    };
    let answer = chain::serve(&server.0, request).await;
    if head.version == Version::HTTP_2 && answer.extensions().get::<Unauthenticated>().is_some() {
        tracker.request_goaway();
    }
    answer
}

/// A request has one valid Host header and one length. The messages are Go's.
fn check_host_and_length(head: &request::Parts) -> Result<(), &'static str> {
    let is_valid =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"!$%&'()*+,-.:;=[]_~".contains(byte);
    let mut hosts = head.headers.get_all(header::HOST).iter();
    let ambiguous = head.extensions.get::<Ambiguous>();
    match (hosts.next(), hosts.next()) {
        (_, Some(_)) => Err("too many Host headers"),
        (Some(host), None) if !host.as_bytes().iter().all(is_valid) => Err("malformed Host header"),
        (None, None) if head.version == Version::HTTP_11 => Err("missing required Host header"),
        _ if ambiguous.is_some_and(Ambiguous::is_set) => {
            Err("both Content-Length and Transfer-Encoding")
        }
        _ => Ok(()),
    }
}

/// Responds to a request that is not valid HTTP, and closes the connection.
fn hang_up(code: u16, text: &str) -> Response {
    let mut answer = response::with_body(code, "text/plain; charset=utf-8", text.to_owned());
    answer
        .headers_mut()
        .insert(header::CONNECTION, HeaderValue::from_static("close"));
    answer
}
