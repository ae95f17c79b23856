//! The client authorities that the main server publishes in a ConfigMap.
//!
//! Headers of front proxies have their default names, whatever the ConfigMap says.

use std::sync::Arc;

use mizzen_authentication::{Authorities, TrustedAuthorities};
use mizzen_outgoing::ClientIdentity;
use mizzen_value::{Value, json};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{Upstream, UpstreamError};

const PATH: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

/// Fetches the trusted authorities.
pub(super) async fn fetch_trusted(
    upstream: &Upstream,
) -> Result<TrustedAuthorities, UpstreamError> {
    let (code, answer) = upstream.request("GET", PATH, None).await?;
    if code != 200 {
        let message = answer["message"].str().to_owned();
        return Err(UpstreamError::Refused {
            what: "its ConfigMap of certificates".into(),
            message,
        });
    }
    Ok(trusted_authorities(&answer["data"]))
}

fn trusted_authorities(data: &Value) -> TrustedAuthorities {
    let names =
        json::parse(data["requestheader-allowed-names"].str().as_bytes()).unwrap_or_default();
    TrustedAuthorities {
        clients: data["client-ca-file"].str().into(),
        front_proxies: data["requestheader-client-ca-file"].str().into(),
        allowed: names
            .list()
            .iter()
            .map(|name| name.str().to_owned())
            .collect(),
        ..TrustedAuthorities::default()
    }
}

/// The TLS configuration: the certificate `identity`, and optional client certificates.
pub(super) fn server_config(
    authorities: Arc<Authorities>,
    identity: &ClientIdentity,
) -> Result<Arc<ServerConfig>, UpstreamError> {
    let refuse = |error: &dyn std::fmt::Display| UpstreamError::Certificates(error.to_string());
    let key =
        PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).map_err(|error| refuse(&error))?;
    let chain = CertificateDer::pem_slice_iter(identity.certificate.as_bytes());
    let chain = chain
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| refuse(&error))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| refuse(&error))?
        .with_client_cert_verifier(authorities)
        .with_single_cert(chain, key)
        .map_err(|error| refuse(&error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::value;

    #[test]
    fn a_config_map_names_the_trusted_authorities() {
        let data = value!({
            "client-ca-file": "a",
            "requestheader-client-ca-file": "b",
            "requestheader-allowed-names": "[\"proxy\"]",
        });
        let expected = TrustedAuthorities {
            clients: "a".into(),
            front_proxies: "b".into(),
            allowed: vec!["proxy".into()],
            ..TrustedAuthorities::default()
        };
        assert_eq!(trusted_authorities(&data), expected);
    }
}
