//! A client that may misbehave: no certificate, half a request, never reading.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::process::STEP_TIMEOUT;

/// The authority and the client certificate of a kubeconfig, as PEM.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Credentials {
    pub authority: Vec<u8>,
    /// The certificate and its key.
    pub user: Option<(Vec<u8>, Vec<u8>)>,
}

impl Credentials {
    /// Reads a kubeconfig that `mizzen` wrote.
    pub(crate) fn read(kubeconfig: &Path) -> Credentials {
        let text = std::fs::read_to_string(kubeconfig).unwrap();
        let data = |key: &str| {
            let line = text
                .lines()
                .find_map(|line| line.trim().strip_prefix(key))
                .unwrap();
            BASE64_STANDARD
                .decode(line.trim_start_matches(':').trim())
                .unwrap()
        };
        let user = (data("client-certificate-data"), data("client-key-data"));
        Credentials {
            authority: data("certificate-authority-data"),
            user: Some(user),
        }
    }

    /// For a server of an authority, with the certificate and the key of a user.
    pub(crate) fn new(authority: &str, certificate: &str, key: &str) -> Credentials {
        Credentials {
            authority: authority.into(),
            user: Some((certificate.into(), key.into())),
        }
    }

    /// The certificate of the user.
    pub(crate) fn certificate(&self) -> &[u8] {
        &self.user.as_ref().expect("it has a user").0
    }

    /// The same without a client certificate.
    pub(crate) fn anonymous(&self) -> Credentials {
        Credentials {
            user: None,
            ..self.clone()
        }
    }

    /// The TLS handshake.
    async fn connect(
        &self,
        tcp: TcpStream,
        protocols: &[&str],
    ) -> io::Result<TlsStream<TcpStream>> {
        let connector = TlsConnector::from(Arc::new(self.tls(protocols)));
        let name = ServerName::try_from("127.0.0.1").unwrap();
        connector.connect(name, tcp).await
    }

    fn tls(&self, protocols: &[&str]) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&self.authority) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match &self.user {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = vec![CertificateDer::from_pem_slice(certificate).unwrap()];
                builder
                    .with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key).unwrap())
                    .unwrap()
            }
        };
        config.alpn_protocols = protocols
            .iter()
            .map(|protocol| protocol.as_bytes().to_vec())
            .collect();
        config
    }
}

/// A connection after the TLS handshake, before any HTTP.
pub(crate) async fn dial(
    address: &str,
    credentials: &Credentials,
    protocols: &[&str],
) -> TlsStream<TcpStream> {
    handshake(
        TcpStream::connect(address).await.unwrap(),
        credentials,
        protocols,
    )
    .await
}

/// The same, with a small receive buffer, so that the kernel keeps few unread bytes.
pub(crate) async fn dial_narrow(
    address: &str,
    credentials: &Credentials,
    protocols: &[&str],
) -> TlsStream<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let tcp = socket.connect(address.parse().unwrap()).await.unwrap();
    handshake(tcp, credentials, protocols).await
}

async fn handshake(
    tcp: TcpStream,
    credentials: &Credentials,
    protocols: &[&str],
) -> TlsStream<TcpStream> {
    tcp.set_nodelay(true).unwrap();
    timeout(STEP_TIMEOUT, credentials.connect(tcp, protocols))
        .await
        .expect("connected in time")
        .unwrap()
}

/// One connection. Clones share it.
#[derive(Clone)]
pub(crate) struct Client {
    address: String,
    sender: Sender,
}

#[derive(Clone)]
enum Sender {
    Http1(Arc<Mutex<http1::SendRequest<Full<Bytes>>>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// A complete response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub status: u16,
    pub body: Bytes,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error} in {}", self.text()))
    }

    /// Asserts the status code.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Answer {
        assert_eq!(self.status, status, "{}", self.text());
        self
    }
}

impl Client {
    /// Connects and negotiates one of `protocols`.
    pub(crate) async fn connect(
        address: &str,
        credentials: &Credentials,
        protocols: &[&str],
    ) -> Client {
        let stream = dial(address, credentials, protocols).await;
        Client::over(stream, address).await.unwrap()
    }

    /// Connects over HTTP/2 to a server that may be gone.
    pub(crate) async fn try_connect(
        address: &str,
        credentials: &Credentials,
    ) -> io::Result<Client> {
        let tcp = TcpStream::connect(address).await?;
        tcp.set_nodelay(true)?;
        let stream = credentials.connect(tcp, &["h2"]).await?;
        Client::over(stream, address)
            .await
            .map_err(io::Error::other)
    }

    async fn over(stream: TlsStream<TcpStream>, address: &str) -> Result<Client, hyper::Error> {
        let sender = match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => {
                let io = TokioIo::new(stream);
                let (sender, driver) = http2::handshake(TokioExecutor::new(), io).await?;
                tokio::spawn(driver);
                Sender::Http2(sender)
            }
            _ => {
                let (sender, driver) = http1::handshake(TokioIo::new(stream)).await?;
                tokio::spawn(driver);
                Sender::Http1(Arc::new(Mutex::new(sender)))
            }
        };
        Ok(Client {
            address: address.into(),
            sender,
        })
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, "").await
    }

    /// The response of a server that may be gone.
    pub(crate) async fn get_within(&self, limit: Duration, path: &str) -> Option<Answer> {
        let request = Request::get(self.uri(path)).body(Full::default()).unwrap();
        timeout(limit, self.fetch(request)).await.ok()?.ok()
    }

    pub(crate) async fn post(&self, path: &str, body: impl Into<Bytes>) -> Answer {
        self.call("POST", path, body).await
    }

    /// GET with one more header.
    pub(crate) async fn get_with(&self, path: &str, (name, value): (&str, &str)) -> Answer {
        let request = Request::get(self.uri(path)).header(name, value);
        let request = request.body(Full::default()).unwrap();
        self.fetch(request).await.unwrap()
    }

    /// Sends JSON; a patch is a merge patch.
    pub(crate) async fn call(&self, method: &str, path: &str, body: impl Into<Bytes>) -> Answer {
        self.try_call(method, path, body).await.unwrap()
    }

    /// The same with a server that may be gone.
    pub(crate) async fn try_call(
        &self,
        method: &str,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Result<Answer, hyper::Error> {
        let media_type = if method == "PATCH" {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let request = Request::builder()
            .method(method)
            .uri(self.uri(path))
            .header("content-type", media_type);
        self.fetch(request.body(Full::new(body.into())).unwrap())
            .await
    }

    /// The path for the protocol of this connection.
    pub(crate) fn uri(&self, path: &str) -> String {
        match self.sender {
            Sender::Http1(_) => path.into(),
            Sender::Http2(_) => format!("https://{}{path}", self.address),
        }
    }

    /// The complete response, or the error.
    pub(crate) async fn fetch(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Answer, hyper::Error> {
        let answer = async {
            let response = self.send(request).await?;
            let status = response.status().as_u16();
            Ok(Answer {
                status,
                body: response.into_body().collect().await?.to_bytes(),
            })
        };
        timeout(STEP_TIMEOUT, answer)
            .await
            .expect("an answer in time")
    }

    /// The response with its body as a stream.
    pub(crate) async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, hyper::Error> {
        match &self.sender {
            Sender::Http1(sender) => {
                request
                    .headers_mut()
                    .insert("host", self.address.parse().unwrap());
                let mut sender = sender.lock().await;
                sender.ready().await?;
                sender.send_request(request).await
            }
            Sender::Http2(sender) => {
                let mut sender = sender.clone();
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }

    /// A stream of events.
    pub(crate) async fn watch(&self, path: &str) -> Events {
        let (status, events) = timeout(STEP_TIMEOUT, self.try_watch(path))
            .await
            .expect("a watch in time")
            .unwrap();
        assert_eq!(status, 200);
        events
    }

    /// The status code and the stream of events.
    pub(crate) async fn try_watch(&self, path: &str) -> Result<(u16, Events), hyper::Error> {
        let request = Request::get(self.uri(path)).body(Full::default()).unwrap();
        let response = self.send(request).await?;
        let (status, body) = (response.status().as_u16(), response.into_body());
        let rest = Vec::new();
        Ok((status, Events { body, rest }))
    }
}

/// The events of a watch.
pub(crate) struct Events {
    body: Incoming,
    /// The beginning of an incomplete line.
    rest: Vec<u8>,
}

impl Events {
    /// The next event; none after a proper end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        let event = timeout(STEP_TIMEOUT, self.try_next())
            .await
            .expect("an event in time")
            .expect("a whole frame");
        if event.is_none() {
            let rest = String::from_utf8_lossy(&self.rest);
            assert_eq!(rest, "", "the stream ends between events");
        }
        event
    }

    /// The next event, of a server that may be gone.
    pub(crate) async fn try_next(&mut self) -> Result<Option<Value>, hyper::Error> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line).unwrap()));
            }
            let Some(frame) = self.body.frame().await else {
                return Ok(None);
            };
            self.rest
                .extend_from_slice(&frame?.into_data().unwrap_or_default());
        }
    }

    /// The next event as `TYPE name`.
    pub(crate) async fn next_name(&mut self) -> String {
        let event = self.next().await.expect("an event");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        format!(
            "{} {}",
            text(&event["type"]),
            text(&event["object"]["metadata"]["name"])
        )
    }
}
