//! Service account tokens: claims, signatures, and validity.
//!
//! A token is a JWT. It is valid as long as its account, and the object it is bound to, exist under
//! the same uid.

mod last_used;
mod legacy;
mod verified_tokens;

use std::fmt::Debug;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mizzen_object::User;
use mizzen_registry::Key;
use mizzen_value::{Str, Value, json, time, value};

use crate::credential_metrics::TokenUse;
use crate::jose::{PublicKey, Unverified, quote_list};
use crate::{AuthenticatedToken, AuthenticationResult, RequestAuthenticator};
use verified_tokens::VerifiedToken;
pub(crate) use verified_tokens::VerifiedTokens;

/// The default issuer.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// The leeway of clocks, in seconds.
const LEEWAY: i64 = 60;

/// Options of service account tokens.
#[derive(Debug, Clone)]
pub struct ServiceAccountTokens {
    /// Further keys whose tokens are valid: of other servers, or earlier ones of this server.
    pub keys: Vec<PublicKey>,
    /// The issuers. The first is the issuer of new tokens; tokens of all are accepted.
    pub issuers: Vec<Str>,
    /// The audiences of this server; the issuers if empty.
    pub audiences: Vec<Str>,
    /// The JWKS URL in the discovery document; this server's own if none.
    pub keys_url: Option<String>,
    /// The maximum lifetime of a new token in seconds; unlimited if none.
    pub max_expiration: Option<i64>,
    /// Whether tokens that kubelets request for pods are valid for a year, for clients that do not
    /// reload them.
    pub extend_expiration: bool,
    /// Whether a secret-based token is valid only while its secret and account exist.
    pub lookup: bool,
}

impl Default for ServiceAccountTokens {
    fn default() -> ServiceAccountTokens {
        ServiceAccountTokens {
            keys: Vec::new(),
            issuers: vec![ISSUER.into()],
            audiences: Vec::new(),
            keys_url: None,
            max_expiration: None,
            extend_expiration: true,
            lookup: true,
        }
    }
}

impl ServiceAccountTokens {
    /// The issuer of new tokens.
    pub fn issuer(&self) -> &str {
        self.issuers.first().map_or(ISSUER, Str::as_str)
    }

    /// The audiences of this authenticator.
    pub fn audiences(&self) -> &[Str] {
        if self.audiences.is_empty() {
            &self.issuers
        } else {
            &self.audiences
        }
    }
}

/// The private key of service account tokens.
pub trait TokenSigner: Debug + Send + Sync {
    /// The JWT algorithm: `ES256`.
    fn algorithm(&self) -> &str;
    /// The key id.
    fn key_id(&self) -> &str;
    /// The public key as a JSON Web Key, without its id, use and algorithm: `kty`, `crv`, `x`, `y`.
    fn public_key(&self) -> Value;
    /// Signs a message; none if that fails.
    fn sign(&self, message: &[u8]) -> Option<Vec<u8>>;
    /// Whether this key made a signature with the algorithm of a token's header.
    fn verify(&self, algorithm: &str, message: &[u8], signature: &[u8]) -> bool;
}

/// Signs claims as a JWT. None if that fails.
pub fn issue(signer: &dyn TokenSigner, claims: &Value) -> Option<String> {
    let header = value!({ "alg": (signer.algorithm()), "kid": (signer.key_id()) });
    let message = format!(
        "{}.{}",
        encode(json::to_string(&header)),
        encode(json::to_string(claims))
    );
    let signature = signer.sign(message.as_bytes())?;
    Some(format!("{message}.{}", encode(signature)))
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl RequestAuthenticator {
    /// Authenticates a service account token that must be for at least one of the `audiences`; none if
    /// it is another token.
    pub(super) async fn authenticate_service_account(
        &self,
        text: &str,
        audiences: &[Str],
    ) -> AuthenticationResult {
        let Some(token) = self.verified.get_or_verify(text, || verify(self, text))? else {
            return Ok(None);
        };
        let audiences = shared_audiences(&token.audiences, audiences)?;
        let bound = &token.claims["kubernetes.io"];
        match token.is_legacy {
            true if self.options.service_accounts.lookup => {
                legacy::check_legacy_token(self, text, bound).await?
            }
            true => {}
            false => {
                check_time(&token.claims, self.registry.now())?;
                check_account(self, bound).await?;
            }
        }
        let (warn_after, credentials) = (bound["warnafter"].int(), &self.credentials);
        match token.is_legacy {
            true => credentials.token(TokenUse::Legacy),
            false if warn_after == 0 => {}
            false if self.registry.now() > warn_after => credentials.token(TokenUse::Stale),
            false => credentials.token(TokenUse::Valid),
        }
        Ok(Some(AuthenticatedToken {
            user: token.user.clone(),
            audiences,
        }))
    }
}

/// Parses a service account token and verifies its signature.
fn verify(
    authenticator: &RequestAuthenticator,
    text: &str,
) -> Result<Option<VerifiedToken>, String> {
    let Some(mut token) = Unverified::parse(text) else {
        return Ok(None);
    };
    let accounts = &authenticator.options.service_accounts;
    let issuer = token.claims["iss"].str();
    let is_legacy = issuer == legacy::ISSUER;
    if !is_legacy && !accounts.issuers.iter().any(|known| *known == issuer) {
        return Ok(None);
    }
    check_signature(authenticator, &token)?;
    let mut audiences = token.audiences();
    if is_legacy {
        audiences = accounts.audiences().to_vec();
        token
            .claims
            .set("kubernetes.io", legacy::bound_claims(&token.claims)?);
    }
    let user = token_user(&token.claims);
    if token.claims["sub"].str() != user.name {
        return Err("sub claim is invalid".into());
    }
    Ok(Some(VerifiedToken {
        user,
        claims: token.claims,
        audiences,
        is_legacy,
    }))
}

/// Verifies a signature with the keys of service accounts. The header's `kid` selects the key, its
/// `alg` the algorithm, which must be one of the key's. Kubernetes: without `kid` every key is
/// tried (pkg/serviceaccount/jwt.go).
fn check_signature(authenticator: &RequestAuthenticator, token: &Unverified) -> Result<(), String> {
    let (id, algorithm) = (token.header["kid"].str(), token.header["alg"].str());
    let is_selected = |key: &str| id.is_empty() || key == id;
    let signer = authenticator
        .options
        .signer
        .as_deref()
        .filter(|signer| is_selected(signer.key_id()));
    let mut keys = authenticator
        .options
        .service_accounts
        .keys
        .iter()
        .filter(|key| is_selected(&key.id))
        .peekable();
    if signer.is_none() && keys.peek().is_none() {
        return Err("invalid signature, no keys found".into());
    }
    let (message, signature) = (token.message.as_bytes(), &token.signature);
    let is_signed = signer.is_some_and(|signer| signer.verify(algorithm, message, signature))
        || keys.any(|key| token.is_signed_by(key));
    is_signed
        .then_some(())
        .ok_or_else(|| "go-jose/go-jose: error in cryptographic primitive".into())
}

fn shared_audiences(given: &[Str], wanted: &[Str]) -> Result<Vec<Str>, String> {
    let shared: Vec<Str> = given
        .iter()
        .filter(|audience| wanted.contains(audience))
        .cloned()
        .collect();
    if !shared.is_empty() {
        return Ok(shared);
    }
    let (given, wanted) = (quote_list(given), quote_list(wanted));
    Err(format!(
        "token audiences {given} is invalid for the target audiences {wanted}"
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

/// Whether the account, and the bound object, still exist.
async fn check_account(authenticator: &RequestAuthenticator, claims: &Value) -> Result<(), String> {
    let (namespace, account) = (claims["namespace"].str(), &claims["serviceaccount"]);
    let name = account["name"].str();
    let found = find_object(authenticator, "serviceaccounts", namespace, name).await;
    let found = found.ok_or_else(|| format!("serviceaccounts \"{name}\" not found"))?;
    let (uid, claimed) = (found["metadata"]["uid"].str(), account["uid"].str());
    if uid != claimed {
        return Err(format!(
            "service account UID ({uid}) does not match claim ({claimed})"
        ));
    }
    if is_deleted(authenticator, &found) {
        return Err(format!(
            "service account {namespace}/{name} has been deleted"
        ));
    }
    check_bound(authenticator, "secret", namespace, &claims["secret"]).await?;
    check_bound(authenticator, "pod", namespace, &claims["pod"]).await?;
    // A pod's token names its node as well, but is not bound to it.
    let node = if claims["pod"].is_null() {
        &claims["node"]
    } else {
        &Value::Null
    };
    check_bound(authenticator, "node", "", node).await
}

async fn check_bound(
    authenticator: &RequestAuthenticator,
    word: &str,
    namespace: &str,
    claimed: &Value,
) -> Result<(), String> {
    if claimed.is_null() {
        return Ok(());
    }
    let found = find_object(
        authenticator,
        &format!("{word}s"),
        namespace,
        claimed["name"].str(),
    )
    .await;
    let Some(found) = found else {
        return Err(invalidated());
    };
    let (uid, claimed) = (found["metadata"]["uid"].str(), claimed["uid"].str());
    if uid != claimed {
        return Err(format!(
            "{word} UID ({uid}) does not match service account {word} ref claim ({claimed})"
        ));
    }
    if is_deleted(authenticator, &found) {
        Err(invalidated())
    } else {
        Ok(())
    }
}

fn invalidated() -> String {
    "service account token has been invalidated".into()
}

/// The metadata of an object. Kubernetes: what the cache does not have is read from the store
/// (controller/serviceaccount/tokengetter.go).
async fn find_object(
    authenticator: &RequestAuthenticator,
    plural: &str,
    namespace: &str,
    name: &str,
) -> Option<Value> {
    let resource = authenticator.resources.get(plural)?;
    let key = Key::new(namespace, name);
    let object = authenticator.registry.find(resource, &key).await.ok()?;
    json::outline(&object.json, &["managedFields", "spec", "status"]).ok()
}

/// Whether an object was deleted longer ago than the leeway.
fn is_deleted(authenticator: &RequestAuthenticator, object: &Value) -> bool {
    let end = time::to_unix(object["metadata"]["deletionTimestamp"].str());
    end.is_some_and(|end| end < authenticator.registry.now() - LEEWAY)
}

/// The user of a token: the service account of its `kubernetes.io` claims.
fn token_user(claims: &Value) -> User {
    let bound = &claims["kubernetes.io"];
    let (namespace, name) = (
        bound["namespace"].str(),
        bound["serviceaccount"]["name"].str(),
    );
    let mut extra = Value::object();
    let mut note = |key: &str, text: &str| {
        if !text.is_empty() {
            extra.set(
                &format!("authentication.kubernetes.io/{key}"),
                vec![Value::from(text)],
            );
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
    let uid = bound["serviceaccount"]["uid"].str().into();
    User {
        uid,
        extra,
        ..User::service_account(namespace, name)
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
    fn a_token_has_a_lifetime_with_leeway() {
        check_at(939, Err("service account token is not valid yet"));
        check_at(940, Ok(()));
        check_at(2060, Ok(()));
        check_at(2061, Err("service account token has expired"));
    }

    #[test]
    fn a_token_is_valid_for_its_audiences() {
        let given = ["a".into(), "b".into()];
        assert_eq!(
            shared_audiences(&given, &["b".into(), "c".into()]),
            Ok(vec!["b".into()])
        );
        let problem = r#"token audiences ["a" "b"] is invalid for the target audiences ["c"]"#;
        assert_eq!(shared_audiences(&given, &["c".into()]), Err(problem.into()));
    }
}
