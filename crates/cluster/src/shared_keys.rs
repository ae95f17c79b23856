//! Whether the certificates and keys of a server fit an etcd that servers use already.
//!
//! A data directory beside etcd has certificates and keys only, so that a new one says nothing about the etcd. Keys
//! that were generated for it would reject the clients, and the tokens of service accounts, of all other servers.
//! Every server publishes its authorities in a ConfigMap: an etcd that has it is in use, or was.

use std::path::{Path, PathBuf};

use mizzen_authentication::TrustedAuthorities;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

/// The certificates and keys with which a server would start.
pub(crate) struct ServerKeys<'a> {
    /// The data directory.
    pub directory: &'a Path,
    /// Whether an argument names authorities of clients.
    pub names_authorities: bool,
    /// Whether an argument names keys of service account tokens.
    pub names_token_keys: bool,
}

/// The keys of a server are not those of the servers that use the etcd.
#[derive(Debug, thiserror::Error)]
#[error(
    "servers with other certificates and keys use this etcd: {}; copy ca.crt, ca.key, front-proxy-ca.crt, \
     front-proxy-ca.key and sa.key of their data directory to {}, or name their files with {flags}; to give up what \
     was signed with the old ones, delete the ConfigMap kube-system/extension-apiserver-authentication in etcd",
    .problems.join(", and "),
    .directory.display()
)]
pub(crate) struct ForeignKeys {
    problems: Vec<String>,
    directory: PathBuf,
    flags: String,
}

impl ServerKeys<'_> {
    /// Rejects keys that do not fit what servers have `published`. What an argument names is accepted: the user knows
    /// what signed the clients and tokens of that etcd.
    pub(crate) fn check(&self, published: &TrustedAuthorities) -> Result<(), ForeignKeys> {
        let is_used = [&published.clients, &published.front_proxies]
            .iter()
            .any(|authorities| !certificates(authorities).is_empty());
        if !is_used {
            return Ok(());
        }
        let file = |name: &str| self.directory.join(name);
        let (mut problems, mut flags) = (Vec::new(), Vec::new());
        let known = certificates(&published.clients);
        if !known.is_empty() && !self.names_authorities {
            let path = file("ca.crt");
            let is_known = |text: String| certificates(&text).iter().all(|own| known.contains(own));
            let problem = match std::fs::read_to_string(&path).map(is_known) {
                Ok(true) => None,
                Ok(false) => Some("is not among their authorities"),
                Err(_) => Some("is missing"),
            };
            if let Some(problem) = problem {
                problems.push(format!("{} {problem}", path.display()));
                flags.push("--client-ca-file");
            }
        }
        if !self.names_token_keys && !file("sa.key").exists() {
            problems.push(format!("{} is missing", file("sa.key").display()));
            flags.push("--service-account-key-file");
        }
        match problems.is_empty() {
            true => Ok(()),
            false => Err(ForeignKeys {
                problems,
                directory: self.directory.into(),
                flags: flags.join(" and "),
            }),
        }
    }
}

fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use mizzen_bootstrap::pki::Authority;
    use mizzen_bootstrap::token_key::TokenKey;

    use super::*;

    /// What is wrong with the keys of a directory; empty if nothing is.
    fn problems(directory: &Path, flags: [bool; 2], published: &TrustedAuthorities) -> String {
        let [names_authorities, names_token_keys] = flags;
        let keys = ServerKeys {
            directory,
            names_authorities,
            names_token_keys,
        };
        let checked = keys.check(published);
        let text = checked
            .map_err(|error| error.to_string())
            .err()
            .unwrap_or_default();
        text.replace(&format!("{}/", directory.display()), "")
    }

    #[test]
    fn keys_fit_an_etcd_without_servers_or_whose_authorities_they_are() {
        let (new, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let authority = Authority::open(own.path()).unwrap();
        TokenKey::open(own.path()).unwrap();
        let empty = TrustedAuthorities::default();
        assert_eq!(problems(new.path(), [false, false], &empty), "");
        let several = TrustedAuthorities {
            clients: Authority::in_memory().unwrap().certificate + &authority.certificate,
            ..TrustedAuthorities::default()
        };
        assert_eq!(problems(own.path(), [false, false], &several), "");
        let other = TrustedAuthorities {
            clients: Authority::in_memory().unwrap().certificate,
            ..several
        };
        let foreign = problems(own.path(), [false, false], &other);
        assert!(
            foreign.contains("etcd: ca.crt is not among their authorities; copy"),
            "{foreign}"
        );
        assert_eq!(problems(own.path(), [true, false], &other), "");
    }

    #[test]
    fn each_missing_key_is_named_unless_an_argument_names_it() {
        let new = tempfile::tempdir().unwrap();
        let authority = Authority::in_memory().unwrap().certificate;
        let clients = TrustedAuthorities {
            clients: authority.clone(),
            ..TrustedAuthorities::default()
        };
        // A server without client certificates publishes authorities of front proxies alone.
        let front_proxies = TrustedAuthorities {
            front_proxies: authority,
            ..TrustedAuthorities::default()
        };
        let both = "--client-ca-file and --service-account-key-file;";
        for (published, flags, missing, remedy) in [
            (
                &clients,
                [false, false],
                "ca.crt is missing, and sa.key is missing",
                both,
            ),
            (
                &clients,
                [true, false],
                "sa.key is missing",
                "--service-account-key-file;",
            ),
            (
                &clients,
                [false, true],
                "ca.crt is missing",
                "--client-ca-file;",
            ),
            (
                &front_proxies,
                [false, false],
                "sa.key is missing",
                "--service-account-key-file;",
            ),
        ] {
            let text = problems(new.path(), flags, published);
            assert!(text.contains(&format!("etcd: {missing}; copy")), "{text}");
            assert!(text.contains(&format!("files with {remedy}")), "{text}");
        }
        assert_eq!(problems(new.path(), [true, true], &clients), "");
        assert_eq!(problems(new.path(), [false, true], &front_proxies), "");
        assert_eq!(std::fs::read_dir(new.path()).unwrap().count(), 0);
    }
}
