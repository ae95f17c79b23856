//! The network side: TLS, HTTP/1.1 and HTTP/2, limits on what strangers may cost, and a quiet end.

use std::convert::Infallible;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use mizzen_object::Status;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

use crate::Server;
use crate::aggregation::Streams;
use crate::answer::{self, Accept, Answer};
use crate::authenticate::{Caller, Peer};
use crate::gather::Gather;

/// The largest request body, as upstream's.
pub const MAX_BODY: usize = 3 * 1024 * 1024;
/// How long a client may take to shake hands.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a client may take to send a request's head.
const HEAD: Duration = Duration::from_secs(32);
/// How long a client may take to send a request's body.
const BODY: Duration = Duration::from_secs(60);
/// How long an answered client may take to read the end of its answer when the server stops.
const LINGER: Duration = Duration::from_secs(2);
/// How many connections there may be at once.
const MAX_CONNECTIONS: usize = 16_384;
/// How many requests one HTTP/2 connection may have under way.
const MAX_STREAMS: u32 = 250;
/// How much of a response may wait for a slow reader.
const SEND_BUFFER: usize = 1024 * 1024;
/// How large the head of a request may be.
const MAX_HEAD: usize = 1024 * 1024;

/// How to know a client by its certificate.
pub type Identify = Arc<dyn Fn(&[u8]) -> Peer + Send + Sync>;

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
        let Ok(place) = places.clone().try_acquire_owned() else { continue };
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
}

impl Far {
    /// Whom a request is from.
    fn caller(&self, headers: &mut http::HeaderMap) -> Caller {
        Caller { claim: self.peer.claim(headers), address: Some(self.address) }
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
        let Ok(Ok(mut stream)) = shaken else { return };
        stream.get_mut().1.set_buffer_limit(Some(SEND_BUFFER));
        let far = self.far(&stream);
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            self.serve_http2(stream, far).await;
        } else {
            self.serve_http1(stream, far).await;
        }
    }

    fn far(&self, stream: &TlsStream<TcpStream>) -> Arc<Far> {
        let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let peer = certificates.first().map_or(Peer::Stranger, |certificate| (self.identify)(certificate));
        Arc::new(Far { peer, address: self.address.ip() })
    }

    async fn serve_http2(mut self, stream: TlsStream<TcpStream>, far: Arc<Far>) {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .initial_stream_window_size(MAX_STREAMS * 1024)
            .initial_connection_window_size(MAX_STREAMS * 16 * 1024)
            .max_send_buf_size(SEND_BUFFER)
            .max_header_list_size(u32::try_from(MAX_HEAD).expect("a small number"))
            .keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(15));
        let server = self.server.clone();
        let busy = Busy::default();
        let counted = busy.clone();
        let service = service_fn(move |request| {
            let (busy, answer) = (counted.clone(), handle(server.clone(), far.clone(), request));
            async move { busy.during(answer).await }
        });
        let mut connection = pin!(builder.serve_connection(TokioIo::new(Gather::new(stream)), service));
        tokio::select! {
            _ = &mut connection => return,
            _ = self.ending.wait_for(|ending| *ending) => connection.as_mut().graceful_shutdown(),
        }
        tokio::select! {
            _ = connection => {}
            () = busy.idle() => {}
        }
    }

    async fn serve_http1(mut self, stream: TlsStream<TcpStream>, far: Arc<Far>) {
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(MAX_HEAD);
        let server = self.server.clone();
        let busy = Busy::default();
        let counted = busy.clone();
        let service = service_fn(move |request| {
            let (busy, answer) = (counted.clone(), handle(server.clone(), far.clone(), request));
            async move { busy.during(answer).await }
        });
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service).with_upgrades());
        tokio::select! {
            _ = &mut connection => return,
            _ = self.ending.wait_for(|ending| *ending) => connection.as_mut().graceful_shutdown(),
        }
        tokio::select! {
            _ = connection => {}
            () = busy.idle() => {}
        }
    }
}

/// How many requests of a connection are being answered.
#[derive(Clone, Default)]
struct Busy(Arc<watch::Sender<usize>>);

impl Busy {
    async fn during<T>(&self, answer: impl Future<Output = T>) -> T {
        self.0.send_modify(|requests| *requests += 1);
        let answered = answer.await;
        self.0.send_modify(|requests| *requests -= 1);
        answered
    }

    /// Resolves a moment after nothing is being answered any more: a client that is silent when the server
    /// stops does not hold it up.
    async fn idle(&self) {
        let mut requests = self.0.subscribe();
        loop {
            let _ = requests.wait_for(|requests| *requests == 0).await;
            tokio::time::sleep(LINGER).await;
            if *requests.borrow_and_update() == 0 {
                return;
            }
        }
    }
}

async fn handle(server: Server, far: Arc<Far>, request: Request<Incoming>) -> Result<Answer, Infallible> {
    if server.0.aggregation.elsewhere(request.uri()).is_some() {
        return Ok(pass_on(server, &far, request).await);
    }
    let (mut head, body) = request.into_parts();
    let body = match read(&head.headers, body).await {
        Ok(body) => body,
        Err(status) => return Ok(answer::status(&server.0.types, &status, Accept::JSON)),
    };
    let caller = far.caller(&mut head.headers);
    Ok(server.call_of(caller, head.method, head.uri, head.headers, body, Streams::default()).await)
}

/// What is for another server is not read here: its body, and what comes after it, are passed on as they come.
async fn pass_on(server: Server, far: &Far, mut request: Request<Incoming>) -> Answer {
    let upgrade = request.headers().contains_key(header::UPGRADE).then(|| hyper::upgrade::on(&mut request));
    let (mut head, body) = request.into_parts();
    let streams = Streams::new(body.map_err(Into::into).boxed_unsync(), upgrade);
    let caller = far.caller(&mut head.headers);
    server.call_of(caller, head.method, head.uri, head.headers, Bytes::new(), streams).await
}

/// The whole body, if it is not too large and comes in time.
async fn read(headers: &http::HeaderMap, body: Incoming) -> Result<Bytes, Status> {
    let announced =
        headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > MAX_BODY) {
        return Err(too_large());
    }
    match timeout(BODY, Limited::new(body, MAX_BODY).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => Err(too_large()),
        Ok(Err(error)) => Err(Status::bad_request(format!("unable to read the request body: {error}"))),
        Err(_) => Err(Status::failure(408, "Timeout", "the request body did not arrive in time")),
    }
}

fn too_large() -> Status {
    let message = format!("Request entity too large: limit is {MAX_BODY}");
    Status { details: Some(Box::default()), ..Status::failure(413, "RequestEntityTooLarge", message) }
}
