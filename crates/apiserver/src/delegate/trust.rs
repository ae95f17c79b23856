//! The client authorities that the main server publishes in a ConfigMap, and the headers in which it names users.

use std::sync::Arc;

use mizzen_authentication::{Authorities, ProxyHeaders, SharedProxyHeaders, TrustedAuthorities};
use mizzen_outgoing::ClientIdentity;
use mizzen_value::{Value, json};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::follow::{CollectionChange, CollectionSink};
use super::{Upstream, UpstreamError};

const COLLECTION: &str = "/api/v1/namespaces/kube-system/configmaps";
const NAME: &str = "extension-apiserver-authentication";

/// Fetches the trusted authorities.
pub(super) async fn fetch_trusted(
    upstream: &Upstream,
) -> Result<TrustedAuthorities, UpstreamError> {
    let (code, answer) = upstream
        .request("GET", &format!("{COLLECTION}/{NAME}"), None)
        .await?;
    if code != 200 {
        let message = answer["message"].str().to_owned();
        return Err(UpstreamError::Refused {
            what: "its ConfigMap of certificates".into(),
            message,
        });
    }
    Ok(trusted_authorities(&answer["data"]))
}

/// Follows the ConfigMap: authorities that it names from now on are trusted, and others are not. Never ends.
pub(super) async fn follow_trusted(upstream: &Upstream, authorities: &Authorities) {
    let selector = format!("fieldSelector=metadata.name%3D{NAME}");
    let sink = TrustSink {
        authorities,
        headers: &upstream.0.proxy_headers,
    };
    upstream
        .follow_collection(COLLECTION, &selector, &sink)
        .await;
}

/// Replaces what is trusted.
struct TrustSink<'a> {
    authorities: &'a Authorities,
    headers: &'a SharedProxyHeaders,
}

impl CollectionSink for TrustSink<'_> {
    async fn apply(&self, change: CollectionChange) -> Result<(), String> {
        let config_map = match change {
            CollectionChange::Put(config_map) => Some(config_map),
            CollectionChange::All(mut config_maps) => config_maps.pop(),
            // The main server creates it again.
            CollectionChange::Deleted(_) => None,
        };
        if let Some(config_map) = config_map {
            let trusted = trusted_authorities(&config_map["data"]);
            self.authorities.replace(&trusted);
            self.headers.replace(trusted.headers);
        }
        Ok(())
    }

    /// The authorities stay.
    fn fail(&self, _problem: &str) {}
}

fn trusted_authorities(data: &Value) -> TrustedAuthorities {
    let names = |key: &str| -> Vec<String> {
        let names = json::parse(data[key].str().as_bytes()).unwrap_or_default();
        let names = names.list().iter().map(|name| name.str().to_owned());
        names.collect()
    };
    let standard = ProxyHeaders::default();
    let headers = |key: &str, standard: Vec<String>| match names(key) {
        names if names.is_empty() => standard,
        names => names,
    };
    TrustedAuthorities {
        clients: data["client-ca-file"].str().into(),
        front_proxies: data["requestheader-client-ca-file"].str().into(),
        allowed: names("requestheader-allowed-names"),
        headers: ProxyHeaders {
            users: headers("requestheader-username-headers", standard.users),
            uids: headers("requestheader-uid-headers", standard.uids),
            groups: headers("requestheader-group-headers", standard.groups),
            extras: headers("requestheader-extra-headers-prefix", standard.extras),
        },
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
            "requestheader-username-headers": "[\"X-User\"]",
        });
        let expected = TrustedAuthorities {
            clients: "a".into(),
            front_proxies: "b".into(),
            allowed: vec!["proxy".into()],
            headers: ProxyHeaders {
                users: vec!["X-User".into()],
                ..ProxyHeaders::default()
            },
        };
        assert_eq!(trusted_authorities(&data), expected);
    }
}
