//! Which tokens let a machine join, and for how long?

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mizzen_value::{Value, time};

/// The type of a secret that has a token.
const TYPE: &str = "bootstrap.kubernetes.io/token";
/// Where such secrets are.
pub(crate) const NAMESPACE: &str = "kube-system";
/// How the names of such secrets begin.
const PREFIX: &str = "bootstrap-token-";

/// Whether a secret has a token.
pub(crate) fn is_token(secret: &Value) -> bool {
    secret["type"].str() == TYPE && secret["metadata"]["namespace"].str() == NAMESPACE
}

/// How long a token is good for. A time that nobody can read is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// For ever.
    Endless,
    /// So long.
    Left(Duration),
    /// No longer.
    Over,
}

/// How long a token is good for.
pub(crate) fn life(secret: &Value, now: i64) -> Life {
    let expires = data(secret, "expiration");
    if expires.is_empty() {
        return Life::Endless;
    }
    match time::to_unix(&expires) {
        Some(expires) if expires > now => Life::Left(Duration::from_secs((expires - now) as u64)),
        _ => Life::Over,
    }
}

/// The id and the secret of a token that signs.
pub(crate) fn signer(secret: &Value, now: i64) -> Option<(String, String)> {
    let id = secret["metadata"]["name"].str().strip_prefix(PREFIX)?;
    let is_id = id.len() == 6
        && id
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let key = data(secret, "token-secret");
    let signs = is_id
        && data(secret, "token-id") == id
        && !key.is_empty()
        && life(secret, now) != Life::Over
        && data(secret, "usage-bootstrap-signing") == "true";
    signs.then(|| (id.to_string(), key))
}

fn data(secret: &Value, name: &str) -> String {
    let bytes = STANDARD
        .decode(secret["data"][name].str())
        .unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    const NOW: i64 = 1_704_067_200;

    fn secret(name: &str, data: &[(&str, &str)]) -> Value {
        let data: Vec<(&str, Value)> = data
            .iter()
            .map(|(name, text)| (*name, Value::from(STANDARD.encode(text))))
            .collect();
        let data = Value::Map(data.into_iter().collect());
        value!({"type": (TYPE), "metadata": {"name": (name), "namespace": (NAMESPACE)}, "data": (data)})
    }

    #[track_caller]
    fn check_life(expires: &str, expect: Life) {
        assert_eq!(life(&secret("s", &[("expiration", expires)]), NOW), expect);
    }

    #[test]
    fn a_token_may_end() {
        check_life("", Life::Endless);
        check_life("2024-01-01T00:01:00Z", Life::Left(Duration::from_secs(60)));
        check_life("2024-01-01T00:00:00Z", Life::Over);
        check_life("2024-01-01T01:00:00+02:00", Life::Over);
        check_life("soon", Life::Over);
    }

    #[track_caller]
    fn check_signer(name: &str, change: (&str, &str), signs: bool) {
        let mut data = vec![
            ("token-id", "abcdef"),
            ("token-secret", "s3"),
            ("usage-bootstrap-signing", "true"),
        ];
        data.retain(|(name, _)| *name != change.0);
        data.push(change);
        let expect = signs.then(|| ("abcdef".to_string(), "s3".to_string()));
        assert_eq!(signer(&secret(name, &data), NOW), expect);
    }

    #[test]
    fn a_token_signs_if_it_says_so_and_is_good() {
        check_signer("bootstrap-token-abcdef", ("description", ""), true);
        check_signer("bootstrap-token-abcdeg", ("description", ""), false);
        check_signer("abcdef", ("description", ""), false);
        check_signer("bootstrap-token-abcdef", ("token-secret", ""), false);
        check_signer(
            "bootstrap-token-abcdef",
            ("usage-bootstrap-signing", "false"),
            false,
        );
        check_signer(
            "bootstrap-token-abcdef",
            ("expiration", "2023-01-01T00:00:00Z"),
            false,
        );
    }
}
