//! The serving flags that kube-apiserver, kube-controller-manager and kube-scheduler share.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{ArgAction, Args};
use mizzen_apiserver::Http;
use mizzen_bootstrap::pki::{
    CertificateFiles, InvalidCertificate, Protocol, ServingCertificates, Signed, write_private,
};

use crate::compose::ComposeError;

/// The arguments of TLS.
#[derive(Args, Clone)]
pub(crate) struct TlsArgs {
    /// Serve with this certificate chain (PEM); it is reloaded when it changes
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// Read the key of --tls-cert-file from this file (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
    /// Serve with the certificate COMPONENT.crt and the key COMPONENT.key in this directory (apiserver,
    /// kube-controller-manager, kube-scheduler); write a generated pair there if neither exists. --tls-cert-file takes
    /// precedence
    #[arg(long, value_name = "DIR")]
    cert_dir: Option<PathBuf>,
    /// Serve clients that request these server names (SNI) with this certificate and key: CERT,KEY or CERT,KEY:NAME,…; may be
    /// repeated
    #[arg(long, value_name = "CERT,KEY[:NAME,…]", value_parser = parse_sni)]
    tls_sni_cert_key: Vec<CertificateFiles>,
    /// Require at least this version of TLS: VersionTLS12 or VersionTLS13 [default: VersionTLS12]
    #[arg(
        long,
        value_name = "VERSION",
        default_value = "",
        hide_default_value = true
    )]
    tls_min_version: String,
    /// Offer only these TLS 1.2 cipher suites, by their Go names; those of TLS 1.3 are always offered
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    tls_cipher_suites: Vec<String>,
    /// Serve HTTP/1.1 only
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = false, action = ArgAction::Set)]
    disable_http2_serving: bool,
    /// Allow this many concurrent streams per HTTP/2 connection; 0 is the default
    #[arg(long, value_name = "N", default_value_t = 0)]
    http2_max_streams_per_connection: u32,
}

impl TlsArgs {
    /// The TLS versions, cipher suites and HTTP versions.
    pub(crate) fn protocol(&self) -> Result<Protocol, ComposeError> {
        let protocol = Protocol::default()
            .at_least(&self.tls_min_version)
            .map_err(|why| argument("--tls-min-version", why))?;
        let protocol = if self.disable_http2_serving {
            protocol.without_http2()
        } else {
            protocol
        };
        protocol
            .with_ciphers(&self.tls_cipher_suites)
            .map_err(|why| argument("--tls-cipher-suites", why))
    }

    /// The serving certificates; `own` is the generated one, `pair` the name of its files in --cert-dir.
    pub(crate) fn certificates(
        &self,
        protocol: &Protocol,
        own: &Signed,
        pair: &str,
    ) -> Result<Arc<ServingCertificates>, ComposeError> {
        let default = match self
            .tls_cert_file
            .clone()
            .zip(self.tls_private_key_file.clone())
        {
            Some((certificate, key)) => Some(CertificateFiles {
                certificate,
                key,
                names: Vec::new(),
            }),
            None => self.pair_in_cert_dir(own, pair)?,
        };
        let named = self.tls_sni_cert_key.clone();
        ServingCertificates::new(protocol.provider.clone(), own, default, named)
            .map(Arc::new)
            .map_err(|InvalidCertificate { file, why }| argument(&file.display().to_string(), why))
    }

    /// The files in --cert-dir; none if `own` was written there. Kubernetes: server/options/serving.go,
    /// MaybeDefaultWithSelfSignedCerts.
    fn pair_in_cert_dir(
        &self,
        own: &Signed,
        pair: &str,
    ) -> Result<Option<CertificateFiles>, ComposeError> {
        let Some(directory) = &self.cert_dir else {
            return Ok(None);
        };
        let (certificate, key) = (
            directory.join(format!("{pair}.crt")),
            directory.join(format!("{pair}.key")),
        );
        match (certificate.exists(), key.exists()) {
            (true, true) => Ok(Some(CertificateFiles {
                certificate,
                key,
                names: Vec::new(),
            })),
            (false, false) => {
                write_private(&key, &own.key)?;
                write_private(&certificate, &own.certificate)?;
                Ok(None)
            }
            (has_certificate, _) => {
                let missing = if has_certificate { &key } else { &certificate };
                let why = "certificate and key must be supplied as a pair";
                Err(argument(&missing.display().to_string(), why.into()))
            }
        }
    }

    /// The limit of concurrent streams per HTTP/2 connection.
    pub(crate) fn max_streams(&self) -> u32 {
        match self.http2_max_streams_per_connection {
            0 => Http::default().max_streams,
            streams => streams,
        }
    }
}

/// The error for an invalid argument, or the file that it names.
pub(super) fn argument(name: &str, why: String) -> ComposeError {
    ComposeError::Configuration {
        file: name.into(),
        why,
    }
}

/// Parses `CERT,KEY` or `CERT,KEY:NAME,…`.
fn parse_sni(text: &str) -> Result<CertificateFiles, String> {
    let (pair, names) = match text.split_once(':') {
        Some((_, names)) if names.trim().is_empty() => {
            return Err("empty names list is not allowed".into());
        }
        Some((pair, names)) => (
            pair,
            names
                .split(',')
                .map(|name| name.trim().to_string())
                .collect(),
        ),
        None => (text, Vec::new()),
    };
    if let Some(address) = names
        .iter()
        .find(|name| name.parse::<std::net::IpAddr>().is_ok())
    {
        return Err(format!(
            "{address} is an IP address, which is no server name"
        ));
    }
    match pair.split(',').map(str::trim).collect::<Vec<_>>()[..] {
        [certificate, key] => Ok(CertificateFiles {
            certificate: certificate.into(),
            key: key.into(),
            names,
        }),
        _ => Err("expected comma separated certificate and key file paths".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sni_arguments_are_parsed() {
        let files = parse_sni("a.crt, a.key:*.a.example,a.example").unwrap();
        assert_eq!(
            (files.certificate, files.key),
            ("a.crt".into(), "a.key".into())
        );
        assert_eq!(files.names, ["*.a.example", "a.example"]);
        assert!(parse_sni("a.crt,a.key").unwrap().names.is_empty());
        assert!(parse_sni("a.crt").unwrap_err().contains("comma separated"));
        assert!(
            parse_sni("a.crt,a.key:")
                .unwrap_err()
                .contains("empty names list")
        );
        assert!(
            parse_sni("a.crt,a.key:10.0.0.1")
                .unwrap_err()
                .contains("is an IP address")
        );
    }
}
