//! Authentication by TokenReview.

use mizzen_authentication::{
    AuthenticatedToken, AuthenticationResult, Authenticator, reviewed_user,
};
use mizzen_metrics::Families;
use mizzen_registry::BoxFuture;
use mizzen_value::{Str, value};

use super::Upstream;

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
                return Ok(reviewed_user(&review["status"]).map(bearer));
            }
            Ok((_, status)) => format!("a TokenReview was refused: {}", status["message"].str()),
            Err(problem) => problem.to_string(),
        };
        tracing::warn!(%problem, "cannot review a token");
        Err(problem)
    }
}
