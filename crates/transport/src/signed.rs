//! Has one certificate signed another, and might it? In the words of Go's `crypto/x509`.
//!
//! ring has no curve but P-256, P-384 and Curve25519, and no PSS for keys of less than 2048 bits, so that an authority
//! with a key of P-521 vouches for nothing here. The error differs from that of a wrong signature.

use ring::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use x509_parser::prelude::{SubjectPublicKeyInfo, X509Certificate, X509Version};

const CANNOT_SIGN: &str =
    "x509: invalid signature: parent certificate cannot sign this kind of certificate";
const UNSUPPORTED: &str = "x509: cannot verify signature: algorithm unimplemented";

/// What a key is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyType {
    Rsa,
    Ecdsa,
    Ed25519,
}

/// Algorithms of which one must fit.
type Algorithms = &'static [&'static dyn VerificationAlgorithm];

/// Checks that the key of `parent` has signed `child`. Go: `CheckSignatureFrom`.
pub(super) fn check_signature_from(
    child: &X509Certificate,
    parent: &X509Certificate,
) -> Result<(), String> {
    let basic = parent.basic_constraints().ok().flatten();
    let is_authority = match &basic {
        Some(basic) => basic.value.ca,
        // One of version 1 cannot say that it is none.
        None => parent.version() != X509Version::V3,
    };
    let usage = parent.key_usage().ok().flatten();
    let may_sign = usage.is_none_or(|usage| usage.value.flags == 0 || usage.value.key_cert_sign());
    if !is_authority || !may_sign {
        return Err(CANNOT_SIGN.into());
    }
    let key = parent.public_key();
    let key_type = key_type(key).ok_or(UNSUPPORTED)?;
    let (signed_with, algorithms) = algorithms(child, key)?;
    if signed_with != key_type {
        return Err(format!(
            "x509: signature algorithm specifies an {} public key, but have public key of type {}",
            signed_with.name(),
            key_type.go_type()
        ));
    }
    if algorithms.is_empty() {
        return Err(UNSUPPORTED.into());
    }
    let (message, signature) = (child.tbs_certificate.as_ref(), &child.signature_value.data);
    let is_signed = algorithms.iter().any(|algorithm| {
        UnparsedPublicKey::new(*algorithm, &key.subject_public_key.data)
            .verify(message, signature)
            .is_ok()
    });
    match is_signed {
        true => Ok(()),
        false => Err(key_type.failure().into()),
    }
}

impl KeyType {
    fn name(self) -> &'static str {
        match self {
            KeyType::Rsa => "RSA",
            KeyType::Ecdsa => "ECDSA",
            KeyType::Ed25519 => "Ed25519",
        }
    }

    fn go_type(self) -> &'static str {
        match self {
            KeyType::Rsa => "*rsa.PublicKey",
            KeyType::Ecdsa => "*ecdsa.PublicKey",
            KeyType::Ed25519 => "ed25519.PublicKey",
        }
    }

    fn failure(self) -> &'static str {
        match self {
            KeyType::Rsa => "crypto/rsa: verification error",
            KeyType::Ecdsa => "x509: ECDSA verification failure",
            KeyType::Ed25519 => "x509: Ed25519 verification failure",
        }
    }
}

fn key_type(key: &SubjectPublicKeyInfo) -> Option<KeyType> {
    match key.algorithm.algorithm.to_id_string().as_str() {
        "1.2.840.113549.1.1.1" => Some(KeyType::Rsa),
        "1.2.840.10045.2.1" => Some(KeyType::Ecdsa),
        "1.3.101.112" => Some(KeyType::Ed25519),
        _ => None,
    }
}

static RSA_SHA256: Algorithms = &[&signature::RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY];
static RSA_SHA384: Algorithms = &[&signature::RSA_PKCS1_2048_8192_SHA384];
static RSA_SHA512: Algorithms = &[&signature::RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY];
static RSA_PSS: Algorithms = &[
    &signature::RSA_PSS_2048_8192_SHA256,
    &signature::RSA_PSS_2048_8192_SHA384,
    &signature::RSA_PSS_2048_8192_SHA512,
];
static P256_SHA256: Algorithms = &[&signature::ECDSA_P256_SHA256_ASN1];
static P256_SHA384: Algorithms = &[&signature::ECDSA_P256_SHA384_ASN1];
static P384_SHA256: Algorithms = &[&signature::ECDSA_P384_SHA256_ASN1];
static P384_SHA384: Algorithms = &[&signature::ECDSA_P384_SHA384_ASN1];
static NONE: Algorithms = &[];
static ED25519: Algorithms = &[&signature::ED25519];

/// The kind of key that a certificate says it is signed with, and what verifies such a signature with `key`.
fn algorithms(
    child: &X509Certificate,
    key: &SubjectPublicKeyInfo,
) -> Result<(KeyType, Algorithms), String> {
    let insecure = |name: &str| format!("x509: cannot verify signature: insecure algorithm {name}");
    match child.signature_algorithm.algorithm.to_id_string().as_str() {
        "1.2.840.113549.1.1.4" => Err(insecure("MD5-RSA")),
        "1.2.840.113549.1.1.5" => Err(insecure("SHA1-RSA")),
        "1.2.840.113549.1.1.10" => Ok((KeyType::Rsa, RSA_PSS)),
        "1.2.840.113549.1.1.11" => Ok((KeyType::Rsa, RSA_SHA256)),
        "1.2.840.113549.1.1.12" => Ok((KeyType::Rsa, RSA_SHA384)),
        "1.2.840.113549.1.1.13" => Ok((KeyType::Rsa, RSA_SHA512)),
        "1.2.840.10045.4.1" => Err(insecure("ECDSA-SHA1")),
        "1.2.840.10045.4.3.2" => Ok((KeyType::Ecdsa, on_curve(key, P256_SHA256, P384_SHA256))),
        "1.2.840.10045.4.3.3" => Ok((KeyType::Ecdsa, on_curve(key, P256_SHA384, P384_SHA384))),
        "1.2.840.10045.4.3.4" => Ok((KeyType::Ecdsa, NONE)),
        "1.3.101.112" => Ok((KeyType::Ed25519, ED25519)),
        _ => Err(UNSUPPORTED.into()),
    }
}

/// What is for the curve of a key, none if it is neither P-256 nor P-384.
fn on_curve(key: &SubjectPublicKeyInfo, p256: Algorithms, p384: Algorithms) -> Algorithms {
    let parameters = key.algorithm.parameters.as_ref();
    let curve = parameters.and_then(|parameters| parameters.as_oid().ok());
    match curve.map(|curve| curve.to_id_string()).as_deref() {
        Some("1.2.840.10045.3.1.7") => p256,
        Some("1.3.132.0.34") => p384,
        _ => NONE,
    }
}

#[cfg(test)]
mod tests {
    use tokio_rustls::rustls::pki_types::CertificateDer;
    use tokio_rustls::rustls::pki_types::pem::PemObject as _;
    use x509_parser::prelude::FromDer as _;

    use super::*;

    fn check(child: &str, parent: &str) -> Result<(), String> {
        let [child, parent] = [child, parent]
            .map(|pem| CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate"));
        let (_, child) = X509Certificate::from_der(&child).expect("sound DER");
        let (_, parent) = X509Certificate::from_der(&parent).expect("sound DER");
        check_signature_from(&child, &parent)
    }

    #[test]
    fn an_authority_with_a_short_rsa_key_signs_and_one_of_p_521_cannot_be_verified() {
        assert_eq!(check(SHORT_RSA_LEAF, SHORT_RSA_AUTHORITY), Ok(()));
        assert_eq!(check(P521_LEAF, P521_AUTHORITY), Err(UNSUPPORTED.into()));
        let swapped = check(P521_LEAF, SHORT_RSA_AUTHORITY).unwrap_err();
        assert_eq!(
            swapped,
            "x509: signature algorithm specifies an ECDSA public key, but have public key of type *rsa.PublicKey"
        );
        let changed = check(SHORT_RSA_AUTHORITY, SHORT_RSA_LEAF);
        assert_eq!(changed, Err(CANNOT_SIGN.into()));
    }

    const SHORT_RSA_AUTHORITY: &str = "\
-----BEGIN CERTIFICATE-----
MIIBqzCCARSgAwIBAgIBATANBgkqhkiG9w0BAQsFADAQMQ4wDAYDVQQDDAVzaG9y
dDAgFw0yMDAxMDEwMDAwMDBaGA8yMTIwMDEwMTAwMDAwMFowEDEOMAwGA1UEAwwF
c2hvcnQwgZ8wDQYJKoZIhvcNAQEBBQADgY0AMIGJAoGBAMTaTMv6aP+2tJy1O2lz
KMlTb5AuiHaaALmVKh1bpQaPfpcshxTyzTvxrPg8v/zyMjjKlNAQ1LLtq2yaROB/
qJpAMzQubsz75lm2RO8xQNTCsRR8YL6OvXZNXk3HdTJ+G9fQZxzl/yNROt6CDY5c
yQzrAVsl9ofmsmBvw3d3265DAgMBAAGjEzARMA8GA1UdEwEB/wQFMAMBAf8wDQYJ
KoZIhvcNAQELBQADgYEAZ76gN/oL/v5704Y1uEhD79td95PgLE0/ekzrCzkp62La
PNnOp+7jkiKDtqWbLI+V/APyNLvINazjlPMgOduzl4QrEf4JMoZzbbeB6fNJIn4T
SJ0zisv2PJ81NO7z8Eo9dCro6UsIWiW+bauGdKWqg0GrUmwQyizvw5rUoEcRdtA=
-----END CERTIFICATE-----
";

    const SHORT_RSA_LEAF: &str = "\
-----BEGIN CERTIFICATE-----
MIIBcDCB2qADAgECAgECMA0GCSqGSIb3DQEBCwUAMBAxDjAMBgNVBAMMBXNob3J0
MCAXDTIwMDEwMTAwMDAwMFoYDzIxMjAwMTAxMDAwMDAwWjAPMQ0wCwYDVQQDDARs
ZWFmMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEnUIYNNG4c0YmfMdcw4R3gh3l
KMEgNRSJtuSIIR/qXOa2foJiNMoMocD+ACkkdoPUS4a2C4JzWVuojyEMDWS74aMh
MB8wDAYDVR0TAQH/BAIwADAPBgNVHREECDAGhwR/AAABMA0GCSqGSIb3DQEBCwUA
A4GBAKkX7/PjZgnc10YcrFHcvb+K1kqtk8r1wpyuF7EqyZ2n0HDvJs58PJftyhIi
7e7oB8seC4/OjwcXouYMyna1QNr5YpNQFkInP80J4+r1XQ6RfavOm6umR73yDOW8
/snh2BVjdFBC3ho01p3roGzGRTmiO0/dkyqLaHFQQcG5gWKr
-----END CERTIFICATE-----
";

    const P521_AUTHORITY: &str = "\
-----BEGIN CERTIFICATE-----
MIIBqjCCAQugAwIBAgIBATAKBggqhkjOPQQDBDAPMQ0wCwYDVQQDDARwNTIxMCAX
DTIwMDEwMTAwMDAwMFoYDzIxMjAwMTAxMDAwMDAwWjAPMQ0wCwYDVQQDDARwNTIx
MIGbMBAGByqGSM49AgEGBSuBBAAjA4GGAAQBlx8VAKxRXl+z+moBAiHhL4rfhTaP
Q3CkuffMQq6lTvu9zvH9+hChjS4thLtKMDVDDi+rPpICH042YW3h/cuWXI8AWh+4
dExrTU3hstcJXjG+EXMonmUF3kuFVLj6fuWBHnucfXmXsl0Ic/57isRmFh9lRaSU
fBtjfm9ue1loCvUiuLSjEzARMA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwQD
gYwAMIGIAkIBS+/k6KPi6vlYIJFdYkCo8LxXNGGBf+OYigad+pwS3F1uxfAz4GND
42dTnoIOpgYaVktpKa8dZZIPucG9kketejQCQgFyRSp4ZpEISgpBaimkgyAGL8Rj
tbgVKxAHD7WAmwm7Fe8u68Y3VqUElkbrOpdrWHWy5EfwDcyZYliGMq+ZnjMBJQ==
-----END CERTIFICATE-----
";

    const P521_LEAF: &str = "\
-----BEGIN CERTIFICATE-----
MIIBdDCB1qADAgECAgECMAoGCCqGSM49BAMEMA8xDTALBgNVBAMMBHA1MjEwIBcN
MjAwMTAxMDAwMDAwWhgPMjEyMDAxMDEwMDAwMDBaMA8xDTALBgNVBAMMBGxlYWYw
WTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAASdQhg00bhzRiZ8x1zDhHeCHeUowSA1
FIm25IghH+pc5rZ+gmI0ygyhwP4AKSR2g9RLhrYLgnNZW6iPIQwNZLvhoyEwHzAM
BgNVHRMBAf8EAjAAMA8GA1UdEQQIMAaHBH8AAAEwCgYIKoZIzj0EAwQDgYwAMIGI
AkIB+pTlSfBFrV4C0m/HXioLkqQ7Q4OUU61U2aGTnXqZF2xm/9qL9Cu1Erf4t0iO
O/jP6rGdm112wXdDegNT36f4VxUCQgFzAufiFD4/Z+E6+DDB3IbkbZfhZCM5baas
fW1fQ710JSSkFFEAGxc/bm3oMUxVYGrwr90+6NVSfAdQ8b+R7GLGoQ==
-----END CERTIFICATE-----
";
}
