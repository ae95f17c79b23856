//! The cluster's own certificate authorities and what they sign.
//!
//! There are two, as upstream has it: one for whoever is who they say they are, and one for front proxies, which are
//! believed when they say for whom they ask. They are made at the first start and kept in the data directory; the
//! server's certificate and the admin's are signed anew at every start, so a kubeconfig stays good as long as the
//! directory is kept.
//!
//! The API server is itself a front proxy towards aggregated API servers: [`Authority::front_proxy`] is the authority
//! that they must trust, and its [`Authority::front_proxy_client`] is the certificate that we show them.

pub mod der;
mod sign;
mod subject;

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mizzen_apiserver::MASTERS;
use mizzen_apiserver::seams::WallClock;
use mizzen_object::seam::Clock as _;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use time::{Duration, OffsetDateTime};
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig, crypto::ring};

use subject::Subject;

/// How long the authority is good for.
const AUTHORITY_DAYS: i64 = 3650;
/// How long what it signs is good for.
const CERTIFICATE_DAYS: i64 = 365;

/// The name of the authority of clients and servers.
const CLIENTS: &str = "mizzen";
/// The name of the authority of front proxies.
pub const FRONT_PROXIES: &str = "mizzen-front-proxy";
/// The name that a front proxy must have.
pub const FRONT_PROXY_CLIENT: &str = "front-proxy-client";

/// The name under which the server asks kubelets.
const KUBELET_CLIENT: &str = "kube-apiserver-kubelet-client";

/// Names under which the server is known inside the cluster.
const SERVICE_NAMES: [&str; 5] = [
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// Why there are no certificates.
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
    /// A file is not what it should be.
    #[error("{}: not a usable key or certificate: {detail}", .path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// Signing failed.
    #[error("cannot make certificates: {0}")]
    Sign(#[from] rcgen::Error),
    /// The TLS library refuses them.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// The certificate authority.
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

impl Authority {
    /// A new authority that nobody keeps.
    pub fn in_memory() -> Result<Authority, PkiError> {
        let (certificate, key) = create(CLIENTS)?;
        load(&certificate, &key).map_err(PkiError::Sign)
    }

    /// The authority of a data directory, made if there is none.
    pub fn open(directory: &Path) -> Result<Authority, PkiError> {
        open(directory, "ca", CLIENTS)
    }

    /// The authority of front proxies, made if there is none; without a directory nobody keeps it. A client with a
    /// certificate of this authority says in headers for whom it asks.
    pub fn front_proxy(directory: Option<&Path>) -> Result<Authority, PkiError> {
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
    pub fn front_proxy_client(&self) -> Result<Signed, PkiError> {
        self.sign_client(FRONT_PROXY_CLIENT, "", &[])
    }

    /// The certificate with which this server asks kubelets. Only for the authority of clients.
    pub fn kubelet_client(&self) -> Result<Signed, PkiError> {
        self.sign_client(KUBELET_CLIENT, "", &[MASTERS])
    }

    /// A client certificate for a user with a uid, which may be empty, in groups.
    pub fn sign_client(&self, user: &str, uid: &str, groups: &[&str]) -> Result<Signed, PkiError> {
        let key = KeyPair::generate()?;
        let params = leaf(user, ExtendedKeyUsagePurpose::ClientAuth);
        let certificate = params.signed_by(&key, &self.issuer)?;
        let named = Subject { user, uid, groups }.put_into(certificate.der(), self.issuer.key())?;
        Ok(Signed { certificate: der_to_pem(&named), key: key.serialize_pem() })
    }

    /// The certificate of the admin.
    pub fn sign_admin(&self) -> Result<Signed, PkiError> {
        self.sign_client("admin", "admin", &[MASTERS])
    }

    fn sign_server(&self, addresses: &[IpAddr]) -> Result<Signed, PkiError> {
        let mut params = leaf("kube-apiserver", ExtendedKeyUsagePurpose::ServerAuth);
        for name in SERVICE_NAMES {
            params.subject_alt_names.push(SanType::DnsName(name.try_into()?));
        }
        params.subject_alt_names.extend(addresses.iter().map(|address| SanType::IpAddress(*address)));
        self.issue(&params)
    }

    fn issue(&self, params: &CertificateParams) -> Result<Signed, PkiError> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Signed { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// How the server speaks TLS: its own certificate, and client certificates of this authority and of the one of
    /// front proxies.
    pub fn server_config(
        &self,
        front_proxy: &Authority,
        addresses: &[IpAddr],
    ) -> Result<Arc<ServerConfig>, PkiError> {
        let signed = self.sign_server(addresses)?;
        let key = KeyPair::from_pem(&signed.key)?;
        let chain = vec![pem_to_der(&signed.certificate).into()];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));

        let provider = Arc::new(ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone().into())?;
        roots.add(front_proxy.der.clone().into())?;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .allow_unauthenticated()
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
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
    let (certificate, key) = (read(&certificate_file)?, read(&key_file)?);
    load(&certificate, &key)
        .map_err(|error| PkiError::Corrupt { path: certificate_file, detail: error.to_string() })
}

fn create(name: &str) -> Result<(String, String), PkiError> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    valid_for(&mut params, AUTHORITY_DAYS);
    let key = KeyPair::generate()?;
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}

fn load(certificate: &str, key: &str) -> Result<Authority, rcgen::Error> {
    let issuer = Issuer::from_ca_cert_pem(certificate, KeyPair::from_pem(key)?)?;
    Ok(Authority { issuer, certificate: certificate.into(), der: pem_to_der(certificate) })
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
    let now = OffsetDateTime::from_unix_timestamp(WallClock.now().0).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    // Clocks of clients may be a little behind.
    params.not_before = now - Duration::hours(1);
    params.not_after = now + Duration::days(days);
}

pub(crate) fn pem_to_der(pem: &str) -> Vec<u8> {
    use base64::Engine as _;
    let body: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    base64::engine::general_purpose::STANDARD.decode(body).unwrap_or_default()
}

fn der_to_pem(der: &[u8]) -> String {
    use base64::Engine as _;
    let body = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> = (0..body.len()).step_by(64).map(|at| &body[at..body.len().min(at + 64)]).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

pub(crate) fn read(path: &Path) -> Result<String, PkiError> {
    fs::read_to_string(path).map_err(|source| PkiError::File { path: path.into(), source })
}

/// Writes a file that only its owner may read, whole or not at all.
pub fn write_private(path: &Path, text: &str) -> Result<(), PkiError> {
    let fail = |source| PkiError::File { path: path.into(), source };
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        fs::create_dir_all(directory).map_err(fail)?;
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)
        .map_err(fail)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(fail)?;
    fs::rename(&temporary, path).map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_apiserver::authenticate::Peer;

    fn identify(signed: &Signed) -> Peer {
        mizzen_apiserver::authenticate::identify(
            &pem_to_der(&signed.certificate),
            FRONT_PROXIES,
            FRONT_PROXY_CLIENT,
        )
    }

    #[test]
    fn only_the_named_client_of_the_other_authority_is_a_front_proxy() {
        let (clients, proxies) = (Authority::in_memory().unwrap(), Authority::front_proxy(None).unwrap());
        assert_eq!(identify(&proxies.front_proxy_client().unwrap()), Peer::FrontProxy);
        assert_eq!(identify(&proxies.sign_client("jane", "", &[MASTERS]).unwrap()), Peer::Impostor);
        let same_name = clients.sign_client(FRONT_PROXY_CLIENT, "", &[]).unwrap();
        assert!(matches!(identify(&same_name), Peer::User(_)));
    }

    #[test]
    fn an_authority_is_kept_and_its_files_are_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let first = Authority::open(directory.path()).unwrap();
        let second = Authority::open(directory.path()).unwrap();
        assert_eq!(first.certificate, second.certificate);
        let mode = fs::metadata(directory.path().join("ca.key")).unwrap().permissions().mode();
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
        let authority = Authority::in_memory().unwrap();
        let signed = authority.sign_client("jane", "7", &["ops", "dev", "night shift"]).unwrap();
        let Peer::User(user) = identify(&signed) else { panic!("nobody") };
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "7"));
        assert_eq!(user.groups, ["ops", "dev", "night shift", "system:authenticated"]);
    }

    #[test]
    fn a_client_certificate_is_signed_by_its_authority_and_no_other() {
        let (clients, proxies) = (Authority::in_memory().unwrap(), Authority::front_proxy(None).unwrap());
        let shown = pem_to_der(&proxies.front_proxy_client().unwrap().certificate);
        let verify = |authority: &Authority| {
            let provider = Arc::new(ring::default_provider());
            let mut roots = RootCertStore::empty();
            roots.add(authority.der.clone().into()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            let now = std::time::Duration::from_secs(WallClock.now().0 as u64);
            let now = rustls::pki_types::UnixTime::since_unix_epoch(now);
            verifier.unwrap().verify_client_cert(&shown.clone().into(), &[], now).is_ok()
        };
        assert!(verify(&proxies));
        assert!(!verify(&clients));
    }
}
