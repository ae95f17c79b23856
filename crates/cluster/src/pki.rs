//! The cluster's own certificate authorities and what they sign.
//!
//! There are two, as upstream has it: one for whoever is who they say they are, and one for front proxies, which are
//! believed when they say for whom they ask. They are made at the first start and kept in the data directory; the
//! server's certificate and the admin's are signed anew at every start, so a kubeconfig stays good as long as the
//! directory is kept.
//!
//! The API server is itself a front proxy towards aggregated API servers: [`Authority::front_proxy`] is the authority
//! that they must trust, and its [`Authority::front_proxy_client`] is the certificate that we show them.

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
use mizzen_apiserver::seams::WallClock;
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

pub(crate) use certificates::{Certificates, Files, LOOPBACK, Useless, check_pair};
use key::to_pkcs8;
pub(crate) use loopback::LoopbackCertificate;
pub(crate) use private::{make_private, read_key, write_private};
pub(crate) use protocol::Protocol;
pub(crate) use signers::Signers;
use subject::Subject;

/// How long the authority is good for.
const AUTHORITY_DAYS: i64 = 3650;
/// How long what it signs is good for.
const CERTIFICATE_DAYS: i64 = 365;

/// The name of the authority of clients and servers.
const CLIENTS: &str = "mizzen";
/// The name of the authority of front proxies.
const FRONT_PROXIES: &str = "mizzen-front-proxy";
/// The name that a front proxy must have.
pub(crate) const FRONT_PROXY_CLIENT: &str = "front-proxy-client";

/// The name under which the server asks kubelets.
const KUBELET_CLIENT: &str = "kube-apiserver-kubelet-client";

/// Names under which the server is known inside the cluster.
const SERVICE_NAMES: [&str; 6] = [
    LOOPBACK,
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// Why there are no certificates.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PkiError {
    /// A file could not be read or written.
    #[error("{}: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{}: not a usable key or certificate: {detail}", .path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// A file that was made with the data is gone, and a new one would not do.
    #[error(
        "{} is missing beside existing data: with a new one nothing that was signed with the old one would be valid; \
         restore it from a backup, or {remedy}",
        .path.display()
    )]
    Missing {
        /// The file.
        path: PathBuf,
        /// What else can be done.
        remedy: String,
    },
    /// Signing failed.
    #[error("cannot make certificates: {0}")]
    Sign(#[from] rcgen::Error),
    /// The TLS library refuses them.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// The certificate authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate, as PEM.
    pub certificate: String,
    der: Vec<u8>,
}

/// A certificate and its key, as PEM.
pub(crate) struct Signed {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl Authority {
    /// A new authority that nobody keeps.
    pub(crate) fn in_memory() -> Result<Authority, PkiError> {
        let (certificate, key) = create(CLIENTS)?;
        load(&certificate, &key).map_err(PkiError::Sign)
    }

    /// The authority of a data directory, made if there is none.
    pub(crate) fn open(directory: &Path) -> Result<Authority, PkiError> {
        open(directory, "ca", CLIENTS)
    }

    /// The authority of a data directory that is in use, which must have one.
    pub(crate) fn open_existing(directory: &Path) -> Result<Authority, PkiError> {
        let remedy = "begin with an empty data directory";
        require(&directory.join("ca.crt"), remedy)?;
        require(&directory.join("ca.key"), remedy)?;
        Authority::open(directory)
    }

    /// The authority of two files, which somebody else keeps.
    pub(crate) fn read(certificate: &Path, key: &Path) -> Result<Authority, PkiError> {
        let corrupt = |path: &Path, detail: String| PkiError::Corrupt {
            path: path.into(),
            detail,
        };
        let pkcs8 = to_pkcs8(&read_key(key)?).map_err(|why| corrupt(key, why))?;
        let pair = KeyPair::try_from(pkcs8).map_err(|error| corrupt(key, error.to_string()))?;
        with_key(&read(certificate)?, pair).map_err(|why| corrupt(certificate, why))
    }

    /// The authority of front proxies, made if there is none; without a directory nobody keeps it. A client with a
    /// certificate of this authority says in headers for whom it asks.
    pub(crate) fn front_proxy(directory: Option<&Path>) -> Result<Authority, PkiError> {
        match directory {
            Some(directory) => open(directory, "front-proxy-ca", FRONT_PROXIES),
            None => {
                let (certificate, key) = create(FRONT_PROXIES)?;
                load(&certificate, &key).map_err(PkiError::Sign)
            }
        }
    }

    /// The certificate with which this server, as a front proxy, asks aggregated API servers. Only for the authority
    /// of front proxies.
    pub(crate) fn front_proxy_client(&self) -> Result<Signed, PkiError> {
        self.sign_client(FRONT_PROXY_CLIENT, "", &[])
    }

    /// The certificate with which this server asks kubelets. Only for the authority of clients.
    pub(crate) fn kubelet_client(&self) -> Result<Signed, PkiError> {
        self.sign_client(KUBELET_CLIENT, "", &[MASTERS])
    }

    /// A client certificate for a user with a uid, which may be empty, in groups.
    pub(crate) fn sign_client(
        &self,
        user: &str,
        uid: &str,
        groups: &[&str],
    ) -> Result<Signed, PkiError> {
        let key = KeyPair::generate()?;
        let params = leaf(user, ExtendedKeyUsagePurpose::ClientAuth);
        let certificate = params.signed_by(&key, &self.issuer)?;
        let named = Subject { user, uid, groups }.put_into(certificate.der(), self.issuer.key())?;
        Ok(Signed {
            certificate: der_to_pem(&named),
            key: key.serialize_pem(),
        })
    }

    /// The certificate of the admin.
    pub(crate) fn sign_admin(&self) -> Result<Signed, PkiError> {
        self.sign_client("admin", "admin", &[MASTERS])
    }

    /// The certificate that the server shows.
    pub(crate) fn sign_server(&self, addresses: &[IpAddr]) -> Result<Signed, PkiError> {
        let mut params = leaf("kube-apiserver", ExtendedKeyUsagePurpose::ServerAuth);
        for name in SERVICE_NAMES {
            params
                .subject_alt_names
                .push(SanType::DnsName(name.try_into()?));
        }
        params
            .subject_alt_names
            .extend(addresses.iter().map(|address| SanType::IpAddress(*address)));
        self.issue(&params)
    }

    fn issue(&self, params: &CertificateParams) -> Result<Signed, PkiError> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Signed {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

/// Refuses to make a file anew that was made with the data beside it.
pub(crate) fn require(path: &Path, remedy: impl Into<String>) -> Result<(), PkiError> {
    match path.exists() {
        true => Ok(()),
        false => Err(PkiError::Missing {
            path: path.into(),
            remedy: remedy.into(),
        }),
    }
}

fn open(directory: &Path, stem: &str, name: &str) -> Result<Authority, PkiError> {
    let file = |ending| directory.join(format!("{stem}.{ending}"));
    let (certificate_file, key_file) = (file("crt"), file("key"));
    if !certificate_file.exists() {
        let (certificate, key) = create(name)?;
        // The key first: a certificate without its key would be of no use.
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

/// How the server speaks TLS: its certificates, and the client certificates that `verifier` knows.
pub(crate) fn server_config(
    verifier: Arc<dyn ClientCertVerifier>,
    Protocol {
        versions,
        provider,
        alpn,
    }: Protocol,
    certificates: Arc<Certificates>,
) -> Result<Arc<ServerConfig>, PkiError> {
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(certificates);
    config.alpn_protocols = alpn;
    Ok(Arc::new(config))
}

fn create(name: &str) -> Result<(String, String), PkiError> {
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

/// An authority of one certificate and the key that belongs to it; or why it is none.
fn with_key(certificate: &str, key: KeyPair) -> Result<Authority, String> {
    let ders: Vec<_> = CertificateDer::pem_slice_iter(certificate.as_bytes())
        .flatten()
        .collect();
    let [der] = &*ders else {
        return Err(format!("expected 1 certificate, found {}", ders.len()));
    };
    let (_, own) = X509Certificate::from_der(der).map_err(|error| error.to_string())?;
    if own.public_key().raw != key.subject_public_key_info() {
        return Err("private key does not match public key".into());
    }
    let issuer = Issuer::from_ca_cert_der(der, key).map_err(|error| error.to_string())?;
    Ok(Authority {
        issuer,
        certificate: certificate.into(),
        der: der.to_vec(),
    })
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
    valid_for(&mut params, CERTIFICATE_DAYS);
    params
}

fn valid_for(params: &mut CertificateParams, days: i64) {
    let now = OffsetDateTime::from_unix_timestamp(WallClock.now().0)
        .unwrap_or(OffsetDateTime::UNIX_EPOCH);
    // Clocks of clients may be a little behind.
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

/// A file of certificates, at least one.
pub(crate) fn read_certificates(path: &Path) -> Result<String, PkiError> {
    let text = read(path)?;
    match CertificateDer::pem_slice_iter(text.as_bytes()).next() {
        Some(Ok(_)) => Ok(text),
        _ => Err(PkiError::Corrupt {
            path: path.into(),
            detail: "it has no certificate".into(),
        }),
    }
}

pub(crate) fn read(path: &Path) -> Result<String, PkiError> {
    fs::read_to_string(path).map_err(|source| PkiError::File {
        path: path.into(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_apiserver::authenticate::{Authorities, Peer, Trusted};
    use mizzen_apiserver::seams::SystemRandom;
    use mizzen_registry::Registry;

    /// Who shows a certificate to a server that trusts these.
    fn identify(clients: &Authority, front_proxies: &Authority, signed: &Signed) -> Peer {
        let store = mizzen_store::Store::in_memory(Default::default());
        let registry = Registry::new(store, Arc::new(WallClock), Arc::new(SystemRandom));
        let trusted = Trusted {
            clients: clients.certificate.clone(),
            front_proxies: front_proxies.certificate.clone(),
            allowed: vec![FRONT_PROXY_CLIENT.into()],
            ..Trusted::default()
        };
        Authorities::new(&registry, &trusted).peer(&[pem_to_der(&signed.certificate).into()])
    }

    #[test]
    fn only_the_named_client_of_the_other_authority_is_a_front_proxy() {
        let (clients, proxies) = (
            Authority::in_memory().unwrap(),
            Authority::front_proxy(None).unwrap(),
        );
        let identify =
            |signed: Result<Signed, PkiError>| identify(&clients, &proxies, &signed.unwrap());
        assert_eq!(
            identify(proxies.front_proxy_client()),
            Peer::FrontProxy(None)
        );
        assert_eq!(
            identify(proxies.sign_client("jane", "", &[MASTERS])),
            Peer::Impostor
        );
        let same_name = clients.sign_client(FRONT_PROXY_CLIENT, "", &[]);
        assert!(matches!(identify(same_name), Peer::User(_)));
        let forged = Authority::in_memory().unwrap().sign_admin();
        assert_eq!(identify(forged), Peer::Impostor);
    }

    #[test]
    fn an_authority_is_kept_and_its_files_are_private() {
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
    fn a_broken_file_is_named() {
        let directory = tempfile::tempdir().unwrap();
        Authority::open(directory.path()).unwrap();
        fs::write(directory.path().join("ca.crt"), "nonsense").unwrap();
        let error = Authority::open(directory.path()).err().unwrap().to_string();
        assert!(error.contains("ca.crt"), "{error}");
    }

    #[test]
    fn a_client_certificate_names_user_and_all_groups() {
        let (clients, proxies) = (
            Authority::in_memory().unwrap(),
            Authority::front_proxy(None).unwrap(),
        );
        let signed = clients
            .sign_client("jane", "7", &["ops", "dev", "night shift"])
            .unwrap();
        let Peer::User(user) = identify(&clients, &proxies, &signed) else {
            panic!("nobody")
        };
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "7"));
        assert_eq!(
            user.groups,
            ["ops", "dev", "night shift", "system:authenticated"]
        );
    }
}
