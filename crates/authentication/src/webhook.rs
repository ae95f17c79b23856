//! The token webhook: authenticates tokens by a TokenReview at a remote server.
//!
//! Failed calls are retried with back-off. Authentication fails closed: if the webhook is down,
//! slow or answers nonsense, its tokens get 401 after a bounded time.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use mizzen_metrics::Families;
use mizzen_object::User;
use mizzen_outgoing::{KubeconfigWebhook, WebhookKubeconfig, WebhookKubeconfigError};
use mizzen_registry::{BoxFuture, Registry};
use mizzen_value::{Str, Value, json, value};
use tokio::time::timeout;

use super::{AuthenticatedToken, AuthenticationResult, Authenticator, TokenCache};

/// Kubernetes: the time limit of all attempts together (token/cache/cached_token_authenticator.go).
const PATIENCE: Duration = Duration::from_secs(30);
/// Kubernetes: the initial back-off (server/options/authentication.go).
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The version of the TokenReview.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReviewVersion {
    /// `authentication.k8s.io/v1`.
    V1,
    /// `authentication.k8s.io/v1beta1`. Kubernetes: the default.
    #[default]
    V1Beta1,
}

/// Options of a token webhook.
#[derive(Debug, Clone)]
pub struct WebhookOptions {
    /// The version of the TokenReview.
    pub version: ReviewVersion,
    /// How long results are cached.
    pub cache_ttl: Duration,
    /// The server's own audiences, assumed if the webhook names none.
    pub audiences: Vec<Str>,
}

/// A token webhook.
pub struct TokenWebhook {
    registry: Registry,
    remote: KubeconfigWebhook,
    options: WebhookOptions,
    cache: TokenCache,
}

impl TokenWebhook {
    /// Loads the webhook of the current context of a kubeconfig file.
    pub fn load(
        file: &Path,
        registry: &Registry,
        options: WebhookOptions,
    ) -> Result<TokenWebhook, WebhookKubeconfigError> {
        Ok(TokenWebhook {
            registry: registry.clone(),
            remote: KubeconfigWebhook::without_timeout(&WebhookKubeconfig::load(file)?, registry),
            cache: TokenCache::new(registry, options.cache_ttl),
            options,
        })
    }

    async fn review(&self, token: &str, audiences: &[Str]) -> AuthenticationResult {
        let review = self.review_body(token, audiences);
        let answer = match timeout(PATIENCE, self.post_review(&review)).await {
            Ok(answer) => answer,
            Err(_) => Err("context deadline exceeded".into()),
        };
        let answer = answer.inspect_err(|problem| {
            tracing::error!(%problem, "token webhook failed");
        })?;
        review_result(&answer["status"], &self.options.audiences, audiences)
    }

    fn review_body(&self, token: &str, audiences: &[Str]) -> Bytes {
        let version = match self.options.version {
            ReviewVersion::V1 => "v1",
            ReviewVersion::V1Beta1 => "v1beta1",
        };
        let mut review = value!({
            "kind": "TokenReview",
            "apiVersion": (format!("authentication.k8s.io/{version}")),
            "metadata": {},
            "spec": { "token": token },
            "status": { "user": {} }
        });
        let audiences: Vec<Value> = audiences.iter().map(Value::from).collect();
        review.entry("spec").set("audiences", audiences);
        json::to_string(&review).into()
    }

    /// Posts the review with retries.
    async fn post_review(&self, review: &Bytes) -> Result<Value, String> {
        let answer = self
            .remote
            .post_with_backoff(&self.registry, review.clone(), FIRST_PAUSE, PATIENCE)
            .await;
        decode_review(&answer.map_err(|error| error.why)?)
    }
}

fn decode_review(body: &[u8]) -> Result<Value, String> {
    let answer =
        json::parse(body).map_err(|error| format!("the webhook's answer is no JSON: {error}"))?;
    let versions = ["authentication.k8s.io/v1", "authentication.k8s.io/v1beta1"];
    if answer["kind"].str() != "TokenReview" || !versions.contains(&answer["apiVersion"].str()) {
        return Err("the webhook's answer is no TokenReview".into());
    }
    Ok(answer)
}

/// The result of a review. Kubernetes: without audiences the token is for this server, and
/// audiences are checked before `authenticated` (token/webhook/webhook.go).
fn review_result(status: &Value, own: &[Str], wanted: &[Str]) -> AuthenticationResult {
    let said: Vec<Str> = status["audiences"]
        .list()
        .iter()
        .map(|audience| audience.str().into())
        .collect();
    let given = if said.is_empty() { own } else { &said };
    let shared: Vec<Str> = wanted
        .iter()
        .filter(|audience| given.contains(audience))
        .cloned()
        .collect();
    if shared.is_empty() {
        return Ok(None);
    }
    match (reviewed_user(status), status["error"].str()) {
        (Some(user), _) if user.name.is_empty() => Err("the webhook named nobody".into()),
        (Some(user), _) => Ok(Some(AuthenticatedToken {
            user,
            audiences: shared,
        })),
        (None, "") => Ok(None),
        (None, problem) => Err(problem.into()),
    }
}

impl Authenticator for TokenWebhook {
    fn authenticate<'a>(
        &'a self,
        token: &'a str,
        audiences: &'a [Str],
    ) -> BoxFuture<'a, AuthenticationResult> {
        Box::pin(
            self.cache
                .get_or_fetch(token, audiences, self.review(token, audiences)),
        )
    }

    fn collect(&self, out: &mut Families) {
        self.cache.collect(out);
    }
}

/// Does not show the webhook's own token.
impl fmt::Debug for TokenWebhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenWebhook({})", self.remote.url())
    }
}

/// The user in the status of a TokenReview.
pub fn reviewed_user(status: &Value) -> Option<User> {
    let user = &status["user"];
    let groups = user["groups"]
        .list()
        .iter()
        .map(|group| Str::from(group.str()))
        .collect();
    let (name, uid) = (user["username"].str().into(), user["uid"].str().into());
    status["authenticated"].bool().then(|| User {
        name,
        uid,
        groups,
        extra: user["extra"].clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: Value, wanted: &[&str], expected: Result<Option<(&str, &[&str])>, &str>) {
        let texts = |list: &[&str]| list.iter().map(|text| Str::from(*text)).collect::<Vec<_>>();
        let result = review_result(&status, &texts(&["own", "also"]), &texts(wanted));
        let shown = result.map(|bearer| bearer.map(|bearer| (bearer.user.name, bearer.audiences)));
        let expected =
            expected.map(|known| known.map(|(name, list)| (Str::from(name), texts(list))));
        assert_eq!(shown, expected.map_err(String::from));
    }

    #[test]
    fn audiences_are_the_webhooks_or_the_servers() {
        let jane = || value!({ "authenticated": true, "user": { "username": "jane" } });
        check(jane(), &["own", "x"], Ok(Some(("jane", &["own"]))));
        check(jane(), &["x"], Ok(None));
        let mut other = jane();
        other.set("audiences", vec![Value::from("x")]);
        check(other.clone(), &["own"], Ok(None));
        check(other, &["x", "own"], Ok(Some(("jane", &["x"]))));
    }

    #[test]
    fn an_incomplete_review_authenticates_no_user() {
        check(
            value!({ "user": { "username": "jane" } }),
            &["own"],
            Ok(None),
        );
        check(
            value!({ "authenticated": "true", "user": { "username": "jane" } }),
            &["own"],
            Ok(None),
        );
        check(
            value!({ "authenticated": false, "error": "who?" }),
            &["own"],
            Err("who?"),
        );
        check(
            value!({ "authenticated": true }),
            &["own"],
            Err("the webhook named nobody"),
        );
        assert!(decode_review(b"<html>").is_err() && decode_review(b"{}").is_err());
        assert!(decode_review(br#"{"kind":"TokenReview","apiVersion":"v1"}"#).is_err());
        assert!(
            decode_review(br#"{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1"}"#)
                .is_ok()
        );
    }
}
