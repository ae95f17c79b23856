//! Client certificate authentication: by the authorities of clients, and of front proxies.
//!
//! The TLS handshake proves only that a client has the key of its certificate. The certificate is
//! verified with each request against the current authorities, which can be replaced while
//! connections stay open. So a certificate of an unknown authority gets 401 instead of a failed
//! handshake, and a valid token still authenticates the request.
//!
//! Invariant: only a certificate of a front proxy authority makes a front proxy, and only one of a
//! client authority a user, even if both have the same name. A client with an invalid certificate
//! is never anonymous.

use parking_lot::{Mutex, RwLock};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use mizzen_registry::Registry;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::{DistinguishedName, Error};

use super::certificate::CertificateSubject;
use super::certificate_pool::{CertificatePool, validity};
use super::{Identify, PeerIdentity, ProxyHeaders};

/// The trusted authorities.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TrustedAuthorities {
    /// Client authorities, as PEM.
    pub clients: String,
    /// Front proxy authorities, as PEM.
    pub front_proxies: String,
    /// Allowed common names of front proxies; any if empty.
    pub allowed: Vec<String>,
    /// The headers in which front proxies name the user, to be published.
    pub headers: ProxyHeaders,
}

/// Verifies client certificates against replaceable authorities.
pub struct Authorities {
    registry: Registry,
    provider: CryptoProvider,
    current: RwLock<Arc<AuthorityPools>>,
    /// The subjects of all authorities, as sent in a handshake.
    subjects: RwLock<&'static [DistinguishedName]>,
}

/// The parsed authorities. Without any, no certificate is valid.
#[derive(Default)]
struct AuthorityPools {
    generation: u64,
    clients: CertificatePool,
    front_proxies: CertificatePool,
    allowed: Vec<String>,
}

impl Authorities {
    /// Trusts these authorities until they are replaced.
    pub fn new(registry: &Registry, trusted: &TrustedAuthorities) -> Arc<Authorities> {
        let (registry, provider) = (registry.clone(), ring::default_provider());
        let authorities = Authorities {
            registry,
            provider,
            current: RwLock::default(),
            subjects: RwLock::new(&[]),
        };
        authorities.replace(trusted);
        Arc::new(authorities)
    }

    /// Replaces all authorities.
    pub fn replace(&self, trusted: &TrustedAuthorities) {
        let mut current = self.current.write();
        let (clients, front_proxies) = (
            CertificatePool::from_pem(&trusted.clients),
            CertificatePool::from_pem(&trusted.front_proxies),
        );
        self.set_subjects(clients.subjects().chain(front_proxies.subjects()));
        let generation = current.generation + 1;
        let allowed = trusted.allowed.clone();
        *current = Arc::new(AuthorityPools {
            generation,
            clients,
            front_proxies,
            allowed,
        });
    }

    /// rustls borrows the subjects for as long as the verifier lives, so replaced ones are leaked.
    /// That happens only when the subjects change, not with each renewed certificate.
    fn set_subjects<'a>(&self, names: impl Iterator<Item = &'a [u8]>) {
        let mut wanted: Vec<DistinguishedName> = Vec::new();
        for name in names.map(DistinguishedName::in_sequence) {
            if !wanted
                .iter()
                .any(|known| AsRef::<[u8]>::as_ref(known) == AsRef::<[u8]>::as_ref(&name))
            {
                wanted.push(name);
            }
        }
        let mut subjects = self.subjects.write();
        if !subjects
            .iter()
            .map(AsRef::<[u8]>::as_ref)
            .eq(wanted.iter().map(AsRef::<[u8]>::as_ref))
        {
            *subjects = wanted.leak();
        }
    }

    fn current(&self) -> Arc<AuthorityPools> {
        self.current.read().clone()
    }

    /// The identity of a client now. The chain is its own certificate, then intermediates.
    pub fn peer(&self, chain: &[CertificateDer]) -> PeerIdentity {
        self.current().peer(chain, self.registry.now())
    }

    /// The identification function of a listener.
    pub fn identify(self: &Arc<Authorities>) -> Identify {
        let authorities = self.clone();
        Arc::new(move |chain| {
            let (authorities, chain, verification) =
                (authorities.clone(), chain.into(), Mutex::default());
            PeerIdentity::Certified(Certified(Arc::new(PresentedCertificate {
                authorities,
                chain,
                verification,
            })))
        })
    }
}

impl AuthorityPools {
    fn peer(&self, chain: &[CertificateDer], now: i64) -> PeerIdentity {
        let Some(subject) = chain
            .first()
            .and_then(|own| CertificateSubject::from_der(own))
        else {
            return PeerIdentity::InvalidCertificate;
        };
        let user = subject.user.filter(|user| !user.name.is_empty());
        let user = user.filter(|_| self.clients.verifies(chain, now));
        let may_speak =
            self.allowed.is_empty() || self.allowed.iter().any(|name| *name == subject.name);
        if may_speak && self.front_proxies.verifies(chain, now) {
            return PeerIdentity::FrontProxy(user);
        }
        user.map_or(PeerIdentity::InvalidCertificate, PeerIdentity::User)
    }

    /// The period around `now` in which the same certificates are valid.
    fn verification_validity(&self, chain: &[CertificateDer], now: i64) -> Range<i64> {
        let validities = chain.iter().filter_map(|certificate| validity(certificate));
        let validities = validities
            .chain(self.clients.validities())
            .chain(self.front_proxies.validities());
        let (mut from, mut until) = (i64::MIN, i64::MAX);
        for edge in validities.flat_map(|validity| [validity.start, validity.end]) {
            match edge <= now {
                true => from = from.max(edge),
                false => until = until.min(edge),
            }
        }
        from..until
    }
}

/// A client with a certificate, for as long as its connection lasts.
#[derive(Clone)]
pub struct Certified(Arc<PresentedCertificate>);

struct PresentedCertificate {
    authorities: Arc<Authorities>,
    chain: Box<[CertificateDer<'static>]>,
    verification: Mutex<Option<CachedVerification>>,
}

/// The result of the last verification. It is valid until the authorities change, or a certificate
/// of the chain or of an authority becomes valid or expires.
struct CachedVerification {
    peer: PeerIdentity,
    valid: Range<i64>,
    generation: u64,
}

impl Certified {
    /// The identity now.
    pub(super) fn peer(&self) -> PeerIdentity {
        let PresentedCertificate {
            authorities,
            chain,
            verification,
        } = &*self.0;
        let (now, current) = (authorities.registry.now(), authorities.current());
        let mut verification = verification.lock();
        match &*verification {
            Some(known) if known.generation == current.generation && known.valid.contains(&now) => {
                known.peer.clone()
            }
            _ => {
                let peer = current.peer(chain, now);
                let (holds, generation) = (
                    current.verification_validity(chain, now),
                    current.generation,
                );
                *verification = Some(CachedVerification {
                    peer: peer.clone(),
                    valid: holds,
                    generation,
                });
                peer
            }
        }
    }
}

/// Equal if they belong to one connection.
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

/// The handshake accepts any certificate, or none. Kubernetes: Go's `RequestClientCert`
/// (server/secure_serving.go).
impl ClientCertVerifier for Authorities {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// The subjects of the client and front proxy authorities, as Go sends them: a client with
    /// several certificates chooses by them.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        let subjects: &'static [DistinguishedName] = *self.subjects.read();
        subjects
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    mizzen_transport::check_signatures! { provider }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use mizzen_registry::Store;
    use mizzen_value::clock::Clock;
    use rcgen::{
        BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd,
    };

    use super::*;
    use mizzen_registry::clock::{SystemRandom, WallClock};

    /// A clock that shows what a test sets.
    #[derive(Default)]
    struct SetClock(AtomicI64);

    impl Clock for SetClock {
        fn now(&self) -> (i64, u32) {
            (self.0.load(Ordering::Relaxed), 0)
        }
    }

    struct Authority {
        issuer: Issuer<'static, KeyPair>,
        pem: String,
    }

    /// All authorities have the same name.
    fn authority() -> Authority {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    impl Authority {
        fn sign(&self, name: &str) -> [CertificateDer<'static>; 1] {
            self.sign_with(name, CertificateParams::default())
        }

        fn sign_with(
            &self,
            name: &str,
            mut params: CertificateParams,
        ) -> [CertificateDer<'static>; 1] {
            params.distinguished_name.push(DnType::CommonName, name);
            let key = KeyPair::generate().unwrap();
            [params.signed_by(&key, &self.issuer).unwrap().der().clone()]
        }
    }

    fn authorities(trusted: &TrustedAuthorities) -> Arc<Authorities> {
        let store = Store::in_memory(Default::default());
        Authorities::new(
            &Registry::new(store, Arc::new(WallClock), Arc::new(SystemRandom)),
            trusted,
        )
    }

    #[track_caller]
    fn check_user(peer: PeerIdentity, expected: &str) {
        let PeerIdentity::User(user) = peer else {
            panic!("{peer:?}")
        };
        assert_eq!(user.name, expected);
    }

    #[test]
    fn a_handshake_sends_the_current_authorities() {
        let named = |name: &str| {
            let mut params = CertificateParams::default();
            params.distinguished_name.push(DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params
                .self_signed(&KeyPair::generate().unwrap())
                .unwrap()
                .pem()
        };
        let shown = |known: &Authorities| -> Vec<String> {
            let name = |it: &DistinguishedName| String::from_utf8_lossy(it.as_ref()).into_owned();
            known.root_hint_subjects().iter().map(name).collect()
        };
        let (clients, front_proxies) = (
            named("for-clients") + &named("for-clients"),
            named("for-proxies"),
        );
        let known = authorities(&TrustedAuthorities {
            clients,
            front_proxies,
            ..TrustedAuthorities::default()
        });
        let names = shown(&known);
        assert_eq!(names.len(), 2, "{names:?}");
        assert!(
            names[0].ends_with("for-clients") && names[1].ends_with("for-proxies"),
            "{names:?}"
        );
        assert_eq!(names[0].as_bytes()[0], 0x30, "a name is a whole SEQUENCE");
        known.replace(&TrustedAuthorities {
            clients: named("other"),
            ..TrustedAuthorities::default()
        });
        assert!(shown(&known)[0].ends_with("other"));
        known.replace(&TrustedAuthorities::default());
        assert!(shown(&known).is_empty());
    }

    #[test]
    fn the_signing_authority_decides_the_identity() {
        let (clients, front_proxies, others) = (authority(), authority(), authority());
        let known = authorities(&TrustedAuthorities {
            clients: clients.pem.clone(),
            front_proxies: front_proxies.pem.clone(),
            allowed: vec!["proxy".into()],
            ..TrustedAuthorities::default()
        });
        assert_eq!(
            known.peer(&front_proxies.sign("proxy")),
            PeerIdentity::FrontProxy(None)
        );
        assert_eq!(
            known.peer(&front_proxies.sign("jane")),
            PeerIdentity::InvalidCertificate
        );
        assert_eq!(
            known.peer(&others.sign("proxy")),
            PeerIdentity::InvalidCertificate
        );
        check_user(known.peer(&clients.sign("proxy")), "proxy");
        assert_eq!(
            known.peer(&[CertificateDer::from(b"rubbish".as_slice())]),
            PeerIdentity::InvalidCertificate
        );
        assert_eq!(
            known.peer(&clients.sign("")),
            PeerIdentity::InvalidCertificate
        );
        assert_eq!(known.peer(&[]), PeerIdentity::InvalidCertificate);
    }

    #[test]
    fn requests_of_an_open_connection_fail_once_trust_is_withdrawn() {
        let (old, new) = (authority(), authority());
        let trusting = |authorities: &[&Authority]| TrustedAuthorities {
            clients: authorities
                .iter()
                .map(|authority| authority.pem.as_str())
                .collect(),
            ..TrustedAuthorities::default()
        };
        let known = authorities(&trusting(&[&old]));
        let (jane, joe) = (old.sign("jane"), new.sign("joe"));
        let connection = known.identify()(&jane);
        let claimed = || match &connection {
            PeerIdentity::Certified(certified) => certified.peer(),
            other => panic!("{other:?}"),
        };
        check_user(claimed(), "jane");
        assert_eq!(known.peer(&joe), PeerIdentity::InvalidCertificate);
        known.replace(&trusting(&[&old, &new]));
        check_user(claimed(), "jane");
        check_user(known.peer(&joe), "joe");
        known.replace(&trusting(&[&new]));
        assert_eq!(claimed(), PeerIdentity::InvalidCertificate);
        check_user(known.peer(&joe), "joe");
        known.replace(&TrustedAuthorities::default());
        assert_eq!(known.peer(&joe), PeerIdentity::InvalidCertificate);
    }

    #[test]
    fn a_certificate_expires_on_an_open_connection() {
        const FROM: i64 = 1_893_456_000;
        const UNTIL: i64 = FROM + 24 * 3600;
        let (authority, clock) = (authority(), Arc::new(SetClock::default()));
        let store = Store::in_memory(Default::default());
        let registry = Registry::new(store, clock.clone(), Arc::new(SystemRandom));
        let trusted = TrustedAuthorities {
            clients: authority.pem.clone(),
            ..TrustedAuthorities::default()
        };
        let mut params = CertificateParams::default();
        (params.not_before, params.not_after) =
            (date_time_ymd(2030, 1, 1), date_time_ymd(2030, 1, 2));
        let jane = authority.sign_with("jane", params);
        let known = Authorities::new(&registry, &trusted);
        let PeerIdentity::Certified(connection) = known.identify()(&jane) else {
            panic!("no certificate")
        };
        for (now, expected) in [
            (FROM - 1, false),
            (FROM, true),
            (UNTIL - 1, true),
            (UNTIL, true),
            (UNTIL + 1, false),
            (UNTIL, true),
            (FROM - 1, false),
        ] {
            clock.0.store(now, Ordering::Relaxed);
            assert_eq!(
                matches!(connection.peer(), PeerIdentity::User(_)),
                expected,
                "{now}"
            );
        }
    }

    #[test]
    fn one_authority_may_sign_clients_and_front_proxies() {
        let both = authority();
        let (clients, front_proxies) = (both.pem.clone(), both.pem.clone());
        let known = authorities(&TrustedAuthorities {
            clients,
            front_proxies,
            allowed: vec!["proxy".into()],
            ..TrustedAuthorities::default()
        });
        check_user(known.peer(&both.sign("jane")), "jane");
        let PeerIdentity::FrontProxy(Some(own)) = known.peer(&both.sign("proxy")) else {
            panic!("no front proxy")
        };
        assert_eq!(own.name, "proxy");
    }

    #[test]
    fn a_certificate_may_have_intermediate_authorities() {
        let root = authority();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "branch");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let between = params.signed_by(&key, &root.issuer).unwrap().der().clone();
        let branch = Authority {
            issuer: Issuer::new(params, key),
            pem: String::new(),
        };
        let known = authorities(&TrustedAuthorities {
            clients: root.pem.clone(),
            ..TrustedAuthorities::default()
        });
        let [jane] = branch.sign("jane");
        let (alone, whole) = ([jane.clone()], [jane, between]);
        assert_eq!(known.peer(&alone), PeerIdentity::InvalidCertificate);
        check_user(known.peer(&whole), "jane");
        let PeerIdentity::Certified(connection) = known.identify()(&whole) else {
            panic!("no certificate")
        };
        check_user(connection.peer(), "jane");
        known.replace(&TrustedAuthorities::default());
        assert_eq!(connection.peer(), PeerIdentity::InvalidCertificate);
    }
}
