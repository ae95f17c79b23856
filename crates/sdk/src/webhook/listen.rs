//! The listener: TLS, HTTP/1.1 and HTTP/2, limits per connection, graceful shutdown.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::server::TlsStream;

use super::certificate::ServingCertificate;
use super::server::Server;

/// How many streams a connection may have at once. The API server uses one connection for many
/// requests.
const MAX_STREAMS: u32 = 250;

impl Server {
    /// Serves over TLS until `stop` resolves, then finishes the requests in flight for at most
    /// `grace`. The certificate may be replaced at any time; new connections use the new one.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use std::time::Duration;
    /// use mizzen_sdk::webhook::{Authority, Server, Validity};
    ///
    /// let authority = Authority::generate("shop", &Validity::default(), 1_800_000_000)?;
    /// let certificate = authority.sign(&["localhost".into()], &Validity::default(), 1_800_000_000)?.serving()?;
    /// let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    /// let stop = async { /* a signal */ };
    /// Server::builder("shop").build()?.serve(listener, certificate, stop, Duration::from_secs(5)).await;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn serve(
        &self,
        listener: TcpListener,
        certificate: ServingCertificate,
        stop: impl Future<Output = ()>,
        grace: Duration,
    ) {
        let acceptor = TlsAcceptor::from(Arc::new(tls(certificate)));
        let places = Arc::new(Semaphore::new(self.0.limits.connections));
        let ending = watch::Sender::new(false);
        let mut connections = JoinSet::new();
        let mut stop = pin!(stop);
        loop {
            let stream = tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        tracing::warn!(%error, "failed to accept a connection");
                        sleep(Duration::from_millis(50)).await;
                        continue;
                    }
                },
                () = &mut stop => break,
            };
            while connections.try_join_next().is_some() {}
            // Above the limit a connection is closed, not queued.
            let Ok(place) = places.clone().try_acquire_owned() else {
                continue;
            };
            let (server, acceptor, ending) = (self.clone(), acceptor.clone(), ending.subscribe());
            connections.spawn(async move {
                let limit = server.0.limits.handshake_timeout;
                match timeout(limit, acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => server.drive(stream, ending).await,
                    Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
                    Err(_) => tracing::debug!("TLS handshake timed out"),
                }
                drop(place);
            });
        }
        drop(listener);
        ending.send_replace(true);
        let all = async { while connections.join_next().await.is_some() {} };
        let _ = timeout(grace, all).await;
    }

    async fn drive(&self, stream: TlsStream<TcpStream>, mut ending: watch::Receiver<bool>) {
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let stream = TokioIo::new(stream);
        let service = service_fn(|request| {
            let server = self.clone();
            async move { Ok::<_, Infallible>(server.handle(request).await.map(Full::new)) }
        });
        // A client that goes away needs no response, so errors of a connection are not reported.
        if is_http2 {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder
                .timer(TokioTimer::new())
                .max_concurrent_streams(MAX_STREAMS)
                .keep_alive_interval(Duration::from_secs(30));
            let mut connection = pin!(builder.serve_connection(stream, service));
            tokio::select! {
                _ = connection.as_mut() => return,
                _ = ending.wait_for(|ending| *ending) => connection.as_mut().graceful_shutdown(),
            }
            let _ = connection.await;
        } else {
            let mut builder = http1::Builder::new();
            builder
                .timer(TokioTimer::new())
                .header_read_timeout(self.0.limits.handshake_timeout);
            let mut connection = pin!(builder.serve_connection(stream, service));
            tokio::select! {
                _ = connection.as_mut() => return,
                _ = ending.wait_for(|ending| *ending) => connection.as_mut().graceful_shutdown(),
            }
            let _ = connection.await;
        }
    }
}

fn tls(certificate: ServingCertificate) -> ServerConfig {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring supports the default versions")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(certificate));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}
