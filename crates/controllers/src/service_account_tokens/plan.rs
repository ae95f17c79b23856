//! Which data a service account token secret lacks.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mizzen_sdk::Object;
use mizzen_value::{Value, value};

pub(super) const TYPE: &str = "kubernetes.io/service-account-token";
/// The annotation with the account's name.
pub(crate) const NAME: &str = "kubernetes.io/service-account.name";
/// The annotation with the account's uid.
pub(super) const UID: &str = "kubernetes.io/service-account.uid";
/// The issuer of legacy tokens; bound tokens have the API server's.
const ISSUER: &str = "kubernetes/serviceaccount";

pub(crate) fn holds_token(secret: &Object) -> bool {
    secret["type"].str() == TYPE
}

/// Whether a secret is a token of this account.
pub(crate) fn is_service_account_token(secret: &Object, account: &Object) -> bool {
    let uid = secret.annotation(UID).unwrap_or_default();
    secret.annotation(NAME) == Some(account.name()) && (uid.is_empty() || uid == account.uid())
}

/// Whether a secret lacks token, namespace or CA bundle.
pub(super) fn needs_update(secret: &Object, root_ca: Option<&str>) -> bool {
    let data = &secret["data"];
    root_ca.is_some_and(|root_ca| data["ca.crt"].str() != STANDARD.encode(root_ca))
        || data["namespace"].str().is_empty()
        || data["token"].str().is_empty()
}

/// Fills in missing data. `sign` signs claims; false if it cannot.
pub(super) fn fill_secret(
    secret: &mut Object,
    account: &Object,
    root_ca: Option<&str>,
    sign: impl FnOnce(&Value) -> Option<String>,
) -> bool {
    if secret["data"]["token"].str().is_empty() {
        // The token does not expire: it is valid as long as its secret exists.
        let (namespace, name) = (account.namespace(), account.name());
        let claims = value!({
            "iss": ISSUER,
            "kubernetes.io/serviceaccount/namespace": namespace,
            "kubernetes.io/serviceaccount/secret.name": (secret.name()),
            "kubernetes.io/serviceaccount/service-account.name": name,
            "kubernetes.io/serviceaccount/service-account.uid": (account.uid()),
            "sub": (format!("system:serviceaccount:{namespace}:{name}")),
        });
        let Some(token) = sign(&claims) else {
            return false;
        };
        secret.entry("data").set("token", STANDARD.encode(token));
    }
    let namespace = secret.namespace().to_string();
    let data = secret.entry("data");
    if let Some(root_ca) = root_ca {
        data.set("ca.crt", STANDARD.encode(root_ca));
    }
    if data["namespace"].str().is_empty() {
        data.set("namespace", STANDARD.encode(namespace));
    }
    let annotations = secret.entry("metadata").entry("annotations");
    annotations.set(NAME, account.name());
    annotations.set(UID, account.uid());
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use mizzen_value::json;

    fn account() -> Object {
        Object::parse(br#"{"metadata":{"name":"a","namespace":"shop","uid":"u"}}"#).unwrap()
    }

    /// The secret's data after filling. Tokens are their claims here.
    #[track_caller]
    fn check(data: &str, root_ca: Option<&str>, expected: Expect) {
        let text = format!(r#"{{"metadata":{{"name":"t","namespace":"shop"}},"data":{data}}}"#);
        let mut secret = Object::parse(text.as_bytes()).unwrap();
        assert!(needs_update(&secret, root_ca));
        assert!(fill_secret(
            &mut secret,
            &account(),
            root_ca,
            |claims| Some(json::to_string(claims))
        ));
        assert!(!needs_update(&secret, root_ca) && is_service_account_token(&secret, &account()));
        let decode =
            |text: &Value| String::from_utf8(STANDARD.decode(text.str()).unwrap()).unwrap();
        let lines: Vec<String> = secret["data"]
            .entries()
            .map(|(name, text)| format!("{name}: {}", decode(text)))
            .collect();
        expected.assert_eq(&lines.join("\n"));
    }

    #[test]
    fn an_empty_secret_gets_everything() {
        check(
            "{}",
            Some("CA"),
            expect![[r#"
            token: {"iss":"kubernetes/serviceaccount","kubernetes.io/serviceaccount/namespace":"shop","kubernetes.io/serviceaccount/secret.name":"t","kubernetes.io/serviceaccount/service-account.name":"a","kubernetes.io/serviceaccount/service-account.uid":"u","sub":"system:serviceaccount:shop:a"}
            ca.crt: CA
            namespace: shop"#]],
        );
    }

    #[test]
    fn existing_data_stays_except_an_old_ca_bundle() {
        let data = r#"{"token":"eA==","namespace":"eQ==","ca.crt":"eg=="}"#;
        check(
            data,
            Some("CA"),
            expect![[r#"
            token: x
            namespace: y
            ca.crt: CA"#]],
        );
        let secret = Object::parse(format!(r#"{{"data":{data}}}"#).as_bytes()).unwrap();
        assert!(!needs_update(&secret, None));
    }

    #[test]
    fn without_a_signature_nothing_is_changed() {
        let mut secret = Object::default();
        assert!(!fill_secret(&mut secret, &account(), Some("CA"), |_| None));
        assert_eq!(secret, Object::default());
    }

    #[test]
    fn a_token_of_an_earlier_account_is_not_this_ones() {
        let of = |annotations: &str| {
            let text = format!(r#"{{"metadata":{{"annotations":{annotations}}}}}"#);
            is_service_account_token(&Object::parse(text.as_bytes()).unwrap(), &account())
        };
        assert!(of(r#"{"kubernetes.io/service-account.name":"a"}"#));
        assert!(of(
            r#"{"kubernetes.io/service-account.name":"a","kubernetes.io/service-account.uid":"u"}"#
        ));
        assert!(!of(
            r#"{"kubernetes.io/service-account.name":"a","kubernetes.io/service-account.uid":"old"}"#
        ));
        assert!(!of(r#"{"kubernetes.io/service-account.name":"b"}"#));
    }
}
