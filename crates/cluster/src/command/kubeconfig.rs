//! `mizzen kubeconfig`: entry for one more user.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use super::server::{ADMIN, default_directory};
use crate::kubeconfig::kubeconfig;
use crate::pki::{Authority, PkiError};

/// Where the server is, unless something else is known.
const SERVER: &str = "https://127.0.0.1:6443";

/// Print a kubeconfig for a user, signed by the data directory's certificate authority.
///
/// Who the user is says the certificate; what they may do say roles and bindings.
#[derive(Args)]
#[command(
    after_help = "Example:\n  mizzen kubeconfig --data-dir ./data --user jane --group dev > jane.kubeconfig\n  \
                        kubectl create clusterrolebinding dev-view --clusterrole view --group dev\n  \
                        kubectl --kubeconfig jane.kubeconfig get pods"
)]
pub(crate) struct Kubeconfig {
    /// The directory in which the server keeps everything [default: ~/.local/share/mizzen]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The user's name
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    user: String,
    /// What tells the user from another of the same name
    #[arg(long, value_name = "UID", default_value = "")]
    uid: String,
    /// A group that the user is in; may be given more than once
    #[arg(long = "group", value_name = "GROUP", value_parser = NonEmptyStringValueParser::new())]
    groups: Vec<String>,
    /// Where the server is [default: as in the admin's kubeconfig, or https://127.0.0.1:6443]
    #[arg(long, value_name = "URL")]
    server: Option<String>,
}

/// Why there is no kubeconfig.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KubeconfigError {
    /// No server has ever run there.
    #[error("{} has no certificate authority; start a server with this data directory first", .0.display())]
    NoAuthority(PathBuf),
    /// The certificate cannot be made.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// Nobody takes it.
    #[error("cannot print it: {0}")]
    Print(#[from] std::io::Error),
}

impl Kubeconfig {
    /// Prints it.
    pub(crate) fn run(self) -> Result<(), KubeconfigError> {
        Ok(std::io::stdout().write_all(self.text()?.as_bytes())?)
    }

    fn text(&self) -> Result<String, KubeconfigError> {
        let directory = self.data_dir.clone().unwrap_or_else(default_directory);
        if !directory.join("ca.crt").exists() {
            return Err(KubeconfigError::NoAuthority(directory));
        }
        let authority = Authority::open(&directory)?;
        let groups: Vec<&str> = self.groups.iter().map(String::as_str).collect();
        let client = authority.sign_client(&self.user, &self.uid, &groups)?;
        let server = self
            .server
            .clone()
            .or_else(|| known(&directory, "server: "));
        let server_name = known(&directory, "tls-server-name: ").unwrap_or_default();
        let server = server.as_deref().unwrap_or(SERVER);
        Ok(kubeconfig(
            server,
            &server_name,
            &authority,
            &self.user,
            &client,
        ))
    }
}

/// What the admin was told of the last server in a directory.
fn known(directory: &Path, key: &str) -> Option<String> {
    let text = std::fs::read_to_string(directory.join(ADMIN)).ok()?;
    text.lines()
        .find_map(|line| line.trim().strip_prefix(key))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(directory: &Path) -> Kubeconfig {
        Kubeconfig {
            data_dir: Some(directory.into()),
            user: "jane: \"doe\"".into(),
            uid: String::new(),
            groups: vec!["dev".into(), "ops".into()],
            server: None,
        }
    }

    #[test]
    fn a_directory_without_an_authority_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        assert!(matches!(
            command(directory.path()).text(),
            Err(KubeconfigError::NoAuthority(_))
        ));
        assert!(!directory.path().join("ca.crt").exists());
    }

    #[test]
    fn a_user_gets_in_where_the_admin_does() {
        let directory = tempfile::tempdir().unwrap();
        Authority::open(directory.path()).unwrap();
        std::fs::write(
            directory.path().join(ADMIN),
            "clusters:\n    server: https://h:1\n",
        )
        .unwrap();
        let text = command(directory.path()).text().unwrap();
        let value = mizzen_value::yaml::read(text.as_bytes()).unwrap().value;
        assert_eq!(
            value["clusters"].list()[0]["cluster"]["server"].str(),
            "https://h:1"
        );
        assert_eq!(value["users"].list()[0]["name"].str(), "jane: \"doe\"");
    }
}
