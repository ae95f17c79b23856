//! Authentication: the user of a request by front proxy headers, client certificate, or bearer
//! token. A request without credentials is anonymous; one whose credentials are all invalid gets
//! 401.
//!
//! Kubernetes: in this order, and the first authenticator that succeeds decides, so a request with
//! a valid certificate is its owner's whatever token it carries
//! (pkg/kubeapiserver/authenticator/config.go).

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
use mizzen_object::{Status, User, aggregate};
use mizzen_registry::BoxFuture;
use mizzen_value::Str;
use tokio::time::Instant;

use crate::header;
use crate::metrics::AuthenticationOutcome;
use crate::server::ServerParts;
use crate::token;
pub use anonymous::Anonymous;
pub(crate) use anonymous::Unauthenticated;
pub use authorities::{Authorities, Certified, TrustedAuthorities};
pub use oidc::{AuthenticationConfiguration, Issuers};
pub use peer::PeerIdentity;
pub(crate) use peer::{PeerClaim, RequestOrigin};
pub use proxy_headers::ProxyHeaders;
pub use static_token::{StaticTokens, TokenFileError, TokenFileWarning};
pub(crate) use token_cache::TokenCache;
pub use webhook::{ReviewVersion, TokenWebhook, WebhookOptions};
use websocket::ProtocolToken;

/// The authenticators besides client certificates and service account tokens.
#[derive(Debug, Clone, Default)]
pub struct Authentication {
    /// The static token file.
    pub tokens: StaticTokens,
    /// Whether secrets of the type `bootstrap.kubernetes.io/token` in `kube-system` are tokens.
    pub bootstrap_tokens: bool,
    /// Further token authenticators, in the order in which they are tried.
    pub authenticators: Vec<Arc<dyn Authenticator>>,
    /// Where anonymous requests are allowed.
    pub anonymous: Anonymous,
    /// The headers in which front proxies name the user.
    pub proxy_headers: ProxyHeaders,
}

/// A token authenticator: a webhook, an OpenID Connect issuer.
pub trait Authenticator: Debug + Send + Sync {
    /// Authenticates a token that must be for at least one of the `audiences`.
    fn authenticate<'a>(
        &'a self,
        token: &'a str,
        audiences: &'a [Str],
    ) -> BoxFuture<'a, AuthenticationResult>;

    /// Adds its series to a scrape of the server's metrics.
    fn collect(&self, out: &mut Families) {
        let _ = out;
    }
}

/// The user of a token; none if this authenticator does not recognize the token. The error says why
/// a recognized token is invalid or could not be verified; it is logged, and not sent to the
/// client.
pub type AuthenticationResult = Result<Option<AuthenticatedToken>, String>;

/// The result of a successful token authentication.
#[derive(Debug, Clone, PartialEq)]
pub struct AuthenticatedToken {
    /// The authenticated user.
    pub user: User,
    /// The audiences of the token, of those that were requested.
    pub audiences: Vec<Str>,
}

impl AuthenticatedToken {
    /// A token without audiences is for the server itself: none unless one of the server's own
    /// audiences is requested.
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

/// The user of a request that started at `started`; 401 if there is none.
pub(crate) async fn authenticate(
    server: &ServerParts,
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
    server: &ServerParts,
    claim: PeerClaim,
    path: &str,
    headers: &mut HeaderMap,
) -> Result<User, AuthenticationOutcome> {
    let (token, mut has_failed) = (bearer_token(headers), claim == PeerClaim::Failed);
    if let PeerClaim::Authenticated(user) = claim {
        return Ok(user);
    }
    let mut succeeded = |result: Result<Option<User>, String>| {
        result.unwrap_or_else(|problem| {
            tracing::debug!(%problem, "invalid bearer token");
            has_failed = true;
            None
        })
    };
    if let Some(token) = token
        && let Some(user) = succeeded(authenticate_own_token(server, &token).await.map(Some))
    {
        return Ok(user);
    }
    let by_protocol = match ProtocolToken::from_headers(headers) {
        Ok(None) => Ok(None),
        Err(problem) => Err(problem.into()),
        Ok(Some(protocol)) => {
            let user = authenticate_own_token(server, &protocol.token).await;
            user.map(|user| {
                protocol.remove_from(headers);
                Some(user)
            })
        }
    };
    if let Some(user) = succeeded(by_protocol) {
        return Ok(user);
    }
    match server.options.authentication.anonymous.allows(path) {
        _ if has_failed => Err(AuthenticationOutcome::Error),
        true => Ok(User::anonymous()),
        false => Err(AuthenticationOutcome::Failure),
    }
}

/// Authenticates a token that is shown to the server itself.
async fn authenticate_own_token(server: &ServerParts, token: &str) -> Result<User, String> {
    let audiences = server.options.service_accounts.audiences();
    authenticate_token(server, token, audiences)
        .await
        .map(|token| token.user)
}

/// Authenticates a token that must be for at least one of the `audiences`. The error is for logs.
pub(crate) async fn authenticate_token(
    server: &ServerParts,
    token: &str,
    audiences: &[Str],
) -> Result<AuthenticatedToken, String> {
    let mut problems = vec!["invalid bearer token".to_string()];
    let options = &server.options.authentication;
    let own = server.options.service_accounts.audiences();
    let for_server = |user| AuthenticatedToken::for_server(user, own, audiences);
    let mut found = options.tokens.find(token).and_then(for_server);
    if found.is_none() {
        found = unwrap_result(token::authenticate(server, token, audiences), &mut problems);
    }
    if found.is_none() && options.bootstrap_tokens {
        let user = bootstrap_token::authenticate_bootstrap_token(server, token);
        found = user.and_then(for_server);
    }
    for authenticator in &options.authenticators {
        if found.is_none() {
            let result = authenticator.authenticate(token, audiences).await;
            found = unwrap_result(result, &mut problems);
        }
    }
    found
        .map(|token| AuthenticatedToken {
            user: token.user.authenticated(),
            ..token
        })
        .ok_or_else(|| aggregate(problems).unwrap_or_default())
}

fn unwrap_result(
    result: AuthenticationResult,
    problems: &mut Vec<String>,
) -> Option<AuthenticatedToken> {
    result.unwrap_or_else(|problem| {
        problems.push(problem);
        None
    })
}

/// The warning for a bearer token that is ignored because of an extra space before it.
pub(crate) fn warning(claim: &PeerClaim, headers: &HeaderMap) -> Option<String> {
    let needs_token = matches!(claim, PeerClaim::None | PeerClaim::Failed);
    let header = header::text(headers, http::header::AUTHORIZATION);
    match bearer(&header) {
        Some(["", _]) if needs_token => Some(EXTRA_SPACE.into()),
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

/// The bearer token up to the next space, and the rest. Kubernetes: the rest is ignored.
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
    fn an_extra_space_before_a_token_is_warned_about() {
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
