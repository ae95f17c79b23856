//! `mizzen kubeconfig`: a client certificate for a user.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use mizzen_bootstrap::kubeconfig::kubeconfig;
use mizzen_bootstrap::pki::{Authority, PkiError};

use super::cluster_args::ClusterArgs;
use super::server::ADMIN;
use crate::clusters::{ChangeKubeconfigError, Context, KubeconfigFile};
use crate::log::write_output;

/// The default address of the server.
const SERVER: &str = "https://127.0.0.1:6443";
/// The key of the address in a kubeconfig.
const SERVER_KEY: &str = "server: ";

/// Print a kubeconfig of a cluster, or add its context to ~/.kube/config
#[derive(Args)]
#[command(
    after_help = "Example:\n  mizzen kubeconfig --name dev --set-context\n  kubectl get nodes\n\n  \
                        mizzen kubeconfig --data-dir ./data --user jane --group dev > jane.kubeconfig\n  \
                        kubectl create clusterrolebinding dev-view --clusterrole view --group dev\n  \
                        kubectl --kubeconfig jane.kubeconfig get pods"
)]
pub(crate) struct KubeconfigCommand {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Issue a certificate for this user name [default: the administrator's certificate]
    #[arg(long, value_name = "USER", value_parser = NonEmptyStringValueParser::new())]
    user: Option<String>,
    /// Add this UID, which distinguishes users of the same name
    #[arg(long, value_name = "UID", default_value = "", requires = "user")]
    uid: String,
    /// Add the user to this group; may be repeated
    #[arg(long = "group", value_name = "GROUP", requires = "user", value_parser = NonEmptyStringValueParser::new())]
    groups: Vec<String>,
    /// Write this address of the server [default: as in admin.kubeconfig of the data directory, or https://127.0.0.1:6443]
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// Do not print it: add the context mizzen, or mizzen-NAME, to the first file of $KUBECONFIG or ~/.kube/config, and make it
    /// the current one. With --user the context is USER@mizzen
    #[arg(long)]
    set_context: bool,
}

/// Why there is no kubeconfig.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrintKubeconfigError {
    /// No server has used the data directory.
    #[error("{} has no certificate authority; start a server with this data directory first", .0.display())]
    NoAuthority(PathBuf),
    /// No server has used the data directory, or it is damaged.
    #[error("{}: {why}; start the cluster first", file.display())]
    NoAdministrator {
        /// The administrator's kubeconfig.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The kubeconfig of the user cannot be changed.
    #[error(transparent)]
    SetContext(#[from] ChangeKubeconfigError),
    /// The certificate cannot be signed.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// Standard output is closed.
    #[error("cannot print it: {0}")]
    Print(#[from] std::io::Error),
}

impl KubeconfigCommand {
    /// Prints it, or adds its context to the kubeconfig of the user.
    pub(crate) fn run(self) -> Result<(), PrintKubeconfigError> {
        let directory = self.cluster.directory();
        let text = match &self.user {
            Some(user) => self.text_for(user, &directory.path)?,
            None => self.administrator(&directory.path)?,
        };
        if !self.set_context {
            return Ok(std::io::stdout().write_all(text.as_bytes())?);
        }
        let cluster_name = directory.context_name();
        let name = match &self.user {
            Some(user) => format!("{user}@{cluster_name}"),
            None => cluster_name.clone(),
        };
        let context = Context::parse(text.as_bytes(), name, cluster_name)
            .expect("a kubeconfig of our own has a cluster and a user");
        let file = KubeconfigFile::of_user();
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()?
            .block_on(context.add(&file, &directory))?;
        write_output(format_args!(
            "context {} is set in {}",
            context.name,
            file.path().display()
        ));
        Ok(())
    }

    /// The administrator's kubeconfig, as the server wrote it.
    fn administrator(&self, directory: &Path) -> Result<String, PrintKubeconfigError> {
        let file = directory.join(ADMIN);
        let invalid = |why: String| PrintKubeconfigError::NoAdministrator {
            file: file.clone(),
            why,
        };
        let text = std::fs::read_to_string(&file).map_err(|error| invalid(error.to_string()))?;
        if Context::parse(text.as_bytes(), String::new(), String::new()).is_none() {
            return Err(invalid("is not a kubeconfig".into()));
        }
        Ok(match (&self.server, admin_setting(directory, SERVER_KEY)) {
            (Some(server), Some(old)) => text.replace(
                &format!("{SERVER_KEY}{old}\n"),
                &format!("{SERVER_KEY}{server}\n"),
            ),
            _ => text,
        })
    }

    /// A kubeconfig with a new certificate.
    fn text_for(&self, user: &str, directory: &Path) -> Result<String, PrintKubeconfigError> {
        if !directory.join("ca.crt").exists() {
            return Err(PrintKubeconfigError::NoAuthority(directory.into()));
        }
        let authority = Authority::open(directory)?;
        let groups: Vec<&str> = self.groups.iter().map(String::as_str).collect();
        let client = authority.sign_client(user, &self.uid, &groups)?;
        let server = self
            .server
            .clone()
            .or_else(|| admin_setting(directory, SERVER_KEY));
        let server_name = admin_setting(directory, "tls-server-name: ").unwrap_or_default();
        let server = server.as_deref().unwrap_or(SERVER);
        Ok(kubeconfig(server, &server_name, &authority, user, &client))
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

    const USER: &str = "jane: \"doe\"";

    fn command(directory: &Path) -> KubeconfigCommand {
        KubeconfigCommand {
            cluster: ClusterArgs {
                name: None,
                data_dir: Some(directory.into()),
            },
            user: Some(USER.into()),
            uid: String::new(),
            groups: vec!["dev".into(), "ops".into()],
            server: None,
            set_context: false,
        }
    }

    #[test]
    fn a_directory_without_an_authority_is_rejected() {
        let directory = tempfile::tempdir().unwrap();
        assert!(matches!(
            command(directory.path()).text_for(USER, directory.path()),
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
        let text = command(directory.path())
            .text_for(USER, directory.path())
            .unwrap();
        let value = mizzen_value::yaml::read(text.as_bytes()).unwrap().value;
        assert_eq!(
            value["clusters"].list()[0]["cluster"]["server"].str(),
            "https://h:1"
        );
        assert_eq!(value["users"].list()[0]["name"].str(), USER);
    }
}
