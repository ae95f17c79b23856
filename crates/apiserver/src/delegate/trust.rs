//! Whose certificates count? Those of the authorities that the main server names in a ConfigMap.

use std::sync::Arc;
use std::time::Duration;

use mizzen_object::{Value, json};
use mizzen_registry::Registry;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use super::{Upstream, UpstreamError};
use crate::authenticate::{Peer, named};
use crate::listen::Identify;
use crate::outgoing::Identity;

const PATH: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

/// What the main server says about certificates.
///
/// Headers of front proxies are called as everybody calls them, `X-Remote-User` and so on, whatever it says of that.
pub(super) struct Trusted {
    clients: Vec<CertificateDer<'static>>,
    front_proxies: Vec<CertificateDer<'static>>,
    /// The names that front proxies may have; any if there are none.
    allowed: Vec<String>,
}

impl Trusted {
    /// Asks the main server.
    pub async fn ask(upstream: &Upstream) -> Result<Trusted, UpstreamError> {
        let (code, answer) = upstream.ask("GET", PATH, None).await?;
        if code != 200 {
            let message = answer["message"].str().to_owned();
            return Err(UpstreamError::Refused { what: "its ConfigMap of certificates".into(), message });
        }
        Ok(Trusted::read(&answer["data"]))
    }

    fn read(data: &Value) -> Trusted {
        let certificates = |key: &str| {
            let pem = data[key].str().as_bytes();
            CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).collect()
        };
        let names = json::parse(data["requestheader-allowed-names"].str().as_bytes()).unwrap_or_default();
        Trusted {
            clients: certificates("client-ca-file"),
            front_proxies: certificates("requestheader-client-ca-file"),
            allowed: names.list().iter().map(|name| name.str().to_owned()).collect(),
        }
    }

    /// How TLS is spoken: as `identity`, with certificates of all these authorities, or none.
    pub fn tls(&self, identity: &Identity) -> Result<Arc<ServerConfig>, UpstreamError> {
        let refuse = |error: &dyn std::fmt::Display| UpstreamError::Certificates(error.to_string());
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).map_err(|error| refuse(&error))?;
        let chain = CertificateDer::pem_slice_iter(identity.certificate.as_bytes());
        let chain = chain.collect::<Result<Vec<_>, _>>().map_err(|error| refuse(&error))?;
        let all: Vec<_> = self.clients.iter().chain(&self.front_proxies).cloned().collect();
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| refuse(&error))?;
        let builder = match verifier(&all) {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| refuse(&error))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// Who shows a certificate. Invariant: a front proxy is who has a certificate of the authority of front proxies,
    /// and a user who has one of the authority of clients, even if both are called the same.
    pub fn identify(self, registry: Registry) -> Identify {
        let (clients, front_proxies) = (verifier(&self.clients), verifier(&self.front_proxies));
        let allowed = self.allowed;
        Arc::new(move |certificate| {
            let now = Duration::from_secs(u64::try_from(registry.now()).unwrap_or_default());
            let signed_by = |authority: &Option<Arc<dyn ClientCertVerifier>>| {
                let (leaf, now) = (CertificateDer::from(certificate), UnixTime::since_unix_epoch(now));
                authority.as_ref().is_some_and(|it| it.verify_client_cert(&leaf, &[], now).is_ok())
            };
            match named(certificate) {
                None => Peer::Stranger,
                Some((name, _)) if signed_by(&front_proxies) => {
                    let fits = allowed.is_empty() || allowed.iter().any(|allowed| *allowed == name);
                    if fits { Peer::FrontProxy } else { Peer::Impostor }
                }
                Some((_, user)) if signed_by(&clients) => Peer::User(user),
                Some(_) => Peer::Impostor,
            }
        })
    }
}

/// Knows certificates of these authorities; none if there are none.
fn verifier(authorities: &[CertificateDer<'static>]) -> Option<Arc<dyn ClientCertVerifier>> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities.iter().cloned());
    let provider = Arc::new(ring::default_provider());
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    builder.allow_unauthenticated().build().ok()
}

#[cfg(test)]
mod tests {
    use mizzen_object::value;
    use mizzen_registry::Store;
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

    use super::*;
    use crate::seams::{SystemRandom, WallClock};

    struct Authority {
        issuer: Issuer<'static, KeyPair>,
        pem: String,
    }

    /// All authorities have the same name.
    fn authority() -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    impl Authority {
        fn sign(&self, name: &str) -> Vec<u8> {
            let mut params = CertificateParams::default();
            params.distinguished_name.push(DnType::CommonName, name);
            let key = KeyPair::generate().unwrap();
            params.signed_by(&key, &self.issuer).unwrap().der().to_vec()
        }
    }

    #[test]
    fn who_has_signed_decides_who_somebody_is() {
        let (clients, front_proxies, others) = (authority(), authority(), authority());
        let trusted = Trusted::read(&value!({
            "client-ca-file": (clients.pem.as_str()),
            "requestheader-client-ca-file": (front_proxies.pem.as_str()),
            "requestheader-allowed-names": "[\"proxy\"]",
        }));
        let store = Store::in_memory(Default::default());
        let identify = trusted.identify(Registry::new(store, Arc::new(WallClock), Arc::new(SystemRandom)));
        assert_eq!(identify(&front_proxies.sign("proxy")), Peer::FrontProxy);
        assert_eq!(identify(&front_proxies.sign("jane")), Peer::Impostor);
        assert_eq!(identify(&others.sign("proxy")), Peer::Impostor);
        let Peer::User(user) = identify(&clients.sign("proxy")) else { panic!("no user") };
        assert_eq!(user.name, "proxy");
        assert_eq!(identify(b"rubbish"), Peer::Stranger);
    }
}
