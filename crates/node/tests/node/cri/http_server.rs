//! A server that probes and hooks reach: a pod on the host network has the addresses of this machine, so the server runs in
//! the test. HTTP, HTTPS, and the health service of gRPC.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// What it has answered and will answer.
#[derive(Clone, Default)]
pub(super) struct Site {
    /// The status of each path, and where it redirects to; others are not found. Services of gRPC are paths, too.
    pages: Arc<Mutex<BTreeMap<String, (u16, String)>>>,
    /// The requests: path, header Host, header X-Probe.
    requests: Arc<Mutex<Vec<String>>>,
}

impl Site {
    /// Sets the answer of a path.
    pub(super) fn set(&self, path: &str, status: u16, location: &str) {
        let mut pages = self.pages.lock();
        pages.insert(path.into(), (status, location.into()));
    }

    /// Whether a request of this text has come.
    pub(super) fn has_seen(&self, request: &str) -> bool {
        self.requests.lock().iter().any(|seen| seen == request)
    }

    fn status(&self, path: &str, headers: &HeaderMap) -> (u16, String) {
        let header = |name: &str| headers.get(name).map_or("", |it| it.to_str().unwrap());
        let request = format!("{path} {} {}", header("host"), header("x-probe"));
        self.requests.lock().push(request.trim_end().to_owned());
        let pages = self.pages.lock();
        pages
            .get(path)
            .cloned()
            .unwrap_or_else(|| (404, String::new()))
    }

    fn respond(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let (status, location) = self.status(request.uri().path(), request.headers());
        let response = Response::builder().status(status);
        let response = match location.is_empty() {
            true => response,
            false => response.header("location", location),
        };
        response.body(Full::from("text")).unwrap()
    }

    /// The status of the service in the request: 1 is SERVING.
    async fn check_health(
        &self,
        request: Request<Incoming>,
    ) -> Response<BoxBody<Bytes, Infallible>> {
        let body = request.into_body().collect().await.unwrap().to_bytes();
        // A frame has five bytes before the message, and the service is its only field.
        let service = body.get(7..).unwrap_or_default();
        let service = String::from_utf8(service.to_vec()).unwrap();
        let (status, _) = self.status(&service, &HeaderMap::new());
        let mut frame = BytesMut::new();
        frame.put_slice(&[0, 0, 0, 0, 2, 8, u8::try_from(status % 100).unwrap()]);
        let trailers = [("grpc-status", HeaderValue::from_static("0"))];
        let trailers = trailers
            .into_iter()
            .map(|(name, value)| (name.parse().unwrap(), value));
        let frames = [
            Ok(Frame::data(frame.freeze())),
            Ok(Frame::trailers(trailers.collect())),
        ];
        let response = Response::builder().header("content-type", "application/grpc");
        let body = StreamBody::new(futures_util::stream::iter(frames));
        response.body(body.boxed()).unwrap()
    }

    async fn serve_http(self, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let service = service_fn(|request: Request<Incoming>| {
            let response = self.respond(&request);
            async { Ok::<_, Infallible>(response) }
        });
        let _ = http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service)
            .await;
    }

    /// Serves HTTP on a free port until the test ends.
    pub(super) async fn http(&self) -> u16 {
        let (listener, site) = (listener().await, self.clone());
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(site.clone().serve_http(stream));
            }
        });
        port
    }

    /// Serves HTTPS, with a certificate that no authority has signed.
    pub(super) async fn https(&self) -> u16 {
        let (listener, site) = (listener().await, self.clone());
        let port = listener.local_addr().unwrap().port();
        let own = rcgen::generate_simple_self_signed(vec!["nowhere.test".into()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()));
        let tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, site) = (acceptor.clone(), site.clone());
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        site.serve_http(stream).await;
                    }
                });
            }
        });
        port
    }

    /// Serves `grpc.health.v1.Health`.
    pub(super) async fn grpc(&self) -> u16 {
        let (listener, site) = (listener().await, self.clone());
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let site = site.clone();
                tokio::spawn(async move {
                    let service = service_fn(|request: Request<Incoming>| {
                        let site = site.clone();
                        async move { Ok::<_, Infallible>(site.check_health(request).await) }
                    });
                    let _ = http2::Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        port
    }
}

async fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}
