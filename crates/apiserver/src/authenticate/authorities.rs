//! Whose certificates count? Those that an authority of clients, or one of front proxies, has signed.
//!
//! Other authorities can take their place while the server runs: connections go on, and each request is judged by the
//! authorities of the moment.
//!
//! Invariant: a front proxy is who has a certificate of an authority of front proxies, and a user who has one of an
//! authority of clients, even if they are called the same.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use mizzen_registry::Registry;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::{CertificateError, DistinguishedName, Error, RootCertStore};

use super::{Peer, named};
use crate::listen::Identify;
use crate::signatures::check_signatures;

/// After how many seconds a certificate is looked at again though nothing has changed: its time may have passed.
const GOOD_FOR: i64 = 60;

/// How many clients are remembered whose certificates came with others.
const MAX_CHAINS: usize = 1024;

/// Who is trusted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Trusted {
    /// Authorities of clients, as PEM.
    pub clients: String,
    /// Authorities of front proxies, as PEM.
    pub front_proxies: String,
    /// The names that front proxies may have; any if there are none.
    pub allowed: Vec<String>,
}

/// Those who are trusted now.
pub struct Authorities {
    registry: Registry,
    provider: Arc<CryptoProvider>,
    current: RwLock<Arc<Current>>,
    /// What leads from a client's certificate to its authority, where that is more than a step.
    chains: Mutex<HashMap<Vec<u8>, Chain>>,
}

type Chain = Vec<CertificateDer<'static>>;

type Verifier = Option<Arc<dyn ClientCertVerifier>>;

/// Without authorities nobody verifies.
#[derive(Default)]
struct Current {
    generation: u64,
    all: Verifier,
    clients: Verifier,
    front_proxies: Verifier,
    allowed: Vec<String>,
}

impl Authorities {
    /// Trusts these.
    pub fn new(registry: &Registry, trusted: &Trusted) -> Arc<Authorities> {
        let provider = Arc::new(ring::default_provider());
        let (registry, current, chains) = (registry.clone(), RwLock::default(), Mutex::default());
        let authorities = Authorities { registry, provider, current, chains };
        authorities.replace(trusted);
        Arc::new(authorities)
    }

    /// Trusts these from now on, and nobody else.
    pub fn replace(&self, trusted: &Trusted) {
        let (clients, front_proxies) = (certificates(&trusted.clients), certificates(&trusted.front_proxies));
        let all: Vec<_> = clients.iter().chain(&front_proxies).cloned().collect();
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(Current {
            generation: current.generation + 1,
            all: self.verifier(&all),
            clients: self.verifier(&clients),
            front_proxies: self.verifier(&front_proxies),
            allowed: trusted.allowed.clone(),
        });
    }

    /// Knows certificates of these authorities; none if there are none.
    fn verifier(&self, authorities: &[CertificateDer<'static>]) -> Verifier {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(authorities.iter().cloned());
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), self.provider.clone());
        builder.allow_unauthenticated().build().ok()
    }

    fn current(&self) -> Arc<Current> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Who shows a certificate, as of now.
    pub fn peer(&self, certificate: &[u8]) -> Peer {
        self.peer_of(certificate, &self.chain(certificate))
    }

    fn peer_of(&self, certificate: &[u8], chain: &[CertificateDer]) -> Peer {
        let (current, now) = (self.current(), self.now());
        let signed_by = |verifier: &Verifier| {
            let leaf = CertificateDer::from(certificate);
            verifier.as_ref().is_some_and(|it| it.verify_client_cert(&leaf, chain, now).is_ok())
        };
        let Some((name, user)) = named(certificate) else { return Peer::Stranger };
        let may_speak = current.allowed.is_empty() || current.allowed.iter().any(|allowed| *allowed == name);
        if may_speak && signed_by(&current.front_proxies) {
            return Peer::FrontProxy;
        }
        if signed_by(&current.clients) { Peer::User(user) } else { Peer::Impostor }
    }

    fn now(&self) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(
            u64::try_from(self.registry.now()).unwrap_or_default(),
        ))
    }

    fn chain(&self, certificate: &[u8]) -> Chain {
        let chains = self.chains.lock().unwrap_or_else(PoisonError::into_inner);
        chains.get(certificate).cloned().unwrap_or_default()
    }

    /// Remembers what a certificate that was good came with. Where there is too much, all is forgotten: who is connected
    /// has what they need.
    fn remember(&self, certificate: &[u8], chain: &[CertificateDer]) {
        if chain.is_empty() {
            return;
        }
        let mut chains = self.chains.lock().unwrap_or_else(PoisonError::into_inner);
        if chains.len() >= MAX_CHAINS {
            chains.clear();
        }
        chains.insert(certificate.to_vec(), chain.iter().map(|one| one.clone().into_owned()).collect());
    }

    /// How clients are known by their certificates.
    pub fn identify(self: &Arc<Authorities>) -> Identify {
        let authorities = self.clone();
        Arc::new(move |certificate| {
            let (authorities, chain) = (authorities.clone(), authorities.chain(certificate));
            let (certificate, judged) = (certificate.into(), Mutex::default());
            Peer::Certified(Certified(Arc::new(Presented { authorities, certificate, chain, judged })))
        })
    }
}

fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).filter_map(Result::ok).collect()
}

/// Somebody with a certificate, for as long as a connection lasts.
#[derive(Clone)]
pub struct Certified(Arc<Presented>);

struct Presented {
    authorities: Arc<Authorities>,
    certificate: Box<[u8]>,
    chain: Chain,
    judged: Mutex<Option<Judged>>,
}

/// Who it was, when that was looked at, and by whom.
struct Judged {
    peer: Peer,
    at: i64,
    generation: u64,
}

impl Certified {
    /// Who it is now.
    pub(super) fn peer(&self) -> Peer {
        let Presented { authorities, certificate, chain, judged } = &*self.0;
        let (at, generation) = (authorities.registry.now(), authorities.current().generation);
        let mut judged = judged.lock().unwrap_or_else(PoisonError::into_inner);
        match &*judged {
            Some(known) if known.generation == generation && at - known.at < GOOD_FOR => known.peer.clone(),
            _ => {
                let peer = authorities.peer_of(certificate, chain);
                *judged = Some(Judged { peer: peer.clone(), at, generation });
                peer
            }
        }
    }
}

/// Two are the same if they came over one connection.
impl PartialEq for Certified {
    fn eq(&self, other: &Certified) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Certified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certified({:?})", self.peer())
    }
}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authorities({})", self.current().generation)
    }
}

/// A handshake needs a certificate of any of them, or none.
impl ClientCertVerifier for Authorities {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// Clients are not told whom we trust: that may change while they read it.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match &self.current().all {
            Some(verifier) => {
                let verified = verifier.verify_client_cert(leaf, intermediates, now)?;
                self.remember(leaf, intermediates);
                Ok(verified)
            }
            None => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    check_signatures! { provider }
}

#[cfg(test)]
mod tests {
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

    fn authorities(trusted: &Trusted) -> Arc<Authorities> {
        let store = Store::in_memory(Default::default());
        Authorities::new(&Registry::new(store, Arc::new(WallClock), Arc::new(SystemRandom)), trusted)
    }

    #[track_caller]
    fn check_user(peer: Peer, expected: &str) {
        let Peer::User(user) = peer else { panic!("{peer:?}") };
        assert_eq!(user.name, expected);
    }

    #[test]
    fn who_has_signed_decides_who_somebody_is() {
        let (clients, front_proxies, others) = (authority(), authority(), authority());
        let known = authorities(&Trusted {
            clients: clients.pem.clone(),
            front_proxies: front_proxies.pem.clone(),
            allowed: vec!["proxy".into()],
        });
        assert_eq!(known.peer(&front_proxies.sign("proxy")), Peer::FrontProxy);
        assert_eq!(known.peer(&front_proxies.sign("jane")), Peer::Impostor);
        assert_eq!(known.peer(&others.sign("proxy")), Peer::Impostor);
        check_user(known.peer(&clients.sign("proxy")), "proxy");
        assert_eq!(known.peer(b"rubbish"), Peer::Stranger);
    }

    #[test]
    fn a_connection_outlives_trust_and_its_requests_do_not() {
        let (old, new) = (authority(), authority());
        let trusting = |authorities: &[&Authority]| Trusted {
            clients: authorities.iter().map(|authority| authority.pem.as_str()).collect(),
            ..Trusted::default()
        };
        let known = authorities(&trusting(&[&old]));
        let (jane, joe) = (old.sign("jane"), new.sign("joe"));
        let connection = known.identify()(&jane);
        let claimed = || match &connection {
            Peer::Certified(certified) => certified.peer(),
            other => panic!("{other:?}"),
        };
        check_user(claimed(), "jane");
        assert_eq!(known.peer(&joe), Peer::Impostor);
        known.replace(&trusting(&[&old, &new]));
        check_user(claimed(), "jane");
        check_user(known.peer(&joe), "joe");
        known.replace(&trusting(&[&new]));
        assert_eq!(claimed(), Peer::Impostor);
        check_user(known.peer(&joe), "joe");
        known.replace(&Trusted::default());
        assert_eq!(known.peer(&joe), Peer::Impostor);
        let (leaf, now) = (CertificateDer::from(joe), known.now());
        assert!(known.verify_client_cert(&leaf, &[], now).is_err());
    }
    #[test]
    fn a_certificate_may_be_some_steps_from_its_authority() {
        let root = authority();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "branch");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let between = params.signed_by(&key, &root.issuer).unwrap().der().clone();
        let branch = Authority { issuer: Issuer::new(params, key), pem: String::new() };
        let known = authorities(&Trusted { clients: root.pem.clone(), ..Trusted::default() });
        let jane = branch.sign("jane");
        let verify = |chain: &[CertificateDer]| {
            known.verify_client_cert(&CertificateDer::from(jane.clone()), chain, known.now()).is_ok()
        };
        assert!(!verify(&[]));
        assert_eq!(known.peer(&jane), Peer::Impostor);
        assert!(verify(&[between]));
        check_user(known.peer(&jane), "jane");
        let Peer::Certified(connection) = known.identify()(&jane) else { panic!("no certificate") };
        known.chains.lock().unwrap().clear();
        check_user(connection.peer(), "jane");
        known.replace(&Trusted::default());
        assert_eq!(connection.peer(), Peer::Impostor);
    }
}
