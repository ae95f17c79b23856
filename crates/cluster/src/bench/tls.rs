//! TLS as a kubeconfig describes it: whom to trust, and the certificate to show.

use std::sync::Arc;

use mizzen_apiserver::Anyone;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

use super::kubeconfig::{Kubeconfig, Trust};

/// Why a kubeconfig's certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("{what} is not PEM")]
    Pem {
        what: &'static str,
        source: pem::Error,
    },
    #[error("{what} cannot be used")]
    Unusable {
        what: &'static str,
        source: rustls::Error,
    },
    #[error("neither certificate-authority nor insecure-skip-tls-verify is set")]
    Untrusted,
}

pub(crate) fn config(kubeconfig: &Kubeconfig) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("ring has every default version");
    let builder = match &kubeconfig.trust {
        Trust::Authority(pem) => builder.with_root_certificates(roots(pem)?),
        Trust::Anyone => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anyone(provider))),
        Trust::Unsaid => return Err(TlsError::Untrusted),
    };
    let mut config = match &kubeconfig.client_certificate {
        None => builder.with_no_client_auth(),
        Some(certificate) => builder
            .with_client_auth_cert(
                certificates("client-certificate", &certificate.chain)?,
                PrivateKeyDer::from_pem_slice(&certificate.key).map_err(|source| {
                    TlsError::Pem {
                        what: "client-key",
                        source,
                    }
                })?,
            )
            .map_err(|source| TlsError::Unusable {
                what: "client-certificate",
                source,
            })?,
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn roots(pem: &[u8]) -> Result<RootCertStore, TlsError> {
    let what = "certificate-authority";
    let mut roots = RootCertStore::empty();
    for certificate in certificates(what, pem)? {
        roots
            .add(certificate)
            .map_err(|source| TlsError::Unusable { what, source })?;
    }
    Ok(roots)
}

fn certificates(what: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|source| TlsError::Pem { what, source })
}
