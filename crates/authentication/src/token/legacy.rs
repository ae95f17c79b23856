//! Secret-based service account tokens. They have no expiration and no audience; they are valid as
//! long as their account exists and their secret contains them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mizzen_value::{Value, value};

use super::{find_object, last_used};
use crate::RequestAuthenticator;
use crate::credential_metrics::TokenUse;
use crate::secret::is_same;

/// Their issuer: the token controller, which has the server's key.
pub(super) const ISSUER: &str = "kubernetes/serviceaccount";
/// The label of a secret whose token is no longer valid.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

/// Whether a token with these bound claims is still valid.
pub(super) async fn check_legacy_token(
    authenticator: &RequestAuthenticator,
    token: &str,
    bound: &Value,
) -> Result<(), String> {
    let (namespace, secret_name) = (bound["namespace"].str(), bound["secret"]["name"].str());
    let (name, uid) = (
        bound["serviceaccount"]["name"].str(),
        bound["serviceaccount"]["uid"].str(),
    );
    let invalidated = || "Token has been invalidated".to_string();
    let secret = find_object(authenticator, "secrets", namespace, secret_name).await;
    let secret = secret.filter(is_live).ok_or_else(invalidated)?;
    if !is_same(
        secret["data"]["token"].str().as_bytes(),
        STANDARD.encode(token).as_bytes(),
    ) {
        return Err("Token does not match server's copy".into());
    }
    let account = find_object(authenticator, "serviceaccounts", namespace, name).await;
    let account = account.ok_or_else(|| format!("serviceaccounts \"{name}\" not found"))?;
    if !is_live(&account) {
        return Err(format!(
            "ServiceAccount {namespace}/{name} has been deleted"
        ));
    }
    let actual = account["metadata"]["uid"].str();
    if actual != uid {
        return Err(format!(
            "ServiceAccount UID ({actual}) does not match claim ({uid})"
        ));
    }
    last_used::record_use(authenticator, &secret);
    let credentials = &authenticator.credentials;
    if !secret["metadata"]["labels"][INVALID_SINCE].str().is_empty() {
        credentials.token(TokenUse::LegacyInvalid);
        return Err(format!(
            "the token in secret {namespace}/{secret_name} for service account {namespace}/{name} has been marked invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the '{INVALID_SINCE}' label from the secret to temporarily allow use of this token"
        ));
    }
    let mut generated = account["secrets"].list().iter();
    credentials.token(
        match generated.any(|secret| secret["name"].str() == secret_name) {
            true => TokenUse::LegacyAuto,
            false => TokenUse::LegacyManual,
        },
    );
    Ok(())
}

fn is_live(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_null()
}

/// The claims of account and secret in the form of other tokens.
pub(super) fn bound_claims(claims: &Value) -> Result<Value, String> {
    let read = |claim: &str, name: &str| match claims
        [&*format!("kubernetes.io/serviceaccount/{claim}")]
        .str()
    {
        "" => Err(format!("{name} claim is missing")),
        text => Ok(text.to_string()),
    };
    if claims["sub"].str().is_empty() {
        return Err("sub claim is missing".into());
    }
    let namespace = read("namespace", "namespace")?;
    let secret = read("secret.name", "secretName")?;
    let name = read("service-account.name", "serviceAccountName")?;
    let uid = read("service-account.uid", "serviceAccountUID")?;
    if claims["sub"].str() != format!("system:serviceaccount:{namespace}:{name}") {
        return Err("sub claim is invalid".into());
    }
    Ok(value!({
        "namespace": namespace,
        "serviceaccount": { "name": name, "uid": uid },
        "secret": { "name": secret },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json;

    #[track_caller]
    fn check(claims: &str, expected: Result<&str, &str>) {
        let found = bound_claims(&json::parse(claims.as_bytes()).unwrap());
        assert_eq!(
            found.map(|bound| json::to_string(&bound)),
            expected.map(String::from).map_err(String::from)
        );
    }

    #[test]
    fn a_token_names_its_account_twice_and_its_secret() {
        const GOOD: &str = r#"{"sub":"system:serviceaccount:a:b","kubernetes.io/serviceaccount/namespace":"a","kubernetes.io/serviceaccount/secret.name":"t","kubernetes.io/serviceaccount/service-account.name":"b","kubernetes.io/serviceaccount/service-account.uid":"u"}"#;
        check(
            GOOD,
            Ok(
                r#"{"namespace":"a","serviceaccount":{"name":"b","uid":"u"},"secret":{"name":"t"}}"#,
            ),
        );
        check(&GOOD.replace("a:b", "a:c"), Err("sub claim is invalid"));
        check(
            &GOOD.replace("secret.name", "x"),
            Err("secretName claim is missing"),
        );
        check("{}", Err("sub claim is missing"));
    }
}
