//! Which versions of TLS are spoken, and in which ciphers? They have Go's names, as upstream's flags have them.
//!
//! Kubernetes: the ciphers of TLS 1.3 can be named but not chosen; they are all on (crypto/tls).

use std::sync::Arc;

use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{CipherSuite, ProtocolVersion, SupportedProtocolVersion};

/// Ciphers that are spoken.
const OFFERED: [(&str, CipherSuite); 11] = [
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

/// Ciphers that upstream knows and we do not speak.
const REFUSED: [&str; 16] = [
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

/// How TLS is spoken.
#[derive(Clone)]
pub(crate) struct Protocol {
    /// The versions.
    pub versions: Vec<&'static SupportedProtocolVersion>,
    /// The ciphers, and all else that is computed.
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
    /// Speaks HTTP/1.1 only.
    pub(crate) fn without_http2(self) -> Protocol {
        Protocol {
            alpn: vec![b"http/1.1".to_vec()],
            ..self
        }
    }

    /// Speaks no version that is older than the one with this name; empty is the default.
    pub(crate) fn at_least(self, version: &str) -> Result<Protocol, String> {
        let versions: Vec<&'static SupportedProtocolVersion> = match version {
            "" | "VersionTLS12" => vec![&TLS13, &TLS12],
            "VersionTLS13" => vec![&TLS13],
            "VersionTLS10" | "VersionTLS11" => {
                return Err(format!(
                    "{version} is broken and not spoken; choose VersionTLS12 or VersionTLS13"
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

    /// Speaks these ciphers only; an empty list is the default.
    pub(crate) fn in_ciphers(self, names: &[String]) -> Result<Protocol, String> {
        if names.is_empty() {
            return Ok(self);
        }
        let chosen = names
            .iter()
            .map(|name| cipher(name))
            .collect::<Result<Vec<_>, _>>()?;
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

fn cipher(name: &str) -> Result<CipherSuite, String> {
    if let Some((_, suite)) = OFFERED.iter().find(|(offered, _)| *offered == name) {
        return Ok(*suite);
    }
    let choice = OFFERED.map(|(name, _)| name).join(", ");
    Err(match REFUSED.contains(&name) {
        true => format!(
            "cipher suite {name} is not spoken: RC4, 3DES, CBC and key exchange by RSA are weak; choose from {choice}"
        ),
        false => {
            format!("Cipher suite {name} not supported or doesn't exist; choose from {choice}")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_ciphers(names: &[&str]) -> Result<Vec<CipherSuite>, String> {
        let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        let protocol = Protocol::default().in_ciphers(&names)?;
        Ok(protocol
            .provider
            .cipher_suites
            .iter()
            .map(|suite| suite.suite())
            .collect())
    }

    #[test]
    fn every_offered_cipher_is_one_that_the_library_has_and_none_is_left_out() {
        let all = in_ciphers(&[]).unwrap();
        assert!(OFFERED.iter().all(|(_, suite)| all.contains(suite)));
        assert!(
            all.iter()
                .all(|suite| OFFERED.iter().any(|(_, offered)| offered == suite))
        );
    }

    #[test]
    fn a_choice_holds_for_the_older_version_only() {
        let chosen = in_ciphers(&["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]).unwrap();
        assert_eq!(chosen.len(), 4);
        assert!(chosen.contains(&CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256));
        assert!(!chosen.contains(&CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384));
    }

    #[test]
    fn weak_and_unknown_names_are_refused_with_what_there_is() {
        for name in REFUSED {
            let why = in_ciphers(&[name]).unwrap_err();
            assert!(
                why.contains("is not spoken") && why.contains("TLS_AES_128_GCM_SHA256"),
                "{why}"
            );
        }
        assert!(
            in_ciphers(&["TLS_NONSENSE"])
                .unwrap_err()
                .contains("not supported or doesn't exist")
        );
    }

    #[test]
    fn only_sound_versions_are_spoken() {
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
        assert!(versions("VersionTLS11").unwrap_err().contains("broken"));
        assert!(
            versions("TLS13")
                .unwrap_err()
                .contains("unknown tls version \"TLS13\"")
        );
    }
}
