//! The server as a client of aggregated API servers and kubelets.

use std::path::{Path, PathBuf};

use clap::Args;
use mizzen_apiserver::ClientIdentity;
use mizzen_bootstrap::pki::{check_pair, read_certificates};
use mizzen_controlplane::Options;

use super::{invalid_file, text};
use crate::compose::ComposeError;

/// The arguments of the server as a client.
#[derive(Args, Clone)]
pub(crate) struct ClientArgs {
    /// Present this client certificate (PEM) to aggregated API servers [default: one of the front proxy authority]
    #[arg(long, value_name = "FILE", requires = "proxy_client_key_file")]
    proxy_client_cert_file: Option<PathBuf>,
    /// Read the key of --proxy-client-cert-file from this file (PEM)
    #[arg(long, value_name = "FILE", requires = "proxy_client_cert_file")]
    proxy_client_key_file: Option<PathBuf>,
    /// Present this client certificate (PEM) to kubelets [default: one of the cluster's authority]
    #[arg(long, value_name = "FILE", requires = "kubelet_client_key")]
    kubelet_client_certificate: Option<PathBuf>,
    /// Read the key of --kubelet-client-certificate from this file (PEM)
    #[arg(long, value_name = "FILE", requires = "kubelet_client_certificate")]
    kubelet_client_key: Option<PathBuf>,
    /// Verify serving certificates of kubelets by these authorities (PEM) [default: not verified]
    #[arg(long, value_name = "FILE")]
    kubelet_certificate_authority: Option<PathBuf>,
    /// Connect to kubelets at the first of these address types that a node has [default:
    /// InternalIP,InternalDNS,ExternalIP,ExternalDNS,Hostname]
    #[arg(long, value_name = "TYPE,…", value_delimiter = ',',
        value_parser = ["InternalIP", "InternalDNS", "ExternalIP", "ExternalDNS", "Hostname"])]
    kubelet_preferred_address_types: Vec<String>,
}

impl ClientArgs {
    /// The identity for aggregated API servers, if files have one.
    pub(crate) fn front_proxy(&self) -> Result<Option<ClientIdentity>, ComposeError> {
        identity(
            self.proxy_client_cert_file.as_deref(),
            self.proxy_client_key_file.as_deref(),
        )
    }

    /// The identity for kubelets, if files have one.
    pub(crate) fn kubelet_client(&self) -> Result<Option<ClientIdentity>, ComposeError> {
        identity(
            self.kubelet_client_certificate.as_deref(),
            self.kubelet_client_key.as_deref(),
        )
    }

    /// The authorities of kubelets' serving certificates, if they are verified.
    pub(crate) fn kubelet_authority(&self) -> Result<Option<String>, ComposeError> {
        Ok(self
            .kubelet_certificate_authority
            .as_deref()
            .map(read_certificates)
            .transpose()?)
    }

    /// The types of nodes' addresses, the preferred one first.
    pub(crate) fn kubelet_address_types(&self) -> Vec<String> {
        match self.kubelet_preferred_address_types.is_empty() {
            true => Options::default().kubelet_address_types,
            false => self.kubelet_preferred_address_types.clone(),
        }
    }
}

/// The certificate and the key in two files, which must match.
fn identity(
    certificate: Option<&Path>,
    key: Option<&Path>,
) -> Result<Option<ClientIdentity>, ComposeError> {
    let Some((file, key)) = certificate.zip(key) else {
        return Ok(None);
    };
    let identity = ClientIdentity {
        certificate: text(file)?,
        key: text(key)?,
    };
    check_pair(&identity.certificate, &identity.key).map_err(|why| invalid_file(file, why))?;
    Ok(Some(identity))
}
