//! TLS versions and cipher suites, by their Go names.
//!
//! Kubernetes: the cipher suites of TLS 1.3 can be named but are always on (crypto/tls).

use std::sync::Arc;

use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{CipherSuite, ProtocolVersion, SupportedProtocolVersion};

/// Supported cipher suites.
const SUPPORTED: [(&str, CipherSuite); 11] = [
    (
        "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_128_GCM_SHA256,
    ),
    (
        "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_AES_256_GCM_SHA384,
    ),
    (
        "TLS_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
];

/// Insecure cipher suites that upstream supports.
const INSECURE: [&str; 16] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

/// TLS versions, cipher suites and HTTP versions.
#[derive(Clone)]
pub struct Protocol {
    /// The versions.
    pub versions: Vec<&'static SupportedProtocolVersion>,
    /// The cipher suites and other cryptography.
    pub provider: Arc<CryptoProvider>,
    /// The versions of HTTP that are offered, the preferred one first.
    pub alpn: Vec<Vec<u8>>,
}

impl Default for Protocol {
    fn default() -> Protocol {
        let alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Protocol {
            versions: vec![&TLS13, &TLS12],
            provider: Arc::new(ring::default_provider()),
            alpn,
        }
    }
}

impl Protocol {
    /// Only HTTP/1.1.
    pub fn without_http2(self) -> Protocol {
        Protocol {
            alpn: vec![b"http/1.1".to_vec()],
            ..self
        }
    }

    /// Requires at least this version; empty is the default.
    pub fn at_least(self, version: &str) -> Result<Protocol, String> {
        let versions: Vec<&'static SupportedProtocolVersion> = match version {
            "" | "VersionTLS12" => vec![&TLS13, &TLS12],
            "VersionTLS13" => vec![&TLS13],
            "VersionTLS10" | "VersionTLS11" => {
                return Err(format!(
                    "{version} is insecure and not supported; choose VersionTLS12 or VersionTLS13"
                ));
            }
            _ => {
                return Err(format!(
                    "unknown tls version {version:?}; choose VersionTLS12 or VersionTLS13"
                ));
            }
        };
        Ok(Protocol { versions, ..self })
    }

    /// Offers only these cipher suites; an empty list is the default.
    pub fn with_ciphers(self, names: &[String]) -> Result<Protocol, String> {
        if names.is_empty() {
            return Ok(self);
        }
        let suite = |name: &String| {
            let known = SUPPORTED.iter().find(|(supported, _)| supported == name);
            if let Some((_, suite)) = known {
                return Ok(*suite);
            }
            let choice = SUPPORTED.map(|(name, _)| name).join(", ");
            Err(match INSECURE.contains(&name.as_str()) {
                true => format!(
                    "cipher suite {name} is not supported: RC4, 3DES, CBC and key exchange by RSA are insecure; choose from {choice}"
                ),
                false => {
                    format!(
                        "Cipher suite {name} not supported or doesn't exist; choose from {choice}"
                    )
                }
            })
        };
        let chosen = names
            .iter()
            .map(suite)
            .collect::<Result<Vec<_>, String>>()?;
        let mut provider = (*self.provider).clone();
        provider.cipher_suites.retain(|suite| {
            suite.version().version == ProtocolVersion::TLSv1_3 || chosen.contains(&suite.suite())
        });
        Ok(Protocol {
            provider: Arc::new(provider),
            ..self
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_ciphers(names: &[&str]) -> Result<Vec<CipherSuite>, String> {
        let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        let protocol = Protocol::default().with_ciphers(&names)?;
        Ok(protocol
            .provider
            .cipher_suites
            .iter()
            .map(|suite| suite.suite())
            .collect())
    }

    #[test]
    fn every_cipher_suite_of_rustls_is_supported() {
        let all = with_ciphers(&[]).unwrap();
        assert!(SUPPORTED.iter().all(|(_, suite)| all.contains(suite)));
        assert!(
            all.iter()
                .all(|suite| SUPPORTED.iter().any(|(_, offered)| offered == suite))
        );
    }

    #[test]
    fn cipher_suites_restrict_only_tls_1_2() {
        let chosen = with_ciphers(&["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]).unwrap();
        assert_eq!(chosen.len(), 4);
        assert!(chosen.contains(&CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256));
        assert!(!chosen.contains(&CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384));
    }

    #[test]
    fn insecure_and_unknown_names_are_rejected_with_the_supported_ones() {
        for name in INSECURE {
            let why = with_ciphers(&[name]).unwrap_err();
            assert!(
                why.contains("is not supported") && why.contains("TLS_AES_128_GCM_SHA256"),
                "{why}"
            );
        }
        assert!(
            with_ciphers(&["TLS_NONSENSE"])
                .unwrap_err()
                .contains("not supported or doesn't exist")
        );
    }

    #[test]
    fn only_secure_versions_are_supported() {
        let versions = |name: &str| {
            Protocol::default()
                .at_least(name)
                .map(|protocol| protocol.versions.len())
        };
        assert_eq!(
            (
                versions(""),
                versions("VersionTLS12"),
                versions("VersionTLS13")
            ),
            (Ok(2), Ok(2), Ok(1))
        );
        assert!(versions("VersionTLS11").unwrap_err().contains("insecure"));
        assert!(
            versions("TLS13")
                .unwrap_err()
                .contains("unknown tls version \"TLS13\"")
        );
    }
}
