//! OpenID Connect discovery of service account tokens: the issuer and its JWKS.

use std::collections::BTreeSet;

use http::{HeaderValue, header};
use mizzen_object::Status;
use mizzen_value::{Value, json, value};

use crate::request::Request;
use crate::response::{self, Response, negotiate_route};
use crate::server::ServerParts;

/// The path of the discovery document.
pub(crate) const CONFIGURATION: &str = "/.well-known/openid-configuration";
/// The path of the JWKS.
pub(crate) const KEYS: &str = "/openid/v1/jwks";

const KEYS_TYPE: &str = "application/jwk-set+json";
/// The cache lifetime of both, in seconds.
const MAX_AGE: &str = "public, max-age=3600";

/// The discovery document; none without a signer, or if the issuer is no URL.
pub(crate) fn configuration(
    server: &ServerParts,
    request: &Request,
) -> Option<Result<Response, Status>> {
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

/// The JWKS; none without a signer.
pub(crate) fn keys(server: &ServerParts, request: &Request) -> Option<Result<Response, Status>> {
    let signer = server.options.signer.as_deref()?;
    let key = |id: &str, algorithm: &str, material: Value| {
        let mut key = value!({ "use": "sig", "kid": id, "alg": algorithm });
        for (name, value) in material.entries() {
            key.set(name, value.clone());
        }
        key
    };
    // The signer's key comes first.
    let id = signer.key_id();
    let mut all = vec![key(id, signer.algorithm(), signer.public_key())];
    let others = server.options.service_accounts.keys.iter();
    let others = others.filter(|other| other.id != id);
    all.extend(others.map(|other| key(&other.id, other.algorithm(), other.to_jwk())));
    let mut keys = Value::object();
    keys.set("keys", all);
    Some(cacheable(request, KEYS_TYPE, &keys))
}

fn cacheable(
    request: &Request,
    media_type: &'static str,
    document: &Value,
) -> Result<Response, Status> {
    negotiate_route(&request.headers, &[media_type])?;
    let mut answer = response::with_body(200, media_type, json::to_string(document));
    answer
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static(MAX_AGE));
    Ok(answer)
}
