//! Authentication of clients without a certificate: their bearer tokens, by TokenReviews, as a
//! kubelet with webhook authentication does it.
//!
//! Anonymous requests are rejected, which is the default of the kubelet's configuration.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use http::{HeaderValue, Method};
use mizzen_value::{Value, value};
use ring::digest::{SHA256, digest};

use super::serve::KubeletServer;

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

/// A user whose requests must be authorized.
#[derive(Debug)]
pub(crate) struct ClientUser {
    pub name: String,
    pub uid: String,
    pub groups: Vec<Value>,
    /// Further attributes, by their name.
    pub extra: Value,
}

impl ClientUser {
    /// The user of a TokenReview's status.
    fn of_review(user: &Value) -> ClientUser {
        ClientUser {
            name: user["username"].str().into(),
            uid: user["uid"].str().into(),
            groups: user["groups"].list().to_vec(),
            extra: user["extra"].clone(),
        }
    }
}

impl KubeletServer {
    /// The user of the bearer token in a header, if the API server accepts it. Kubernetes: results
    /// are cached, but no errors (authentication/token/cache).
    pub(super) async fn user_of_token(
        &self,
        authorization: Option<&HeaderValue>,
        node: &str,
    ) -> Option<Arc<ClientUser>> {
        let token = bearer_token(authorization?)?;
        // The token itself is not kept.
        let key = STANDARD_NO_PAD.encode(digest(&SHA256, token.as_bytes()));
        if let Some(known) = self.reviews.tokens.get(&key) {
            return known;
        }
        let review = value!({
            "kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "spec": { "token": token }
        });
        let api = self.settings.api_of(node);
        let answer = match api.raw(Method::POST, REVIEWS, Some(&review)).await {
            Ok(answer) => answer,
            Err(error) => {
                tracing::warn!(%error, node, "cannot authenticate a request to a node");
                return None;
            }
        };
        let status = &answer["status"];
        let user = status["authenticated"]
            .bool()
            .then(|| Arc::new(ClientUser::of_review(&status["user"])));
        if user.is_some() || status["error"].is_empty() {
            let ttl = self.reviews.config.token_ttl;
            self.reviews.tokens.put(key, user.clone(), ttl);
        }
        user
    }
}

/// Kubernetes: authentication/request/bearertoken.
fn bearer_token(header: &HeaderValue) -> Option<&str> {
    let mut words = header.to_str().ok()?.trim().split(' ');
    let scheme = words.next()?;
    let token = words.next()?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bearer_token_is_the_word_after_its_scheme() {
        for (header, token) in [
            ("Bearer abc", Some("abc")),
            (" bearer abc def ", Some("abc")),
            ("Bearer", None),
            ("Bearer  abc", None),
            ("Basic abc", None),
        ] {
            let header = HeaderValue::from_static(header);
            assert_eq!(bearer_token(&header), token, "{header:?}");
        }
    }
}
