//! Bootstrap token secrets: which are valid, and until when.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mizzen_value::{Value, time};

/// The type of bootstrap token secrets.
const TYPE: &str = "bootstrap.kubernetes.io/token";
/// The namespace of bootstrap token secrets.
pub(crate) const NAMESPACE: &str = "kube-system";
/// The name prefix of bootstrap token secrets.
const PREFIX: &str = "bootstrap-token-";

/// Whether a secret is a bootstrap token.
pub(crate) fn is_token(secret: &Value) -> bool {
    secret["type"].str() == TYPE && secret["metadata"]["namespace"].str() == NAMESPACE
}

/// When a token expires. An invalid time counts as expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenExpiration {
    Never,
    After(Duration),
    Expired,
}

/// When a token expires.
pub(crate) fn expiration(secret: &Value, now: i64) -> TokenExpiration {
    let expires = data(secret, "expiration");
    if expires.is_empty() {
        return TokenExpiration::Never;
    }
    match time::to_unix(&expires) {
        Some(expires) if expires > now => {
            TokenExpiration::After(Duration::from_secs((expires - now) as u64))
        }
        _ => TokenExpiration::Expired,
    }
}

/// The id and secret of a token that may sign.
pub(crate) fn signing_token(secret: &Value, now: i64) -> Option<(String, String)> {
    let id = secret["metadata"]["name"].str().strip_prefix(PREFIX)?;
    let is_id = id.len() == 6
        && id
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let key = data(secret, "token-secret");
    let signs = is_id
        && data(secret, "token-id") == id
        && !key.is_empty()
        && expiration(secret, now) != TokenExpiration::Expired
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
    fn check_life(expires: &str, expect: TokenExpiration) {
        assert_eq!(
            expiration(&secret("s", &[("expiration", expires)]), NOW),
            expect
        );
    }

    #[test]
    fn a_token_may_expire() {
        check_life("", TokenExpiration::Never);
        check_life(
            "2024-01-01T00:01:00Z",
            TokenExpiration::After(Duration::from_secs(60)),
        );
        check_life("2024-01-01T00:00:00Z", TokenExpiration::Expired);
        check_life("2024-01-01T01:00:00+02:00", TokenExpiration::Expired);
        check_life("soon", TokenExpiration::Expired);
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
        assert_eq!(signing_token(&secret(name, &data), NOW), expect);
    }

    #[test]
    fn a_token_signs_if_its_usage_allows_and_it_is_valid() {
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
