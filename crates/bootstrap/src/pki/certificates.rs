//! Serving certificates, selected by server name (SNI) and reloaded when their files change.
//!
//! A certificate of the cluster's authority is always available: it is the default unless a file is named, and it is served
//! for [`LOOPBACK`], so that the administrator's kubeconfig works with any other certificate.

use parking_lot::RwLock;
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mizzen_apiserver::file_watcher::FileWatcher;
use mizzen_encryption::check_owner;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use super::Signed;
use super::private::warn_if_shared;
use super::protocol::Protocol;

/// The server name of the own certificate. Kubernetes: the same name.
pub const LOOPBACK: &str = "apiserver-loopback-client";

/// The files of a certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate chain, as PEM.
    pub certificate: PathBuf,
    /// Its key, as PEM.
    pub key: PathBuf,
    /// The server names; by default those of the certificate.
    pub names: Vec<String>,
}

impl CertificateFiles {
    /// Reads the certificate and the key.
    fn read(&self) -> Result<CertificatePair, InvalidCertificate> {
        let invalid = |file: &Path, error: std::io::Error| InvalidCertificate {
            file: file.into(),
            why: error.to_string(),
        };
        let read = |file: &Path| std::fs::read(file).map_err(|error| invalid(file, error));
        check_owner(&self.key).map_err(|error| invalid(&self.key, error))?;
        Ok((read(&self.certificate)?, read(&self.key)?))
    }
}

/// All certificates of a server.
pub struct ServingCertificates {
    provider: Arc<CryptoProvider>,
    own: Arc<CertifiedKey>,
    default: Option<CertificateFiles>,
    named: Vec<CertificateFiles>,
    current: RwLock<Arc<LoadedCertificates>>,
}

/// The certificates of the last valid files.
struct LoadedCertificates {
    /// The certificate and key of each file, to detect changes.
    texts: Vec<CertificatePair>,
    default: Arc<CertifiedKey>,
    by_name: HashMap<String, Arc<CertifiedKey>>,
}

type CertificatePair = (Vec<u8>, Vec<u8>);

/// An invalid file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {why}", .file.display())]
pub struct InvalidCertificate {
    /// The file.
    pub file: PathBuf,
    /// What is wrong with it.
    pub why: String,
}

impl ServingCertificates {
    /// Reads all files.
    pub fn new(
        provider: Arc<CryptoProvider>,
        own: &Signed,
        default: Option<CertificateFiles>,
        named: Vec<CertificateFiles>,
    ) -> Result<ServingCertificates, InvalidCertificate> {
        let pair = (
            own.certificate.clone().into_bytes(),
            own.key.clone().into_bytes(),
        );
        let invalid = |why| InvalidCertificate {
            file: LOOPBACK.into(),
            why,
        };
        let own = Arc::new(certified(&provider, &pair).map_err(invalid)?);
        let current = LoadedCertificates {
            texts: Vec::new(),
            default: own.clone(),
            by_name: HashMap::new(),
        };
        let current = RwLock::new(Arc::new(current));
        let certificates = ServingCertificates {
            provider,
            own,
            default,
            named,
            current,
        };
        certificates
            .files()
            .for_each(|files| warn_if_shared(&files.key));
        certificates.reload()?;
        Ok(certificates)
    }

    /// Whether the default is the own certificate.
    pub fn is_own(&self) -> bool {
        self.default.is_none()
    }

    /// Reloads files whenever they change. Invalid ones do not replace the previous ones.
    pub async fn reload_on_change(self: Arc<Self>) {
        let files = self
            .files()
            .flat_map(|files| [files.certificate.clone(), files.key.clone()]);
        let mut watcher = FileWatcher::new(files, []);
        if self.files().next().is_none() {
            return;
        }
        loop {
            // A file that cannot be read is an error of `reload`, too.
            let _ = watcher.changed().await;
            match self.reload() {
                Ok(has_changed) => {
                    watcher.accept();
                    if has_changed {
                        tracing::info!("reloaded the serving certificates");
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "invalid serving certificates, keeping the previous ones");
                }
            }
        }
    }

    /// Reads all files. Returns whether they have changed.
    fn reload(&self) -> Result<bool, InvalidCertificate> {
        let texts = self
            .files()
            .map(CertificateFiles::read)
            .collect::<Result<Vec<_>, _>>()?;
        if texts == self.current().texts {
            return Ok(false);
        }
        let current = self.load(texts)?;
        *self.current.write() = Arc::new(current);
        Ok(true)
    }

    fn load(&self, texts: Vec<CertificatePair>) -> Result<LoadedCertificates, InvalidCertificate> {
        let mut pairs = self.files().zip(&texts).map(|(files, pair)| {
            let invalid = |why| InvalidCertificate {
                file: files.certificate.clone(),
                why,
            };
            certified(&self.provider, pair)
                .map(Arc::new)
                .map_err(invalid)
        });
        let default = match &self.default {
            Some(_) => pairs.next().unwrap_or_else(|| Ok(self.own.clone()))?,
            None => self.own.clone(),
        };
        let named = pairs.collect::<Result<Vec<_>, _>>()?;
        let by_name = by_name(self.named.iter().zip(named));
        Ok(LoadedCertificates {
            texts,
            default,
            by_name,
        })
    }

    fn files(&self) -> impl Iterator<Item = &CertificateFiles> {
        self.default.iter().chain(&self.named)
    }

    fn current(&self) -> Arc<LoadedCertificates> {
        self.current.read().clone()
    }

    fn find(&self, name: Option<&str>) -> Arc<CertifiedKey> {
        let current = self.current();
        let Some(name) = name.map(str::to_ascii_lowercase) else {
            return current.default.clone();
        };
        if name == LOOPBACK {
            return self.own.clone();
        }
        let any = || {
            name.split_once('.')
                .and_then(|(_, rest)| current.by_name.get(&format!("*.{rest}")))
        };
        current
            .by_name
            .get(&name)
            .or_else(any)
            .unwrap_or(&current.default)
            .clone()
    }
}

impl ResolvesServerCert for ServingCertificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.find(hello.server_name()))
    }
}

/// Keys are not for logs.
impl fmt::Debug for ServingCertificates {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ServingCertificates")
            .field("files", &self.files().count())
            .finish_non_exhaustive()
    }
}

/// Checks that a certificate and a key in PEM match.
pub fn check_pair(certificate: &str, key: &str) -> Result<(), String> {
    let pair = (certificate.as_bytes().to_vec(), key.as_bytes().to_vec());
    certified(&Protocol::default().provider, &pair).map(drop)
}

/// Parses a certificate and its key, which must match.
fn certified(
    provider: &CryptoProvider,
    (certificate, key): &CertificatePair,
) -> Result<CertifiedKey, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
    let chain = chain.map_err(|error| format!("not a certificate in PEM: {error}"))?;
    if chain.is_empty() {
        return Err("has no certificate in PEM".into());
    }
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| format!("its key is not PEM: {error}"))?;
    CertifiedKey::from_der(chain, key, provider)
        .map_err(|error| format!("does not match its key: {error}"))
}

/// The certificate of each server name. Kubernetes: names of arguments take precedence over names of certificates, and
/// earlier arguments over later ones (server/dynamiccertificates/named_certificates.go).
fn by_name<'a>(
    pairs: impl DoubleEndedIterator<Item = (&'a CertificateFiles, Arc<CertifiedKey>)>,
) -> HashMap<String, Arc<CertifiedKey>> {
    let (mut own_names, mut given_names) = (HashMap::new(), HashMap::new());
    for (files, certified) in pairs.rev() {
        let own = if files.names.is_empty() {
            certificate_names(&certified)
        } else {
            Vec::new()
        };
        own_names.extend(own.into_iter().map(|name| (name, certified.clone())));
        given_names.extend(
            files
                .names
                .iter()
                .map(|name| (name.to_ascii_lowercase(), certified.clone())),
        );
    }
    own_names.extend(given_names);
    own_names
}

/// The DNS names of a certificate.
fn certificate_names(certified: &CertifiedKey) -> Vec<String> {
    let Some(der) = certified.cert.first() else {
        return Vec::new();
    };
    let Ok((_, certificate)) = X509Certificate::from_der(der) else {
        return Vec::new();
    };
    let common = certificate
        .subject()
        .iter_common_name()
        .filter_map(|name| name.as_str().ok());
    let alternative = certificate.subject_alternative_name().ok().flatten();
    let general = alternative
        .iter()
        .flat_map(|names| &names.value.general_names);
    let domains = general.filter_map(|name| match name {
        GeneralName::DNSName(domain) => Some(*domain),
        _ => None,
    });
    common
        .filter(|name| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-.*".contains(&byte);
            !name.is_empty() && name.bytes().all(is_plain) && name.parse::<IpAddr>().is_err()
        })
        .chain(domains)
        .map(str::to_ascii_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::{Authority, write_private};
    use mizzen_apiserver::file_watcher::POLL_INTERVAL;
    use rcgen::{CertificateParams, KeyPair};
    use tokio_rustls::rustls::crypto::ring;

    /// Writes a self-signed certificate for `names`.
    fn write(directory: &Path, stem: &str, names: &[&str]) -> CertificateFiles {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        let certificate = CertificateParams::new(names)
            .unwrap()
            .self_signed(&key)
            .unwrap();
        let file = |ending: &str| directory.join(format!("{stem}.{ending}"));
        write_private(&file("crt"), &certificate.pem()).unwrap();
        write_private(&file("key"), &key.serialize_pem()).unwrap();
        CertificateFiles {
            certificate: file("crt"),
            key: file("key"),
            names: Vec::new(),
        }
    }

    fn open(
        default: Option<CertificateFiles>,
        named: Vec<CertificateFiles>,
    ) -> Result<Arc<ServingCertificates>, InvalidCertificate> {
        let own = Authority::in_memory().unwrap().sign_server(&[]).unwrap();
        ServingCertificates::new(Arc::new(ring::default_provider()), &own, default, named)
            .map(Arc::new)
    }

    fn shown(certificates: &ServingCertificates, name: Option<&str>) -> Vec<u8> {
        certificates.find(name).cert[0].to_vec()
    }

    fn stored(files: &CertificateFiles) -> Vec<u8> {
        CertificateDer::from_pem_file(&files.certificate)
            .unwrap()
            .to_vec()
    }

    #[test]
    fn a_client_gets_the_certificate_of_its_server_name() {
        let directory = tempfile::tempdir().unwrap();
        let write = |stem: &str, names: &[&str]| write(directory.path(), stem, names);
        let (default, plain) = (
            write("default", &["x.example"]),
            write("plain", &["a.example"]),
        );
        let wild = write("wild", &["*.example"]);
        let renamed = CertificateFiles {
            names: vec!["B.example".into()],
            ..write("renamed", &["unused.example"])
        };
        let named = vec![plain.clone(), wild.clone(), renamed.clone()];
        let certificates = open(Some(default.clone()), named).unwrap();
        for (name, expected) in [
            (None, &default),
            (Some("a.example"), &plain),
            (Some("A.example"), &plain),
            (Some("b.example"), &renamed),
            (Some("c.example"), &wild),
            (Some("c.d.example"), &default),
            (Some("unused.other"), &default),
        ] {
            assert_eq!(shown(&certificates, name), stored(expected), "{name:?}");
        }
        let own = shown(&certificates, Some(LOOPBACK));
        assert!(
            [&default, &plain, &wild, &renamed]
                .iter()
                .all(|files| stored(files) != own)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_certificate_is_reloaded_when_its_files_change() {
        let directory = tempfile::tempdir().unwrap();
        let files = write(directory.path(), "tls", &["a.example"]);
        let certificates = open(Some(files.clone()), Vec::new()).unwrap();
        let task = tokio::spawn(certificates.clone().reload_on_change());
        let first = shown(&certificates, None);
        write(directory.path(), "tls", &["a.example"]);
        tokio::time::sleep(2 * POLL_INTERVAL).await;
        assert_ne!(shown(&certificates, None), first);
        assert_eq!(shown(&certificates, None), stored(&files));
        task.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn an_invalid_certificate_does_not_replace_the_previous_one() {
        let directory = tempfile::tempdir().unwrap();
        let files = write(directory.path(), "tls", &["a.example"]);
        let certificates = open(Some(files.clone()), Vec::new()).unwrap();
        let task = tokio::spawn(certificates.clone().reload_on_change());
        let first = shown(&certificates, None);
        let other = write(directory.path(), "other", &["a.example"]);
        // Only one half of the pair has been replaced.
        std::fs::copy(&other.certificate, &files.certificate).unwrap();
        tokio::time::sleep(2 * POLL_INTERVAL).await;
        assert_eq!(shown(&certificates, None), first);
        std::fs::copy(&other.key, &files.key).unwrap();
        tokio::time::sleep(2 * POLL_INTERVAL).await;
        assert_eq!(shown(&certificates, None), stored(&other));
        task.abort();
    }

    #[test]
    fn a_certificate_that_does_not_match_its_key_is_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let (one, other) = (
            write(directory.path(), "a", &["a"]),
            write(directory.path(), "b", &["b"]),
        );
        let problem =
            |files: CertificateFiles| open(Some(files), Vec::new()).unwrap_err().to_string();
        let why = problem(CertificateFiles {
            key: other.key,
            ..one.clone()
        });
        assert!(
            why.contains("a.crt") && why.contains("does not match its key"),
            "{why}"
        );
        let why = problem(CertificateFiles {
            certificate: one.key.clone(),
            ..one.clone()
        });
        assert!(why.contains("no certificate"), "{why}");
        let why = problem(CertificateFiles {
            key: directory.path().join("none"),
            ..one
        });
        assert!(why.contains("none"), "{why}");
    }
}
