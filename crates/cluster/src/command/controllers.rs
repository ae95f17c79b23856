//! `mizzen controllers`: the loops alone, against any server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use mizzen_apiserver::issue_token;
use mizzen_controllers::{self as controllers, SignToken};

use super::lead::{self, LeadError};
use super::signing::Signing;
use super::up::pod_range;
use crate::connect::connect;
use crate::election::Lease;
use crate::log::say;
use crate::pki::{self, PkiError};
use crate::token_key::TokenKey;

/// Run the control loops alone, against any Kubernetes API server. Of several that run, one works.
#[derive(Args)]
#[command(after_help = "Example:\n  mizzen controllers --kubeconfig ./data/admin.kubeconfig\n  \
                        mizzen controllers --kubeconfig ./kubeconfig --controllers deployment-controller,replicaset-controller")]
pub struct Controllers {
    /// How to reach the server
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// The loops to run; all if none is named
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = known)]
    controllers: Vec<String>,
    /// The addresses of pods, of which every node gets a block; one range per family, or none
    #[arg(long, value_name = "RANGE,…", value_delimiter = ',', value_parser = pod_range)]
    cluster_cidr: Vec<String>,
    /// The certificate by which the server is known, in PEM, to be published in every namespace
    #[arg(long, value_name = "FILE")]
    root_ca_file: Option<PathBuf>,
    /// The key of the server's tokens, in PEM, to sign those that are kept in secrets
    #[arg(long, value_name = "FILE")]
    service_account_private_key_file: Option<PathBuf>,
    #[command(flatten)]
    signing: Signing,
    /// Work without asking whether another does
    #[arg(long)]
    no_leader_elect: bool,
}

/// Signs tokens with the key in a file.
fn signer(file: &Path) -> Result<SignToken, PkiError> {
    let key = TokenKey::read(file)?;
    Ok(Arc::new(move |claims| issue_token(&key, claims)))
}

fn known(name: &str) -> Result<String, String> {
    match controllers::names().any(|known| known == name) {
        true => Ok(name.into()),
        false => Err(format!(
            "there is no such loop; there are {}",
            controllers::names().collect::<Vec<_>>().join(", ")
        )),
    }
}

impl Controllers {
    /// Works until told to stop.
    pub fn run(self) -> Result<(), LeadError> {
        lead::run(async {
            let client = connect(&self.kubeconfig, "kube-controller-manager").await?;
            let lease = (!self.no_leader_elect).then(Lease::of_loops);
            let shared = client.clone();
            let mut options = controllers::Options::new(Arc::new(move |_| shared.clone()));
            options.loops = self.controllers;
            options.pod_ranges = self.cluster_cidr;
            options.root_ca = self.root_ca_file.as_deref().map(pki::read_certificates).transpose()?;
            options.authority = self.signing.authority()?;
            options.sign_token = self.service_account_private_key_file.as_deref().map(signer).transpose()?;
            lead::lead(client, lease, async {
                let handle = controllers::start(options);
                handle.synced().await;
                say!("the loops are at work");
                std::future::pending().await
            })
            .await
        })
    }
}
