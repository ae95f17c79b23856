//! A connection to a member: which address and whether with TLS, dialled when it is needed.

use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use mizzen_transport::{ClientIdentity, Connector, SendError, Target, TransportStream, Trust};
use mizzen_value::clock::Clock;
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
        })))
    }

    /// The endpoint as a URL.
    pub(super) fn endpoint(&self) -> String {
        self.0.uri.to_string().trim_end_matches('/').to_owned()
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

    async fn dial(self) -> Result<TransportStream, DialError> {
        let limit = self.0.dial_timeout;
        let connected = timeout(limit, async {
            let mut connector = self.0.connector()?;
            connector.call(self.0.uri.clone()).await
        });
        let reason = match connected.await {
            Ok(Ok(stream)) => return Ok(stream),
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
    type Response = TransportStream;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<TransportStream, DialError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().dial())
    }
}
