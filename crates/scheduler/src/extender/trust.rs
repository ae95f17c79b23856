//! Which certificate must an extender have, and which one is shown to it? `tlsConfig` of a configuration.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use mizzen_transport::{Identity, SendError, Target, Trust, check_certificates, check_key};
use mizzen_value::Value;

use super::ExtenderOptions;

/// How TLS is spoken with an extender.
#[derive(Clone)]
pub(super) struct Tls {
    trust: Trust,
    /// The name that its certificate must have, if it is not the host.
    server_name: Option<String>,
    /// The certificate that is shown to it.
    pub(super) identity: Option<Identity>,
}

impl Tls {
    /// Who must answer at a URL.
    pub(super) fn target(&self, uri: &Uri) -> Result<Target, SendError> {
        let target = Target::at(uri, &self.trust)?;
        Ok(Target {
            server_name: self.server_name.clone().unwrap_or(target.server_name),
            as_front_proxy: true,
            ..target
        })
    }
}

/// Reads how TLS is spoken. An error names the field that is wrong.
pub(super) fn read(options: &ExtenderOptions) -> Result<Tls, String> {
    let tls = &options.tls;
    let authority = pem(tls, "caData", "caFile")?;
    if authority.is_some() && tls["insecure"].bool() {
        return Err("tlsConfig.insecure: must not be set together with caData or caFile".into());
    }
    // Kubernetes: `enableHTTPS` without an authority believes anyone, as `insecure` does (makeTransport in extender.go).
    // Every other https address is verified.
    let is_insecure = tls["insecure"].bool() || (options.enable_https && authority.is_none());
    if is_insecure && options.url.starts_with("https:") {
        tracing::warn!(
            extender = options.url,
            "an extender is believed without looking at its certificate"
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
    Ok(Tls {
        trust,
        server_name: Some(tls["serverName"].str().to_owned()).filter(|name| !name.is_empty()),
        identity: identity(tls)?,
    })
}

/// What a field holds.
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

/// Reads a field. Data comes before a file, whose path is relative to where the process runs.
fn pem(tls: &Value, data: &'static str, file: &'static str) -> Result<Option<Pem>, String> {
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

/// The certificate that is shown, and its key. Half of a pair is a mistake, though Kubernetes passes over it.
fn identity(tls: &Value) -> Result<Option<Identity>, String> {
    let certificate = pem(tls, "certData", "certFile")?;
    let key = pem(tls, "keyData", "keyFile")?;
    match (certificate, key) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some(Identity {
            certificate: certificate.checked(check_certificates)?,
            key: key.checked(check_key)?,
        })),
        (Some(Pem { field, .. }), None) => Err(format!("tlsConfig.{field}: its key is missing")),
        (None, Some(Pem { field, .. })) => {
            Err(format!("tlsConfig.{field}: its certificate is missing"))
        }
    }
}
