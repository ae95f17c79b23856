//! A connection: look the host up, dial, shake hands. Each has its own limit.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use mizzen_value::clock::Clock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::{ClientIdentity, SendError, Target, Trust, go, trust};

/// As client-go has it.
const DIAL: Duration = Duration::from_secs(30);
/// As client-go has it.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Makes connections to one target, whatever the URI says. For clients of other protocols over HTTP/2, as gRPC.
#[derive(Clone)]
pub struct Connector {
    address: Arc<str>,
    /// TLS, and the name that the certificate must have.
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Connector {
    /// Makes connections with TLS if there is a configuration of it.
    fn new(target: &Target, config: Option<ClientConfig>) -> Result<Connector, SendError> {
        let secured = |config| {
            let name = server_name(&target.server_name)?;
            Ok((TlsConnector::from(Arc::new(config)), name))
        };
        Ok(Connector {
            address: target.address.as_str().into(),
            tls: config.map(secured).transpose()?,
        })
    }

    /// Makes connections that show `identity` to the target. Certificates must be good at the time of `clock`.
    pub fn to(
        target: &Target,
        identity: Option<&ClientIdentity>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Connector, SendError> {
        let config = match target.trust {
            Trust::Plaintext => None,
            _ => Some(
                trust::config(&target.trust, identity, target.http2, clock).map_err(SendError)?,
            ),
        };
        Connector::new(target, config)
    }

    async fn connect(self) -> Result<TransportStream, SendError> {
        let stream = dial(&self.address).await?;
        Ok(match self.tls {
            None => TransportStream::Plain(TokioIo::new(stream)),
            Some((tls, name)) => {
                let stream = secure(&tls, name, stream).await?;
                TransportStream::Tls(Box::new(TokioIo::new(stream)))
            }
        })
    }
}

/// The name that a certificate must have.
pub(crate) fn server_name(host: &str) -> Result<ServerName<'static>, SendError> {
    let name = host.trim_matches(['[', ']']).to_owned();
    let unknown = || SendError(format!("dial tcp: lookup {host}: no such host"));
    ServerName::try_from(name).map_err(|_| unknown())
}

/// Shakes hands within the limit.
pub(crate) async fn secure<C>(
    tls: &TlsConnector,
    name: ServerName<'static>,
    connection: C,
) -> Result<TlsStream<C>, SendError>
where
    C: AsyncRead + AsyncWrite + Unpin,
{
    match timeout(HANDSHAKE, tls.connect(name, connection)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(SendError(go::handshake(&error))),
        Err(_) => Err(SendError("net/http: TLS handshake timeout".into())),
    }
}

/// Dials an address within the limit.
pub async fn dial(address: &str) -> Result<TcpStream, SendError> {
    let stream = match timeout(DIAL, try_all(address)).await {
        Ok(stream) => stream?,
        Err(_) => return Err(SendError(format!("dial tcp {address}: i/o timeout"))),
    };
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// Tries every address of a host; what is wrong with the first is what is told.
async fn try_all(address: &str) -> Result<TcpStream, SendError> {
    let mut failure = None;
    for address in lookup(address).await? {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => {
                let words = format!("dial tcp {address}: connect: {}", go::system(&error));
                failure.get_or_insert(SendError(words));
            }
        }
    }
    Err(failure.unwrap_or_else(|| no_such_host(address)))
}

async fn lookup(address: &str) -> Result<Vec<SocketAddr>, SendError> {
    let found: io::Result<_> = tokio::net::lookup_host(address).await;
    found
        .map(Iterator::collect)
        .map_err(|_| no_such_host(address))
}

fn no_such_host(address: &str) -> SendError {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    SendError(format!("dial tcp: lookup {host}: no such host"))
}

impl tower_service::Service<Uri> for Connector {
    type Response = TransportStream;
    type Error = SendError;
    type Future = Pin<Box<dyn Future<Output = Result<TransportStream, SendError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().connect())
    }
}

/// A connection.
pub enum TransportStream {
    /// Without TLS.
    Plain(TokioIo<TcpStream>),
    /// With TLS.
    Tls(Box<TokioIo<TlsStream<TcpStream>>>),
}

impl Connection for TransportStream {
    fn connected(&self) -> Connected {
        match self {
            TransportStream::Tls(stream)
                if stream.inner().get_ref().1.alpn_protocol() == Some(b"h2") =>
            {
                Connected::new().negotiated_h2()
            }
            _ => Connected::new(),
        }
    }
}

impl Read for TransportStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            TransportStream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            TransportStream::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl Write for TransportStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            TransportStream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            TransportStream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            TransportStream::Plain(stream) => Pin::new(stream).poll_flush(context),
            TransportStream::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            TransportStream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            TransportStream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
