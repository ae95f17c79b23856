//! Client certificate authorities besides the cluster's own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use mizzen_apiserver::file_watcher::{FileError, FileWatcher};
use mizzen_authentication::{Authorities, TrustedAuthorities};
use mizzen_bootstrap::pki::{Authority, FRONT_PROXY_CLIENT};
use tokio::sync::watch;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use super::{invalid_file, text};
use crate::compose::ComposeError;

/// The arguments of client certificates.
#[derive(Args, Clone)]
pub(crate) struct TrustArgs {
    /// Authenticate client certificates of these authorities (PEM), too; the file is reloaded when it changes
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,
    /// Authenticate front proxies by certificates of these authorities (PEM), too; the file is reloaded when it changes
    #[arg(long, value_name = "FILE")]
    requestheader_client_ca_file: Option<PathBuf>,
    /// Allow only front proxies with these common names [default: any, with --requestheader-client-ca-file]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    requestheader_allowed_names: Vec<String>,
}

/// The authorities that a server trusts, and the files that are reloaded.
pub(crate) struct ClientTrust {
    /// The authorities when the server started.
    pub trusted: TrustedAuthorities,
    files: Vec<AuthorityFile>,
}

/// A file of authorities.
struct AuthorityFile {
    file: PathBuf,
    /// Its text.
    text: String,
    /// Authorities besides those of the file.
    own: String,
    field: fn(&mut TrustedAuthorities) -> &mut String,
}

impl TrustArgs {
    /// Whether authorities of clients are named.
    pub(crate) fn names_client_authorities(&self) -> bool {
        self.client_ca_file.is_some()
    }

    /// Whether authorities of front proxies are named.
    pub(crate) fn names_front_proxy_authorities(&self) -> bool {
        self.requestheader_client_ca_file.is_some()
    }

    /// The authorities of an API server.
    pub(crate) fn trust(
        &self,
        clients: &Authority,
        front_proxies: &Authority,
    ) -> Result<ClientTrust, ComposeError> {
        let mut trust = ClientTrust {
            trusted: TrustedAuthorities::default(),
            files: Vec::new(),
        };
        trust.add(&self.client_ca_file, &clients.certificate, |trusted| {
            &mut trusted.clients
        })?;
        let file = &self.requestheader_client_ca_file;
        trust.add(file, &front_proxies.certificate, |trusted| {
            &mut trusted.front_proxies
        })?;
        trust.trusted.allowed = self.allowed_names();
        self.check_overlap(&trust)?;
        Ok(trust)
    }

    /// The authorities of a component: those of a file, or else those that the API server publishes. Kubernetes:
    /// server/options/authentication.go, DelegatingAuthenticationOptions.
    pub(crate) fn delegated(
        &self,
        published: Option<&TrustedAuthorities>,
    ) -> Result<ClientTrust, ComposeError> {
        let published = published.cloned().unwrap_or_default();
        let or_published =
            |file: &Option<PathBuf>, own: String| if file.is_none() { own } else { String::new() };
        let mut trust = ClientTrust {
            trusted: TrustedAuthorities::default(),
            files: Vec::new(),
        };
        let clients = or_published(&self.client_ca_file, published.clients);
        trust.add(&self.client_ca_file, &clients, |trusted| {
            &mut trusted.clients
        })?;
        let file = &self.requestheader_client_ca_file;
        let front_proxies = or_published(file, published.front_proxies);
        trust.add(file, &front_proxies, |trusted| &mut trusted.front_proxies)?;
        trust.trusted.allowed = match file {
            Some(_) => self.requestheader_allowed_names.clone(),
            None => published.allowed,
        };
        self.check_overlap(&trust)?;
        Ok(trust)
    }

    /// The allowed names of front proxies. The server's own has a fixed name; with a file of authorities any name is allowed
    /// by default.
    fn allowed_names(&self) -> Vec<String> {
        let any = self.requestheader_client_ca_file.is_some()
            && self.requestheader_allowed_names.is_empty();
        let own = (!any).then(|| FRONT_PROXY_CLIENT.to_owned());
        self.requestheader_allowed_names
            .iter()
            .cloned()
            .chain(own)
            .collect()
    }

    /// Rejects authorities that would let holders of plain client certificates set front proxy headers.
    fn check_overlap(&self, trust: &ClientTrust) -> Result<(), ComposeError> {
        let clients = certificates(&trust.trusted.clients);
        let overlap = certificates(&trust.trusted.front_proxies)
            .iter()
            .any(|one| clients.contains(one));
        match overlap && trust.trusted.allowed.is_empty() {
            true => {
                let why = "--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; --requestheader-allowed-names must be specified to ensure regular client certificates cannot set authenticating proxy headers for arbitrary users";
                Err(invalid_file(
                    Path::new("--requestheader-client-ca-file"),
                    why.into(),
                ))
            }
            false => Ok(()),
        }
    }
}

impl ClientTrust {
    /// Adds the authorities of a file, if there is one, to the own ones.
    fn add(
        &mut self,
        file: &Option<PathBuf>,
        own: &str,
        field: fn(&mut TrustedAuthorities) -> &mut String,
    ) -> Result<(), ComposeError> {
        let Some(file) = file else {
            *field(&mut self.trusted) = own.to_owned();
            return Ok(());
        };
        let text = text(file)?;
        if certificates(&text).is_empty() {
            return Err(invalid_file(file, NO_CERTIFICATE.into()));
        }
        *field(&mut self.trusted) = joined(own, &text);
        self.files.push(AuthorityFile {
            file: file.clone(),
            text,
            own: own.to_owned(),
            field,
        });
        Ok(())
    }

    /// Replaces `authorities` whenever a file changes. The receiver gets the new ones.
    pub(crate) fn follow(
        self,
        authorities: &Arc<Authorities>,
    ) -> watch::Receiver<TrustedAuthorities> {
        let trusted = watch::Sender::new(self.trusted);
        let receiver = trusted.subscribe();
        for AuthorityFile {
            file,
            text,
            own,
            field,
        } in self.files
        {
            let (trusted, authorities, name) = (trusted.clone(), authorities.clone(), file.clone());
            let watcher = FileWatcher::new([file], [text.into_bytes()]);
            let changed = move |content: Result<&[u8], FileError>| {
                let text = match content {
                    Ok(content) => String::from_utf8_lossy(content),
                    Err(error) => {
                        tracing::error!(%error, "cannot read certificate authorities");
                        return false;
                    }
                };
                if certificates(&text).is_empty() {
                    tracing::error!(path = %name.display(), "{NO_CERTIFICATE}");
                    return false;
                }
                trusted.send_modify(|trusted| *field(trusted) = joined(&own, &text));
                authorities.replace(&trusted.borrow());
                tracing::info!(path = %name.display(), "reloaded client certificate authorities");
                true
            };
            tokio::spawn(watcher.run(changed));
        }
        receiver
    }
}

const NO_CERTIFICATE: &str = "data does not contain any valid RSA or ECDSA certificates";

fn joined(own: &str, text: &str) -> String {
    format!("{}\n{}", own.trim_end(), text.trim_start())
}

fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .filter_map(Result::ok)
        .collect()
}
