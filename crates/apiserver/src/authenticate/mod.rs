//! Who asks? A front proxy's headers say it, a bearer token, or a client certificate; who shows nothing is anonymous,
//! and who shows something false is nobody at all.
//!
//! A request that has an `Authorization` header speaks for itself: its connection's certificate does not count. Upstream
//! looks at the certificate first. Ours is the stricter way, for it never makes more of a request than it says, and it
//! lets one connection be used in several names.

mod bootstrap_token;
mod certificate;
pub mod peer;
mod static_token;

use std::fmt::Debug;
use std::sync::Arc;

use http::HeaderMap;
use mizzen_object::{Status, Str};
use mizzen_registry::Future;

use crate::identity::User;
use crate::server::Inner;
use crate::token::{self, Bearer, ISSUER};
pub use certificate::identify;
pub(crate) use certificate::named;
pub(crate) use peer::Claim;
pub use peer::Peer;
pub use static_token::{StaticTokens, TokenFileError};

/// How users may show who they are, besides certificates and service accounts' tokens.
#[derive(Debug, Clone, Default)]
pub struct Authentication {
    /// Tokens that an administrator has written down.
    pub tokens: StaticTokens,
    /// Whether secrets of the type `bootstrap.kubernetes.io/token` in `kube-system` are tokens.
    pub bootstrap_tokens: bool,
    /// Those who know tokens that this server does not, in the order in which they are asked.
    pub others: Vec<Arc<dyn Authenticator>>,
}

/// One who knows tokens: another server, a database.
pub trait Authenticator: Debug + Send + Sync {
    /// Whose token it is; none if it is nobody's.
    fn authenticate<'a>(&'a self, token: &'a str) -> Future<'a, Option<User>>;
}

/// The user of a request, or why there is none.
pub(crate) async fn authenticate(server: &Inner, claim: Claim, headers: &HeaderMap) -> Result<User, Status> {
    match claim {
        Claim::Proved(user) => return Ok(user),
        Claim::Connected(user) if !headers.contains_key(http::header::AUTHORIZATION) => return Ok(user),
        _ => {}
    }
    match bearer_token(headers) {
        None if claim == Claim::Failed => Err(Status::unauthorized()),
        None => Ok(User::anonymous()),
        Some(token) => match authenticate_token(server, token, &[ISSUER.into()]) {
            Ok(bearer) => Ok(bearer.user),
            Err(_) => ask_others(server, token).await.ok_or_else(Status::unauthorized),
        },
    }
}

async fn ask_others(server: &Inner, token: &str) -> Option<User> {
    for other in &server.options.authentication.others {
        if let Some(user) = other.authenticate(token).await {
            return Some(user);
        }
    }
    None
}

/// Who shows a token; the error is what an administrator is told. `audiences` says whom the token must be for, at
/// least one of them.
pub(crate) fn authenticate_token(server: &Inner, token: &str, audiences: &[Str]) -> Result<Bearer, String> {
    let options = &server.options.authentication;
    if let Some(user) = options.tokens.find(token) {
        return for_us(user, audiences);
    }
    token::authenticate(server, token, audiences).or_else(|problem| {
        let user = options.bootstrap_tokens.then(|| bootstrap_token::find(server, token)).flatten();
        user.map_or(Err(problem), |user| for_us(user, audiences))
    })
}

/// A token that does not say whom it is for is for this server.
fn for_us(mut user: User, audiences: &[Str]) -> Result<Bearer, String> {
    if !audiences.iter().any(|audience| audience == ISSUER) {
        return Err("invalid bearer token".into());
    }
    user.groups.push("system:authenticated".into());
    Ok(Bearer { user, audiences: vec![ISSUER.into()] })
}

/// Kubernetes: what follows a second space is ignored (request/bearertoken/bearertoken.go).
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let header = headers.get(http::header::AUTHORIZATION)?.to_str().ok()?.trim();
    let mut parts = header.split(' ');
    let scheme = parts.next()?;
    parts.next().filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(header: &str, expected: Option<&str>) {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", header.parse().unwrap());
        assert_eq!(bearer_token(&headers), expected);
    }

    #[test]
    fn a_token_follows_the_word_bearer() {
        check("Bearer abc", Some("abc"));
        check("bearer abc more", Some("abc"));
        check("Bearer ", None);
        check("Basic abc", None);
        check("", None);
    }
}
