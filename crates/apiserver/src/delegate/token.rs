//! Authentication by TokenReview.

use mizzen_metrics::Families;
use mizzen_object::User;
use mizzen_registry::BoxFuture;
use mizzen_value::{Str, Value, value};

use super::Upstream;
use crate::authentication::{AuthenticatedToken, AuthenticationResult, Authenticator};

const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

impl Authenticator for Upstream {
    fn authenticate<'a>(
        &'a self,
        token: &'a str,
        audiences: &'a [Str],
    ) -> BoxFuture<'a, AuthenticationResult> {
        Box::pin(
            self.0
                .users
                .get_or_fetch(token, audiences, self.review(token, audiences)),
        )
    }

    fn collect(&self, out: &mut Families) {
        self.0.users.collect(out);
    }
}

impl Upstream {
    /// The main server checks its own audiences, so none are sent.
    async fn review(&self, token: &str, audiences: &[Str]) -> AuthenticationResult {
        let review = value!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": { "token": token },
        });
        let problem = match self.request("POST", PATH, Some(&review)).await {
            Ok((201, review)) => {
                let bearer = |user| AuthenticatedToken {
                    user,
                    audiences: audiences.to_vec(),
                };
                return Ok(user(&review["status"]).map(bearer));
            }
            Ok((_, status)) => format!("a TokenReview was refused: {}", status["message"].str()),
            Err(problem) => problem.to_string(),
        };
        tracing::warn!(%problem, "cannot review a token");
        Err(problem)
    }
}

/// The user in the status of a TokenReview.
pub(crate) fn user(status: &Value) -> Option<User> {
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
