//! `tlsConfig` of an extender: the CA that signs its certificate, and the client certificate.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use mizzen_transport::{ClientIdentity, SendError, Target, Trust, check_certificates, check_key};
use mizzen_value::Value;

use super::ExtenderOptions;

/// How an extender is connected to.
#[derive(Clone)]
pub(super) struct ExtenderTls {
    trust: Trust,
    /// The server name to verify, if it is not the host.
    server_name: Option<String>,
    /// The client certificate.
    pub(super) identity: Option<ClientIdentity>,
}

impl ExtenderTls {
    /// The connection target of a URL.
    pub(super) fn target(&self, uri: &Uri) -> Result<Target, SendError> {
        let target = Target::at(uri, &self.trust)?;
        Ok(Target {
            server_name: self.server_name.clone().unwrap_or(target.server_name),
            as_front_proxy: true,
            ..target
        })
    }
}

/// Reads `tlsConfig`. An error names the field that is invalid.
pub(super) fn read_tls_config(options: &ExtenderOptions) -> Result<ExtenderTls, String> {
    let tls = &options.tls;
    let authority = read_pem(tls, "caData", "caFile")?;
    if authority.is_some() && tls["insecure"].bool() {
        return Err("tlsConfig.insecure: must not be set together with caData or caFile".into());
    }
    // Kubernetes: `enableHTTPS` without a CA skips verification, as `insecure` does (makeTransport
    // in extender.go). Every other https URL is verified.
    let is_insecure = tls["insecure"].bool() || (options.enable_https && authority.is_none());
    if is_insecure && options.url.starts_with("https:") {
        tracing::warn!(
            extender = options.url,
            "the certificate of an extender is not verified"
        );
    }
    let trust = match authority {
        Some(authority) => {
            authority.checked(check_certificates)?;
            Trust::Bundle(authority.bytes)
        }
        None if is_insecure => Trust::Anyone,
        None => Trust::System,
    };
    Ok(ExtenderTls {
        trust,
        server_name: Some(tls["serverName"].str().to_owned()).filter(|name| !name.is_empty()),
        identity: read_identity(tls)?,
    })
}

/// The content of a field.
struct Pem {
    field: &'static str,
    bytes: Vec<u8>,
}

impl Pem {
    /// The text, if it passes a check.
    fn checked(&self, check: fn(&[u8]) -> Result<(), String>) -> Result<String, String> {
        check(&self.bytes).map_err(|error| format!("tlsConfig.{}: {error}", self.field))?;
        Ok(String::from_utf8_lossy(&self.bytes).into_owned())
    }
}

/// Reads a field. Inline data takes precedence over a file, whose path is relative to the working
/// directory.
fn read_pem(tls: &Value, data: &'static str, file: &'static str) -> Result<Option<Pem>, String> {
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

/// The client certificate and key. One without the other is an error, though Kubernetes ignores it.
fn read_identity(tls: &Value) -> Result<Option<ClientIdentity>, String> {
    let certificate = read_pem(tls, "certData", "certFile")?;
    let key = read_pem(tls, "keyData", "keyFile")?;
    match (certificate, key) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some(ClientIdentity {
            certificate: certificate.checked(check_certificates)?,
            key: key.checked(check_key)?,
        })),
        (Some(Pem { field, .. }), None) => Err(format!("tlsConfig.{field}: its key is missing")),
        (None, Some(Pem { field, .. })) => {
            Err(format!("tlsConfig.{field}: its certificate is missing"))
        }
    }
}
