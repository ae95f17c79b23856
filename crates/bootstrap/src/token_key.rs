//! The keys of service account tokens: the signing key, and the public keys that verify tokens.
//!
//! The signing key is in the data directory, so that tokens stay valid after a restart, unless an argument names a file.

use std::fmt;
use std::path::Path;

use mizzen_authentication::TokenSigner;
use mizzen_authentication::jose::{Algorithm, PublicKey};
use mizzen_value::Value;
use rcgen::KeyPair;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::pki_types::pem::{PemObject as _, SectionKind};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::pki::der::{BIT_STRING, NULL, OBJECT_IDENTIFIER, SEQUENCE, wrap};
use crate::pki::key::{ON_CURVE, RSA, pkcs8};
use crate::pki::{PkiError, make_private, read_key, require, write_private};

/// The supported curves, and their object identifiers in DER.
const CURVES: [(&EcdsaSigningAlgorithm, &[u8]); 2] = [
    (
        &ECDSA_P256_SHA256_FIXED_SIGNING,
        &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07],
    ),
    (
        &ECDSA_P384_SHA384_FIXED_SIGNING,
        &[0x2b, 0x81, 0x04, 0x00, 0x22],
    ),
];

/// A key that signs tokens.
pub struct TokenKey {
    pair: SigningKeyPair,
    public: PublicKey,
    random: SystemRandom,
}

enum SigningKeyPair {
    Curve(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

impl TokenKey {
    /// A new key that is not stored.
    pub fn in_memory() -> Result<TokenKey, PkiError> {
        let pem = KeyPair::generate()?.serialize_pem();
        load(&pem).map_err(|_| PkiError::Sign(rcgen::Error::CouldNotParseKeyPair))
    }

    /// The key of a data directory, generated if it is missing.
    pub fn open(directory: &Path) -> Result<TokenKey, PkiError> {
        let file = directory.join("sa.key");
        if !file.exists() {
            write_private(&file, &KeyPair::generate()?.serialize_pem())?;
        }
        make_private(&file)?;
        TokenKey::read(&file)
    }

    /// The key of a data directory that has data, and so must have a key.
    pub fn open_existing(directory: &Path) -> Result<TokenKey, PkiError> {
        let file = directory.join("sa.key");
        let remedy = format!(
            "name the key with --service-account-signing-key-file, or give up all issued tokens and make a new one: \
             openssl ecparam -name prime256v1 -genkey -noout -out {}",
            file.display()
        );
        require(&file, remedy)?;
        TokenKey::open(directory)
    }

    /// The key in a file.
    pub fn read(file: &Path) -> Result<TokenKey, PkiError> {
        load(&read_key(file)?).map_err(|detail| PkiError::Corrupt {
            path: file.into(),
            detail,
        })
    }
}

/// The public keys of all public keys, private keys and certificates in a file.
pub fn public_keys(pem: &str) -> Result<Vec<PublicKey>, String> {
    let sections = <(SectionKind, Vec<u8>)>::pem_slice_iter(pem.as_bytes());
    let keys: Vec<PublicKey> = sections
        .filter_map(Result::ok)
        .filter_map(|(kind, der)| public_key(kind, der))
        .collect();
    match keys.is_empty() {
        true => Err("data does not contain any valid RSA or ECDSA public keys".into()),
        false => Ok(keys),
    }
}

fn public_key(kind: SectionKind, der: Vec<u8>) -> Option<PublicKey> {
    match kind {
        SectionKind::PublicKey => PublicKey::from_der(&der),
        SectionKind::Certificate => {
            let (_, certificate) = X509Certificate::from_der(&der).ok()?;
            PublicKey::from_der(certificate.public_key().raw)
        }
        SectionKind::RsaPrivateKey => public_half(&PrivateKeyDer::Pkcs1(der.into())),
        SectionKind::EcPrivateKey => public_half(&PrivateKeyDer::Sec1(der.into())),
        SectionKind::PrivateKey => public_half(&PrivateKeyDer::Pkcs8(der.into())),
        _ => None,
    }
}

fn public_half(key: &PrivateKeyDer) -> Option<PublicKey> {
    key_pair(key).map(|(_, public)| public).ok()
}

fn load(pem: &str) -> Result<TokenKey, String> {
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|error| error.to_string())?;
    let (pair, public) = key_pair(&key)?;
    Ok(TokenKey {
        pair,
        public,
        random: SystemRandom::new(),
    })
}

/// A private key with its public half.
fn key_pair(key: &PrivateKeyDer) -> Result<(SigningKeyPair, PublicKey), String> {
    let der = pkcs8(key)?;
    let (pair, public) = match RsaKeyPair::from_pkcs8(&der) {
        Ok(pair) => {
            let public = subject_public_key_info(RSA, &wrap(NULL, &[]), pair.public_key().as_ref());
            (SigningKeyPair::Rsa(pair), public)
        }
        Err(_) => CURVES
            .iter()
            .find_map(|(algorithm, name)| {
                let pair = EcdsaKeyPair::from_pkcs8(algorithm, &der, &SystemRandom::new()).ok()?;
                let curve = wrap(OBJECT_IDENTIFIER, &[*name]);
                let public = subject_public_key_info(ON_CURVE, &curve, pair.public_key().as_ref());
                Some((SigningKeyPair::Curve(pair), public))
            })
            .ok_or(
                "it is neither an RSA key of 2048 bits or more nor on the curve P-256 or P-384",
            )?,
    };
    let public = PublicKey::from_der(&public).ok_or("its public half cannot be read")?;
    Ok((pair, public))
}

/// A public key with its algorithm (`SubjectPublicKeyInfo`), as DER.
fn subject_public_key_info(kind: &[u8], parameters: &[u8], key: &[u8]) -> Vec<u8> {
    let kind = wrap(SEQUENCE, &[&wrap(OBJECT_IDENTIFIER, &[kind]), parameters]);
    wrap(SEQUENCE, &[&kind, &wrap(BIT_STRING, &[&[0], key])])
}

impl TokenSigner for TokenKey {
    fn algorithm(&self) -> &str {
        self.public.algorithm()
    }

    fn key_id(&self) -> &str {
        &self.public.id
    }

    fn public_key(&self) -> Value {
        self.public.to_jwk()
    }

    fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        match &self.pair {
            SigningKeyPair::Curve(pair) => {
                Some(pair.sign(&self.random, message).ok()?.as_ref().to_vec())
            }
            SigningKeyPair::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &self.random, message, &mut signature)
                    .ok()?;
                Some(signature)
            }
        }
    }

    fn verify(&self, algorithm: &str, message: &[u8], signature: &[u8]) -> bool {
        let algorithm = Algorithm::named(algorithm);
        algorithm.is_some_and(|algorithm| self.public.verify(algorithm, message, signature))
    }
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "TokenKey({})", self.public.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_private_and_verifies_its_own_signatures() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let first = TokenKey::open(directory.path()).unwrap();
        let second = TokenKey::open(directory.path()).unwrap();
        assert_eq!(first.key_id(), second.key_id());
        let signature = first.sign(b"message").unwrap();
        assert!(second.verify("ES256", b"message", &signature));
        assert!(!second.verify("ES256", b"massage", &signature));
        assert!(
            !TokenKey::in_memory()
                .unwrap()
                .verify("ES256", b"message", &signature)
        );
        let mode = std::fs::metadata(directory.path().join("sa.key"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_key_that_is_missing_beside_data_is_not_generated() {
        let directory = tempfile::tempdir().unwrap();
        let error = TokenKey::open_existing(directory.path())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("sa.key is missing") && error.contains("restore it"),
            "{error}"
        );
        assert!(!directory.path().join("sa.key").exists());
        let first = TokenKey::open(directory.path()).unwrap();
        assert_eq!(
            TokenKey::open_existing(directory.path()).unwrap().key_id(),
            first.key_id()
        );
    }

    /// Checks each encoding of a key, its signature algorithm, and its ID as OpenSSL computes it.
    #[track_caller]
    fn check(forms: &[&str], public: &str, algorithm: &str) {
        let known = public_keys(public).unwrap();
        assert_eq!(known.len(), 1);
        for form in forms {
            let key = load(form).unwrap();
            assert_eq!(
                (key.algorithm(), key.key_id()),
                (algorithm, known[0].id.as_str())
            );
            let signature = key.sign(b"message").unwrap();
            assert!(key.verify(algorithm, b"message", &signature));
            assert!(!key.verify(algorithm, b"massage", &signature));
            for other in [
                "none", "HS256", "RS256", "RS384", "PS256", "ES256", "ES384", "ES512", "",
            ] {
                assert_eq!(
                    key.verify(other, b"message", &signature),
                    other == algorithm,
                    "{other}"
                );
            }
            let algorithm = Algorithm::named(algorithm).unwrap();
            assert!(known[0].verify(algorithm, b"message", &signature));
            assert_eq!(public_keys(form).unwrap(), known);
        }
    }

    #[test]
    fn a_key_may_be_in_any_of_three_encodings() {
        check(
            &[
                include_str!("../tests/keys/rsa.pkcs1.pem"),
                include_str!("../tests/keys/rsa.pkcs8.pem"),
            ],
            include_str!("../tests/keys/rsa.pub.pem"),
            "RS256",
        );
        check(
            &[
                include_str!("../tests/keys/p256.sec1.pem"),
                include_str!("../tests/keys/p256.pkcs8.pem"),
            ],
            include_str!("../tests/keys/p256.pub.pem"),
            "ES256",
        );
        check(
            &[
                include_str!("../tests/keys/p384.sec1.pem"),
                include_str!("../tests/keys/p384.pkcs8.pem"),
            ],
            include_str!("../tests/keys/p384.pub.pem"),
            "ES384",
        );
    }

    #[test]
    fn a_file_has_one_or_more_keys() {
        let both = [
            include_str!("../tests/keys/rsa.pub.pem"),
            include_str!("../tests/keys/p256.sec1.pem"),
        ]
        .concat();
        assert_eq!(public_keys(&both).unwrap().len(), 2);
        let refused = "data does not contain any valid RSA or ECDSA public keys";
        assert_eq!(public_keys("nonsense"), Err(refused.into()));
        assert!(load(include_str!("../tests/keys/rsa.pub.pem")).is_err());
    }
}
