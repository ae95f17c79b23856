//! A connection to a member: which address and whether with TLS, dialled when it is needed.

use std::fs;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Uri;
use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use mizzen_transport::{ClientIdentity, Connector, SendError, Target, TransportStream, Trust};
use mizzen_value::clock::Clock;
use parking_lot::Mutex;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use tower_service::Service;

use super::{Config, ConfigError};

/// How much of a response etcd may send before it is read. A watch that is not read holds this much.
const STREAM_WINDOW: u32 = 1 << 20;
/// More than all streams of a connection together, so that a watch that is not read holds up no other.
const CONNECTION_WINDOW: u32 = 1 << 30;

/// Why there is no connection to a member. Nothing was sent.
#[derive(Debug, thiserror::Error)]
#[error("connection to {endpoint}: {reason}")]
pub(super) struct DialError {
    endpoint: String,
    reason: String,
}

/// Makes connections to one member.
#[derive(Clone)]
pub(super) struct Dialer(Arc<DialerInner>);

struct DialerInner {
    /// The address, with its scheme.
    uri: Uri,
    /// Files of PEM; none for plain text.
    tls: Option<TlsFiles>,
    clock: Arc<dyn Clock>,
    dial_timeout: Duration,
    keepalive_time: Duration,
    keepalive_timeout: Duration,
    /// What ended the last connection.
    last_error: Mutex<Option<String>>,
}

#[derive(Clone)]
struct TlsFiles {
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
}

impl Dialer {
    /// For an endpoint as `--etcd-servers` has it. One without scheme has TLS if files for it are configured, as in etcd's
    /// own client (client/v3/internal/endpoint).
    pub(super) fn new(endpoint: &str, config: &Config) -> Result<Dialer, ConfigError> {
        let invalid = || ConfigError::Endpoint(endpoint.to_owned());
        let files = TlsFiles {
            ca: config.ca_file.clone(),
            cert: config.cert_file.clone(),
            key: config.key_file.clone(),
        };
        let has_files = files.ca.is_some() || files.cert.is_some() || files.key.is_some();
        let (is_secure, authority) = match endpoint.split_once("://") {
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            Some(_) => return Err(invalid()),
            None => (has_files, endpoint),
        };
        let authority = authority.trim_end_matches('/');
        let scheme = if is_secure { "https" } else { "http" };
        let uri: Uri = format!("{scheme}://{authority}")
            .parse()
            .map_err(|_| invalid())?;
        if uri.port_u16().is_none() || uri.path() != "/" || authority.contains('@') {
            return Err(invalid());
        }
        Ok(Dialer(Arc::new(DialerInner {
            uri,
            tls: is_secure.then_some(files),
            clock: config.clock.clone(),
            dial_timeout: config.dial_timeout,
            keepalive_time: config.keepalive_time,
            keepalive_timeout: config.keepalive_timeout,
            last_error: Mutex::default(),
        })))
    }

    /// The endpoint as a URL.
    pub(super) fn endpoint(&self) -> String {
        self.0.uri.to_string().trim_end_matches('/').to_owned()
    }

    /// Why the last connection ended, if that is known: a TLS alert may come after the handshake, and calls only see a stream
    /// that is closed.
    pub(super) fn last_error(&self) -> Option<String> {
        self.0.last_error.lock().clone()
    }

    /// A channel that connects when it is first used, and again when its connection has ended.
    pub(super) fn channel(&self) -> Channel {
        Endpoint::from(self.0.uri.clone())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .http2_keep_alive_interval(self.0.keepalive_time)
            .keep_alive_timeout(self.0.keepalive_timeout)
            // etcd closes a connection on which a client pings without a call.
            .keep_alive_while_idle(false)
            .connect_with_connector_lazy(self.clone())
    }

    async fn dial(self) -> Result<MemberStream, DialError> {
        let limit = self.0.dial_timeout;
        let connected = timeout(limit, async {
            let mut connector = self.0.connector()?;
            connector.call(self.0.uri.clone()).await
        });
        let reason = match connected.await {
            Ok(Ok(stream)) => {
                *self.0.last_error.lock() = None;
                let dialer = self.0;
                return Ok(MemberStream {
                    stream,
                    dialer,
                    failed_write: None,
                });
            }
            Ok(Err(SendError(reason))) => reason,
            Err(_) => format!("no connection within {limit:?}"),
        };
        let endpoint = self.endpoint();
        Err(DialError { endpoint, reason })
    }
}

impl DialerInner {
    /// Certificates are read for each connection, so that renewed ones are used.
    fn connector(&self) -> Result<Connector, SendError> {
        let Some(files) = &self.tls else {
            let target = Target::at(&self.uri, &Trust::Plaintext)?;
            return Connector::to(&target, None, &self.clock);
        };
        let trust = match &files.ca {
            Some(path) => Trust::Bundle(read(path)?),
            None => Trust::System,
        };
        let target = Target::at(&self.uri, &trust)?;
        let identity = files.identity()?;
        Connector::to(&target, identity.as_ref(), &self.clock)
    }
}

impl TlsFiles {
    fn identity(&self) -> Result<Option<ClientIdentity>, SendError> {
        let (Some(certificate), Some(key)) = (&self.cert, &self.key) else {
            return Ok(None);
        };
        let text = |path| Ok(String::from_utf8_lossy(&read(path)?).into_owned());
        Ok(Some(ClientIdentity {
            certificate: text(certificate)?,
            key: text(key)?,
        }))
    }
}

/// Blocks for a small local file, once per connection.
fn read(path: &Path) -> Result<Vec<u8>, SendError> {
    fs::read(path).map_err(|error| SendError(format!("open {}: {error}", path.display())))
}

impl Service<Uri> for Dialer {
    type Response = MemberStream;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<MemberStream, DialError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().dial())
    }
}

/// A connection that remembers why it ended.
///
/// A member that closes a connection says why before, as with a TLS alert about the client certificate, which comes after
/// the handshake. So when a write fails, what is still to be read is read first, and then the failure is returned.
pub(super) struct MemberStream {
    stream: TransportStream,
    dialer: Arc<DialerInner>,
    failed_write: Option<io::Error>,
}

impl MemberStream {
    fn record(&self, error: &io::Error) {
        *self.dialer.last_error.lock() = Some(error.to_string());
    }

    /// Returns the error of a write that failed once the connection has been read to its end. That is soon: both sides of a
    /// socket fail together.
    fn fail_write(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        let mut bytes = [0; 4096];
        loop {
            let mut buffer = ReadBuf::new(&mut bytes);
            match ready!(Pin::new(&mut self.stream).poll_read(context, buffer.unfilled())) {
                Ok(()) if !buffer.filled().is_empty() => {}
                Ok(()) => break,
                Err(error) => {
                    self.record(&error);
                    break;
                }
            }
        }
        let broken = || io::ErrorKind::BrokenPipe.into();
        Poll::Ready(self.failed_write.take().unwrap_or_else(broken))
    }

    /// Writes, unless a write has failed before.
    fn poll_write_with<T>(
        &mut self,
        context: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut TransportStream>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if self.failed_write.is_none() {
            match write(Pin::new(&mut self.stream), context) {
                Poll::Ready(Err(error)) => {
                    self.record(&error);
                    self.failed_write = Some(error);
                }
                written => return written,
            }
        }
        self.fail_write(context).map(Err)
    }
}

impl Read for MemberStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let read = Pin::new(&mut this.stream).poll_read(context, buffer);
        if let Poll::Ready(Err(error)) = &read {
            this.record(error);
        }
        read
    }
}

impl Write for MemberStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.poll_write_with(context, |stream, context| stream.poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.poll_write_with(context, TransportStream::poll_flush)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
