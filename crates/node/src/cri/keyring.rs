//! The credentials of registries, from the Secrets of `imagePullSecrets`. Kubernetes:
//! pkg/credentialprovider.
//!
//! Invariant: pure.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use mizzen_value::{Value, json};
use ring::digest::{SHA256, digest};

use super::pull_records::PullSecret;
use crate::pod::references::Contents;

/// The types of Secrets with credentials, with their keys.
const DOCKER_CONFIG_JSON: (&str, &str) = ("kubernetes.io/dockerconfigjson", ".dockerconfigjson");
const DOCKER_CONFIG: (&str, &str) = ("kubernetes.io/dockercfg", ".dockercfg");
/// The key of the default registry.
const DEFAULT_REGISTRY: &str = "index.docker.io";
/// Base64 as Docker writes it, with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The credentials of one account.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Credentials {
    pub username: String,
    pub password: String,
    /// The Secret that has them.
    pub source: PullSecret,
}

impl fmt::Debug for Credentials {
    /// Without the password.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Credentials")
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}

/// Credentials by registry and path.
#[derive(Debug, Default)]
pub(super) struct Keyring(BTreeMap<String, Vec<Credentials>>);

impl Keyring {
    /// The credentials of the Secrets of a namespace. Those of other types are ignored.
    pub(super) fn from_secrets(
        namespace: &str,
        secrets: &[Arc<Contents>],
    ) -> Result<Keyring, String> {
        let mut keyring = Keyring::default();
        for secret in secrets {
            let text = |key: &str| secret.data.get(key).filter(|text| !text.is_empty());
            let parse = |text: &str| json::parse(text.as_bytes()).map_err(|it| it.to_string());
            let source = PullSecret {
                namespace: namespace.into(),
                name: secret.name.as_str().into(),
                uid: secret.uid.as_str().into(),
                credential_hash: String::new(),
            };
            if secret.kind == DOCKER_CONFIG_JSON.0
                && let Some(text) = text(DOCKER_CONFIG_JSON.1)
            {
                keyring.add(&parse(text)?["auths"], &source)?;
            } else if secret.kind == DOCKER_CONFIG.0
                && let Some(text) = text(DOCKER_CONFIG.1)
            {
                keyring.add(&parse(text)?, &source)?;
            }
        }
        Ok(keyring)
    }

    fn add(&mut self, registries: &Value, source: &PullSecret) -> Result<(), String> {
        for (location, entry) in registries.entries() {
            let (username, password) = match entry["auth"].str() {
                "" => (
                    entry["username"].str().to_owned(),
                    entry["password"].str().to_owned(),
                ),
                auth => decode(auth)?,
            };
            let source = PullSecret {
                credential_hash: hash(&username, &password, entry["email"].str()),
                ..source.clone()
            };
            self.0.entry(key(location)).or_default().push(Credentials {
                username,
                password,
                source,
            });
        }
        Ok(())
    }

    /// The credentials for a repository, those of the most specific key first.
    pub(super) fn lookup(&self, repository: &str) -> Vec<Credentials> {
        let matching = self
            .0
            .iter()
            .rev()
            .filter(|(key, _)| matches(key, repository));
        let found: Vec<Credentials> = matching.flat_map(|(_, all)| all.clone()).collect();
        match found.is_empty() && repository.starts_with("docker.io/") {
            true => self.0.get(DEFAULT_REGISTRY).cloned().unwrap_or_default(),
            false => found,
        }
    }
}

/// Kubernetes: the hash of an account is that of its JSON (pkg/credentialprovider/keyring.go,
/// `hashAuthConfig`).
fn hash(username: &str, password: &str, email: &str) -> String {
    let mut account = Value::object();
    for (field, text) in [
        ("username", username),
        ("password", password),
        ("email", email),
    ] {
        if !text.is_empty() {
            account.set(field, text);
        }
    }
    let hash = digest(&SHA256, json::to_string(&account).as_bytes());
    let hex = hash.as_ref().iter().map(|byte| format!("{byte:02x}"));
    hex.collect()
}

/// `auth`: user and password in base64.
fn decode(auth: &str) -> Result<(String, String), String> {
    let decoded = BASE64
        .decode(auth.trim())
        .map_err(|error| error.to_string())?;
    let decoded = String::from_utf8_lossy(&decoded);
    let (username, password) = decoded
        .split_once(':')
        .ok_or("unable to parse auth field, must be formatted as base64(username:password)")?;
    Ok((username.into(), password.into()))
}

/// Host and path of a location. The paths of Docker's API are those of the host alone.
fn key(location: &str) -> String {
    let rest = location
        .strip_prefix("https://")
        .or_else(|| location.strip_prefix("http://"))
        .unwrap_or(location);
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let at = rest.find('/').unwrap_or(rest.len());
    let (host, path) = rest.split_at(at);
    let path = match path
        .strip_prefix("/v1/")
        .or_else(|| path.strip_prefix("/v2/"))
    {
        Some(path) => format!("/{path}"),
        None => path.to_owned(),
    };
    match path.as_str() {
        "/" => host.to_owned(),
        path => format!("{host}{path}"),
    }
}

/// Whether a key is that of a repository: the same port, a host that matches label by label, and
/// the start of the path.
fn matches(key: &str, repository: &str) -> bool {
    fn parts(text: &str) -> (&str, &str, &str) {
        let (address, path) = text.split_at(text.find('/').unwrap_or(text.len()));
        let colon = address
            .rfind(':')
            .filter(|at| !address[*at..].contains(']'));
        match colon {
            Some(at) => (&address[..at], &address[at + 1..], path),
            None => (address, "", path),
        }
    }
    let ((globs, glob_port, prefix), (host, port, path)) = (parts(key), parts(repository));
    let (globs, labels): (Vec<&str>, Vec<&str>) =
        (globs.split('.').collect(), host.split('.').collect());
    glob_port == port
        && globs.len() == labels.len()
        && path.starts_with(prefix)
        && globs
            .iter()
            .zip(labels)
            .all(|(glob, label)| matches_glob(glob.as_bytes(), label.as_bytes()))
}

/// `*` is any text, `?` one letter, `[a-z]` and `[^a-z]` a set of letters, `\` quotes a letter.
fn matches_glob(glob: &[u8], text: &[u8]) -> bool {
    match (glob.first(), text.first()) {
        (None, None) => true,
        (Some(b'*'), _) => {
            matches_glob(&glob[1..], text) || !text.is_empty() && matches_glob(glob, &text[1..])
        }
        (Some(b'?'), Some(_)) => matches_glob(&glob[1..], &text[1..]),
        (Some(b'['), Some(letter)) => {
            let Some(end) = glob.iter().skip(2).position(|byte| *byte == b']') else {
                return false;
            };
            let (set, rest) = (&glob[1..end + 2], &glob[end + 3..]);
            let (is_negated, set) = match set.strip_prefix(b"^") {
                Some(set) => (true, set),
                None => (false, set),
            };
            is_in_set(set, *letter) != is_negated && matches_glob(rest, &text[1..])
        }
        (Some(b'\\'), Some(letter)) => {
            glob.get(1) == Some(letter) && matches_glob(&glob[2..], &text[1..])
        }
        (Some(one), Some(letter)) => one == letter && matches_glob(&glob[1..], &text[1..]),
        _ => false,
    }
}

fn is_in_set(set: &[u8], letter: u8) -> bool {
    match set {
        [low, b'-', high, rest @ ..] => (*low..=*high).contains(&letter) || is_in_set(rest, letter),
        [one, rest @ ..] => *one == letter || is_in_set(rest, letter),
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret((kind, key): (&str, &str), text: &str) -> Arc<Contents> {
        Arc::new(Contents {
            name: "s".into(),
            uid: "u1".into(),
            kind: kind.into(),
            data: [(key.into(), text.into())].into(),
            ..Contents::default()
        })
    }

    /// The users for a repository, from one Secret of registries and users.
    fn users(registries: &[(&str, &str)], repository: &str) -> Vec<String> {
        let entry = |(registry, user): &(&str, &str)| {
            format!(r#""{registry}":{{"username":"{user}","password":"p"}}"#)
        };
        let entries: Vec<String> = registries.iter().map(entry).collect();
        let text = format!(r#"{{"auths":{{{}}}}}"#, entries.join(","));
        let secrets = [secret(DOCKER_CONFIG_JSON, &text)];
        let keyring = Keyring::from_secrets("ns", &secrets).unwrap();
        let found = keyring.lookup(repository).into_iter();
        found.map(|credentials| credentials.username).collect()
    }

    #[test]
    fn credentials_are_found_by_host_path_and_wildcard() {
        let hub = [("https://index.docker.io/v1/", "hub")];
        for (registries, repository, expected) in [
            (&[("a.example", "a")][..], "a.example/app", &["a"][..]),
            (&[("a.example", "a")], "b.example/app", &[]),
            (&[("a.example:5000", "a")], "a.example/app", &[]),
            (
                &[("http://127.0.0.1:5000/v2/", "a")],
                "127.0.0.1:5000/x/y",
                &["a"],
            ),
            (
                &[("a.example", "all"), ("a.example/team", "team")],
                "a.example/team/app",
                &["team", "all"],
            ),
            (&[("a.example/team", "team")], "a.example/other/app", &[]),
            (
                &[("*.example", "any"), ("a.example", "a")],
                "a.example/app",
                &["a", "any"],
            ),
            (&[("*.example", "any")], "a.b.example/app", &[]),
            (&[("r[0-9]-*.example", "set")], "r1-x.example/app", &["set"]),
            (&[("r[^0-9].example", "set")], "r1.example/app", &[]),
            (&hub, "docker.io/library/busybox", &["hub"]),
            (&hub, "a.example/app", &[]),
        ] {
            assert_eq!(
                users(registries, repository),
                expected,
                "{registries:?} {repository}"
            );
        }
    }

    #[test]
    fn both_types_of_secrets_are_read_and_others_are_ignored() {
        let auth = r#"{"a.example":{"auth":"dTpwOnc="}}"#;
        let unpadded = r#"{"auths":{"a.example":{"auth":"dTpwOnc"}}}"#;
        let secrets = [
            secret(DOCKER_CONFIG, auth),
            secret(DOCKER_CONFIG_JSON, unpadded),
            secret(("Opaque", DOCKER_CONFIG.1), auth),
        ];
        let expected = Credentials {
            username: "u".into(),
            password: "p:w".into(),
            source: PullSecret {
                namespace: "ns".into(),
                name: "s".into(),
                uid: "u1".into(),
                credential_hash: hash("u", "p:w", ""),
            },
        };
        let keyring = Keyring::from_secrets("ns", &secrets).unwrap();
        assert_eq!(
            keyring.lookup("a.example/app"),
            [expected.clone(), expected]
        );
    }

    #[test]
    fn invalid_credentials_are_an_error() {
        for text in [
            "{",
            r#"{"a":{"auth":"?"}}"#,
            r#"{"a":{"auth":"dTpw"}, "b":{"auth":"dQ=="}}"#,
        ] {
            assert!(
                Keyring::from_secrets("ns", &[secret(DOCKER_CONFIG, text)]).is_err(),
                "{text}"
            );
        }
    }

    #[test]
    fn an_account_has_the_hash_of_the_kubelet() {
        // From pkg/credentialprovider/secrets/secrets_test.go.
        let known = "a55436fc140d516560d072c5fe8700385ce9f41629abf65c1edcbcb39fac691d";
        assert_eq!(hash("user", "password", ""), known);
        assert_ne!(hash("user", "password", "user@a.example"), known);
    }
}
