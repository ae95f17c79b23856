//! Ciphers decrypt what upstream wrote and what they wrote themselves, and detect changes.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use mizzen_apiserver::clock::SystemRandom;

use super::*;

fn random() -> Arc<dyn Random> {
    Arc::new(SystemRandom)
}

fn cipher(method: Method, key: &[u8]) -> Box<dyn Cipher> {
    method.with_key(key, &random()).unwrap()
}

fn encrypted(cipher: &dyn Cipher, plain: &[u8]) -> Vec<u8> {
    let mut encrypted = Vec::new();
    cipher
        .encrypt(plain, b"/registry/here", &mut encrypted)
        .unwrap();
    encrypted
}

fn all() -> Vec<(&'static str, Box<dyn Cipher>)> {
    let mut all: Vec<(&str, Box<dyn Cipher>)> = Vec::new();
    for (name, method) in Method::ALL {
        all.extend(
            method
                .key_lengths()
                .iter()
                .map(|n| (name, cipher(method, &vec![7; *n]))),
        );
    }
    all.push((
        "derived",
        Box::new(Derived::from_seed(&[7; SEED], &random()).unwrap()),
    ));
    all
}

#[test]
fn records_of_upstream_are_decrypted() {
    let mut n_decrypted = 0;
    for line in include_str!("upstream.vectors")
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        let [method, name, key, path, value] =
            line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let (_, method) = Method::ALL
            .into_iter()
            .find(|(known, _)| *known == method)
            .unwrap();
        let value = BASE64_STANDARD.decode(value).unwrap();
        let prefix = format!("{}{name}:", method.prefix());
        let encrypted = value
            .strip_prefix(prefix.as_bytes())
            .expect("it has the prefix");
        let cipher = cipher(method, &BASE64_STANDARD.decode(key).unwrap());
        let plain = cipher.decrypt(encrypted, path.as_bytes()).unwrap();
        let object = mizzen_value::json::parse(plain.trim_ascii_end()).unwrap();
        assert_eq!(object["metadata"]["name"].str(), "test", "{name}");
        n_decrypted += 1;
    }
    assert_eq!(n_decrypted, 5);
}

#[test]
fn plain_text_of_every_length_is_decrypted() {
    for (name, cipher) in all() {
        for length in 0..70 {
            let plain: Vec<u8> = (0..length).collect();
            let encrypted = encrypted(&*cipher, &plain);
            assert_eq!(
                cipher.decrypt(&encrypted, b"/registry/here").unwrap(),
                plain,
                "{name}, {length} bytes"
            );
        }
    }
}

#[test]
fn equal_plain_texts_have_different_ciphertexts() {
    for (name, cipher) in all() {
        assert_ne!(
            encrypted(&*cipher, b"plain"),
            encrypted(&*cipher, b"plain"),
            "{name}"
        );
    }
}

#[test]
fn another_path_is_rejected_by_ciphers_that_authenticate_it() {
    for (name, cipher) in all() {
        let decrypted = cipher.decrypt(&encrypted(&*cipher, b"plain"), b"/registry/elsewhere");
        assert_eq!(
            decrypted.is_err(),
            ["aesgcm", "derived"].contains(&name),
            "{name}"
        );
    }
}

#[test]
fn a_changed_byte_is_detected() {
    for (name, cipher) in all().into_iter().filter(|(name, _)| *name != "aescbc") {
        let encrypted = encrypted(&*cipher, b"plain");
        for at in 0..encrypted.len() {
            let mut changed = encrypted.clone();
            changed[at] ^= 1;
            assert!(
                cipher.decrypt(&changed, b"/registry/here").is_err(),
                "{name} at {at}"
            );
        }
    }
}

#[test]
fn truncated_records_are_rejected() {
    for (name, cipher) in all() {
        let encrypted = encrypted(&*cipher, b"plain");
        for length in 0..encrypted.len() {
            assert!(
                cipher
                    .decrypt(&encrypted[..length], b"/registry/here")
                    .is_err(),
                "{name}, {length} bytes"
            );
        }
    }
}

#[test]
fn keys_of_other_lengths_are_rejected() {
    for (_, method) in Method::ALL {
        for length in 0..40 {
            let made = method.with_key(&vec![1; length], &random()).is_some();
            assert_eq!(
                made,
                method.key_lengths().contains(&length),
                "{method:?}, {length} bytes"
            );
        }
    }
    assert!(Derived::from_seed(&[1; SEED - 1], &random()).is_none());
}
