//! How others check service accounts' tokens by themselves: who issues them, and the keys.

use http::{HeaderValue, header};
use mizzen_object::{Status, Value, json, value};

use crate::answer::{self, Answer, Encoding, negotiate};
use crate::request::Request;
use crate::server::Inner;
use crate::token::ISSUER;

/// Where the issuer is described.
pub(crate) const CONFIGURATION: &str = "/.well-known/openid-configuration";
/// Where the keys are.
pub(crate) const KEYS: &str = "/openid/v1/jwks";

const KEYS_TYPE: &str = "application/jwk-set+json";
/// For how long, in seconds, the answers may be kept.
const MAX_AGE: &str = "public, max-age=3600";

/// Describes the issuer; none if there is none.
pub(crate) fn configuration(server: &Inner, request: &Request) -> Option<Result<Answer, Status>> {
    let signer = server.options.signer.as_deref()?;
    let keys = format!("https://{}{KEYS}", server.options.advertise);
    let text = json::to_string(&value!({
        "issuer": ISSUER,
        "jwks_uri": keys,
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": [(signer.algorithm())]
    }));
    let json = negotiate(&request.headers, &request.query, false)
        .is_ok_and(|accept| accept.encoding == Encoding::Json);
    Some(if json { Ok(kept("application/json", text)) } else { Err(not_acceptable("application/json")) })
}

/// The keys that tokens are signed with; none if there are none.
pub(crate) fn keys(server: &Inner, request: &Request) -> Option<Result<Answer, Status>> {
    let signer = server.options.signer.as_deref()?;
    let mut key = value!({ "use": "sig", "kid": (signer.key_id()), "alg": (signer.algorithm()) });
    for (name, value) in signer.public_key().entries() {
        key.set(name, value.clone());
    }
    let mut keys = Value::object();
    keys.set("keys", vec![key]);
    let accepted = request.header("accept");
    let wanted = |clause: &str| {
        let media_type = clause.split(';').next().unwrap_or_default().trim();
        matches!(media_type, "" | "*/*" | "application/*" | KEYS_TYPE)
    };
    let text = json::to_string(&keys);
    Some(if accepted.split(',').any(wanted) {
        Ok(kept(KEYS_TYPE, text))
    } else {
        Err(not_acceptable(KEYS_TYPE))
    })
}

fn kept(media_type: &'static str, text: String) -> Answer {
    let mut answer = answer::answer(200, media_type, text);
    answer.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static(MAX_AGE));
    answer
}

fn not_acceptable(available: &str) -> Status {
    let message = format!("406: Not Acceptable\n\nAvailable representations: {available}");
    Status { details: Some(Box::default()), ..Status::failure(406, "NotAcceptable", message) }
}
