//! Whose token is it? A TokenReview tells.

use mizzen_object::{Str, Value, value};
use mizzen_registry::Future;

use super::Upstream;
use crate::authenticate::Authenticator;
use crate::identity::User;

const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

impl Authenticator for Upstream {
    fn authenticate<'a>(&'a self, token: &'a str) -> Future<'a, Option<User>> {
        Box::pin(self.review(token))
    }
}

impl Upstream {
    async fn review(&self, token: &str) -> Option<User> {
        if let Some(known) = self.0.users.get(token) {
            return known;
        }
        let review = value!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": { "token": token },
        });
        match self.ask("POST", PATH, Some(&review)).await {
            Ok((201, review)) => {
                let user = user(&review["status"]);
                self.0.users.put(token.into(), user.clone());
                user
            }
            Ok((code, status)) => {
                tracing::warn!(code, message = status["message"].str(), "a TokenReview was refused");
                None
            }
            Err(problem) => {
                tracing::warn!(%problem, "a token cannot be looked at");
                None
            }
        }
    }
}

fn user(status: &Value) -> Option<User> {
    let user = &status["user"];
    let groups = user["groups"].list().iter().map(|group| Str::from(group.str())).collect();
    let (name, uid) = (user["username"].str().into(), user["uid"].str().into());
    status["authenticated"].bool().then(|| User { name, uid, groups, extra: user["extra"].clone() })
}
