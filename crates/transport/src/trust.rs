//! TLS configuration of a target: its CA bundle and the client certificate.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mizzen_value::clock::Clock;
use tokio_rustls::rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::time_provider::TimeProvider;
use tokio_rustls::rustls::{self, ClientConfig};

use super::verify::{RootCertificates, ServerVerifier};
use crate::check_signatures;

/// Who may have signed a server's certificate.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Trust {
    /// The CA certificates of this machine.
    System,
    /// These, as PEM.
    Bundle(Vec<u8>),
    /// Anyone: the configuration says so. Signatures are still checked.
    Anyone,
    /// TLS is not spoken.
    Plaintext,
}

impl Trust {
    /// What a `caBundle` says: an empty one says nothing.
    pub fn bundle(pem: Vec<u8>) -> Trust {
        if pem.is_empty() {
            Trust::System
        } else {
            Trust::Bundle(pem)
        }
    }
}

/// The certificate that we show, and its key, as PEM.
#[derive(Clone)]
pub struct ClientIdentity {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

/// Keys are not for logs.
impl fmt::Debug for ClientIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Identity").finish_non_exhaustive()
    }
}

/// How TLS is spoken. An error reads as Go's.
pub(crate) fn config(
    trust: &Trust,
    identity: Option<&ClientIdentity>,
    http2: bool,
    clock: &Arc<dyn Clock>,
) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let builder =
        ClientConfig::builder_with_details(provider.clone(), Arc::new(InjectedTime(clock.clone())))
            .with_safe_default_protocol_versions()
            .expect("ring has every default version");
    let builder = match trust {
        Trust::Plaintext => return Err("TLS is not spoken with this server".into()),
        Trust::Anyone => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyServerCertificate(provider))),
        Trust::System | Trust::Bundle(_) => {
            let roots = if let Trust::Bundle(pem) = trust {
                bundle(pem)?.into()
            } else {
                system()
            };
            let verifier = ServerVerifier { roots, provider };
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(verifier))
        }
    };
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).map_err(|error| {
                format!("tls: failed to find any PEM data in key input: {error}")
            })?;
            let chain = certificates(identity.certificate.as_bytes());
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| error.to_string())?
        }
    };
    config.alpn_protocols = match http2 {
        true => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        false => vec![b"http/1.1".to_vec()],
    };
    Ok(config)
}

/// Certificates of a bundle. Kubernetes: what is no certificate is passed over as long as something is one.
fn bundle(pem: &[u8]) -> Result<RootCertificates, String> {
    let roots = RootCertificates::new(certificates(pem));
    if roots.is_empty() {
        return Err("unable to load root certificates: unable to parse bytes as PEM block".into());
    }
    Ok(roots)
}

/// Whether some PEM has certificates, and nothing that is none.
pub fn check_certificates(pem: &[u8]) -> Result<(), String> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match certificates.map_err(|error| error.to_string())?.is_empty() {
        true => Err("there is no certificate in it".into()),
        false => Ok(()),
    }
}

/// Whether some PEM has a private key.
pub fn check_key(pem: &[u8]) -> Result<(), String> {
    PrivateKeyDer::from_pem_slice(pem)
        .map(drop)
        .map_err(|error| error.to_string())
}

fn certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem)
        .filter_map(Result::ok)
        .collect()
}

/// The roots of this machine. Reading them takes milliseconds, so it is done once, and only if it is needed.
fn system() -> Arc<RootCertificates> {
    static SYSTEM: OnceLock<Arc<RootCertificates>> = OnceLock::new();
    let read = || {
        let found = rustls_native_certs::load_native_certs();
        if found.certs.is_empty() {
            tracing::warn!(errors = ?found.errors, "this machine trusts no certificate authority");
        }
        Arc::new(RootCertificates::new(found.certs))
    };
    SYSTEM.get_or_init(read).clone()
}

/// The time at which certificates must be good.
struct InjectedTime(Arc<dyn Clock>);

impl fmt::Debug for InjectedTime {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Time")
    }
}

impl TimeProvider for InjectedTime {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.0.now().0).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

/// Accepts any server certificate: `insecureSkipTLSVerify`. Signatures are still verified.
#[derive(Debug)]
pub struct AnyServerCertificate(pub Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServerCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    check_signatures! { 0 }
}
