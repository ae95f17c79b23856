//! A private key, whichever of the three usual forms it is written in: PKCS #8, or what is older and for one kind of key
//! alone, PKCS #1 (RSA) and SEC 1 (elliptic curves). What signs takes PKCS #8 only, so the others are wrapped.

use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use super::der::{INTEGER, NULL, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE, contents, split, wrap};

/// What DER calls an RSA key.
pub(crate) const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
/// What DER calls a key on a curve.
pub(crate) const ON_CURVE: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
/// Before the curve in a key that is on one.
const CURVE: u8 = 0xa0;

/// The first private key of a PEM text, as PKCS #8 in DER; or why there is none.
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
                curve(key).ok_or("the key does not say its curve")?,
                key,
            ))
        }
        _ => Err("unknown form of key".into()),
    }
}

fn wrapped(kind: &[u8], parameters: &[u8], key: &[u8]) -> Vec<u8> {
    let kind = wrap(SEQUENCE, &[&wrap(OBJECT_IDENTIFIER, &[kind]), parameters]);
    wrap(
        SEQUENCE,
        &[&wrap(INTEGER, &[&[0]]), &kind, &wrap(OCTET_STRING, &[key])],
    )
}

/// The curve of an elliptic key: after its version and its number.
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
    fn every_form_of_a_key_is_the_same_key() {
        assert_eq!(public(RSA_OLD), public(RSA_NEW));
        assert_eq!(public(ELLIPTIC_OLD), public(ELLIPTIC_NEW));
        assert_ne!(public(RSA_OLD), public(ELLIPTIC_OLD));
    }

    #[test]
    fn what_stands_before_the_key_is_passed_over() {
        let parameters =
            "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n";
        assert_eq!(
            public(&format!("{parameters}{ELLIPTIC_OLD}")),
            public(ELLIPTIC_NEW)
        );
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let certificate = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
        let cut_off = "-----BEGIN EC PRIVATE KEY-----\nMAA=\n-----END EC PRIVATE KEY-----\n";
        for text in ["", "nonsense", certificate, cut_off] {
            assert!(to_pkcs8(text).is_err(), "{text}");
        }
    }
}
