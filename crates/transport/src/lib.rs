//! How are other servers called? Webhooks, extenders, aggregated API servers and kubelets, over HTTP and HTTPS.
//!
//! A [`Target`] is what is dialled and who must answer there; a [`Client`] keeps connections to targets. [`RedirectingCall`] is a request
//! that follows redirects. Errors read as those of Go's HTTP client (`go.rs`), because upstream shows them to people, and
//! certificates are verified as Go verifies them (`verify.rs`). [`websocket`] has the frames of WebSocket for those that serve it.
//!
//! ```no_run
//! # async fn example(clock: std::sync::Arc<dyn mizzen_value::clock::Clock>) -> Result<(), mizzen_transport::SendError> {
//! use std::time::Duration;
//!
//! use mizzen_transport::{CallLimit, Client, RedirectingCall, Target, Trust, read_body};
//! use tokio::time::Instant;
//!
//! let client = Client::new(clock, None);
//! let limit = CallLimit { until: Instant::now() + Duration::from_secs(10), bytes: 1 << 20 };
//! let call = RedirectingCall::get("https://example.com/healthz");
//! let response = call.send(&client, limit.until, |uri| Target::at(uri, &Trust::System)).await?;
//! println!("{:?}", read_body(response.into_body(), limit).await?);
//! # Ok(())
//! # }
//! ```
//!
//! Invariant: every call has a limit: on dialling, on the handshake, on the whole (the caller's), and on the response.

mod connect;
mod constraints;
mod go;
mod lru_cache;
mod purpose;
mod redirect;
pub mod signatures;
mod signed;
mod trust;
mod verify;
pub mod websocket;

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use mizzen_value::clock::Clock;
use mizzen_value::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub use connect::{Connector, TransportStream, dial};
pub use lru_cache::LruCache;
pub use purpose::ClientPurpose;
pub use redirect::{RedirectingCall, clean_path};
pub use trust::{AnyServerCertificate, ClientIdentity, Trust, check_certificates, check_key};

/// A request body that is sent while it comes.
pub type Outgoing = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// Kubernetes: how many targets upstream keeps connections to (apiserver/pkg/util/webhook/client.go).
const MAX_TARGETS: usize = 200;
/// How long a connection may be of no use, as Go's transport has it.
const IDLE: Duration = Duration::from_secs(90);
/// How many connections to a target may be of no use, as client-go has it.
const MAX_IDLE: usize = 25;

/// What is dialled, and who must answer there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// `host:port` that is dialled.
    pub address: String,
    /// The name that the server's certificate must have.
    pub server_name: String,
    /// Who may have signed that.
    pub trust: Trust,
    /// Whether the client's certificate is shown: that of a front proxy, or of the client that kubelets know.
    pub as_front_proxy: bool,
    /// Whether HTTP/2 will do. One such connection goes to one backend only, and it cannot be upgraded.
    pub http2: bool,
}

impl Target {
    /// The server of a URL. One with `http://` is called without TLS, whatever `trust` is.
    pub fn at(uri: &Uri, trust: &Trust) -> Result<Target, SendError> {
        let (trust, port) = match uri.scheme_str() {
            Some("https") => (trust.clone(), 443),
            Some("http") => (Trust::Plaintext, 80),
            scheme => {
                let scheme = json::quote(scheme.unwrap_or_default());
                return Err(SendError(format!("unsupported protocol scheme {scheme}")));
            }
        };
        let host = uri.host().unwrap_or_default();
        Ok(Target {
            address: format!("{host}:{}", uri.port_u16().unwrap_or(port)),
            server_name: host.to_owned(),
            trust,
            as_front_proxy: false,
            http2: true,
        })
    }
}

/// What a call may cost.
#[derive(Debug, Clone, Copy)]
pub struct CallLimit {
    /// When it is given up.
    pub until: Instant,
    /// The most bytes of a response.
    pub bytes: usize,
}

/// Calls other servers. Cheap to clone.
#[derive(Clone)]
pub struct Client(Arc<ClientInner>);

struct ClientInner {
    clock: Arc<dyn Clock>,
    identity: Option<ClientIdentity>,
    targets: Mutex<HashMap<Target, PooledClient>>,
}

struct PooledClient {
    client: legacy::Client<Connector, Outgoing>,
    used: Instant,
}

/// Why a request got no response, in the words of Go's HTTP client.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct SendError(pub String);

impl SendError {
    /// As Go says it of a POST.
    #[must_use]
    pub fn of_post(self, url: &str) -> SendError {
        SendError(format!("Post {}: {}", json::quote(url), self.0))
    }
}

impl Client {
    /// A client that shows `identity` where the target wants it. Certificates must be good at the time of `clock`.
    pub fn new(clock: Arc<dyn Clock>, identity: Option<ClientIdentity>) -> Client {
        Client(Arc::new(ClientInner {
            clock,
            identity,
            targets: Mutex::default(),
        }))
    }

    /// Sends one request; its URI must be absolute. The body of the response comes as the server sends it.
    pub async fn send(
        &self,
        target: &Target,
        request: Request<Outgoing>,
    ) -> Result<Response<Incoming>, SendError> {
        let response = self.start(target, request)?;
        response.await.map_err(|error| SendError(go::says(&error)))
    }

    /// Not async: the HTTP client is compiled in this crate, once, and not in each crate that sends requests.
    fn start(
        &self,
        target: &Target,
        request: Request<Outgoing>,
    ) -> Result<legacy::ResponseFuture, SendError> {
        Ok(self.kept(target)?.request(request))
    }

    /// Whether a target could be called: its authorities, its name and our certificate make sense.
    pub fn check(&self, target: &Target) -> Result<(), SendError> {
        self.kept(target).map(drop)
    }

    /// The TLS handshake over a connection with a server that need not prove who it is.
    pub async fn secure<C>(&self, host: &str, connection: C) -> Result<TlsStream<C>, SendError>
    where
        C: AsyncRead + AsyncWrite + Unpin,
    {
        let config =
            trust::config(&Trust::Anyone, None, false, &self.0.clock).map_err(SendError)?;
        connect::secure(
            &TlsConnector::from(Arc::new(config)),
            connect::server_name(host)?,
            connection,
        )
        .await
    }

    /// The connections to a target. The target that was not used for the longest time makes room.
    fn kept(&self, target: &Target) -> Result<legacy::Client<Connector, Outgoing>, SendError> {
        let mut targets = self.0.targets.lock();
        if let Some(kept) = targets.get_mut(target) {
            kept.used = Instant::now();
            return Ok(kept.client.clone());
        }
        if targets.len() >= MAX_TARGETS {
            let oldest = targets
                .iter()
                .min_by_key(|(_, kept)| kept.used)
                .map(|(target, _)| target.clone());
            oldest.and_then(|oldest| targets.remove(&oldest));
        }
        let client = self.connections(target)?;
        targets.insert(
            target.clone(),
            PooledClient {
                client: client.clone(),
                used: Instant::now(),
            },
        );
        Ok(client)
    }

    fn connections(
        &self,
        target: &Target,
    ) -> Result<legacy::Client<Connector, Outgoing>, SendError> {
        let identity = self.0.identity.as_ref().filter(|_| target.as_front_proxy);
        let connector = Connector::to(target, identity, &self.0.clock)?;
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        builder
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new());
        builder
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(MAX_IDLE);
        // Kubernetes: how client-go finds out that an HTTP/2 connection is dead.
        builder.http2_keep_alive_interval(Duration::from_secs(30));
        builder.http2_keep_alive_timeout(Duration::from_secs(15));
        Ok(builder.build(connector))
    }
}

/// A body of which all is there.
pub fn whole(bytes: Bytes) -> Outgoing {
    http_body_util::Full::new(bytes)
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// The whole body, if it is not too large and comes in time.
pub async fn read_body(body: Incoming, limit: CallLimit) -> Result<Bytes, SendError> {
    match timeout_at(limit.until, Limited::new(body, limit.bytes).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(SendError(format!(
            "the response is larger than {} bytes",
            limit.bytes
        ))),
        Ok(Err(error)) => Err(SendError(go::body(&*error))),
        Err(_) => Err(SendError("context deadline exceeded".into())),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    struct Epoch;

    impl Clock for Epoch {
        fn now(&self) -> (i64, u32) {
            (0, 0)
        }
    }

    #[test]
    fn the_scheme_of_a_url_says_whether_tls_is_spoken() {
        for (url, expected) in [
            ("https://a.io/x", "a.io:443 a.io System"),
            ("https://a.io:1", "a.io:1 a.io System"),
            ("http://[::1]/", "[::1]:80 [::1] Plaintext"),
            ("ftp://a.io", "unsupported protocol scheme \"ftp\""),
            ("/x", "unsupported protocol scheme \"\""),
        ] {
            let shown = match Target::at(&url.parse().unwrap(), &Trust::System) {
                Ok(target) => format!(
                    "{} {} {:?}",
                    target.address, target.server_name, target.trust
                ),
                Err(error) => error.to_string(),
            };
            assert_eq!(shown, expected, "{url}");
        }
    }

    /// Answers one request with some bytes, and returns the URL at which it does.
    async fn serve(response: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/x", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let n_read = stream.read(&mut [0; 4096]).await.unwrap();
            assert!(n_read > 0);
            stream.write_all(response.as_bytes()).await.unwrap();
        });
        url
    }

    #[tokio::test]
    async fn a_response_is_read_up_to_its_limit_and_what_fails_reads_as_in_go() {
        let fetch = async |response: &'static str, bytes: usize| {
            let url = serve(response).await;
            let limit = CallLimit {
                until: Instant::now() + Duration::from_secs(10),
                bytes,
            };
            let client = Client::new(Arc::new(Epoch), None);
            let target = |uri: &Uri| Target::at(uri, &Trust::System);
            let outcome = match RedirectingCall::get(&url)
                .send(&client, limit.until, target)
                .await
            {
                Ok(response) => read_body(response.into_body(), limit).await,
                Err(error) => Err(error),
            };
            match outcome {
                Ok(body) => String::from_utf8_lossy(&body).into_owned(),
                Err(error) => error.0.replace(&url, "URL"),
            }
        };
        let response = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody";
        assert_eq!(fetch(response, 4).await, "body");
        assert_eq!(
            fetch(response, 3).await,
            "the response is larger than 3 bytes"
        );
        let short = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nbody";
        assert_eq!(fetch(short, 9).await, "unexpected EOF");
        assert_eq!(fetch("", 9).await, "Get \"URL\": EOF");
    }
}
