//! The listener and TLS of the kubelet endpoints, and client certificates.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use mizzen_sdk::Key;
use mizzen_sdk::clock::Clock;
use mizzen_sdk::dynamic::DynamicClient;
use mizzen_sdk::resource::CONFIG_MAPS;
use mizzen_value::Value;
use tokio::net::TcpListener;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime,
};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::time_provider::TimeProvider;
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::authenticate::ClientUser;

/// The client certificate name of the API server.
const KUBELET_CLIENT: &str = "kube-apiserver-kubelet-client";
/// The group with unlimited access.
const MASTERS: &str = "system:masters";

/// A bound listener for the kubelet endpoints.
pub struct Serving {
    pub(super) listener: TcpListener,
    pub(super) tls: Arc<ServerConfig>,
    spans_loopback: bool,
}

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The server certificate cannot be generated.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// TLS cannot be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// No client CA.
    #[error("the certificate authority of clients is no certificate")]
    NoAuthority,
    /// The socket cannot be bound.
    #[error("cannot listen: {0}")]
    Listen(#[from] std::io::Error),
}

impl Serving {
    /// Listens on a free port of `address` for clients with a certificate of `authority`, which is
    /// PEM. The server certificate is self-signed, as a kubelet's is.
    ///
    /// For an address in 127.0.0.0/8 it listens on all addresses of the loopback interface, if the
    /// system can, so that every node can have its own. The socket accepts no other interface.
    pub async fn bind(
        address: IpAddr,
        authority: &str,
        clock: Clock,
    ) -> Result<Serving, ServeError> {
        let spanning = is_loopback_v4(address)
            .then(listen_on_loopback)
            .and_then(Result::ok);
        let spans_loopback = spanning.is_some();
        let listener = match spanning {
            Some(listener) => listener,
            None => TcpListener::bind((address, 0)).await?,
        };
        let own =
            rcgen::generate_simple_self_signed(vec!["localhost".into(), address.to_string()])?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()));
        let mut roots = RootCertStore::empty();
        let authorities =
            CertificateDer::pem_slice_iter(authority.as_bytes()).filter_map(Result::ok);
        if roots.add_parsable_certificates(authorities).0 == 0 {
            return Err(ServeError::NoAuthority);
        }
        let provider = Arc::new(ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                .allow_unauthenticated()
                .build()
                .map_err(|error| rustls::Error::General(error.to_string()))?;
        let tls = ServerConfig::builder_with_details(provider, Arc::new(TlsClock(clock)))
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![own.cert.der().clone()], key)?;
        Ok(Serving {
            listener,
            tls: Arc::new(tls),
            spans_loopback,
        })
    }

    /// Whether it listens on all addresses of 127.0.0.0/8.
    pub fn spans_loopback(&self) -> bool {
        self.spans_loopback
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.address().map_or(0, |address| address.port())
    }

    /// The address that it listens at.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }
}

pub(crate) fn is_loopback_v4(address: IpAddr) -> bool {
    address.is_ipv4() && address.is_loopback()
}

/// Linux: a socket that is bound to the loopback interface receives from no other interface,
/// whatever its address.
#[cfg(target_os = "linux")]
fn listen_on_loopback() -> std::io::Result<TcpListener> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.bind_device(Some(b"lo"))?;
    socket.bind((std::net::Ipv4Addr::UNSPECIFIED, 0).into())?;
    socket.listen(1024)
}

/// Other systems have only one loopback address by default.
#[cfg(not(target_os = "linux"))]
fn listen_on_loopback() -> std::io::Result<TcpListener> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// The client CA, as the API server publishes it.
pub async fn client_authority(client: &Client) -> Result<String, kube::Error> {
    let key = Key::new("kube-system", "extension-apiserver-authentication");
    let published = DynamicClient::new(client.clone())
        .get(&CONFIG_MAPS, &key)
        .await?;
    Ok(published["data"]["client-ca-file"].str().into())
}

/// What the certificate of a client says about it.
#[derive(Debug)]
pub(super) enum ClientIdentity {
    /// No client certificate.
    Anonymous,
    User(ClientUser),
    /// The API server, or a member of system:masters.
    Trusted,
}

impl ClientIdentity {
    /// The identity of verified certificates.
    pub(super) fn from_certificates(certificates: Option<&[CertificateDer]>) -> ClientIdentity {
        let Some(certificate) = certificates.and_then(<[_]>::first) else {
            return ClientIdentity::Anonymous;
        };
        let Ok((_, certificate)) = X509Certificate::from_der(certificate) else {
            return ClientIdentity::Anonymous;
        };
        let subject = certificate.subject();
        let name = subject
            .iter_common_name()
            .find_map(|name| name.as_str().ok())
            .unwrap_or_default();
        let groups: Vec<Value> = subject
            .iter_organization()
            .filter_map(|group| Some(group.as_str().ok()?.into()))
            .collect();
        match name == KUBELET_CLIENT || groups.iter().any(|group| group.str() == MASTERS) {
            true => ClientIdentity::Trusted,
            false => ClientIdentity::User(ClientUser {
                name: name.into(),
                uid: String::new(),
                groups,
                extra: Value::Null,
            }),
        }
    }
}

/// The clock that certificates are verified against.
struct TlsClock(Clock);

impl fmt::Debug for TlsClock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Time")
    }
}

impl TimeProvider for TlsClock {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from((self.0)().as_second()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}
