//! Whose client certificates count, besides those of the cluster's own authorities.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use mizzen_apiserver::authenticate::{Authorities, Trusted};
use mizzen_apiserver::file_watcher::{FileError, FileWatcher};
use tokio::sync::watch;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use super::{refused, text};
use crate::compose::ComposeError;
use crate::pki::{Authority, FRONT_PROXY_CLIENT};

/// The arguments of client certificates.
#[derive(Args, Clone)]
pub(crate) struct TrustArgs {
    /// Believe clients with certificates of these authorities, too; the file is read again when it changes
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,
    /// Believe front proxies with certificates of these authorities, too; the file is read again when it changes
    #[arg(long, value_name = "FILE")]
    requestheader_client_ca_file: Option<PathBuf>,
    /// The names that front proxies may have [default: any, if there is a file of their authorities]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    requestheader_allowed_names: Vec<String>,
}

/// Whom a server trusts, and what of that is said in files.
pub(crate) struct Trust {
    /// All of them, as they were found.
    pub trusted: Trusted,
    followed: Vec<Followed>,
}

/// A file, what it said, what is trusted whatever it says, and where both go.
struct Followed {
    file: PathBuf,
    said: String,
    own: String,
    field: fn(&mut Trusted) -> &mut String,
}

impl TrustArgs {
    /// Whom to trust.
    pub(crate) fn trust(
        &self,
        clients: &Authority,
        front_proxies: &Authority,
    ) -> Result<Trust, ComposeError> {
        let mut trust = Trust {
            trusted: Trusted::default(),
            followed: Vec::new(),
        };
        trust.take(&self.client_ca_file, &clients.certificate, |trusted| {
            &mut trusted.clients
        })?;
        let file = &self.requestheader_client_ca_file;
        trust.take(file, &front_proxies.certificate, |trusted| {
            &mut trusted.front_proxies
        })?;
        trust.trusted.allowed = self.allowed();
        self.check_overlap(&trust)?;
        Ok(trust)
    }

    /// The authorities that a component trusts: each is that of a file or else the one that the server publishes. Kubernetes:
    /// server/options/authentication.go, DelegatingAuthenticationOptions.
    pub(crate) fn delegated(&self, published: Option<&Trusted>) -> Result<Trust, ComposeError> {
        let published = published.cloned().unwrap_or_default();
        let or_published =
            |file: &Option<PathBuf>, own: String| if file.is_none() { own } else { String::new() };
        let mut trust = Trust {
            trusted: Trusted::default(),
            followed: Vec::new(),
        };
        let clients = or_published(&self.client_ca_file, published.clients);
        trust.take(&self.client_ca_file, &clients, |trusted| {
            &mut trusted.clients
        })?;
        let file = &self.requestheader_client_ca_file;
        let front_proxies = or_published(file, published.front_proxies);
        trust.take(file, &front_proxies, |trusted| &mut trusted.front_proxies)?;
        trust.trusted.allowed = match file {
            Some(_) => self.requestheader_allowed_names.clone(),
            None => published.allowed,
        };
        self.check_overlap(&trust)?;
        Ok(trust)
    }

    /// Our own front proxy has a name; those of others may have any unless somebody says which.
    fn allowed(&self) -> Vec<String> {
        let any = self.requestheader_client_ca_file.is_some()
            && self.requestheader_allowed_names.is_empty();
        let own = (!any).then(|| FRONT_PROXY_CLIENT.to_owned());
        self.requestheader_allowed_names
            .iter()
            .cloned()
            .chain(own)
            .collect()
    }

    /// Whoever has a plain client certificate must not be able to speak for others.
    fn check_overlap(&self, trust: &Trust) -> Result<(), ComposeError> {
        let clients = certificates(&trust.trusted.clients);
        let overlap = certificates(&trust.trusted.front_proxies)
            .iter()
            .any(|one| clients.contains(one));
        match overlap && trust.trusted.allowed.is_empty() {
            true => {
                let why = "--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; --requestheader-allowed-names must be specified to ensure regular client certificates cannot set authenticating proxy headers for arbitrary users";
                Err(refused(
                    Path::new("--requestheader-client-ca-file"),
                    why.into(),
                ))
            }
            false => Ok(()),
        }
    }
}

impl Trust {
    fn take(
        &mut self,
        file: &Option<PathBuf>,
        own: &str,
        field: fn(&mut Trusted) -> &mut String,
    ) -> Result<(), ComposeError> {
        let Some(file) = file else {
            *field(&mut self.trusted) = own.to_owned();
            return Ok(());
        };
        let said = text(file)?;
        if certificates(&said).is_empty() {
            return Err(refused(file, NOTHING.into()));
        }
        *field(&mut self.trusted) = joined(own, &said);
        self.followed.push(Followed {
            file: file.clone(),
            said,
            own: own.to_owned(),
            field,
        });
        Ok(())
    }

    /// Lets `authorities` trust what the files say from now on. Who listens is told whom that is.
    pub(crate) fn follow(self, authorities: &Arc<Authorities>) -> watch::Receiver<Trusted> {
        let trusted = watch::Sender::new(self.trusted);
        let told = trusted.subscribe();
        for Followed {
            file,
            said,
            own,
            field,
        } in self.followed
        {
            let (trusted, authorities, name) = (trusted.clone(), authorities.clone(), file.clone());
            let watcher = FileWatcher::new([file], [said.into_bytes()]);
            let changed = move |content: Result<&[u8], FileError>| {
                let said = match content {
                    Ok(content) => String::from_utf8_lossy(content),
                    Err(error) => {
                        tracing::error!(%error, "cannot read certificate authorities");
                        return false;
                    }
                };
                if certificates(&said).is_empty() {
                    tracing::error!(file = %name.display(), "{NOTHING}");
                    return false;
                }
                trusted.send_modify(|trusted| *field(trusted) = joined(&own, &said));
                authorities.replace(&trusted.borrow());
                tracing::info!(file = %name.display(), "certificate authorities have changed");
                true
            };
            tokio::spawn(watcher.run(changed));
        }
        told
    }
}

const NOTHING: &str = "data does not contain any valid RSA or ECDSA certificates";

fn joined(own: &str, said: &str) -> String {
    format!("{}\n{}", own.trim_end(), said.trim_start())
}

fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .filter_map(Result::ok)
        .collect()
}
