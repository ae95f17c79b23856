//! Which certificate does the server show to whom? The one of the name that the client asks for, read anew whenever
//! its file changes.
//!
//! A certificate of our own authority is always there: it is the default unless a file is named, and it is shown to
//! whoever asks for [`LOOPBACK`], so that the kubeconfig that we write is good whatever else is shown.

use parking_lot::RwLock;
use std::collections::HashMap;
use std::fmt;
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

/// The name under which our own certificate can always be had, which is upstream's.
pub(crate) const LOOPBACK: &str = "apiserver-loopback-client";

/// A certificate and its key in files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Files {
    /// The certificate, and those that lead to its authority, as PEM.
    pub certificate: PathBuf,
    /// Its key, as PEM.
    pub key: PathBuf,
    /// For which names it is shown. Without any it is for those that it has.
    pub names: Vec<String>,
}

/// All certificates of a server.
pub(crate) struct Certificates {
    provider: Arc<CryptoProvider>,
    own: Arc<CertifiedKey>,
    default: Option<Files>,
    named: Vec<Files>,
    current: RwLock<Arc<Current>>,
}

/// What the files said when they were last read and made sense.
struct Current {
    /// Certificate and key of each, to see if they change.
    texts: Vec<Pair>,
    default: Arc<CertifiedKey>,
    by_name: HashMap<String, Arc<CertifiedKey>>,
}

type Pair = (Vec<u8>, Vec<u8>);

/// A file that makes no sense, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {why}", .file.display())]
pub(crate) struct Useless {
    /// The file.
    pub file: PathBuf,
    /// What is wrong with it.
    pub why: String,
}

impl Certificates {
    /// Reads all files.
    pub(crate) fn new(
        provider: Arc<CryptoProvider>,
        own: &Signed,
        default: Option<Files>,
        named: Vec<Files>,
    ) -> Result<Certificates, Useless> {
        let pair = (
            own.certificate.clone().into_bytes(),
            own.key.clone().into_bytes(),
        );
        let useless = |why| Useless {
            file: LOOPBACK.into(),
            why,
        };
        let own = Arc::new(certified(&provider, &pair).map_err(useless)?);
        let current = Current {
            texts: Vec::new(),
            default: own.clone(),
            by_name: HashMap::new(),
        };
        let current = RwLock::new(Arc::new(current));
        let certificates = Certificates {
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

    /// Whether somebody who asks for no name gets a certificate of our own authority.
    pub(crate) fn is_own(&self) -> bool {
        self.default.is_none()
    }

    /// Reads files again whenever they change. What makes no sense is not shown; what was there before is.
    pub(crate) async fn follow(self: Arc<Self>) {
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
                Err(problem) => {
                    tracing::warn!(%problem, "invalid serving certificates, keeping the previous ones");
                }
            }
        }
    }

    /// Reads all files; whether they have changed.
    fn reload(&self) -> Result<bool, Useless> {
        let texts = self.files().map(texts).collect::<Result<Vec<_>, _>>()?;
        if texts == self.current().texts {
            return Ok(false);
        }
        let current = self.read(texts)?;
        *self.current.write() = Arc::new(current);
        Ok(true)
    }

    fn read(&self, texts: Vec<Pair>) -> Result<Current, Useless> {
        let mut pairs = self.files().zip(&texts).map(|(files, pair)| {
            let useless = |why| Useless {
                file: files.certificate.clone(),
                why,
            };
            certified(&self.provider, pair)
                .map(Arc::new)
                .map_err(useless)
        });
        let default = match &self.default {
            Some(_) => pairs.next().unwrap_or_else(|| Ok(self.own.clone()))?,
            None => self.own.clone(),
        };
        let named = pairs.collect::<Result<Vec<_>, _>>()?;
        let by_name = by_name(self.named.iter().zip(named));
        Ok(Current {
            texts,
            default,
            by_name,
        })
    }

    fn files(&self) -> impl Iterator<Item = &Files> {
        self.default.iter().chain(&self.named)
    }

    fn current(&self) -> Arc<Current> {
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

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.find(hello.server_name()))
    }
}

/// Keys are not for logs.
impl fmt::Debug for Certificates {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Certificates")
            .field("files", &self.files().count())
            .finish_non_exhaustive()
    }
}

fn texts(files: &Files) -> Result<Pair, Useless> {
    let useless = |file: &Path, error: std::io::Error| Useless {
        file: file.into(),
        why: error.to_string(),
    };
    let read = |file: &Path| std::fs::read(file).map_err(|error| useless(file, error));
    check_owner(&files.key).map_err(|error| useless(&files.key, error))?;
    Ok((read(&files.certificate)?, read(&files.key)?))
}

/// Checks that a certificate and a key in PEM belong together.
pub(crate) fn check_pair(certificate: &str, key: &str) -> Result<(), String> {
    let pair = (certificate.as_bytes().to_vec(), key.as_bytes().to_vec());
    certified(&Protocol::default().provider, &pair).map(drop)
}

/// The pair, if its halves belong together.
fn certified(provider: &CryptoProvider, (certificate, key): &Pair) -> Result<CertifiedKey, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
    let chain = chain.map_err(|error| format!("not a certificate in PEM: {error}"))?;
    if chain.is_empty() {
        return Err("has no certificate in PEM".into());
    }
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| format!("its key is none in PEM: {error}"))?;
    CertifiedKey::from_der(chain, key, provider)
        .map_err(|error| format!("does not fit its key: {error}"))
}

/// Kubernetes: what is said counts more than what a certificate says, and what is said first counts more than what is
/// said later (server/dynamiccertificates/named_certificates.go).
fn by_name<'a>(
    pairs: impl DoubleEndedIterator<Item = (&'a Files, Arc<CertifiedKey>)>,
) -> HashMap<String, Arc<CertifiedKey>> {
    let (mut read, mut said) = (HashMap::new(), HashMap::new());
    for (files, certified) in pairs.rev() {
        let own = if files.names.is_empty() {
            names(&certified)
        } else {
            Vec::new()
        };
        read.extend(own.into_iter().map(|name| (name, certified.clone())));
        said.extend(
            files
                .names
                .iter()
                .map(|name| (name.to_ascii_lowercase(), certified.clone())),
        );
    }
    read.extend(said);
    read
}

/// The names that a certificate has.
fn names(certified: &CertifiedKey) -> Vec<String> {
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
        .filter(|name| is_domain(name))
        .chain(domains)
        .map(str::to_ascii_lowercase)
        .collect()
}

fn is_domain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-.*".contains(&byte);
    !name.is_empty() && name.bytes().all(plain) && name.parse::<std::net::IpAddr>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::{Authority, write_private};
    use mizzen_apiserver::file_watcher::POLL_INTERVAL;
    use rcgen::{CertificateParams, KeyPair};
    use tokio_rustls::rustls::crypto::ring;

    /// Writes a certificate for `names` that signs itself.
    fn write(directory: &Path, stem: &str, names: &[&str]) -> Files {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        let certificate = CertificateParams::new(names)
            .unwrap()
            .self_signed(&key)
            .unwrap();
        let file = |ending: &str| directory.join(format!("{stem}.{ending}"));
        write_private(&file("crt"), &certificate.pem()).unwrap();
        write_private(&file("key"), &key.serialize_pem()).unwrap();
        Files {
            certificate: file("crt"),
            key: file("key"),
            names: Vec::new(),
        }
    }

    fn open(default: Option<Files>, named: Vec<Files>) -> Result<Arc<Certificates>, Useless> {
        let own = Authority::in_memory().unwrap().sign_server(&[]).unwrap();
        Certificates::new(Arc::new(ring::default_provider()), &own, default, named).map(Arc::new)
    }

    fn shown(certificates: &Certificates, name: Option<&str>) -> Vec<u8> {
        certificates.find(name).cert[0].to_vec()
    }

    fn stored(files: &Files) -> Vec<u8> {
        CertificateDer::from_pem_file(&files.certificate)
            .unwrap()
            .to_vec()
    }

    #[test]
    fn a_client_gets_the_certificate_of_the_name_it_asks_for() {
        let directory = tempfile::tempdir().unwrap();
        let write = |stem: &str, names: &[&str]| write(directory.path(), stem, names);
        let (default, plain) = (
            write("default", &["x.example"]),
            write("plain", &["a.example"]),
        );
        let wild = write("wild", &["*.example"]);
        let told = Files {
            names: vec!["B.example".into()],
            ..write("told", &["unused.example"])
        };
        let named = vec![plain.clone(), wild.clone(), told.clone()];
        let certificates = open(Some(default.clone()), named).unwrap();
        for (name, expected) in [
            (None, &default),
            (Some("a.example"), &plain),
            (Some("A.example"), &plain),
            (Some("b.example"), &told),
            (Some("c.example"), &wild),
            (Some("c.d.example"), &default),
            (Some("unused.other"), &default),
        ] {
            assert_eq!(shown(&certificates, name), stored(expected), "{name:?}");
        }
        let own = shown(&certificates, Some(LOOPBACK));
        assert!(
            [&default, &plain, &wild, &told]
                .iter()
                .all(|files| stored(files) != own)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_certificate_is_shown_anew_when_its_files_change() {
        let directory = tempfile::tempdir().unwrap();
        let files = write(directory.path(), "tls", &["a.example"]);
        let certificates = open(Some(files.clone()), Vec::new()).unwrap();
        let following = tokio::spawn(certificates.clone().follow());
        let first = shown(&certificates, None);
        write(directory.path(), "tls", &["a.example"]);
        tokio::time::sleep(2 * POLL_INTERVAL).await;
        assert_ne!(shown(&certificates, None), first);
        assert_eq!(shown(&certificates, None), stored(&files));
        following.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn what_makes_no_sense_is_not_shown_and_what_comes_after_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let files = write(directory.path(), "tls", &["a.example"]);
        let certificates = open(Some(files.clone()), Vec::new()).unwrap();
        let following = tokio::spawn(certificates.clone().follow());
        let first = shown(&certificates, None);
        let other = write(directory.path(), "other", &["a.example"]);
        // Only one half of the pair has been replaced.
        std::fs::copy(&other.certificate, &files.certificate).unwrap();
        tokio::time::sleep(2 * POLL_INTERVAL).await;
        assert_eq!(shown(&certificates, None), first);
        std::fs::copy(&other.key, &files.key).unwrap();
        tokio::time::sleep(2 * POLL_INTERVAL).await;
        assert_eq!(shown(&certificates, None), stored(&other));
        following.abort();
    }

    #[test]
    fn a_pair_that_does_not_belong_together_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (one, other) = (
            write(directory.path(), "a", &["a"]),
            write(directory.path(), "b", &["b"]),
        );
        let problem = |files: Files| open(Some(files), Vec::new()).unwrap_err().to_string();
        let why = problem(Files {
            key: other.key,
            ..one.clone()
        });
        assert!(
            why.contains("a.crt") && why.contains("does not fit its key"),
            "{why}"
        );
        let why = problem(Files {
            certificate: one.key.clone(),
            ..one.clone()
        });
        assert!(why.contains("no certificate"), "{why}");
        let why = problem(Files {
            key: directory.path().join("none"),
            ..one
        });
        assert!(why.contains("none"), "{why}");
    }
}
