//! The signatures of cluster-info, by which the owner of a bootstrap token can verify it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mizzen_value::{Value, json};
use ring::hmac;

/// The signed key of the ConfigMap.
const CONTENT: &str = "kubeconfig";
/// The prefix of signature keys.
const PREFIX: &str = "jws-kubeconfig-";

/// cluster-info with the right signatures; none if it has them or there is nothing to sign.
pub(crate) fn with_signatures(description: &Value, tokens: &[(String, String)]) -> Option<Value> {
    let content = description["data"][CONTENT].as_str()?;
    let mut new = description.clone();
    let data = new.entry("data").make_map();
    data.retain(|name, _| !name.starts_with(PREFIX));
    for (id, key) in tokens {
        data.insert(
            format!("{PREFIX}{id}"),
            detached_signature(content, id, key),
        );
    }
    (new["data"] != description["data"]).then_some(new)
}

/// A detached JSON web signature (RFC 7515, appendix F).
fn detached_signature(content: &str, id: &str, key: &str) -> String {
    let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let head = encode(format!(r#"{{"alg":"HS256","kid":{}}}"#, json::quote(id)).as_bytes());
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes());
    let tag = hmac::sign(
        &key,
        format!("{head}.{}", encode(content.as_bytes())).as_bytes(),
    );
    format!("{head}..{}", encode(tag.as_ref()))
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    /// The example of upstream's test (cluster-bootstrap/token/jws/jws_test.go).
    #[test]
    fn a_signature_is_upstreams() {
        assert_eq!(
            detached_signature(
                "Hello from the other side. I must have called a thousand times.",
                "joshua",
                "my voice is my passcode"
            ),
            "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8"
        );
    }

    #[test]
    fn signatures_follow_tokens_and_other_keys_stay() {
        let tokens = [("abcdef".to_string(), "s3".to_string())];
        let plain =
            value!({"data": {"kubeconfig": "k", "other": "o", "jws-kubeconfig-goneby": "x"}});
        let signed_once = with_signatures(&plain, &tokens).expect("a signature is missing");
        let names: Vec<&str> = signed_once["data"]
            .entries()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names, ["kubeconfig", "other", "jws-kubeconfig-abcdef"]);
        assert_eq!(with_signatures(&signed_once, &tokens), None);
        assert_eq!(
            with_signatures(&value!({"data": {"other": "o"}}), &tokens),
            None
        );
    }
}
