//! Untrusted tokens and keys: no panic, and only signed tokens verify.

#![allow(
    unreachable_pub,
    reason = "tests include this file as a module of their own"
)]

use std::sync::LazyLock;

use mizzen_authentication::jose::{ALGORITHMS, PublicKey, Unverified};
use mizzen_value::json;

/// A compact JWS: a header, claims and a signature.
pub fn token(bytes: &[u8]) {
    let Some(token) = std::str::from_utf8(bytes).ok().and_then(Unverified::parse) else {
        return;
    };
    token.audiences();
    assert!(!token.is_signed_by(&KEY));
}

/// A JSON Web Key round-trips.
pub fn web_key(bytes: &[u8]) {
    let Some(key) = json::parse(bytes)
        .ok()
        .as_ref()
        .and_then(PublicKey::from_jwk)
    else {
        return;
    };
    for algorithm in &ALGORITHMS {
        assert!(!key.verify(algorithm, b"message", &[0; 64]));
    }
    let written = key.to_jwk();
    let again = PublicKey::from_jwk(&written).map(|key| key.to_jwk());
    assert_eq!(again.as_ref(), Some(&written));
}

/// A public key as DER.
pub fn der_key(bytes: &[u8]) {
    if let Some(key) = PublicKey::from_der(bytes) {
        key.to_jwk();
    }
}

/// A valid token.
pub const TOKEN: &[u8] = b"eyJhbGciOiJFUzI1NiIsImtpZCI6ImEifQ.eyJpc3MiOiJodHRwczovL2EiLCJhdWQiOlsiYiIsImMiXSwic3ViIjoiZCIsImV4cCI6MTgwMDAwMDAwMH0.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// A point of P-256 (RFC 7515, A.3).
pub const WEB_KEY: &[u8] = br#"{"kty":"EC","crv":"P-256","kid":"a","use":"sig","alg":"ES256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}"#;

static KEY: LazyLock<PublicKey> = LazyLock::new(|| {
    PublicKey::from_jwk(&json::parse(WEB_KEY).expect("sound JSON")).expect("a sound key")
});
