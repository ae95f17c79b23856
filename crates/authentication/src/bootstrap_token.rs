//! Bootstrap tokens of joining nodes: `ID.SECRET`, stored as a Secret in `kube-system`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mizzen_object::User;
use mizzen_registry::Key;
use mizzen_value::{Str, Value, time};

use super::secret::is_same;
use crate::RequestAuthenticator;

/// The group of every bootstrap token.
const GROUP: &str = "system:bootstrappers";

impl RequestAuthenticator {
    /// The user of a bootstrap token; none if it is not one, or invalid.
    pub(super) fn authenticate_bootstrap_token(&self, token: &str) -> Option<User> {
        let token = BootstrapToken::parse(token)?;
        let resource = self.resources.get("secrets")?;
        let key = Key::new("kube-system", &format!("bootstrap-token-{}", token.id));
        let stored = self.registry.get(resource, &key, "").ok()?.value();
        token.user(&stored, self.registry.now())
    }
}

#[derive(PartialEq)]
struct BootstrapToken<'a> {
    id: &'a str,
    secret: &'a str,
}

impl BootstrapToken<'_> {
    fn parse(token: &str) -> Option<BootstrapToken<'_>> {
        let plain = |text: &str, length: usize| {
            text.len() == length
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        let (id, secret) = token.split_once('.')?;
        (plain(id, 6) && plain(secret, 16)).then_some(BootstrapToken { id, secret })
    }

    /// The user, if the stored Secret matches and may be used for authentication.
    fn user(&self, stored: &Value, now: i64) -> Option<User> {
        let BootstrapToken { id, secret } = *self;
        let data = |key: &str| {
            let bytes = STANDARD
                .decode(stored["data"][key].str())
                .unwrap_or_default();
            String::from_utf8(bytes).unwrap_or_default()
        };
        let expiration = data("expiration");
        let holds =
            expiration.is_empty() || time::to_unix(&expiration).is_some_and(|end| end > now);
        let sound = stored["metadata"]["deletionTimestamp"].is_null()
            && stored["type"].str() == "bootstrap.kubernetes.io/token"
            && is_same(data("token-secret").as_bytes(), secret.as_bytes())
            && data("token-id") == id
            && data("usage-bootstrap-authentication") == "true";
        if !holds || !sound {
            return None;
        }
        let groups = parse_extra_groups(&data("auth-extra-groups"))?;
        Some(User {
            name: format!("system:bootstrap:{id}").into(),
            groups,
            ..User::default()
        })
    }
}

/// The groups of a token, sorted; none if one of them is not allowed for bootstrap tokens.
fn parse_extra_groups(extra: &str) -> Option<Vec<Str>> {
    let mut groups = vec![Str::from(GROUP)];
    for group in extra.split(',').filter(|_| !extra.is_empty()) {
        let own = group.strip_prefix("system:bootstrappers:")?;
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let sound =
            own.len() <= 256 && own.bytes().all(|byte| plain(byte) || b":-".contains(&byte));
        if !sound || !own.bytes().last().is_some_and(plain) {
            return None;
        }
        groups.push(group.into());
    }
    groups.sort();
    groups.dedup();
    Some(groups)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::value;

    fn secret(expiration: &str, groups: &str) -> Value {
        let encode = |text: &str| STANDARD.encode(text);
        value!({
            "type": "bootstrap.kubernetes.io/token",
            "data": {
                "token-id": (encode("abcdef")), "token-secret": (encode("0123456789abcdef")),
                "usage-bootstrap-authentication": (encode("true")),
                "expiration": (encode(expiration)), "auth-extra-groups": (encode(groups))
            }
        })
    }

    #[track_caller]
    fn check(stored: &Value, secret: &str, expected: Option<&[&str]>) {
        let groups = BootstrapToken {
            id: "abcdef",
            secret,
        }
        .user(stored, 1_000_000_000)
        .map(|user| user.groups);
        assert_eq!(
            groups,
            expected.map(|groups| groups.iter().map(|group| Str::from(*group)).collect())
        );
    }

    #[test]
    fn a_valid_token_has_its_groups() {
        check(
            &secret("", ""),
            "0123456789abcdef",
            Some(&["system:bootstrappers"]),
        );
        let more = secret(
            "2030-01-01T00:00:00Z",
            "system:bootstrappers:b,system:bootstrappers:a",
        );
        let groups = [
            "system:bootstrappers",
            "system:bootstrappers:a",
            "system:bootstrappers:b",
        ];
        check(&more, "0123456789abcdef", Some(&groups));
    }

    #[test]
    fn an_invalid_token_authenticates_no_user() {
        check(&secret("", ""), "x123456789abcdef", None);
        check(
            &secret("2001-01-01T00:00:00Z", ""),
            "0123456789abcdef",
            None,
        );
        check(&secret("not a time", ""), "0123456789abcdef", None);
        check(&secret("", "system:masters"), "0123456789abcdef", None);
        let mut unmarked = secret("", "");
        unmarked
            .entry("data")
            .remove("usage-bootstrap-authentication");
        check(&unmarked, "0123456789abcdef", None);
    }

    #[test]
    fn a_token_has_a_format() {
        let expected = BootstrapToken {
            id: "abcdef",
            secret: "0123456789abcdef",
        };
        assert!(BootstrapToken::parse("abcdef.0123456789abcdef") == Some(expected));
        assert!(BootstrapToken::parse("abcdef.0123456789abcdeF").is_none());
        assert!(BootstrapToken::parse("abcde.0123456789abcdef").is_none());
        assert!(BootstrapToken::parse("abcdef").is_none());
    }
}
