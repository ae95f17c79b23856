//! Tokens of service accounts: what they say, how they are signed, and whether they still hold.
//!
//! A token is a JWT. It holds as long as its account, and what it is bound to, are there under the same uid.

mod legacy;

use std::fmt::Debug;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mizzen_object::{Str, Value, json, time, value};
use mizzen_registry::Key;

use crate::identity::User;
use crate::server::Inner;

/// Who says that tokens are good, which is also whom they are for unless said otherwise.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// By how many seconds the clocks of two machines may differ.
const LEEWAY: i64 = 60;

/// The key that signs tokens, wherever it is kept.
pub trait Signer: Debug + Send + Sync {
    /// What JWTs call the kind of signature: `ES256`.
    fn algorithm(&self) -> &str;
    /// What tells this key from others.
    fn key_id(&self) -> &str;
    /// The public key as a JSON Web Key, without its id, use and algorithm: `kty`, `crv`, `x`, `y`.
    fn public_key(&self) -> Value;
    /// Signs a message; none if that cannot be done.
    fn sign(&self, message: &[u8]) -> Option<Vec<u8>>;
    /// Whether a signature is this key's.
    fn verify(&self, message: &[u8], signature: &[u8]) -> bool;
}

/// Makes a token of claims: three parts with dots between them. None if it cannot be signed.
pub fn issue(signer: &dyn Signer, claims: &Value) -> Option<String> {
    let header = value!({ "alg": (signer.algorithm()), "kid": (signer.key_id()) });
    let message = format!("{}.{}", encode(json::to_string(&header)), encode(json::to_string(claims)));
    let signature = signer.sign(message.as_bytes())?;
    Some(format!("{message}.{}", encode(signature)))
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Somebody who has shown a token.
pub(crate) struct Bearer {
    pub user: User,
    /// Whom the token is for, of those that were asked for.
    pub audiences: Vec<Str>,
}

/// Who shows a token; the error is what an administrator is told. `audiences` says whom the token must be for, at
/// least one of them.
pub(crate) fn authenticate(server: &Inner, token: &str, audiences: &[Str]) -> Result<Bearer, String> {
    const UNKNOWN: &str = "invalid bearer token";
    let because = |why: String| format!("[{UNKNOWN}, {why}]");
    let signer = server.options.signer.as_deref().ok_or(UNKNOWN)?;
    let (message, signature) = token.rsplit_once('.').ok_or(UNKNOWN)?;
    let mut claims = claims(message).ok_or(UNKNOWN)?;
    let is_legacy = claims["iss"].str() == legacy::ISSUER;
    if !is_legacy && claims["iss"].str() != ISSUER {
        return Err(UNKNOWN.into());
    }
    let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| UNKNOWN)?;
    if !signer.verify(message.as_bytes(), &signature) {
        return Err(because("go-jose/go-jose: error in cryptographic primitive".into()));
    }
    if is_legacy {
        claims.set("aud", vec![Value::from(ISSUER)]);
    }
    let audiences = shared_audiences(&claims, audiences).map_err(because)?;
    if is_legacy {
        let bound = legacy::check(server, token, &claims).map_err(because)?;
        claims.set("kubernetes.io", bound);
        return Ok(Bearer { user: user(&claims), audiences });
    }
    check_time(&claims, server.registry.now()).map_err(because)?;
    check_account(server, &claims["kubernetes.io"]).map_err(because)?;
    Ok(Bearer { user: user(&claims), audiences })
}

fn claims(message: &str) -> Option<Value> {
    let (_, claims) = message.split_once('.').filter(|parts| !parts.1.contains('.'))?;
    json::parse(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
}

fn shared_audiences(claims: &Value, wanted: &[Str]) -> Result<Vec<Str>, String> {
    let given: Vec<Str> = claims["aud"].list().iter().map(|audience| audience.str().into()).collect();
    let shared: Vec<Str> = given.iter().filter(|audience| wanted.contains(audience)).cloned().collect();
    if !shared.is_empty() {
        return Ok(shared);
    }
    let shown = |list: &[Str]| list.iter().map(|text| json::quote(text)).collect::<Vec<_>>().join(" ");
    Err(format!(
        "token audiences [{}] is invalid for the target audiences [{}]",
        shown(&given),
        shown(wanted)
    ))
}

fn check_time(claims: &Value, now: i64) -> Result<(), String> {
    let problem = if now - LEEWAY > claims["exp"].int() {
        "has expired"
    } else if now + LEEWAY < claims["nbf"].int() {
        "is not valid yet"
    } else if now + LEEWAY < claims["iat"].int() {
        "is issued in the future"
    } else {
        return Ok(());
    };
    Err(format!("service account token {problem}"))
}

/// Whether the account, and what the token is bound to, are still there.
fn check_account(server: &Inner, claims: &Value) -> Result<(), String> {
    let (namespace, account) = (claims["namespace"].str(), &claims["serviceaccount"]);
    let name = account["name"].str();
    let found = find(server, "serviceaccounts", namespace, name)
        .ok_or_else(|| format!("serviceaccounts \"{name}\" not found"))?;
    let (uid, claimed) = (found["metadata"]["uid"].str(), account["uid"].str());
    if uid != claimed {
        return Err(format!("service account UID ({uid}) does not match claim ({claimed})"));
    }
    if is_gone(server, &found) {
        return Err(format!("service account {namespace}/{name} has been deleted"));
    }
    check_bound(server, "secret", namespace, &claims["secret"])?;
    check_bound(server, "pod", namespace, &claims["pod"])?;
    // A pod's token names its node as well, but is not bound to it.
    let node = if claims["pod"].is_null() { &claims["node"] } else { &Value::Null };
    check_bound(server, "node", "", node)
}

fn check_bound(server: &Inner, word: &str, namespace: &str, claimed: &Value) -> Result<(), String> {
    if claimed.is_null() {
        return Ok(());
    }
    let found = find(server, &format!("{word}s"), namespace, claimed["name"].str());
    let Some(found) = found else { return Err(invalidated()) };
    let (uid, claimed) = (found["metadata"]["uid"].str(), claimed["uid"].str());
    if uid != claimed {
        return Err(format!(
            "{word} UID ({uid}) does not match service account {word} ref claim ({claimed})"
        ));
    }
    if is_gone(server, &found) { Err(invalidated()) } else { Ok(()) }
}

fn invalidated() -> String {
    "service account token has been invalidated".into()
}

fn find(server: &Inner, plural: &str, namespace: &str, name: &str) -> Option<Value> {
    let resource = server.catalog.get("", "v1", plural)?;
    Some(server.registry.get(&resource, &Key::new(namespace, name), "").ok()?.value())
}

/// Whether an object should be gone by now.
fn is_gone(server: &Inner, object: &Value) -> bool {
    let end = time::to_unix(object["metadata"]["deletionTimestamp"].str());
    end.is_some_and(|end| end < server.registry.now() - LEEWAY)
}

fn user(claims: &Value) -> User {
    let bound = &claims["kubernetes.io"];
    let namespace = bound["namespace"].str();
    let mut extra = Value::object();
    let mut note = |key: &str, text: &str| {
        if !text.is_empty() {
            extra.set(&format!("authentication.kubernetes.io/{key}"), vec![Value::from(text)]);
        }
    };
    if !claims["jti"].is_empty() {
        note("credential-id", &format!("JTI={}", claims["jti"].str()));
    }
    for kind in ["pod", "node"] {
        for field in ["name", "uid"] {
            note(&format!("{kind}-{field}"), bound[kind][field].str());
        }
    }
    User {
        name: claims["sub"].str().into(),
        groups: vec![
            "system:serviceaccounts".into(),
            format!("system:serviceaccounts:{namespace}").into(),
            "system:authenticated".into(),
        ],
        uid: bound["serviceaccount"]["uid"].str().into(),
        extra,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_at(now: i64, expected: Result<(), &str>) {
        let claims = value!({ "iat": 1000, "nbf": 1000, "exp": 2000 });
        assert_eq!(check_time(&claims, now), expected.map_err(String::from));
    }

    #[test]
    fn a_token_has_its_time_and_clocks_may_differ_a_little() {
        check_at(939, Err("service account token is not valid yet"));
        check_at(940, Ok(()));
        check_at(2060, Ok(()));
        check_at(2061, Err("service account token has expired"));
    }

    #[test]
    fn a_token_is_for_those_it_names() {
        let claims = value!({ "aud": ["a", "b"] });
        assert_eq!(shared_audiences(&claims, &["b".into(), "c".into()]), Ok(vec!["b".into()]));
        let problem = r#"token audiences ["a" "b"] is invalid for the target audiences ["c"]"#;
        assert_eq!(shared_audiences(&claims, &["c".into()]), Err(problem.into()));
    }

    #[test]
    fn claims_stand_between_two_dots() {
        let text = encode(r#"{"iss":"x"}"#);
        assert_eq!(claims(&format!("head.{text}")).unwrap()["iss"].str(), "x");
        assert_eq!(claims(&format!("head.{text}.more")), None);
        assert_eq!(claims("head"), None);
    }
}
