//! The authorities that sign certificate signing requests.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use mizzen_bootstrap::pki::{Authority, PkiError, Signers};
use mizzen_controllers::CertificateSigner;

const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const LEGACY: &str = "kubernetes.io/legacy-unknown";

/// The files of authorities: one for all signers, or one per signer.
#[derive(Args)]
pub(super) struct Signing {
    /// Sign certificate signing requests with this authority (certificate, PEM)
    #[arg(long, value_name = "FILE", value_parser = file, requires = "cluster_signing_key_file", conflicts_with_all = [
        "cluster_signing_kubelet_serving_cert_file", "cluster_signing_kubelet_client_cert_file",
        "cluster_signing_kube_apiserver_client_cert_file", "cluster_signing_legacy_unknown_cert_file",
    ])]
    cluster_signing_cert_file: Option<PathBuf>,
    /// Read the key of --cluster-signing-cert-file from this file (PEM; RSA or elliptic curve)
    #[arg(long, value_name = "FILE", value_parser = file, requires = "cluster_signing_cert_file")]
    cluster_signing_key_file: Option<PathBuf>,
    /// Sign only for kubernetes.io/kubelet-serving with this authority (certificate, PEM)
    #[arg(long, value_name = "FILE", value_parser = file, requires = "cluster_signing_kubelet_serving_key_file")]
    cluster_signing_kubelet_serving_cert_file: Option<PathBuf>,
    /// Read the key of --cluster-signing-kubelet-serving-cert-file from this file (PEM)
    #[arg(long, value_name = "FILE", value_parser = file, requires = "cluster_signing_kubelet_serving_cert_file")]
    cluster_signing_kubelet_serving_key_file: Option<PathBuf>,
    /// Sign only for kubernetes.io/kube-apiserver-client-kubelet with this authority (certificate, PEM)
    #[arg(long, value_name = "FILE", value_parser = file, requires = "cluster_signing_kubelet_client_key_file")]
    cluster_signing_kubelet_client_cert_file: Option<PathBuf>,
    /// Read the key of --cluster-signing-kubelet-client-cert-file from this file (PEM)
    #[arg(long, value_name = "FILE", value_parser = file, requires = "cluster_signing_kubelet_client_cert_file")]
    cluster_signing_kubelet_client_key_file: Option<PathBuf>,
    /// Sign only for kubernetes.io/kube-apiserver-client with this authority (certificate, PEM)
    #[arg(long, value_name = "FILE", value_parser = file, requires = "cluster_signing_kube_apiserver_client_key_file")]
    cluster_signing_kube_apiserver_client_cert_file: Option<PathBuf>,
    /// Read the key of --cluster-signing-kube-apiserver-client-cert-file from this file (PEM)
    #[arg(long, value_name = "FILE", value_parser = file, requires = "cluster_signing_kube_apiserver_client_cert_file")]
    cluster_signing_kube_apiserver_client_key_file: Option<PathBuf>,
    /// Sign only for kubernetes.io/legacy-unknown with this authority (certificate, PEM)
    #[arg(long, value_name = "FILE", value_parser = file, requires = "cluster_signing_legacy_unknown_key_file")]
    cluster_signing_legacy_unknown_cert_file: Option<PathBuf>,
    /// Read the key of --cluster-signing-legacy-unknown-cert-file from this file (PEM)
    #[arg(long, value_name = "FILE", value_parser = file, requires = "cluster_signing_legacy_unknown_cert_file")]
    cluster_signing_legacy_unknown_key_file: Option<PathBuf>,
}

impl Signing {
    /// The signers; none if no file is named.
    pub(super) fn authority(&self) -> Result<Option<Arc<dyn CertificateSigner>>, PkiError> {
        let (mut signers, mut is_any) = (Signers::default(), false);
        for (names, certificate, key) in self.files() {
            let (Some(certificate), Some(key)) = (certificate, key) else {
                continue;
            };
            // Kubernetes: kubeadm passes empty names if it does not have the key of the authority.
            if certificate.as_os_str().is_empty() && key.as_os_str().is_empty() {
                continue;
            }
            signers.add(names, Authority::read(certificate, key)?);
            is_any = true;
        }
        Ok(is_any.then(|| Arc::new(signers) as _))
    }

    /// The signers of each pair of files.
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

/// Parses a path, which may be empty.
fn file(text: &str) -> Result<PathBuf, std::convert::Infallible> {
    Ok(text.into())
}
