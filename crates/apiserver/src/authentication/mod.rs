//! Who asks? A front proxy's headers say it, a client certificate, or a bearer token; a request without credentials is
//! anonymous, and one whose credentials are all invalid is rejected.
//!
//! Kubernetes: in this order, and the first authenticator that knows the user decides, so a request with a good
//! certificate is its owner's whatever token it carries (pkg/kubeapiserver/authenticator/config.go).

mod anonymous;
mod authorities;
mod bootstrap_token;
mod cache_metrics;
mod certificate;
mod certificate_pool;
mod oidc;
pub mod peer;
mod proxy_headers;
pub(crate) mod secret;
mod static_token;
mod token_cache;
mod webhook;
mod websocket;

use std::fmt::Debug;
use std::sync::Arc;

use http::HeaderMap;
use mizzen_metrics::Families;
use mizzen_object::{Status, User, in_one};
use mizzen_registry::Future;
use mizzen_value::Str;
use tokio::time::Instant;

use crate::header;
use crate::metrics::AuthenticationOutcome;
use crate::server::Inner;
use crate::token;
pub use anonymous::Anonymous;
pub(crate) use anonymous::Unauthenticated;
pub use authorities::{Authorities, Certified, Trusted};
pub use oidc::{AuthenticationConfiguration, Issuers};
pub use peer::Peer;
pub(crate) use peer::{PeerClaim, RequestOrigin};
pub use proxy_headers::ProxyHeaders;
pub use static_token::{StaticTokens, TokenFileError, TokenFileWarning};
pub(crate) use token_cache::TokenCache;
pub use webhook::{ReviewVersion, TokenWebhook, WebhookOptions};
use websocket::ProtocolToken;

/// How users may show who they are, besides certificates and service accounts' tokens.
#[derive(Debug, Clone, Default)]
pub struct Authentication {
    /// Tokens that an administrator has written down.
    pub tokens: StaticTokens,
    /// Whether secrets of the type `bootstrap.kubernetes.io/token` in `kube-system` are tokens.
    pub bootstrap_tokens: bool,
    /// Those who know tokens that this server does not, in the order in which they are asked.
    pub authenticators: Vec<Arc<dyn Authenticator>>,
    /// Where those are let in who show nothing.
    pub anonymous: Anonymous,
    /// In which headers front proxies say for whom they ask.
    pub proxy_headers: ProxyHeaders,
}

/// One who knows tokens: another server, a database.
pub trait Authenticator: Debug + Send + Sync {
    /// Whose token it is. `audiences` says whom it must be for, at least one of them.
    fn authenticate<'a>(
        &'a self,
        token: &'a str,
        audiences: &'a [Str],
    ) -> Future<'a, AuthenticationResult>;

    /// Adds its series to a scrape of the server's metrics.
    fn collect(&self, out: &mut Families) {
        let _ = out;
    }
}

/// Who shows a token: somebody, or nobody who is known here. The error is why somebody was not let in who seems to be
/// known, or cannot be asked about; it is for administrators.
pub type AuthenticationResult = Result<Option<AuthenticatedToken>, String>;

/// Somebody who has shown a token.
#[derive(Debug, Clone, PartialEq)]
pub struct AuthenticatedToken {
    /// Who it is.
    pub user: User,
    /// Whom the token is for, of those that were asked for.
    pub audiences: Vec<Str>,
}

impl AuthenticatedToken {
    /// Somebody with a token that does not say whom it is for: it is for the server itself, so the answer is nobody
    /// unless that is asked for.
    pub(crate) fn for_server(
        user: User,
        own: &[Str],
        wanted: &[Str],
    ) -> Option<AuthenticatedToken> {
        let audiences: Vec<Str> = wanted
            .iter()
            .filter(|audience| own.contains(audience))
            .cloned()
            .collect();
        (!audiences.is_empty()).then_some(AuthenticatedToken { user, audiences })
    }
}

/// The user of a request to a path that came at `started`, or why there is none.
pub(crate) async fn authenticate(
    server: &Inner,
    claim: PeerClaim,
    path: &str,
    headers: &mut HeaderMap,
    started: Instant,
) -> Result<User, Status> {
    let names = &server.options.authentication.proxy_headers;
    let claim = claim.resolve_front_proxy(names, headers);
    let (found, results) = (
        identify_user(server, claim, path, headers).await,
        &server.metrics.auth,
    );
    names.remove_from(headers);
    match &found {
        Ok(user) => results.record_user(&user.name, started.elapsed()),
        Err(result) => results.record_authentication(*result, started.elapsed()),
    }
    found.map_err(|_| Status::unauthorized())
}

async fn identify_user(
    server: &Inner,
    claim: PeerClaim,
    path: &str,
    headers: &mut HeaderMap,
) -> Result<User, AuthenticationOutcome> {
    let (token, mut has_failed) = (bearer_token(headers), claim == PeerClaim::Failed);
    if let PeerClaim::Authenticated(user) = claim {
        return Ok(user);
    }
    let mut judge = |shown: Result<Option<User>, String>| {
        shown.unwrap_or_else(|problem| {
            tracing::debug!(%problem, "a token was refused");
            has_failed = true;
            None
        })
    };
    if let Some(user) = judge(by_header(server, token).await) {
        return Ok(user);
    }
    if let Some(user) = judge(by_protocol(server, headers).await) {
        return Ok(user);
    }
    match server.options.authentication.anonymous.allows(path) {
        _ if has_failed => Err(AuthenticationOutcome::Error),
        true => Ok(User::anonymous()),
        false => Err(AuthenticationOutcome::Failure),
    }
}

async fn by_header(server: &Inner, token: Option<String>) -> Result<Option<User>, String> {
    let Some(token) = token else { return Ok(None) };
    authenticate_own_token(server, &token).await.map(Some)
}

/// Who shows a token as a protocol, if somebody does. Nobody further on sees it.
async fn by_protocol(server: &Inner, headers: &mut HeaderMap) -> Result<Option<User>, String> {
    let Some(shown) = ProtocolToken::from_headers(headers)? else {
        return Ok(None);
    };
    let user = authenticate_own_token(server, &shown.token).await?;
    shown.remove_from(headers);
    Ok(Some(user))
}

/// Who shows a token to the server itself.
async fn authenticate_own_token(server: &Inner, token: &str) -> Result<User, String> {
    let audiences = server.options.service_accounts.audiences();
    authenticate_token(server, token, audiences)
        .await
        .map(|bearer| bearer.user)
}

/// Who shows a token; the error is what an administrator is told. `audiences` says whom the token must be for, at
/// least one of them.
pub(crate) async fn authenticate_token(
    server: &Inner,
    token: &str,
    audiences: &[Str],
) -> Result<AuthenticatedToken, String> {
    let mut problems = vec!["invalid bearer token".to_string()];
    let mut verdict = ask_us(server, token, audiences, &mut problems);
    for other in &server.options.authentication.authenticators {
        if verdict.is_none() {
            verdict = unwrap_result(other.authenticate(token, audiences).await, &mut problems);
        }
    }
    let known = |bearer: AuthenticatedToken| AuthenticatedToken {
        user: bearer.user.authenticated(),
        ..bearer
    };
    verdict
        .map(known)
        .ok_or_else(|| in_one(problems).unwrap_or_default())
}

/// Asks those who know tokens without asking anybody else.
fn ask_us(
    server: &Inner,
    token: &str,
    audiences: &[Str],
    problems: &mut Vec<String>,
) -> Option<AuthenticatedToken> {
    let options = &server.options.authentication;
    let for_us = |user| {
        AuthenticatedToken::for_server(user, server.options.service_accounts.audiences(), audiences)
    };
    options
        .tokens
        .find(token)
        .and_then(for_us)
        .or_else(|| unwrap_result(token::authenticate(server, token, audiences), problems))
        .or_else(|| {
            options
                .bootstrap_tokens
                .then(|| bootstrap_token::authenticate_bootstrap_token(server, token))?
                .and_then(for_us)
        })
}

fn unwrap_result(
    verdict: AuthenticationResult,
    problems: &mut Vec<String>,
) -> Option<AuthenticatedToken> {
    verdict.unwrap_or_else(|problem| {
        problems.push(problem);
        None
    })
}

/// What somebody is told who shows a token that is not seen, for it is not where it should be.
pub(crate) fn warning(claim: &PeerClaim, headers: &HeaderMap) -> Option<String> {
    let asked = matches!(claim, PeerClaim::None | PeerClaim::Failed);
    let header = header::text(headers, http::header::AUTHORIZATION);
    match bearer(&header) {
        Some(["", _]) if asked => Some(EXTRA_SPACE.into()),
        _ => None,
    }
}

/// Kubernetes: request/bearertoken/bearertoken.go.
const EXTRA_SPACE: &str = "the provided Authorization header contains extra space before the bearer token, and is ignored";

fn bearer_token(headers: &HeaderMap) -> Option<String> {
    let header = header::text(headers, http::header::AUTHORIZATION);
    let [token, _] = bearer(&header)?;
    (!token.is_empty()).then(|| token.into())
}

/// What follows the word: a token up to the next space, and the rest. Kubernetes: the rest is ignored.
fn bearer(header: &str) -> Option<[&str; 2]> {
    let (scheme, rest) = header.trim().split_once(' ')?;
    let (token, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    scheme
        .eq_ignore_ascii_case("bearer")
        .then_some([token, rest])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(header: &str, expected: Option<&str>) {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", header.parse().unwrap());
        assert_eq!(bearer_token(&headers).as_deref(), expected);
    }

    #[test]
    fn a_token_follows_the_word_bearer() {
        check("Bearer abc", Some("abc"));
        check("bearer abc more", Some("abc"));
        check("Bearer é", Some("é"));
        check("Bearer ", None);
        check("Bearer  abc", None);
        check("Basic abc", None);
        check("", None);
    }

    #[track_caller]
    fn check_warning(claim: PeerClaim, header: &str, expected: bool) {
        let headers =
            HeaderMap::from_iter([(http::header::AUTHORIZATION, header.parse().unwrap())]);
        assert_eq!(
            warning(&claim, &headers).is_some(),
            expected,
            "{claim:?} {header}"
        );
    }

    #[test]
    fn who_puts_too_much_space_before_a_token_is_told() {
        check_warning(PeerClaim::None, "Bearer  abc", true);
        check_warning(PeerClaim::Failed, "bearer   abc", true);
        check_warning(PeerClaim::None, "Bearer abc  d", false);
        check_warning(PeerClaim::None, "Bearer ", false);
        check_warning(PeerClaim::None, "Basic  abc", false);
        check_warning(
            PeerClaim::Authenticated(User::anonymous()),
            "Bearer  abc",
            false,
        );
    }
}
