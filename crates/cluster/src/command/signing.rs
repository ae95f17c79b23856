//! Which authorities sign certificate requests: arguments of the loops alone.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use mizzen_controllers::Sign;

use crate::pki::{Authority, PkiError, Signers};

const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const LEGACY: &str = "kubernetes.io/legacy-unknown";

/// The files of authorities: one for all signers, or one for each that shall sign.
#[derive(Args)]
pub(super) struct Signing {
    /// The certificate of the authority that signs certificate requests, in PEM
    #[arg(long, value_name = "FILE", value_parser = file, requires = "cluster_signing_key_file", conflicts_with_all = [
        "cluster_signing_kubelet_serving_cert_file", "cluster_signing_kubelet_client_cert_file",
        "cluster_signing_kube_apiserver_client_cert_file", "cluster_signing_legacy_unknown_cert_file",
    ])]
    cluster_signing_cert_file: Option<PathBuf>,
    /// Its key, in PEM: RSA or an elliptic curve
    #[arg(long, value_name = "FILE", value_parser = file, requires = "cluster_signing_cert_file")]
    cluster_signing_key_file: Option<PathBuf>,
    /// The certificate of the authority for kubernetes.io/kubelet-serving alone
    #[arg(long, value_name = "FILE", value_parser = file, requires = "cluster_signing_kubelet_serving_key_file")]
    cluster_signing_kubelet_serving_cert_file: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", value_parser = file, requires = "cluster_signing_kubelet_serving_cert_file")]
    cluster_signing_kubelet_serving_key_file: Option<PathBuf>,
    /// The certificate of the authority for kubernetes.io/kube-apiserver-client-kubelet alone
    #[arg(long, value_name = "FILE", value_parser = file, requires = "cluster_signing_kubelet_client_key_file")]
    cluster_signing_kubelet_client_cert_file: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", value_parser = file, requires = "cluster_signing_kubelet_client_cert_file")]
    cluster_signing_kubelet_client_key_file: Option<PathBuf>,
    /// The certificate of the authority for kubernetes.io/kube-apiserver-client alone
    #[arg(long, value_name = "FILE", value_parser = file, requires = "cluster_signing_kube_apiserver_client_key_file")]
    cluster_signing_kube_apiserver_client_cert_file: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", value_parser = file, requires = "cluster_signing_kube_apiserver_client_cert_file")]
    cluster_signing_kube_apiserver_client_key_file: Option<PathBuf>,
    /// The certificate of the authority for kubernetes.io/legacy-unknown alone
    #[arg(long, value_name = "FILE", value_parser = file, requires = "cluster_signing_legacy_unknown_key_file")]
    cluster_signing_legacy_unknown_cert_file: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", value_parser = file, requires = "cluster_signing_legacy_unknown_cert_file")]
    cluster_signing_legacy_unknown_key_file: Option<PathBuf>,
}

impl Signing {
    /// Who signs; nobody if no file is named.
    pub(super) fn authority(&self) -> Result<Option<Arc<dyn Sign>>, PkiError> {
        let (mut signers, mut is_any) = (Signers::default(), false);
        for (names, certificate, key) in self.files() {
            let (Some(certificate), Some(key)) = (certificate, key) else {
                continue;
            };
            // Kubernetes: kubeadm names no file where the key of the authority is kept elsewhere.
            if certificate.as_os_str().is_empty() && key.as_os_str().is_empty() {
                continue;
            }
            signers.add(names, Authority::read(certificate, key)?);
            is_any = true;
        }
        Ok(is_any.then(|| Arc::new(signers) as _))
    }

    /// For which signers each pair of files is.
    fn files(&self) -> [(&'static [&'static str], &Option<PathBuf>, &Option<PathBuf>); 5] {
        [
            (
                &[KUBELET_SERVING, KUBELET_CLIENT, CLIENT, LEGACY],
                &self.cluster_signing_cert_file,
                &self.cluster_signing_key_file,
            ),
            (
                &[KUBELET_SERVING],
                &self.cluster_signing_kubelet_serving_cert_file,
                &self.cluster_signing_kubelet_serving_key_file,
            ),
            (
                &[KUBELET_CLIENT],
                &self.cluster_signing_kubelet_client_cert_file,
                &self.cluster_signing_kubelet_client_key_file,
            ),
            (
                &[CLIENT],
                &self.cluster_signing_kube_apiserver_client_cert_file,
                &self.cluster_signing_kube_apiserver_client_key_file,
            ),
            (
                &[LEGACY],
                &self.cluster_signing_legacy_unknown_cert_file,
                &self.cluster_signing_legacy_unknown_key_file,
            ),
        ]
    }
}

/// The path of a file, which may be empty.
fn file(text: &str) -> Result<PathBuf, std::convert::Infallible> {
    Ok(text.into())
}
