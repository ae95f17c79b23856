//! A connection to an API server with little client-side cost.
//!
//! HTTP/2 over TLS with client-go's flow-control windows; HTTP/1.1 where the server does not offer better. Bodies are
//! counted, not parsed. A status other than 2xx is an error with the message of the server's Status.

use std::future::{Future, poll_fn};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube::Config;
use kube::client::ConfigExt as _;
use mizzen_sdk::kubeconfig::{self, LoadKubeconfigError};
use secrecy::ExposeSecret as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// The timeout of a request; kube-apiserver's own is 60 s.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);
/// The user agent.
pub(super) const AGENT: &str = "mizzen-bench";
/// Kept of a body that is only counted: enough for the metadata of a list.
const HEAD_BYTES: usize = 4096;
/// Kubernetes: the flow-control windows of Go's HTTP/2 transport, which client-go uses (net/http, h2_bundle.go).
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 1 << 30;

pub(crate) const JSON: &str = "application/json";
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
pub(crate) const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// The address and credentials of a server. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ApiEndpoint(Arc<ServerAddress>);

struct ServerAddress {
    /// `https://host:port`, the beginning of the URI of every HTTP/2 request.
    origin: String,
    /// The path of the API, usually empty.
    prefix: String,
    authority: String,
    socket: (String, u16),
    tls: Option<(TlsConnector, ServerName<'static>)>,
    token: Option<HeaderValue>,
}

/// Why a kubeconfig file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EndpointError {
    #[error("{0:?} is not a server address")]
    Address(String),
    #[error("the token is not a valid header value")]
    Token,
    #[error("cannot read the token of {file}")]
    TokenFile {
        file: String,
        source: std::io::Error,
    },
    #[error("credentials from {0} are not supported, use a certificate or a token")]
    Unsupported(&'static str),
    #[error(transparent)]
    Tls(#[from] kube::Error),
    #[error(transparent)]
    Kubeconfig(#[from] LoadKubeconfigError),
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiCallError {
    #[error("cannot connect to {authority}")]
    Connect {
        authority: String,
        source: std::io::Error,
    },
    #[error("no HTTP connection to {authority}")]
    Handshake {
        authority: String,
        source: hyper::Error,
    },
    #[error("{call}: connection failed")]
    Transport { call: String, source: hyper::Error },
    #[error("{call}: no response within {} s", REQUEST_TIMEOUT.as_secs())]
    Timeout { call: String },
    #[error("{call}: {status}: {message}")]
    Rejected {
        call: String,
        status: StatusCode,
        message: String,
    },
    #[error("{call}: {problem}")]
    Unexpected { call: String, problem: String },
}

impl ApiCallError {
    /// The status code, if the server responded.
    pub(crate) fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Rejected { status, .. } => Some(*status),
            _ => None,
        }
    }
}

impl ApiEndpoint {
    /// The server of a context of a kubeconfig file, by default of the current one.
    pub(super) async fn load(file: &Path, context: Option<&str>) -> Result<Self, EndpointError> {
        Self::new(&kubeconfig::load(file, context, AGENT).await?)
    }

    pub(super) fn new(config: &Config) -> Result<Self, EndpointError> {
        let uri: &Uri = &config.cluster_url;
        let wrong = || EndpointError::Address(uri.to_string());
        let auth = &config.auth_info;
        if auth.exec.is_some() {
            return Err(EndpointError::Unsupported("exec"));
        }
        if auth.auth_provider.is_some() {
            return Err(EndpointError::Unsupported("auth-provider"));
        }
        let host = uri
            .host()
            .ok_or_else(wrong)?
            .trim_matches(['[', ']'])
            .to_owned();
        let secure = uri.scheme_str().unwrap_or("https") == "https";
        let authority = uri.authority().ok_or_else(wrong)?.to_string();

        let tls = secure.then(|| {
            let name = config
                .tls_server_name
                .clone()
                .unwrap_or_else(|| host.clone());
            let name = ServerName::try_from(name).map_err(|_| wrong())?;
            let mut tls = config.rustls_client_config()?;
            tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
            Ok::<_, EndpointError>((TlsConnector::from(Arc::new(tls)), name))
        });
        // Kubernetes: a token file wins over a token (client-go, tools/clientcmd/client_config.go).
        let token = match (&auth.token_file, &auth.token) {
            (Some(file), _) => {
                let text =
                    std::fs::read_to_string(file).map_err(|source| EndpointError::TokenFile {
                        file: file.clone(),
                        source,
                    })?;
                Some(text.trim().to_owned())
            }
            (None, token) => token.as_ref().map(|token| token.expose_secret().to_owned()),
        };
        let token = token.map(|token| HeaderValue::try_from(format!("Bearer {token}")));
        Ok(Self(Arc::new(ServerAddress {
            origin: format!("{}://{authority}", if secure { "https" } else { "http" }),
            prefix: uri.path().trim_end_matches('/').to_owned(),
            socket: (
                host,
                uri.port_u16().unwrap_or(if secure { 443 } else { 80 }),
            ),
            authority,
            tls: tls.transpose()?,
            token: token.transpose().map_err(|_| EndpointError::Token)?,
        })))
    }

    /// `https://host:port`.
    pub(super) fn origin(&self) -> &str {
        &self.0.origin
    }

    pub(super) async fn connect(&self) -> Result<ApiConnection, ApiCallError> {
        let sender =
            timeout(REQUEST_TIMEOUT, self.dial())
                .await
                .map_err(|_| ApiCallError::Timeout {
                    call: format!("connect to {}", self.0.authority),
                })??;
        Ok(ApiConnection {
            endpoint: self.clone(),
            sender,
        })
    }

    async fn dial(&self) -> Result<Sender, ApiCallError> {
        let failed = |source| ApiCallError::Connect {
            authority: self.0.authority.clone(),
            source,
        };
        let (host, port) = &self.0.socket;
        let tcp = TcpStream::connect((host.as_str(), *port))
            .await
            .map_err(failed)?;
        tcp.set_nodelay(true).map_err(failed)?;
        let Some((connector, name)) = &self.0.tls else {
            return self.handshake_http1(tcp).await;
        };

        let stream = connector.connect(name.clone(), tcp).await.map_err(failed)?;
        match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => self.handshake_http2(stream).await,
            _ => self.handshake_http1(stream).await,
        }
    }

    async fn handshake_http1(&self, io: impl Io) -> Result<Sender, ApiCallError> {
        let (sender, driver) = http1::handshake(TokioIo::new(io))
            .await
            .map_err(|source| self.handshake_error(source))?;
        tokio::spawn(driver);
        Ok(Sender::Http1(sender))
    }

    async fn handshake_http2(&self, io: impl Io) -> Result<Sender, ApiCallError> {
        let (sender, mut driver) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .handshake(TokioIo::new(io))
            .await
            .map_err(|source| self.handshake_error(source))?;
        let max_streams = Arc::new(AtomicUsize::new(driver.current_max_send_streams()));
        let published = max_streams.clone();
        tokio::spawn(poll_fn(move |context| {
            let done = Pin::new(&mut driver).poll(context);
            published.store(driver.current_max_send_streams(), Ordering::Relaxed);
            done
        }));
        Ok(Sender::Http2 {
            sender,
            max_streams,
        })
    }

    fn handshake_error(&self, source: hyper::Error) -> ApiCallError {
        ApiCallError::Handshake {
            authority: self.0.authority.clone(),
            source,
        }
    }
}

/// A byte stream for HTTP.
trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for T {}

/// A connection; reconnects if the server has closed it.
pub(crate) struct ApiConnection {
    endpoint: ApiEndpoint,
    sender: Sender,
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    /// `max_streams` is the server's limit of concurrent streams, updated by the driver.
    Http2 {
        sender: http2::SendRequest<Full<Bytes>>,
        max_streams: Arc<AtomicUsize>,
    },
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct ApiCall {
    method: Method,
    path: String,
    body: Bytes,
    content_type: &'static str,
    accept: &'static str,
    gzip: bool,
}

impl ApiCall {
    pub(super) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path, Bytes::new())
    }

    pub(super) fn post(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self::new(Method::POST, path, body)
    }

    pub(super) fn put(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self::new(Method::PUT, path, body)
    }

    pub(super) fn merge_patch(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self {
            content_type: MERGE_PATCH,
            ..Self::new(Method::PATCH, path, body)
        }
    }

    pub(super) fn strategic_patch(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self {
            content_type: STRATEGIC_PATCH,
            ..Self::new(Method::PATCH, path, body)
        }
    }

    pub(super) fn apply(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self {
            content_type: APPLY,
            ..Self::new(Method::PATCH, path, body)
        }
    }

    pub(super) fn delete(path: impl Into<String>) -> Self {
        Self::new(Method::DELETE, path, Bytes::new())
    }

    fn new(method: Method, path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        let (path, body) = (path.into(), body.into());
        Self {
            method,
            path,
            body,
            content_type: JSON,
            accept: JSON,
            gzip: false,
        }
    }

    pub(super) fn accept(self, accept: &'static str) -> Self {
        Self { accept, ..self }
    }

    pub(super) fn gzip(self, gzip: bool) -> Self {
        Self { gzip, ..self }
    }

    /// The error for a successful response with wrong content.
    pub(super) fn unexpected(&self, problem: impl Into<String>) -> ApiCallError {
        ApiCallError::Unexpected {
            call: self.to_string(),
            problem: problem.into(),
        }
    }
}

impl std::fmt::Display for ApiCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

/// The size of a body and its beginning.
#[derive(Debug, Default)]
pub(crate) struct CountedBody {
    pub bytes: u64,
    pub head: Vec<u8>,
}

impl ApiConnection {
    /// Sends a request and reads the whole body.
    pub(super) async fn fetch(&mut self, call: &ApiCall) -> Result<Bytes, ApiCallError> {
        let response = async {
            let body = self.open(call).await?;
            body.collect()
                .await
                .map_err(|source| transport_error(call, source))
        };
        let collected = timeout(REQUEST_TIMEOUT, response)
            .await
            .map_err(|_| timeout_error(call))??;
        Ok(collected.to_bytes())
    }

    /// Sends a request and counts the bytes of the body.
    pub(super) async fn count(&mut self, call: &ApiCall) -> Result<CountedBody, ApiCallError> {
        let response = async {
            let mut body = self.open(call).await?;
            let mut counted = CountedBody::default();
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|source| transport_error(call, source))?;
                let Some(data) = frame.data_ref() else {
                    continue;
                };
                counted.bytes += data.len() as u64;
                let n_kept = HEAD_BYTES
                    .saturating_sub(counted.head.len())
                    .min(data.len());
                counted.head.extend_from_slice(&data[..n_kept]);
            }
            Ok(counted)
        };
        timeout(REQUEST_TIMEOUT, response)
            .await
            .map_err(|_| timeout_error(call))?
    }

    /// Sends a request and returns the body as a stream, for watches.
    pub(super) async fn open(&mut self, call: &ApiCall) -> Result<Incoming, ApiCallError> {
        let is_closed = match &self.sender {
            Sender::Http1(sender) => sender.is_closed(),
            Sender::Http2 { sender, .. } => sender.is_closed(),
        };
        if is_closed {
            self.sender = self.endpoint.dial().await?;
        }
        let response = self
            .send(call)
            .await
            .map_err(|source| transport_error(call, source))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response.into_body());
        }
        let body = response.into_body().collect().await;
        let body = body.map_err(|source| transport_error(call, source))?;
        Err(ApiCallError::Rejected {
            call: call.to_string(),
            status,
            message: status_message(&body.to_bytes()),
        })
    }

    /// The limit of concurrent requests on this connection.
    pub(super) fn max_streams(&self) -> usize {
        match &self.sender {
            Sender::Http1(_) => 1,
            Sender::Http2 { max_streams, .. } => max_streams.load(Ordering::Relaxed),
        }
    }

    /// Another handle of the same connection. HTTP/1.1 connections cannot be shared, so it is a new one there.
    pub(super) async fn share(&self) -> Result<ApiConnection, ApiCallError> {
        match &self.sender {
            Sender::Http1(_) => self.endpoint.connect().await,
            Sender::Http2 {
                sender,
                max_streams,
            } => Ok(ApiConnection {
                endpoint: self.endpoint.clone(),
                sender: Sender::Http2 {
                    sender: sender.clone(),
                    max_streams: max_streams.clone(),
                },
            }),
        }
    }

    async fn send(&mut self, call: &ApiCall) -> Result<Response<Incoming>, hyper::Error> {
        let address = &self.endpoint.0;
        match &mut self.sender {
            Sender::Http1(sender) => {
                sender.ready().await?;
                let mut request = address.request(call, "");
                let host = HeaderValue::try_from(&address.authority)
                    .expect("an authority is a header value");
                request.headers_mut().insert(header::HOST, host);
                sender.send_request(request).await
            }
            Sender::Http2 { sender, .. } => {
                sender.ready().await?;
                sender
                    .send_request(address.request(call, &address.origin))
                    .await
            }
        }
    }
}

impl ServerAddress {
    fn request(&self, call: &ApiCall, origin: &str) -> Request<Full<Bytes>> {
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(format!("{origin}{}{}", self.prefix, call.path))
            .header(header::ACCEPT, call.accept)
            .header(
                header::USER_AGENT,
                concat!("mizzen-bench/", env!("CARGO_PKG_VERSION")),
            );
        if call.gzip {
            request = request.header(header::ACCEPT_ENCODING, "gzip");
        }
        if !call.body.is_empty() {
            request = request.header(header::CONTENT_TYPE, call.content_type);
        }
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, token);
        }
        request
            .body(Full::new(call.body.clone()))
            .expect("paths are made of URI characters")
    }
}

fn transport_error(call: &ApiCall, source: hyper::Error) -> ApiCallError {
    ApiCallError::Transport {
        call: call.to_string(),
        source,
    }
}

fn timeout_error(call: &ApiCall) -> ApiCallError {
    ApiCallError::Timeout {
        call: call.to_string(),
    }
}

/// The message of a `Status`, or the beginning of any other body.
fn status_message(body: &[u8]) -> String {
    let status: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    match status
        .as_ref()
        .and_then(|status| status["message"].as_str())
    {
        Some(message) => message.to_owned(),
        None => String::from_utf8_lossy(&body[..body.len().min(200)])
            .trim()
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(server: &str) -> Result<ApiEndpoint, EndpointError> {
        let mut config = Config::new(server.parse().unwrap());
        config.accept_invalid_certs = true;
        config.auth_info.token = Some("t".into());
        ApiEndpoint::new(&config)
    }

    /// The endpoint of a kubeconfig with one cluster and one user.
    async fn load(user: &str) -> Result<ApiEndpoint, String> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("kubeconfig");
        let text = format!(
            "current-context: a\ncontexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n\
             clusters: [{{name: a, cluster: {{server: 'https://a', insecure-skip-tls-verify: true}}}}]\n\
             users: [{{name: a, user: {{{user}}}}}]\n"
        );
        std::fs::write(&file, text).unwrap();
        std::fs::write(directory.path().join("token"), "from a file\n").unwrap();
        let endpoint = ApiEndpoint::load(&file, None).await;
        endpoint.map_err(|error| crate::chain(&error))
    }

    #[tokio::test]
    async fn a_token_file_is_beside_the_kubeconfig_and_wins_over_a_token() {
        for (user, token) in [
            ("token: t", "Bearer t"),
            ("token: t, tokenFile: token", "Bearer from a file"),
        ] {
            let endpoint = load(user).await.unwrap();
            assert_eq!(endpoint.0.token.as_ref().unwrap(), token, "{user}");
        }
    }

    #[tokio::test]
    async fn credentials_of_an_exec_plugin_are_rejected() {
        let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: no-such-program}";
        let expected = "credentials from exec are not supported, use a certificate or a token";
        assert_eq!(load(exec).await.err().as_deref(), Some(expected));
    }

    #[test]
    fn a_server_address_may_have_a_path_and_no_port() {
        let endpoint = endpoint("https://rancher.example/k8s/clusters/c1/").unwrap();
        assert_eq!(endpoint.0.socket, ("rancher.example".to_owned(), 443));
        let request = endpoint
            .0
            .request(&ApiCall::get("/api"), &endpoint.0.origin);
        assert_eq!(request.uri(), "https://rancher.example/k8s/clusters/c1/api");
        assert_eq!(request.headers()[header::AUTHORIZATION], "Bearer t");
    }

    #[test]
    fn an_ipv6_address_loses_its_brackets() {
        assert_eq!(
            endpoint("https://[::1]:6443").unwrap().0.socket,
            ("::1".to_owned(), 6443)
        );
    }

    #[test]
    fn a_path_is_not_a_server_address() {
        assert!(matches!(
            endpoint("/nowhere"),
            Err(EndpointError::Address(_))
        ));
    }

    #[test]
    fn an_error_has_the_message_of_the_status() {
        assert_eq!(
            status_message(br#"{"kind":"Status","message":"configmaps \"a\" not found"}"#),
            "configmaps \"a\" not found"
        );
        assert_eq!(
            status_message(b"404 page not found\n"),
            "404 page not found"
        );
    }
}
