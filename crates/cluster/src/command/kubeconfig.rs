//! `mizzen kubeconfig`: a client certificate for a user.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use mizzen_bootstrap::kubeconfig::kubeconfig;
use mizzen_bootstrap::pki::{Authority, PkiError};

use super::server::{ADMIN, default_directory};

/// The default address of the server.
const SERVER: &str = "https://127.0.0.1:6443";

/// Print a kubeconfig with a client certificate for a user, signed by the certificate authority of the data directory
///
/// The certificate names the user and its groups. Grant permissions with roles and bindings.
#[derive(Args)]
#[command(
    after_help = "Example:\n  mizzen kubeconfig --data-dir ./data --user jane --group dev > jane.kubeconfig\n  \
                        kubectl create clusterrolebinding dev-view --clusterrole view --group dev\n  \
                        kubectl --kubeconfig jane.kubeconfig get pods"
)]
pub(crate) struct KubeconfigCommand {
    /// Use the certificate authority in this data directory [default: ~/.local/share/mizzen]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Issue the certificate for this user name
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    user: String,
    /// Add this UID, which distinguishes users of the same name
    #[arg(long, value_name = "UID", default_value = "")]
    uid: String,
    /// Add the user to this group; may be repeated
    #[arg(long = "group", value_name = "GROUP", value_parser = NonEmptyStringValueParser::new())]
    groups: Vec<String>,
    /// Write this address of the server [default: as in admin.kubeconfig of the data directory, or https://127.0.0.1:6443]
    #[arg(long, value_name = "URL")]
    server: Option<String>,
}

/// Why there is no kubeconfig.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrintKubeconfigError {
    /// No server has used the data directory.
    #[error("{} has no certificate authority; start a server with this data directory first", .0.display())]
    NoAuthority(PathBuf),
    /// The certificate cannot be signed.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// Standard output is closed.
    #[error("cannot print it: {0}")]
    Print(#[from] std::io::Error),
}

impl KubeconfigCommand {
    /// Prints it.
    pub(crate) fn run(self) -> Result<(), PrintKubeconfigError> {
        Ok(std::io::stdout().write_all(self.text()?.as_bytes())?)
    }

    fn text(&self) -> Result<String, PrintKubeconfigError> {
        let directory = self.data_dir.clone().unwrap_or_else(default_directory);
        if !directory.join("ca.crt").exists() {
            return Err(PrintKubeconfigError::NoAuthority(directory));
        }
        let authority = Authority::open(&directory)?;
        let groups: Vec<&str> = self.groups.iter().map(String::as_str).collect();
        let client = authority.sign_client(&self.user, &self.uid, &groups)?;
        let server = self
            .server
            .clone()
            .or_else(|| admin_setting(&directory, "server: "));
        let server_name = admin_setting(&directory, "tls-server-name: ").unwrap_or_default();
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

/// A value of the kubeconfig of the administrator in a data directory.
fn admin_setting(directory: &Path, key: &str) -> Option<String> {
    let text = std::fs::read_to_string(directory.join(ADMIN)).ok()?;
    text.lines()
        .find_map(|line| line.trim().strip_prefix(key))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(directory: &Path) -> KubeconfigCommand {
        KubeconfigCommand {
            data_dir: Some(directory.into()),
            user: "jane: \"doe\"".into(),
            uid: String::new(),
            groups: vec!["dev".into(), "ops".into()],
            server: None,
        }
    }

    #[test]
    fn a_directory_without_an_authority_is_rejected() {
        let directory = tempfile::tempdir().unwrap();
        assert!(matches!(
            command(directory.path()).text(),
            Err(PrintKubeconfigError::NoAuthority(_))
        ));
        assert!(!directory.path().join("ca.crt").exists());
    }

    #[test]
    fn a_user_gets_the_server_address_of_the_administrator() {
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
