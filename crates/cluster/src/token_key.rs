//! The key that signs service accounts' tokens. It is kept in the data directory, so tokens outlive a restart.

use std::fmt;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mizzen_apiserver::Signer;
use mizzen_object::{Value, value};
use rcgen::KeyPair;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};

use crate::pki::{PkiError, pem_to_der, read, write_private};

/// What stands before the point in a P-256 public key in DER.
const PUBLIC_KEY: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// An elliptic-curve key for tokens.
pub struct TokenKey {
    pair: EcdsaKeyPair,
    id: String,
    random: SystemRandom,
}

impl TokenKey {
    /// A new key that nobody keeps.
    pub fn in_memory() -> Result<TokenKey, PkiError> {
        let pem = KeyPair::generate()?.serialize_pem();
        load(&pem).map_err(|_| PkiError::Sign(rcgen::Error::CouldNotParseKeyPair))
    }

    /// The key of a data directory, made if there is none.
    pub fn open(directory: &Path) -> Result<TokenKey, PkiError> {
        let file = directory.join("sa.key");
        if !file.exists() {
            write_private(&file, &KeyPair::generate()?.serialize_pem())?;
        }
        TokenKey::read(&file)
    }

    /// The key in a file.
    pub fn read(file: &Path) -> Result<TokenKey, PkiError> {
        load(&read(file)?).map_err(|detail| PkiError::Corrupt { path: file.into(), detail })
    }
}

fn load(pem: &str) -> Result<TokenKey, String> {
    let random = SystemRandom::new();
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &pem_to_der(pem), &random)
        .map_err(|error| error.to_string())?;
    let public = [&PUBLIC_KEY, pair.public_key().as_ref()].concat();
    let id = URL_SAFE_NO_PAD.encode(digest(&SHA256, &public));
    Ok(TokenKey { pair, id, random })
}

impl Signer for TokenKey {
    fn algorithm(&self) -> &str {
        "ES256"
    }

    fn key_id(&self) -> &str {
        &self.id
    }

    /// The point is a byte that says how it is written, then its two coordinates.
    fn public_key(&self) -> Value {
        let (x, y) = self.pair.public_key().as_ref()[1..].split_at(32);
        let encode = |coordinate: &[u8]| URL_SAFE_NO_PAD.encode(coordinate);
        value!({ "kty": "EC", "crv": "P-256", "x": (encode(x)), "y": (encode(y)) })
    }

    fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        Some(self.pair.sign(&self.random, message).ok()?.as_ref().to_vec())
    }

    fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.pair.public_key());
        public.verify(message, signature).is_ok()
    }
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "TokenKey({})", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_kept_private_and_knows_its_own_signatures() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let first = TokenKey::open(directory.path()).unwrap();
        let second = TokenKey::open(directory.path()).unwrap();
        assert_eq!(first.key_id(), second.key_id());
        let signature = first.sign(b"message").unwrap();
        assert!(second.verify(b"message", &signature));
        assert!(!second.verify(b"massage", &signature));
        assert!(!TokenKey::in_memory().unwrap().verify(b"message", &signature));
        let mode = std::fs::metadata(directory.path().join("sa.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
