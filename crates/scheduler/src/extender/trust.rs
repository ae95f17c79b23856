//! Whom do we believe when we call an extender, and what do we show it? `tlsConfig` of a configuration.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Config;
use kube::config::AuthInfo;
use mizzen_object::Value;
use serde_json::json;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::ExtenderOptions;

/// Sets up TLS as an extender's options want it. An error names the field that is wrong.
pub(super) fn set_up(config: &mut Config, options: &ExtenderOptions) -> Result<(), String> {
    let tls = &options.tls;
    let speaks_tls = config.cluster_url.scheme_str() == Some("https");
    let authority = read(tls, "caData", "caFile")?;
    if authority.is_some() && tls["insecure"].bool() {
        return Err("tlsConfig.insecure: must not be set together with caData or caFile".into());
    }
    // Kubernetes: `enableHTTPS` without an authority believes anyone, as `insecure` does (makeTransport in extender.go).
    // Every other https address is verified.
    config.accept_invalid_certs =
        tls["insecure"].bool() || (options.enable_https && authority.is_none());
    if config.accept_invalid_certs && speaks_tls {
        tracing::warn!(
            extender = options.url,
            "an extender is believed without looking at its certificate"
        );
    }
    config.root_cert = Some(match authority {
        Some(authority) => authorities(&authority)?,
        None if config.accept_invalid_certs || !speaks_tls => Vec::new(),
        None => system(),
    });
    config.tls_server_name = Some(tls["serverName"].str())
        .filter(|name| !name.is_empty())
        .map(String::from);
    config.auth_info = identity(tls)?;
    Ok(())
}

/// What a field holds.
struct Pem {
    field: &'static str,
    bytes: Vec<u8>,
}

impl Pem {
    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        let field = self.field;
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        let certificates = certificates.map_err(|error| format!("tlsConfig.{field}: {error}"))?;
        match certificates.as_slice() {
            [] => Err(format!("tlsConfig.{field}: there is no certificate in it")),
            _ => Ok(certificates),
        }
    }
}

/// Reads a field. Data comes before a file, whose path is relative to where the process runs.
fn read(tls: &Value, data: &'static str, file: &'static str) -> Result<Option<Pem>, String> {
    Ok(Some(match (tls[data].str(), tls[file].str()) {
        ("", "") => return Ok(None),
        ("", path) => {
            let bytes = std::fs::read(path);
            let bytes =
                bytes.map_err(|error| format!("tlsConfig.{file}: cannot read {path}: {error}"))?;
            Pem { field: file, bytes }
        }
        (text, _) => {
            let bytes = STANDARD.decode(text.replace(['\r', '\n'], ""));
            let bytes = bytes.map_err(|error| format!("tlsConfig.{data}: not base64: {error}"))?;
            Pem { field: data, bytes }
        }
    }))
}

/// Who may have signed the extender's certificate.
fn authorities(pem: &Pem) -> Result<Vec<Vec<u8>>, String> {
    let mut roots = RootCertStore::empty();
    let certificates = pem.certificates()?;
    for certificate in &certificates {
        roots
            .add(certificate.clone())
            .map_err(|error| format!("tlsConfig.{}: {error}", pem.field))?;
    }
    Ok(certificates
        .into_iter()
        .map(|certificate| certificate.to_vec())
        .collect())
}

/// Whom this machine trusts.
fn system() -> Vec<Vec<u8>> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        tracing::warn!(errors = ?found.errors, "this machine trusts no certificate authority");
    }
    let is_usable =
        |certificate: &CertificateDer| RootCertStore::empty().add(certificate.clone()).is_ok();
    let certificates = found
        .certs
        .into_iter()
        .filter(|certificate| is_usable(certificate));
    certificates
        .map(|certificate| certificate.to_vec())
        .collect()
}

/// The certificate that we show, and its key. Half of a pair is a mistake, though Kubernetes passes over it.
fn identity(tls: &Value) -> Result<AuthInfo, String> {
    let certificate = read(tls, "certData", "certFile")?;
    let key = read(tls, "keyData", "keyFile")?;
    let (certificate, key) = match (certificate, key) {
        (None, None) => return Ok(AuthInfo::default()),
        (Some(certificate), Some(key)) => (certificate, key),
        (Some(certificate), None) => {
            return Err(format!(
                "tlsConfig.{}: its key is missing",
                certificate.field
            ));
        }
        (None, Some(key)) => {
            return Err(format!(
                "tlsConfig.{}: its certificate is missing",
                key.field
            ));
        }
    };
    certificate.certificates()?;
    let field = key.field;
    PrivateKeyDer::from_pem_slice(&key.bytes)
        .map_err(|error| format!("tlsConfig.{field}: {error}"))?;
    let encoded = json!({
        "client-certificate-data": STANDARD.encode(&certificate.bytes),
        "client-key-data": STANDARD.encode(&key.bytes),
    });
    serde_json::from_value(encoded).map_err(|error| format!("tlsConfig.{field}: {error}"))
}
