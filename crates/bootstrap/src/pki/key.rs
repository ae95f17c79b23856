//! Private keys in PKCS #8, PKCS #1 (RSA) and SEC 1 (elliptic curves). Signing needs PKCS #8, so the older formats are
//! wrapped.

use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use super::der::{INTEGER, NULL, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE, contents, split, wrap};

/// The object identifier of RSA keys.
pub(crate) const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
/// The object identifier of elliptic curve keys.
pub(crate) const ON_CURVE: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
/// The tag of the curve in a SEC 1 key.
const CURVE: u8 = 0xa0;

/// The first private key of a PEM text, as PKCS #8 in DER.
pub(crate) fn to_pkcs8(pem: &str) -> Result<Vec<u8>, String> {
    pkcs8(&PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|error| error.to_string())?)
}

/// A private key as PKCS #8 in DER.
pub(crate) fn pkcs8(key: &PrivateKeyDer) -> Result<Vec<u8>, String> {
    match key {
        PrivateKeyDer::Pkcs8(key) => Ok(key.secret_pkcs8_der().to_vec()),
        PrivateKeyDer::Pkcs1(key) => Ok(wrapped(RSA, &wrap(NULL, &[]), key.secret_pkcs1_der())),
        PrivateKeyDer::Sec1(key) => {
            let key = key.secret_sec1_der();
            Ok(wrapped(
                ON_CURVE,
                curve(key).ok_or("the key has no curve")?,
                key,
            ))
        }
        _ => Err("unknown format of key".into()),
    }
}

/// Wraps a key as PKCS #8.
fn wrapped(kind: &[u8], parameters: &[u8], key: &[u8]) -> Vec<u8> {
    let kind = wrap(SEQUENCE, &[&wrap(OBJECT_IDENTIFIER, &[kind]), parameters]);
    wrap(
        SEQUENCE,
        &[&wrap(INTEGER, &[&[0]]), &kind, &wrap(OCTET_STRING, &[key])],
    )
}

/// The curve of a SEC 1 key, after its version and its private number.
fn curve(key: &[u8]) -> Option<&[u8]> {
    let mut rest = contents(key).ok()?;
    while !rest.is_empty() {
        let (element, after) = split(rest).ok()?;
        if element.first() == Some(&CURVE) {
            return contents(element).ok();
        }
        rest = after;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::KeyPair;

    const RSA_OLD: &str = include_str!("../../tests/keys/rsa.pkcs1.pem");
    const RSA_NEW: &str = include_str!("../../tests/keys/rsa.pkcs8.pem");
    const ELLIPTIC_OLD: &str = include_str!("../../tests/keys/p256.sec1.pem");
    const ELLIPTIC_NEW: &str = include_str!("../../tests/keys/p256.pkcs8.pem");

    /// The public key of the first private key in a text.
    fn public(pem: &str) -> Vec<u8> {
        let der = to_pkcs8(pem).unwrap();
        rcgen::PublicKeyData::subject_public_key_info(&KeyPair::try_from(der.as_slice()).unwrap())
    }

    #[test]
    fn every_format_of_a_key_is_the_same_key() {
        assert_eq!(public(RSA_OLD), public(RSA_NEW));
        assert_eq!(public(ELLIPTIC_OLD), public(ELLIPTIC_NEW));
        assert_ne!(public(RSA_OLD), public(ELLIPTIC_OLD));
    }

    #[test]
    fn sections_before_the_key_are_skipped() {
        let parameters =
            "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n";
        assert_eq!(
            public(&format!("{parameters}{ELLIPTIC_OLD}")),
            public(ELLIPTIC_NEW)
        );
    }

    #[test]
    fn malformed_keys_are_rejected() {
        let certificate = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
        let cut_off = "-----BEGIN EC PRIVATE KEY-----\nMAA=\n-----END EC PRIVATE KEY-----\n";
        for text in ["", "nonsense", certificate, cut_off] {
            assert!(to_pkcs8(text).is_err(), "{text}");
        }
    }
}
