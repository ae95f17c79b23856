//! The cluster's certificate authorities and the certificates that they sign.
//!
//! There are two, as upstream: one for clients and servers, and one for front proxies, which name the user of a request in
//! headers. They are generated at the first start and stored in the data directory. The certificates of the server and of
//! the administrator are signed at every start, so a kubeconfig stays valid as long as the data directory exists.
//!
//! The API server is a front proxy of aggregated API servers: they must trust [`Authority::front_proxy`], and the server
//! presents [`Authority::front_proxy_client`] to them.

mod certificates;
pub(crate) mod der;
pub(crate) mod key;
mod loopback;
mod private;
mod protocol;
mod sign;
mod signers;
mod subject;

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mizzen_apiserver::MASTERS;
use mizzen_apiserver::clock::WallClock;
use mizzen_value::clock::Clock as _;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData as _, SanType,
};
use time::{Duration, OffsetDateTime};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{self, ServerConfig};
use x509_parser::prelude::{FromDer as _, X509Certificate};

pub use certificates::{
    CertificateFiles, InvalidCertificate, LOOPBACK, ServingCertificates, check_pair,
};
use key::to_pkcs8;
pub use loopback::LoopbackCertificate;
pub use private::{lock_directory, make_private, read_key, write_private};
pub use protocol::Protocol;
pub use signers::Signers;
use subject::ClientSubject;

/// The validity of an authority.
const AUTHORITY_DAYS: i64 = 3650;
/// The validity of certificates that it signs.
const CERTIFICATE_DAYS: i64 = 365;

/// The common name of the authority of clients and servers.
const CLIENTS: &str = "mizzen";
/// The common name of the authority of front proxies.
const FRONT_PROXIES: &str = "mizzen-front-proxy";
/// The common name of the front proxy certificate.
pub const FRONT_PROXY_CLIENT: &str = "front-proxy-client";

/// The user as which the server calls kubelets.
const KUBELET_CLIENT: &str = "kube-apiserver-kubelet-client";

/// The DNS names in the serving certificate.
const SERVICE_NAMES: [&str; 6] = [
    LOOPBACK,
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// Why certificates cannot be read or signed.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file could not be read or written.
    #[error("{}: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// A file is not a key or certificate.
    #[error("{}: not a usable key or certificate: {detail}", .path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// A file that belongs to the data is missing, and a new one would not match it.
    #[error(
        "{} is missing beside existing data: with a new one nothing that was signed with the old one would be valid; \
         restore it from a backup, or {remedy}",
        .path.display()
    )]
    Missing {
        /// The file.
        path: PathBuf,
        /// What else to do.
        remedy: String,
    },
    /// Signing failed.
    #[error("cannot sign certificates: {0}")]
    Sign(#[from] rcgen::Error),
    /// rustls rejects them.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate, as PEM.
    pub certificate: String,
    der: Vec<u8>,
}

/// A certificate and its key, as PEM.
pub struct Signed {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl Signed {
    /// A self-signed certificate for a component at `address`. Kubernetes: the default without files, not stored.
    pub fn self_signed(address: IpAddr) -> Result<Signed, PkiError> {
        let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        if !address.is_unspecified() {
            names.push(address.to_string());
        }
        let own = rcgen::generate_simple_self_signed(names)?;
        Ok(Signed {
            certificate: own.cert.pem(),
            key: own.signing_key.serialize_pem(),
        })
    }
}

impl Authority {
    /// A new authority that is not stored.
    pub fn in_memory() -> Result<Authority, PkiError> {
        let (certificate, key) = generate(CLIENTS)?;
        load(&certificate, &key).map_err(PkiError::Sign)
    }

    /// The authority of a data directory, generated if it is missing.
    pub fn open(directory: &Path) -> Result<Authority, PkiError> {
        open(directory, "ca", CLIENTS)
    }

    /// The authority of a data directory that has data, and so must have an authority.
    pub fn open_existing(directory: &Path) -> Result<Authority, PkiError> {
        let remedy = "start with an empty data directory";
        require(&directory.join("ca.crt"), remedy)?;
        require(&directory.join("ca.key"), remedy)?;
        Authority::open(directory)
    }

    /// The authority of two files that arguments name.
    pub fn read(certificate: &Path, key: &Path) -> Result<Authority, PkiError> {
        let corrupt = |path: &Path, detail: String| PkiError::Corrupt {
            path: path.into(),
            detail,
        };
        let pkcs8 = to_pkcs8(&read_key(key)?).map_err(|why| corrupt(key, why))?;
        let pair = KeyPair::try_from(pkcs8).map_err(|error| corrupt(key, error.to_string()))?;
        let text = read(certificate)?;
        let invalid = |why: String| corrupt(certificate, why);
        let ders: Vec<_> = CertificateDer::pem_slice_iter(text.as_bytes())
            .flatten()
            .collect();
        let [der] = &*ders else {
            return Err(invalid(format!(
                "expected 1 certificate, found {}",
                ders.len()
            )));
        };
        let (_, own) =
            X509Certificate::from_der(der).map_err(|error| invalid(error.to_string()))?;
        if own.public_key().raw != pair.subject_public_key_info() {
            return Err(invalid("private key does not match public key".into()));
        }
        let issuer =
            Issuer::from_ca_cert_der(der, pair).map_err(|error| invalid(error.to_string()))?;
        let der = der.to_vec();
        Ok(Authority {
            issuer,
            certificate: text,
            der,
        })
    }

    /// The authority of front proxies, generated if it is missing; without a directory it is not stored. A client with a
    /// certificate of this authority names the user in headers.
    pub fn front_proxy(directory: Option<&Path>) -> Result<Authority, PkiError> {
        match directory {
            Some(directory) => open(directory, "front-proxy-ca", FRONT_PROXIES),
            None => {
                let (certificate, key) = generate(FRONT_PROXIES)?;
                load(&certificate, &key).map_err(PkiError::Sign)
            }
        }
    }

    /// The client certificate for aggregated API servers. Only for the authority of front proxies.
    pub fn front_proxy_client(&self) -> Result<Signed, PkiError> {
        self.sign_client(FRONT_PROXY_CLIENT, "", &[])
    }

    /// The client certificate for kubelets. Only for the authority of clients.
    pub fn kubelet_client(&self) -> Result<Signed, PkiError> {
        self.sign_client(KUBELET_CLIENT, "", &[MASTERS])
    }

    /// Signs a client certificate for a user with a UID, which may be empty, in groups.
    pub fn sign_client(&self, user: &str, uid: &str, groups: &[&str]) -> Result<Signed, PkiError> {
        let key = KeyPair::generate()?;
        let params = leaf(user, ExtendedKeyUsagePurpose::ClientAuth);
        let certificate = params.signed_by(&key, &self.issuer)?;
        let named =
            ClientSubject { user, uid, groups }.sign_into(certificate.der(), self.issuer.key())?;
        Ok(Signed {
            certificate: der_to_pem(&named),
            key: key.serialize_pem(),
        })
    }

    /// Signs the certificate of the administrator.
    pub fn sign_admin(&self) -> Result<Signed, PkiError> {
        self.sign_client("admin", "admin", &[MASTERS])
    }

    /// Signs the serving certificate. The authority follows it, so that clients may trust the file as a whole; most TLS
    /// libraries trust no certificate without its issuer. Kubernetes: client-go/util/cert, GenerateSelfSignedCertKey.
    pub fn sign_server(&self, addresses: &[IpAddr]) -> Result<Signed, PkiError> {
        let mut params = leaf("kube-apiserver", ExtendedKeyUsagePurpose::ServerAuth);
        for name in SERVICE_NAMES {
            params
                .subject_alt_names
                .push(SanType::DnsName(name.try_into()?));
        }
        params
            .subject_alt_names
            .extend(addresses.iter().map(|address| SanType::IpAddress(*address)));
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Signed {
            certificate: certificate.pem() + &self.certificate,
            key: key.serialize_pem(),
        })
    }
}

/// Rejects a data directory without a file that belongs to its data.
pub(crate) fn require(path: &Path, remedy: impl Into<String>) -> Result<(), PkiError> {
    match path.exists() {
        true => Ok(()),
        false => Err(PkiError::Missing {
            path: path.into(),
            remedy: remedy.into(),
        }),
    }
}

/// Opens or generates an authority.
fn open(directory: &Path, stem: &str, name: &str) -> Result<Authority, PkiError> {
    let file = |ending| directory.join(format!("{stem}.{ending}"));
    let (certificate_file, key_file) = (file("crt"), file("key"));
    if !certificate_file.exists() {
        let (certificate, key) = generate(name)?;
        // The key first: the certificate marks a complete pair.
        write_private(&key_file, &key)?;
        write_private(&certificate_file, &certificate)?;
    }
    make_private(&key_file)?;
    let (certificate, key) = (read(&certificate_file)?, read(&key_file)?);
    load(&certificate, &key).map_err(|error| PkiError::Corrupt {
        path: certificate_file,
        detail: error.to_string(),
    })
}

/// The TLS configuration of a server.
pub fn server_config(
    verifier: Arc<dyn ClientCertVerifier>,
    Protocol {
        versions,
        provider,
        alpn,
    }: Protocol,
    certificates: Arc<ServingCertificates>,
) -> Result<Arc<ServerConfig>, PkiError> {
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(certificates);
    config.alpn_protocols = alpn;
    Ok(Arc::new(config))
}

/// Generates the certificate and the key of an authority, in PEM.
fn generate(name: &str) -> Result<(String, String), PkiError> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    valid_for(&mut params, AUTHORITY_DAYS);
    let key = KeyPair::generate()?;
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}

fn load(certificate: &str, key: &str) -> Result<Authority, rcgen::Error> {
    let issuer = Issuer::from_ca_cert_pem(certificate, KeyPair::from_pem(key)?)?;
    Ok(Authority {
        issuer,
        certificate: certificate.into(),
        der: pem_to_der(certificate),
    })
}

fn leaf(name: &str, purpose: ExtendedKeyUsagePurpose) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![purpose];
    // Go adds it, too. OpenSSL's strict verification, the default of Python since 3.13, requires it.
    params.use_authority_key_identifier_extension = true;
    valid_for(&mut params, CERTIFICATE_DAYS);
    params
}

fn valid_for(params: &mut CertificateParams, days: i64) {
    let now = OffsetDateTime::from_unix_timestamp(WallClock.now().0)
        .unwrap_or(OffsetDateTime::UNIX_EPOCH);
    // The clock of a client may be behind.
    params.not_before = now - Duration::hours(1);
    params.not_after = now + Duration::days(days);
}

pub(crate) fn pem_to_der(pem: &str) -> Vec<u8> {
    use base64::Engine as _;
    let body: String = pem
        .lines()
        .filter(|line| !line.starts_with("-----"))
        .collect();
    base64::engine::general_purpose::STANDARD
        .decode(body)
        .unwrap_or_default()
}

pub(crate) fn der_to_pem(der: &[u8]) -> String {
    use base64::Engine as _;
    let body = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> = (0..body.len())
        .step_by(64)
        .map(|at| &body[at..body.len().min(at + 64)])
        .collect();
    format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        lines.join("\n")
    )
}

/// The text of a file with at least one certificate.
pub fn read_certificates(path: &Path) -> Result<String, PkiError> {
    let text = read(path)?;
    match CertificateDer::pem_slice_iter(text.as_bytes()).next() {
        Some(Ok(_)) => Ok(text),
        _ => Err(PkiError::Corrupt {
            path: path.into(),
            detail: "it has no certificate".into(),
        }),
    }
}

/// The text of a file.
pub(crate) fn read(path: &Path) -> Result<String, PkiError> {
    fs::read_to_string(path).map_err(|source| PkiError::File {
        path: path.into(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_apiserver::clock::SystemRandom;
    use mizzen_authentication::{Authorities, PeerIdentity, TrustedAuthorities};
    use mizzen_registry::Registry;

    /// The peer of a certificate for a server that trusts these authorities.
    fn identify(clients: &Authority, front_proxies: &Authority, signed: &Signed) -> PeerIdentity {
        let store = mizzen_store::Store::in_memory(Default::default());
        let registry = Registry::new(store, Arc::new(WallClock), Arc::new(SystemRandom));
        let trusted = TrustedAuthorities {
            clients: clients.certificate.clone(),
            front_proxies: front_proxies.certificate.clone(),
            allowed: vec![FRONT_PROXY_CLIENT.into()],
            ..TrustedAuthorities::default()
        };
        Authorities::new(&registry, &trusted).peer(&[pem_to_der(&signed.certificate).into()])
    }

    #[test]
    fn only_the_allowed_name_of_the_front_proxy_authority_is_a_front_proxy() {
        let (clients, proxies) = (
            Authority::in_memory().unwrap(),
            Authority::front_proxy(None).unwrap(),
        );
        let identify =
            |signed: Result<Signed, PkiError>| identify(&clients, &proxies, &signed.unwrap());
        assert_eq!(
            identify(proxies.front_proxy_client()),
            PeerIdentity::FrontProxy(None)
        );
        assert_eq!(
            identify(proxies.sign_client("jane", "", &[MASTERS])),
            PeerIdentity::InvalidCertificate
        );
        let same_name = clients.sign_client(FRONT_PROXY_CLIENT, "", &[]);
        assert!(matches!(identify(same_name), PeerIdentity::User(_)));
        let forged = Authority::in_memory().unwrap().sign_admin();
        assert_eq!(identify(forged), PeerIdentity::InvalidCertificate);
    }

    #[test]
    fn an_authority_is_stored_in_private_files() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let first = Authority::open(directory.path()).unwrap();
        let second = Authority::open(directory.path()).unwrap();
        assert_eq!(first.certificate, second.certificate);
        let mode = fs::metadata(directory.path().join("ca.key"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn the_error_names_a_broken_file() {
        let directory = tempfile::tempdir().unwrap();
        Authority::open(directory.path()).unwrap();
        fs::write(directory.path().join("ca.crt"), "nonsense").unwrap();
        let error = Authority::open(directory.path()).err().unwrap().to_string();
        assert!(error.contains("ca.crt"), "{error}");
    }

    #[test]
    fn a_client_certificate_has_the_user_and_all_groups() {
        let (clients, proxies) = (
            Authority::in_memory().unwrap(),
            Authority::front_proxy(None).unwrap(),
        );
        let signed = clients
            .sign_client("jane", "7", &["ops", "dev", "night shift"])
            .unwrap();
        let PeerIdentity::User(user) = identify(&clients, &proxies, &signed) else {
            panic!("not a user")
        };
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "7"));
        assert_eq!(
            user.groups,
            ["ops", "dev", "night shift", "system:authenticated"]
        );
    }
}
