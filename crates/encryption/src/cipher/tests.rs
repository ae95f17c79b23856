//! What upstream wrote opens, what we write opens, and nothing else does.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use mizzen_apiserver::seams::SystemRandom;

use super::*;

fn random() -> Arc<dyn Random> {
    Arc::new(SystemRandom)
}

fn cipher(method: Method, key: &[u8]) -> Box<dyn Cipher> {
    method.with_key(key, &random()).unwrap()
}

fn seal(cipher: &dyn Cipher, plain: &[u8]) -> Vec<u8> {
    let mut sealed = Vec::new();
    cipher.seal(plain, b"/registry/here", &mut sealed).unwrap();
    sealed
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
fn what_upstream_wrote_opens() {
    let mut n_opened = 0;
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
        let sealed = value
            .strip_prefix(prefix.as_bytes())
            .expect("it has our prefix");
        let cipher = cipher(method, &BASE64_STANDARD.decode(key).unwrap());
        let plain = cipher.open(sealed, path.as_bytes()).unwrap();
        let object = mizzen_value::json::parse(plain.trim_ascii_end()).unwrap();
        assert_eq!(object["metadata"]["name"].str(), "test", "{name}");
        n_opened += 1;
    }
    assert_eq!(n_opened, 5);
}

#[test]
fn texts_of_every_length_come_back() {
    for (name, cipher) in all() {
        for length in 0..70 {
            let plain: Vec<u8> = (0..length).collect();
            let sealed = seal(&*cipher, &plain);
            assert_eq!(
                cipher.open(&sealed, b"/registry/here").unwrap(),
                plain,
                "{name}, {length} bytes"
            );
        }
    }
}

#[test]
fn the_same_text_never_looks_the_same() {
    for (name, cipher) in all() {
        assert_ne!(seal(&*cipher, b"plain"), seal(&*cipher, b"plain"), "{name}");
    }
}

#[test]
fn another_place_is_refused_by_those_that_know_places() {
    for (name, cipher) in all() {
        let opened = cipher.open(&seal(&*cipher, b"plain"), b"/registry/elsewhere");
        assert_eq!(
            opened.is_err(),
            ["aesgcm", "derived"].contains(&name),
            "{name}"
        );
    }
}

#[test]
fn a_changed_byte_is_noticed() {
    for (name, cipher) in all().into_iter().filter(|(name, _)| *name != "aescbc") {
        let sealed = seal(&*cipher, b"plain");
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(
                cipher.open(&changed, b"/registry/here").is_err(),
                "{name} at {at}"
            );
        }
    }
}

#[test]
fn what_is_too_short_is_refused() {
    for (name, cipher) in all() {
        let sealed = seal(&*cipher, b"plain");
        for length in 0..sealed.len() {
            assert!(
                cipher.open(&sealed[..length], b"/registry/here").is_err(),
                "{name}, {length} bytes"
            );
        }
    }
}

#[test]
fn keys_have_their_lengths() {
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
