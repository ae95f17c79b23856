//! JSON Web Tokens and the keys that sign them.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mizzen_value::{Str, Value, json, value};
use ring::signature::{self as ring_signature, EcdsaVerificationAlgorithm, RsaParameters};
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::FromDer as _;
use x509_parser::public_key::PublicKey as Parsed;
use x509_parser::x509::SubjectPublicKeyInfo;

/// A signature algorithm.
#[derive(Debug)]
pub struct Algorithm {
    /// The name in JWTs: `RS256`.
    pub name: &'static str,
    kind: AlgorithmKind,
}

#[derive(Debug)]
enum AlgorithmKind {
    Rsa(&'static RsaParameters),
    Curve(Curve),
}

/// The supported algorithms. Kubernetes supports ES512 as well; `ring` does not.
pub static ALGORITHMS: [Algorithm; 8] = [
    Algorithm {
        name: "RS256",
        kind: AlgorithmKind::Rsa(&ring_signature::RSA_PKCS1_2048_8192_SHA256),
    },
    Algorithm {
        name: "RS384",
        kind: AlgorithmKind::Rsa(&ring_signature::RSA_PKCS1_2048_8192_SHA384),
    },
    Algorithm {
        name: "RS512",
        kind: AlgorithmKind::Rsa(&ring_signature::RSA_PKCS1_2048_8192_SHA512),
    },
    Algorithm {
        name: "PS256",
        kind: AlgorithmKind::Rsa(&ring_signature::RSA_PSS_2048_8192_SHA256),
    },
    Algorithm {
        name: "PS384",
        kind: AlgorithmKind::Rsa(&ring_signature::RSA_PSS_2048_8192_SHA384),
    },
    Algorithm {
        name: "PS512",
        kind: AlgorithmKind::Rsa(&ring_signature::RSA_PSS_2048_8192_SHA512),
    },
    Algorithm {
        name: "ES256",
        kind: AlgorithmKind::Curve(Curve::P256),
    },
    Algorithm {
        name: "ES384",
        kind: AlgorithmKind::Curve(Curve::P384),
    },
];

impl Algorithm {
    /// The algorithm of a name.
    pub fn named(name: &str) -> Option<&'static Algorithm> {
        ALGORITHMS.iter().find(|algorithm| algorithm.name == name)
    }
}

/// An elliptic curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Curve {
    P256,
    P384,
}

impl Curve {
    const ALL: [Curve; 2] = [Curve::P256, Curve::P384];

    /// The name in JSON Web Keys, the object identifier, and the algorithm.
    fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Curve::P256 => ("P-256", "1.2.840.10045.3.1.7", "ES256"),
            Curve::P384 => ("P-384", "1.3.132.0.34", "ES384"),
        }
    }

    /// The size of a coordinate.
    fn coordinate_bytes(self) -> usize {
        match self {
            Curve::P256 => 32,
            Curve::P384 => 48,
        }
    }

    /// The coordinates of an encoded point. Kubernetes: compressed points are rejected (Go's
    /// crypto/x509).
    fn coordinates(self, encoded: &[u8]) -> Option<(&[u8], &[u8])> {
        let point = encoded.strip_prefix(&[UNCOMPRESSED])?;
        let size = self.coordinate_bytes();
        (point.len() == 2 * size).then(|| point.split_at(size))
    }

    fn check(self) -> &'static EcdsaVerificationAlgorithm {
        match self {
            Curve::P256 => &ring_signature::ECDSA_P256_SHA256_FIXED,
            Curve::P384 => &ring_signature::ECDSA_P384_SHA384_FIXED,
        }
    }
}

/// The format byte of a point with both coordinates.
const UNCOMPRESSED: u8 = 4;

/// A key that verifies signatures. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    /// The key id.
    pub id: Str,
    material: Material,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Material {
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// Two coordinates, each of the curve's size.
    Point(Curve, Vec<u8>),
}

impl PublicKey {
    /// Reads a `SubjectPublicKeyInfo`. The id is a hash of it, as in Kubernetes.
    pub fn from_der(der: &[u8]) -> Option<PublicKey> {
        let (_, info) = SubjectPublicKeyInfo::from_der(der).ok()?;
        let material = match info.parsed().ok()? {
            Parsed::RSA(key) => Material::rsa(key.modulus, key.exponent),
            Parsed::EC(point) => {
                let curve = info
                    .algorithm
                    .parameters
                    .as_ref()?
                    .as_oid()
                    .ok()?
                    .to_id_string();
                let curve = Curve::ALL
                    .into_iter()
                    .find(|known| known.names().1 == curve)?;
                let (x, y) = curve.coordinates(point.data())?;
                Material::Point(curve, [x, y].concat())
            }
            _ => return None,
        };
        Some(PublicKey {
            id: URL_SAFE_NO_PAD.encode(Sha256::digest(der)).into(),
            material,
        })
    }

    /// Reads a JSON Web Key; none if it is of an unsupported type, or not for signatures.
    pub fn from_jwk(key: &Value) -> Option<PublicKey> {
        if !matches!(key["use"].str(), "" | "sig") {
            return None;
        }
        let part = |name: &str| {
            URL_SAFE_NO_PAD
                .decode(key[name].str())
                .ok()
                .filter(|bytes| !bytes.is_empty())
        };
        let material = match key["kty"].str() {
            "RSA" => Material::rsa(&part("n")?, &part("e")?),
            "EC" => {
                let curve = Curve::ALL
                    .into_iter()
                    .find(|known| known.names().0 == key["crv"].str())?;
                let coordinate =
                    |name: &str| part(name).filter(|bytes| bytes.len() == curve.coordinate_bytes());
                Material::Point(curve, [coordinate("x")?, coordinate("y")?].concat())
            }
            _ => return None,
        };
        Some(PublicKey {
            id: key["kid"].str().into(),
            material,
        })
    }

    /// The key as a JSON Web Key, without its id, use and algorithm.
    pub fn to_jwk(&self) -> Value {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        match &self.material {
            Material::Rsa { modulus, exponent } => {
                value!({ "kty": "RSA", "n": (encode(modulus)), "e": (encode(exponent)) })
            }
            Material::Point(curve, point) => {
                let (x, y) = point.split_at(curve.coordinate_bytes());
                let name = curve.names().0;
                value!({ "kty": "EC", "crv": name, "x": (encode(x)), "y": (encode(y)) })
            }
        }
    }

    /// The default algorithm of the key.
    pub fn algorithm(&self) -> &'static str {
        match &self.material {
            Material::Rsa { .. } => "RS256",
            Material::Point(curve, _) => curve.names().2,
        }
    }

    /// Verifies a signature.
    pub fn verify(&self, algorithm: &Algorithm, message: &[u8], signature: &[u8]) -> bool {
        match (&self.material, &algorithm.kind) {
            (
                Material::Rsa {
                    modulus: n,
                    exponent: e,
                },
                AlgorithmKind::Rsa(parameters),
            ) => {
                let key = ring_signature::RsaPublicKeyComponents { n, e };
                key.verify(parameters, message, signature).is_ok()
            }
            (Material::Point(curve, point), AlgorithmKind::Curve(wanted)) if curve == wanted => {
                let point = [&[UNCOMPRESSED], &point[..]].concat();
                let key = ring_signature::UnparsedPublicKey::new(curve.check(), point);
                key.verify(message, signature).is_ok()
            }
            _ => false,
        }
    }
}

impl Material {
    fn rsa(modulus: &[u8], exponent: &[u8]) -> Material {
        let plain =
            |number: &[u8]| number[number.iter().take_while(|byte| **byte == 0).count()..].to_vec();
        Material::Rsa {
            modulus: plain(modulus),
            exponent: plain(exponent),
        }
    }
}

/// A parsed token. No claim may be trusted before the signature is verified.
#[derive(Debug)]
pub struct Unverified<'a> {
    /// The JOSE header.
    pub header: Value,
    /// The claims set.
    pub claims: Value,
    /// The signed part.
    pub message: &'a str,
    /// The signature, decoded.
    pub signature: Vec<u8>,
}

impl<'a> Unverified<'a> {
    /// None if it is no JWT, or has critical headers.
    pub fn parse(token: &'a str) -> Option<Unverified<'a>> {
        let (message, signature) = token.rsplit_once('.')?;
        let (header, claims) = message
            .split_once('.')
            .filter(|parts| !parts.1.contains('.'))?;
        let read = |part: &str| json::parse(&URL_SAFE_NO_PAD.decode(part).ok()?).ok();
        let (header, claims) = (read(header)?, read(claims)?);
        let sound =
            header.as_map().is_some() && claims.as_map().is_some() && header["crit"].is_null();
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        sound.then_some(Unverified {
            header,
            claims,
            message,
            signature,
        })
    }

    /// The audiences: one string, or a list.
    pub fn audiences(&self) -> Vec<Str> {
        match &self.claims["aud"] {
            Value::String(one) => vec![one.as_str().into()],
            many => many
                .list()
                .iter()
                .map(|audience| audience.str().into())
                .collect(),
        }
    }

    /// Whether a key has signed it with the algorithm of its header.
    pub fn is_signed_by(&self, key: &PublicKey) -> bool {
        let algorithm = Algorithm::named(self.header["alg"].str());
        algorithm.is_some_and(|algorithm| {
            key.verify(algorithm, self.message.as_bytes(), &self.signature)
        })
    }
}

/// Strings as Go prints a list with `%q`.
pub(crate) fn quote_list(texts: &[Str]) -> String {
    let mut shown = String::from("[");
    for (at, text) in texts.iter().enumerate() {
        let space = if at == 0 { "" } else { " " };
        let _ = write!(shown, "{space}{}", json::quote(text));
    }
    shown + "]"
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};

    fn part(text: &str) -> String {
        URL_SAFE_NO_PAD.encode(text)
    }

    #[track_caller]
    fn check(header: &str, claims: &str, more: &str, expected: bool) {
        let token = format!("{}.{}.{more}", part(header), part(claims));
        assert_eq!(Unverified::parse(&token).is_some(), expected, "{token}");
    }

    #[test]
    fn a_token_has_three_parts_and_two_of_them_are_objects() {
        check(r#"{"alg":"RS256"}"#, r#"{"iss":"x"}"#, "", true);
        check(r#"{"alg":"RS256"}"#, r#"{"iss":"x"}"#, "x.y", false);
        check(r#"{"alg":"RS256"}"#, "[]", "", false);
        check("{", "{}", "", false);
        check(r#"{"alg":"RS256","crit":["exp"]}"#, "{}", "", false);
        assert!(Unverified::parse("abc").is_none());
        assert!(Unverified::parse("").is_none());
    }

    /// A `SubjectPublicKeyInfo` of a curve with any point.
    fn key_info(curve: &[u8], point: &[u8]) -> Vec<u8> {
        let tagged = |tag: u8, content: &[u8]| {
            let length = u8::try_from(content.len()).unwrap();
            [&[tag, length], content].concat()
        };
        let elliptic_curve = tagged(6, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1]);
        let algorithm = tagged(0x30, &[elliptic_curve, tagged(6, curve)].concat());
        let point = tagged(3, &[&[0], point].concat());
        tagged(0x30, &[algorithm, point].concat())
    }

    #[test]
    fn a_point_has_two_coordinates_of_the_curves_size() {
        let p256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
        let p384: &[u8] = &[0x2b, 0x81, 4, 0, 0x22];
        for (curve, size) in [(p256, 32), (p384, 48)] {
            for (format, length, is_read) in [
                (4, 2 * size, true),
                (4, 2 * size - 1, false),
                (4, 2 * size + 1, false),
                (4, 0, false),
                (2, size, false),
                (0, 2 * size, false),
            ] {
                let point = [vec![format], vec![1; length]].concat();
                let key = PublicKey::from_der(&key_info(curve, &point));
                assert_eq!(key.is_some(), is_read, "format {format}, {length} bytes");
                if let Some(key) = key {
                    let again = PublicKey::from_jwk(&key.to_jwk()).unwrap();
                    assert_eq!(again.material, key.material);
                }
            }
            assert_eq!(PublicKey::from_der(&key_info(curve, &[])), None);
        }
        let mut short = value!({ "kty": "EC", "crv": "P-256", "x": "AAAA" });
        short.set("y", "AAAA");
        assert_eq!(PublicKey::from_jwk(&short), None);
    }

    #[test]
    fn an_audience_claim_is_a_string_or_a_list() {
        let audiences = |claims: &str| {
            let token = format!("{}.{}.", part("{}"), part(claims));
            Unverified::parse(&token).unwrap().audiences()
        };
        assert_eq!(audiences(r#"{"aud":"a"}"#), ["a"]);
        assert_eq!(audiences(r#"{"aud":["a","b"]}"#), ["a", "b"]);
        assert!(audiences("{}").is_empty());
    }

    #[test]
    fn a_signature_is_valid_only_for_its_key_algorithm_and_message() {
        let random = SystemRandom::new();
        let document =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P384_SHA384_FIXED_SIGNING, &random).unwrap();
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P384_SHA384_FIXED_SIGNING, document.as_ref(), &random)
                .unwrap();
        let (x, y) = pair.public_key().as_ref()[1..].split_at(48);
        let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
        let jwk = value!({ "kty": "EC", "crv": "P-384", "kid": "k", "x": x, "y": y });
        let key = PublicKey::from_jwk(&jwk).unwrap();
        assert_eq!((key.id.as_str(), key.algorithm()), ("k", "ES384"));
        let signature = pair.sign(&random, b"message").unwrap();
        let verify = |name: &str, message: &[u8]| {
            key.verify(Algorithm::named(name).unwrap(), message, signature.as_ref())
        };
        assert!(verify("ES384", b"message"));
        assert!(!verify("ES384", b"massage"));
        assert!(!verify("ES256", b"message"));
        assert!(!verify("RS256", b"message"));
        assert_eq!(
            PublicKey::from_jwk(&key.to_jwk()).unwrap().material,
            key.material
        );
    }

    #[test]
    fn a_key_of_an_unknown_kind_or_for_another_use_is_none() {
        assert_eq!(
            PublicKey::from_jwk(&value!({ "kty": "oct", "k": "AAAA" })),
            None
        );
        assert_eq!(
            PublicKey::from_jwk(&value!({ "kty": "EC", "crv": "P-521", "x": "AA", "y": "AA" })),
            None
        );
        assert_eq!(
            PublicKey::from_jwk(&value!({ "kty": "RSA", "use": "enc", "n": "AQ", "e": "AQ" })),
            None
        );
        assert_eq!(
            PublicKey::from_jwk(&value!({ "kty": "RSA", "n": "?", "e": "AQ" })),
            None
        );
        assert!(Algorithm::named("none").is_none() && Algorithm::named("HS256").is_none());
    }
}
