//! Certificates: the one that is served, and an authority that signs it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mizzen_file_watcher::{FileError, FileWatcher};
use parking_lot::RwLock;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use time::OffsetDateTime;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use crate::failure_log::FailureLog;

/// A certificate chain and its key, as PEM.
///
/// ```
/// use mizzen_sdk::webhook::{Authority, KeyPem, Validity};
///
/// let (validity, now) = (Validity::default(), 1_800_000_000);
/// let pair: KeyPem = Authority::generate("shop", &validity, now)?.sign(&["shop.default.svc".into()], &validity, now)?;
/// assert!(!format!("{pair:?}").contains("PRIVATE KEY")); // keys are not logged
/// let serving = pair.serving()?;
/// # drop(serving);
/// # Ok::<(), mizzen_sdk::webhook::CertificateError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct KeyPem {
    /// The certificates, the leaf first.
    pub certificate: String,
    /// The key.
    pub key: String,
}

impl KeyPem {
    /// Serves it.
    pub fn serving(&self) -> Result<ServingCertificate, CertificateError> {
        ServingCertificate::new(self)
    }
}

/// The key is not shown.
impl fmt::Debug for KeyPem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("KeyPem")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

/// Why a certificate cannot be used.
///
/// ```
/// use mizzen_sdk::webhook::{CertificateError, KeyPem};
///
/// let empty = KeyPem { certificate: String::new(), key: String::new() };
/// assert!(matches!(empty.serving(), Err(CertificateError::Invalid(_))));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// It is not a certificate with its key.
    #[error("invalid certificate: {0}")]
    Invalid(String),
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// It cannot be signed.
    #[error("cannot sign a certificate: {0}")]
    Sign(String),
}

impl From<rcgen::Error> for CertificateError {
    fn from(error: rcgen::Error) -> CertificateError {
        CertificateError::Sign(error.to_string())
    }
}

/// The certificate of a server. It can be replaced while the server runs: new connections use the
/// new one. Cheap to clone; all clones are replaced together.
///
/// ```
/// use mizzen_sdk::webhook::{Authority, Validity};
///
/// let (validity, now) = (Validity::default(), 1_800_000_000);
/// let authority = Authority::generate("shop", &validity, now)?;
/// let sign = || authority.sign(&["shop.default.svc".into()], &validity, now);
/// let serving = sign()?.serving()?;
/// let before = serving.leaf();
/// serving.replace(&sign()?)?; // the server that serves it goes on
/// assert_ne!(serving.leaf(), before);
/// # Ok::<(), mizzen_sdk::webhook::CertificateError>(())
/// ```
#[derive(Clone)]
pub struct ServingCertificate(Arc<RwLock<Arc<CertifiedKey>>>);

impl ServingCertificate {
    /// Serves a certificate.
    pub fn new(pair: &KeyPem) -> Result<ServingCertificate, CertificateError> {
        Ok(ServingCertificate(Arc::new(RwLock::new(certified(pair)?))))
    }

    /// Serves the certificate of two files, as cert-manager's Secrets are mounted.
    pub fn from_files(files: &CertificateFiles) -> Result<ServingCertificate, CertificateError> {
        ServingCertificate::new(&files.read()?)
    }

    /// Serves another certificate from now on. An invalid one changes nothing.
    pub fn replace(&self, pair: &KeyPem) -> Result<(), CertificateError> {
        *self.0.write() = certified(pair)?;
        Ok(())
    }

    /// Reads the files again whenever they change, until it is dropped. Invalid files do not replace
    /// the certificate that is served.
    ///
    /// ```no_run
    /// # async fn serve(server: mizzen_sdk::webhook::Server) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use mizzen_sdk::webhook::{CertificateFiles, ServingCertificate};
    ///
    /// let files = CertificateFiles::in_directory("/tmp/k8s-webhook-server/serving-certs");
    /// let certificate = ServingCertificate::from_files(&files)?;
    /// tokio::spawn(certificate.clone().follow_files(files));
    /// let listener = tokio::net::TcpListener::bind(("0.0.0.0", 9443)).await?;
    /// server.serve(listener, certificate, std::future::pending(), Duration::from_secs(30)).await;
    /// # Ok(()) }
    /// ```
    pub async fn follow_files(self, files: CertificateFiles) {
        let failures = FailureLog::after(Duration::ZERO);
        let mut watcher = FileWatcher::new([files.certificate, files.key], []);
        loop {
            let read = watcher.changed().await;
            let replaced = read.map_err(CertificateError::from).and_then(|contents| {
                let text = |idx: usize| String::from_utf8_lossy(&contents[idx]).into_owned();
                self.replace(&KeyPem {
                    certificate: text(0),
                    key: text(1),
                })
            });
            match replaced {
                Ok(()) => {
                    watcher.accept();
                    failures.recovered();
                    tracing::info!("loaded the serving certificate");
                }
                Err(error) => {
                    if failures.failed().is_some() {
                        tracing::warn!(%error, "invalid serving certificate, keeping the previous one");
                    }
                }
            }
        }
    }

    /// The leaf that is served, in DER.
    pub fn leaf(&self) -> Vec<u8> {
        self.0.read().cert[0].to_vec()
    }
}

impl fmt::Debug for ServingCertificate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ServingCertificate")
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().clone())
    }
}

/// The files of a certificate and its key.
///
/// ```
/// use mizzen_sdk::webhook::{CertificateFiles, ServingCertificate};
///
/// let files = CertificateFiles::in_directory("/no/such/mount");
/// assert!(files.key.ends_with("tls.key"));
/// assert!(ServingCertificate::from_files(&files).is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificates, the leaf first, as PEM.
    pub certificate: PathBuf,
    /// The key, as PEM.
    pub key: PathBuf,
}

impl CertificateFiles {
    /// `tls.crt` and `tls.key` in a directory: a mounted Secret of type `kubernetes.io/tls`.
    pub fn in_directory(directory: impl Into<PathBuf>) -> CertificateFiles {
        let directory = directory.into();
        CertificateFiles {
            certificate: directory.join("tls.crt"),
            key: directory.join("tls.key"),
        }
    }

    fn read(&self) -> Result<KeyPem, CertificateError> {
        let read = |path: &PathBuf| {
            std::fs::read_to_string(path).map_err(|error| FileError {
                path: path.clone(),
                why: error.to_string(),
            })
        };
        Ok(KeyPem {
            certificate: read(&self.certificate)?,
            key: read(&self.key)?,
        })
    }
}

fn certified(pair: &KeyPem) -> Result<Arc<CertifiedKey>, CertificateError> {
    let invalid = |error: &dyn fmt::Display| CertificateError::Invalid(error.to_string());
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pair.certificate.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| invalid(&error))?;
    if chain.is_empty() {
        return Err(invalid(&"it has no certificate"));
    }
    let key =
        PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).map_err(|error| invalid(&error))?;
    let certified = CertifiedKey::from_der(chain, key, &ring::default_provider());
    certified.map(Arc::new).map_err(|error| invalid(&error))
}

/// How long certificates are valid, and when they are renewed.
///
/// ```
/// use std::time::Duration;
/// use mizzen_sdk::webhook::Validity;
///
/// const DAY: Duration = Duration::from_secs(86_400);
/// let validity = Validity { leaf: 30 * DAY, renew_before: 10 * DAY, ..Validity::default() };
/// assert_eq!(validity.authority, 3650 * DAY);
/// ```
#[derive(Debug, Clone)]
pub struct Validity {
    /// The validity of an authority.
    pub authority: Duration,
    /// The validity of a serving certificate. It does not outlive its authority.
    pub leaf: Duration,
    /// How long before its end a certificate is renewed.
    pub renew_before: Duration,
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

impl Default for Validity {
    /// Ten years, one year, 90 days.
    fn default() -> Validity {
        Validity {
            authority: 3650 * DAY,
            leaf: 365 * DAY,
            renew_before: 90 * DAY,
        }
    }
}

/// Certificates begin a little in the past, for clients whose clock is behind.
const CLOCK_SKEW: i64 = 300;

/// A certificate authority of the webhook server itself.
///
/// ```
/// use mizzen_sdk::webhook::{Authority, Validity};
///
/// let (validity, now) = (Validity::default(), 1_800_000_000);
/// let authority = Authority::generate("shop-webhook", &validity, now)?;
/// let serving = authority.sign(&["shop-webhook.shop.svc".into()], &validity, now)?;
/// assert!(serving.certificate.starts_with("-----BEGIN CERTIFICATE-----"));
/// # Ok::<(), mizzen_sdk::webhook::CertificateError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Authority(pub(super) KeyPem);

impl Authority {
    /// A new authority, valid from `now` in Unix seconds.
    pub fn generate(
        name: &str,
        validity: &Validity,
        now: i64,
    ) -> Result<Authority, CertificateError> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        (params.not_before, params.not_after) = period(now, now + seconds(validity.authority))?;
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.pem();
        let key = key.serialize_pem();
        Ok(Authority(KeyPem { certificate, key }))
    }

    /// A serving certificate for DNS names and IP addresses.
    pub fn sign(
        &self,
        names: &[String],
        validity: &Validity,
        now: i64,
    ) -> Result<KeyPem, CertificateError> {
        let issuer =
            Issuer::from_ca_cert_pem(&self.0.certificate, KeyPair::from_pem(&self.0.key)?)?;
        let end = self.not_after()?.min(now + seconds(validity.leaf));
        let mut params = CertificateParams::new(names)?;
        let common_name = names.first().map_or("webhook", String::as_str);
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        (params.not_before, params.not_after) = period(now, end)?;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &issuer)?.pem();
        let key = key.serialize_pem();
        Ok(KeyPem { certificate, key })
    }

    /// Its certificate, as PEM.
    pub fn certificate(&self) -> &str {
        &self.0.certificate
    }

    pub(super) fn not_after(&self) -> Result<i64, CertificateError> {
        inspect(&self.0.certificate, |own| {
            own.validity().not_after.timestamp()
        })
    }

    /// Whether it has signed a certificate with the names, and until when that is valid.
    pub(super) fn signed_until(
        &self,
        leaf: &KeyPem,
        names: &[String],
    ) -> Result<Option<i64>, CertificateError> {
        certified(leaf)?;
        inspect(&self.0.certificate, |own| {
            inspect(&leaf.certificate, |leaf| {
                let is_mine = leaf.verify_signature(Some(own.public_key())).is_ok();
                let known = alternative_names(leaf);
                let has_names = names.iter().all(|name| known.contains(name));
                (is_mine && has_names).then(|| leaf.validity().not_after.timestamp())
            })
        })?
    }
}

/// The certificates of a PEM text that have not expired, the first `limit` of them.
pub(super) fn unexpired(bundle: &str, now: i64, limit: usize) -> Vec<String> {
    let blocks = bundle
        .split_inclusive("-----END CERTIFICATE-----")
        .map(|block| format!("{}\n", block.trim()));
    let is_valid = |block: &String| {
        inspect(block, |own| own.validity().not_after.timestamp()).is_ok_and(|end| end > now)
    };
    blocks.filter(is_valid).take(limit).collect()
}

/// Reads the first certificate of a PEM text.
fn inspect<T>(
    pem: &str,
    read: impl FnOnce(&X509Certificate<'_>) -> T,
) -> Result<T, CertificateError> {
    let invalid = |error: &dyn fmt::Display| CertificateError::Invalid(error.to_string());
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| invalid(&error))?;
    let (_, certificate) = X509Certificate::from_der(&der).map_err(|error| invalid(&error))?;
    Ok(read(&certificate))
}

/// The DNS names and IP addresses of a certificate.
fn alternative_names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(names)) = certificate.subject_alternative_name() else {
        return Vec::new();
    };
    let names = names
        .value
        .general_names
        .iter()
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            GeneralName::IPAddress(bytes) => {
                let v4 = <[u8; 4]>::try_from(*bytes).map(std::net::IpAddr::from);
                let v6 = <[u8; 16]>::try_from(*bytes).map(std::net::IpAddr::from);
                v4.or(v6).ok().map(|address| address.to_string())
            }
            _ => None,
        });
    names.collect()
}

pub(super) fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

fn period(now: i64, end: i64) -> Result<(OffsetDateTime, OffsetDateTime), CertificateError> {
    let moment = |seconds| {
        OffsetDateTime::from_unix_timestamp(seconds)
            .map_err(|error| CertificateError::Sign(error.to_string()))
    };
    Ok((moment(now - CLOCK_SKEW)?, moment(end)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn names() -> Vec<String> {
        vec!["a.b.svc".into(), "127.0.0.1".into(), "::1".into()]
    }

    #[test]
    fn an_authority_recognizes_what_it_has_signed() {
        let validity = Validity::default();
        let authority = Authority::generate("a", &validity, NOW).unwrap();
        let leaf = authority.sign(&names(), &validity, NOW).unwrap();
        let until = authority.signed_until(&leaf, &names()).unwrap();
        assert_eq!(until, Some(NOW + 365 * 86_400));
        assert_eq!(authority.signed_until(&leaf, &["c.d.svc".into()]), Ok(None));
        let other = Authority::generate("a", &validity, NOW).unwrap();
        assert_eq!(other.signed_until(&leaf, &names()), Ok(None));
        let mixed = KeyPem {
            key: other.0.key.clone(),
            ..leaf
        };
        assert!(authority.signed_until(&mixed, &names()).is_err());
    }

    #[test]
    fn a_leaf_does_not_outlive_its_authority() {
        let validity = Validity {
            authority: DAY,
            ..Validity::default()
        };
        let authority = Authority::generate("a", &validity, NOW).unwrap();
        let leaf = authority.sign(&names(), &validity, NOW).unwrap();
        assert_eq!(
            authority.signed_until(&leaf, &names()),
            Ok(Some(NOW + 86_400))
        );
    }

    #[test]
    fn expired_authorities_leave_the_bundle() {
        let validity = Validity::default();
        let old = Authority::generate(
            "a",
            &Validity {
                authority: DAY,
                ..Validity::default()
            },
            NOW,
        )
        .unwrap();
        let new = Authority::generate("a", &validity, NOW).unwrap();
        let bundle = format!("{}{}", new.certificate(), old.certificate());
        assert_eq!(unexpired(&bundle, NOW, 9).len(), 2);
        assert_eq!(unexpired(&bundle, NOW, 1).len(), 1);
        assert_eq!(unexpired(&bundle, NOW + 2 * 86_400, 9).len(), 1);
        assert_eq!(unexpired("nonsense", NOW, 9).len(), 0);
    }

    #[test]
    fn an_invalid_certificate_replaces_nothing() {
        let validity = Validity::default();
        let authority = Authority::generate("a", &validity, NOW).unwrap();
        let serving = authority
            .sign(&names(), &validity, NOW)
            .unwrap()
            .serving()
            .unwrap();
        let before = serving.leaf();
        let broken = KeyPem {
            certificate: String::new(),
            key: String::new(),
        };
        assert!(serving.replace(&broken).is_err());
        assert_eq!(serving.leaf(), before);
        assert!(!format!("{:?}", authority.0).contains("PRIVATE"));
    }
}
