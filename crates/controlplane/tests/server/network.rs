//! A server on a real network, and a client whom it knows by a certificate.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mizzen_apiserver::listen::{SecureServing, listen};
use mizzen_apiserver::{ClientIdentity, Server, User};
use mizzen_authentication::PeerIdentity as Known;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

/// The server. It is gone when this is dropped.
pub(crate) struct Network {
    port: u16,
    authority: Authority,
    task: JoinHandle<()>,
}

impl Network {
    /// Puts `server` on a network.
    pub(crate) async fn start(server: &Server) -> Network {
        let authority = Authority::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let identify = Arc::new(|_: &[CertificateDer<'static>]| Known::User(User::master("admin")));
        let tls = Arc::new(authority.server());
        let serving = SecureServing {
            listener,
            tls,
            identify,
            grace: Duration::ZERO,
        };
        let task = tokio::spawn(listen(server.clone(), serving, std::future::pending()));
        Network {
            port,
            authority,
            task,
        }
    }

    /// A kubeconfig of the admin.
    pub(crate) fn kubeconfig(&self) -> String {
        let ClientIdentity { certificate, key } = self.authority.identity();
        let [certificate, key] = [certificate, key].map(|pem| STANDARD.encode(pem));
        format!(
            "current-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nclusters: [{{name: c, cluster: \
             {{server: 'https://127.0.0.1:{}', insecure-skip-tls-verify: true}}}}]\nusers: [{{name: u, user: \
             {{client-certificate-data: {certificate}, client-key-data: {key}}}}}]\n",
            self.port
        )
    }

    /// A connection as the admin, on which HTTP/1.1 is spoken.
    pub(crate) async fn connect(&self) -> TlsStream<TcpStream> {
        self.dial("http/1.1").await
    }

    /// A connection as the admin, on which nothing has been said.
    pub(crate) async fn dial(&self, protocol: &str) -> TlsStream<TcpStream> {
        let mut config = self.authority.client();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let connector = TlsConnector::from(Arc::new(config));
        connector
            .connect("127.0.0.1".try_into().unwrap(), self.dial_plain().await)
            .await
            .unwrap()
    }

    /// A connection before the TLS handshake.
    pub(crate) async fn dial_plain(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).await.unwrap()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Signs certificates.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    roots: Arc<RootCertStore>,
    /// Its own certificate.
    pub pem: String,
}

type Certificate = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl Authority {
    pub(crate) fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let mut roots = RootCertStore::empty();
        let own = params.self_signed(&key).unwrap();
        roots.add(own.der().clone()).unwrap();
        Authority {
            issuer: Issuer::new(params, key),
            roots: Arc::new(roots),
            pem: own.pem(),
        }
    }

    /// A certificate of the user `admin` and its key, as PEM.
    pub(crate) fn identity(&self) -> ClientIdentity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "admin");
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        ClientIdentity {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }

    fn sign(&self) -> Certificate {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        (vec![certificate.der().clone()], key)
    }

    fn server(&self) -> ServerConfig {
        let provider = Arc::new(ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(self.roots.clone(), provider.clone());
        let (chain, key) = self.sign();
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(chain, key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config
    }

    fn client(&self) -> ClientConfig {
        let (chain, key) = self.sign();
        ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.roots.clone())
            .with_client_auth_cert(chain, key)
            .unwrap()
    }
}
