//! How others check service accounts' tokens by themselves: who issues them, and the keys.

use std::collections::BTreeSet;

use http::{HeaderValue, header};
use mizzen_object::Status;
use mizzen_value::{Value, json, value};

use crate::answer::{self, Answer, negotiate_route};
use crate::jose::PublicKey;
use crate::request::Request;
use crate::server::Inner;
use crate::token::TokenSigner;

/// Where the issuer is described.
pub(crate) const CONFIGURATION: &str = "/.well-known/openid-configuration";
/// Where the keys are.
pub(crate) const KEYS: &str = "/openid/v1/jwks";

const KEYS_TYPE: &str = "application/jwk-set+json";
/// For how long, in seconds, the answers may be kept.
const MAX_AGE: &str = "public, max-age=3600";

/// Describes the issuer; none if there is none, or if it is called by no address.
pub(crate) fn configuration(server: &Inner, request: &Request) -> Option<Result<Answer, Status>> {
    let signer = server.options.signer.as_deref()?;
    let accounts = &server.options.service_accounts;
    if !accounts.issuer().starts_with("https://") {
        return None;
    }
    let own = || format!("https://{}{KEYS}", server.options.external_address());
    let keys = accounts.keys_url.clone().unwrap_or_else(own);
    let others = accounts.keys.iter().map(|key| key.algorithm());
    let algorithms: BTreeSet<&str> = others.chain([signer.algorithm()]).collect();
    let mut configuration = value!({
        "issuer": (accounts.issuer()),
        "jwks_uri": keys,
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"]
    });
    let algorithms = Value::List(algorithms.into_iter().map(Value::from).collect());
    configuration.set("id_token_signing_alg_values_supported", algorithms);
    Some(cacheable(request, "application/json", &configuration))
}

/// The keys that tokens are signed with; none if there are none.
pub(crate) fn keys(server: &Inner, request: &Request) -> Option<Result<Answer, Status>> {
    let signer = server.options.signer.as_deref()?;
    let mut keys = Value::object();
    keys.set(
        "keys",
        all_keys(signer, &server.options.service_accounts.keys),
    );
    Some(cacheable(request, KEYS_TYPE, &keys))
}

/// The signer's key, then those that it does not sign with.
fn all_keys(signer: &dyn TokenSigner, others: &[PublicKey]) -> Vec<Value> {
    let show = |id: &str, algorithm: &str, material: Value| {
        let mut key = value!({ "use": "sig", "kid": id, "alg": algorithm });
        for (name, value) in material.entries() {
            key.set(name, value.clone());
        }
        key
    };
    let own = show(signer.key_id(), signer.algorithm(), signer.public_key());
    let others = others.iter().filter(|key| key.id != signer.key_id());
    [own]
        .into_iter()
        .chain(others.map(|key| show(&key.id, key.algorithm(), key.to_jwk())))
        .collect()
}

fn cacheable(
    request: &Request,
    media_type: &'static str,
    document: &Value,
) -> Result<Answer, Status> {
    negotiate_route(&request.headers, &[media_type])?;
    let mut answer = answer::answer(200, media_type, json::to_string(document));
    answer
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static(MAX_AGE));
    Ok(answer)
}
