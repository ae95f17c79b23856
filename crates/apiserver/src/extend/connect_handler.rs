//! Subresources that upgrade the connection: CONNECT, as `exec` of a pod.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use hyper_util::rt::TokioIo;
use mizzen_object::Status;
use mizzen_registry::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Error, RequestContext};
use crate::aggregation::hop_by_hop;
use crate::response::{Body, Response};
use crate::verbs::ResourceCall;

/// Serves a subresource whose clients ask for another protocol with `Upgrade`.
///
/// The verbs of the subresource are `get`, `create` or both: client libraries use `GET` for WebSocket and `POST` for SPDY.
/// Admission policies and webhooks get the operation `CONNECT` and no object; then
/// [`AdmissionPlugin::connect`](super::AdmissionPlugin::connect) of each plug-in runs.
///
/// ```
/// use mizzen_apiserver::extend::{ConnectHandler, Connection, Error, RequestContext};
/// use tokio::io::{AsyncWriteExt as _, copy};
///
/// /// Sends back all that it receives.
/// struct Echo;
///
/// impl ConnectHandler for Echo {
///     async fn connect(&self, _context: &RequestContext<'_>) -> Result<Connection, Error> {
///         Ok(Connection::upgrade("echo", |stream| async {
///             let (mut from_client, mut to_client) = tokio::io::split(stream);
///             if copy(&mut from_client, &mut to_client).await.is_ok() {
///                 let _ = to_client.shutdown().await;
///             }
///         }))
///     }
/// }
/// ```
pub trait ConnectHandler: Send + Sync {
    /// Accepts the connection or rejects it. `context.old` is the object; the protocol that the client asks for is in
    /// [`RequestContext::headers`].
    fn connect(
        &self,
        context: &RequestContext<'_>,
    ) -> impl Future<Output = Result<Connection, Error>> + Send;
}

/// A connection after the upgrade.
///
/// ```
/// use mizzen_apiserver::extend::UpgradedStream;
/// use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
///
/// /// Answers one byte with the next one.
/// async fn count(mut stream: impl UpgradedStream) -> std::io::Result<()> {
///     let byte = stream.read_u8().await?;
///     stream.write_u8(byte + 1).await
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let (mut client, server) = tokio::io::duplex(16);
/// client.write_u8(6).await?;
/// count(server).await?;
/// assert_eq!(client.read_u8().await?, 7);
/// # Ok::<(), std::io::Error>(())
/// # })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait UpgradedStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> UpgradedStream for T {}

/// What is done with an accepted connection.
///
/// ```
/// use http::HeaderValue;
/// use http::header::SEC_WEBSOCKET_PROTOCOL;
/// use mizzen_apiserver::extend::Connection;
/// use tokio::io::AsyncWriteExt as _;
///
/// let connection = Connection::upgrade("websocket", |mut stream| async move {
///     let _ = stream.write_all(b"hello").await;
/// });
/// let connection = connection.header(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static("greetings"));
/// # drop(connection);
/// ```
pub struct Connection {
    headers: HeaderMap,
    serve: ServeConnection,
}

type ServeConnection =
    Box<dyn FnOnce(Box<dyn UpgradedStream>) -> BoxFuture<'static, ()> + Send + Sync>;

impl Connection {
    /// Switches to `protocol` (101) and serves the connection until `serve` ends or the server stops.
    ///
    /// # Panics
    /// If `protocol` is no valid header value.
    pub fn upgrade<Serving: Future<Output = ()> + Send + 'static>(
        protocol: &'static str,
        serve: impl FnOnce(Box<dyn UpgradedStream>) -> Serving + Send + Sync + 'static,
    ) -> Connection {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static(protocol));
        Connection {
            headers,
            serve: Box::new(|stream| Box::pin(serve(stream))),
        }
    }

    /// Adds a header to the response, such as `Sec-WebSocket-Accept`.
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Connection {
        self.headers.insert(name, value);
        self
    }
}

/// A [`ConnectHandler`] of any type.
pub(crate) trait ErasedConnectHandler: Send + Sync {
    fn connect_boxed<'a>(
        &'a self,
        context: &'a RequestContext<'a>,
    ) -> BoxFuture<'a, Result<Connection, Error>>;
}

impl<T: ConnectHandler> ErasedConnectHandler for T {
    fn connect_boxed<'a>(
        &'a self,
        context: &'a RequestContext<'a>,
    ) -> BoxFuture<'a, Result<Connection, Error>> {
        Box::pin(self.connect(context))
    }
}

/// Upgrades the connection of a request, if plug-ins and the handler accept it.
pub(crate) async fn connect(
    call: &ResourceCall<'_>,
    handler: &dyn ErasedConnectHandler,
    context: &RequestContext<'_>,
) -> Result<Response, Status> {
    let request = call.request;
    for plugin in &call.server.extensions.admission {
        plugin.connect_boxed(context).await?;
    }
    if !hop_by_hop::is_upgrade(&request.headers) {
        return Err(Status::bad_request("Upgrade request required"));
    }
    let Connection { headers, serve } = handler.connect_boxed(context).await?;
    let streams = request.streams.take();
    let upgrade = streams
        .and_then(|streams| streams.upgrade)
        .ok_or_else(|| Status::bad_request("Upgrade request required"))?;
    let record = request.record.clone();
    let mut stopping = call.server.stopping.subscribe();
    tokio::spawn(async move {
        if let Ok(client) = upgrade.await {
            tokio::select! {
                () = serve(Box::new(TokioIo::new(client))) => {}
                _ = stopping.wait_for(|is_stopping| *is_stopping) => {}
            }
        }
        // The audit event of the end of the request.
        drop(record);
    });
    let mut response = Response::new(Body::from(""));
    *response.status_mut() = http::StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = headers;
    Ok(response)
}
