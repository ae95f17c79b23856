//! The fuzzer's targets of tokens and keys, on seeded inputs.

#[path = "../../../../fuzz/src/jose.rs"]
mod jose;
#[path = "../../../../fuzz/src/seeded.rs"]
mod seeded;

#[test]
fn tokens_are_parsed_or_rejected() {
    seeded::check(jose::token, &[jose::TOKEN], 5_000);
}

#[test]
fn keys_are_parsed_or_rejected() {
    let rsa = br#"{"kty":"RSA","n":"u1SU1LfVLPHCozMxH2Mo4lgOEePzNm0tRgeLezV6ffAt0gunVTLw7onLRnrq0_IzW7yWR7QkrmBL7jTKEn5u","e":"AQAB"}"#;
    seeded::check(jose::web_key, &[jose::WEB_KEY, rsa], 3_000);
    let key = rcgen::KeyPair::generate().expect("a key");
    seeded::check(
        jose::der_key,
        &[&rcgen::PublicKeyData::subject_public_key_info(&key)],
        3_000,
    );
}
