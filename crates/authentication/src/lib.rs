//! Authentication: the user of a request by front proxy headers, client certificate, or bearer
//! token. A request without credentials is anonymous; one whose credentials are all invalid gets
//! 401.
//!
//! Kubernetes: in this order, and the first authenticator that succeeds decides, so a request with
//! a valid certificate is its owner's whatever token it carries
//! (pkg/kubeapiserver/authenticator/config.go).
//!
//! | part | the question it answers |
//! |---|---|
//! | [`RequestAuthenticator`] | Which user sends a request? |
//! | [`Authorities`] | Whose client certificates and front proxies are trusted? |
//! | [`ServiceAccountTokens`], [`TokenSigner`] | How are service account tokens issued and verified? |
//! | [`Issuers`], [`TokenWebhook`], [`StaticTokens`] | Who else authenticates tokens? |
//! | [`jose`] | Is a JWT signed by a key? |
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! use std::sync::Arc;
//!
//! use http::HeaderMap;
//! use mizzen_authentication::{
//!     Authentication, AuthenticatorOptions, PeerClaim, RequestAuthenticator, ServiceAccountTokens,
//!     StaticTokens,
//! };
//! use mizzen_registry::clock::{SystemRandom, WallClock};
//! use mizzen_registry::{Registry, Store};
//! use tokio::time::Instant;
//!
//! let store = Store::in_memory(Default::default());
//! let registry = Registry::new(store, Arc::new(WallClock), Arc::new(SystemRandom));
//! let options = AuthenticatorOptions {
//!     authentication: Authentication {
//!         tokens: StaticTokens::parse("s3cret,jane,7").unwrap(),
//!         ..Authentication::default()
//!     },
//!     service_accounts: ServiceAccountTokens::default(),
//!     signer: None,
//! };
//! let authenticator = RequestAuthenticator::new(options, &registry, |_| None, Box::new(|_, _| {}));
//!
//! let mut headers = HeaderMap::new();
//! headers.insert("authorization", "Bearer s3cret".parse().unwrap());
//! let user = authenticator
//!     .authenticate(PeerClaim::None, "/api", &mut headers, Instant::now())
//!     .await;
//! assert_eq!(user.unwrap().name, "jane");
//! # }
//! ```

mod anonymous;
mod authorities;
mod bootstrap_token;
mod cache_metrics;
mod certificate;
mod certificate_pool;
mod credential_metrics;
pub mod jose;
mod metrics;
mod oidc;
mod peer;
mod proxy_headers;
mod secret;
mod static_token;
mod token;
mod token_cache;
mod webhook;
mod websocket;

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

use http::HeaderMap;
use mizzen_metrics::Families;
use mizzen_object::{Status, User, aggregate};
use mizzen_registry::{BoxFuture, Registry, Resource};
use mizzen_request::header;
use mizzen_value::{Str, Value};
use tokio::time::Instant;

pub use anonymous::Anonymous;
pub use authorities::{Authorities, Certified, TrustedAuthorities};
use credential_metrics::CredentialCounts;
use metrics::{AuthenticationMetrics, AuthenticationOutcome};
pub use oidc::{AuthenticationConfiguration, Issuers};
pub use peer::{Identify, PeerClaim, PeerIdentity, RequestOrigin, extra_from_headers};
pub use proxy_headers::{ProxyHeaders, SharedProxyHeaders};
pub use static_token::{StaticTokens, TokenFileError, TokenFileWarning};
use token::VerifiedTokens;
pub use token::{ServiceAccountTokens, TokenSigner, issue as issue_token};
pub use token_cache::TokenCache;
pub use webhook::{ReviewVersion, TokenWebhook, WebhookOptions, reviewed_user};
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
    pub proxy_headers: SharedProxyHeaders,
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
    fn for_server(user: User, own: &[Str], wanted: &[Str]) -> Option<AuthenticatedToken> {
        let audiences: Vec<Str> = wanted
            .iter()
            .filter(|audience| own.contains(audience))
            .cloned()
            .collect();
        (!audiences.is_empty()).then_some(AuthenticatedToken { user, audiences })
    }
}

/// What a [`RequestAuthenticator`] is made of.
pub struct AuthenticatorOptions {
    /// The authenticators besides client certificates and service account tokens.
    pub authentication: Authentication,
    /// The issuers, keys and audiences of service account tokens.
    pub service_accounts: ServiceAccountTokens,
    /// The private key of service account tokens; none if the server issues none.
    pub signer: Option<Arc<dyn TokenSigner>>,
}

/// Applies a merge patch to the object at a path as the server itself, in the background.
pub type MergePatchFn = Box<dyn Fn(String, Value) + Send + Sync>;

/// Authenticates the requests of a server.
pub struct RequestAuthenticator {
    options: AuthenticatorOptions,
    registry: Registry,
    /// The core resources that tokens are stored in or bound to, by plural name.
    resources: HashMap<&'static str, Resource>,
    verified: VerifiedTokens,
    merge_patch: MergePatchFn,
    metrics: AuthenticationMetrics,
    credentials: CredentialCounts,
}

impl RequestAuthenticator {
    /// `core_resource` finds a resource of the core group by its plural name. `merge_patch` labels the secrets of
    /// legacy tokens with the day of their last use.
    pub fn new(
        options: AuthenticatorOptions,
        registry: &Registry,
        core_resource: impl Fn(&str) -> Option<Resource>,
        merge_patch: MergePatchFn,
    ) -> RequestAuthenticator {
        let found = ["nodes", "pods", "secrets", "serviceaccounts"]
            .into_iter()
            .filter_map(|plural| Some((plural, core_resource(plural)?)));
        RequestAuthenticator {
            options,
            registry: registry.clone(),
            resources: found.collect(),
            verified: VerifiedTokens::default(),
            merge_patch,
            metrics: AuthenticationMetrics::default(),
            credentials: CredentialCounts::default(),
        }
    }

    /// The user of a request that started at `started`; 401 if there is none.
    pub async fn authenticate(
        &self,
        claim: PeerClaim,
        path: &str,
        headers: &mut HeaderMap,
        started: Instant,
    ) -> Result<User, Status> {
        let names = self.options.authentication.proxy_headers.current();
        let claim = claim.resolve_front_proxy(&names, headers);
        let found = self.identify_user(claim, path, headers).await;
        names.remove_from(headers);
        match &found {
            Ok(user) => self.metrics.record_user(&user.name, started.elapsed()),
            Err(result) => {
                let took = started.elapsed();
                self.metrics.record_authentication(*result, took);
            }
        }
        found.map_err(|_| Status::unauthorized())
    }

    async fn identify_user(
        &self,
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
            && let Some(user) = succeeded(self.authenticate_own_token(&token).await.map(Some))
        {
            return Ok(user);
        }
        let by_protocol = match ProtocolToken::from_headers(headers) {
            Ok(None) => Ok(None),
            Err(problem) => Err(problem.into()),
            Ok(Some(protocol)) => {
                let user = self.authenticate_own_token(&protocol.token).await;
                user.map(|user| {
                    protocol.remove_from(headers);
                    Some(user)
                })
            }
        };
        if let Some(user) = succeeded(by_protocol) {
            return Ok(user);
        }
        match self.options.authentication.anonymous.allows(path) {
            _ if has_failed => Err(AuthenticationOutcome::Error),
            true => Ok(User::anonymous()),
            false => Err(AuthenticationOutcome::Failure),
        }
    }

    /// Authenticates a token that is shown to the server itself.
    async fn authenticate_own_token(&self, token: &str) -> Result<User, String> {
        let audiences = self.options.service_accounts.audiences();
        self.authenticate_token(token, audiences)
            .await
            .map(|token| token.user)
    }

    /// Authenticates a token that must be for at least one of the `audiences`. The error is for logs.
    pub async fn authenticate_token(
        &self,
        token: &str,
        audiences: &[Str],
    ) -> Result<AuthenticatedToken, String> {
        let mut problems = vec!["invalid bearer token".to_string()];
        let options = &self.options.authentication;
        let own = self.options.service_accounts.audiences();
        let for_server = |user| AuthenticatedToken::for_server(user, own, audiences);
        let mut found = options.tokens.find(token).and_then(for_server);
        if found.is_none() {
            let result = self.authenticate_service_account(token, audiences).await;
            found = unwrap_result(result, &mut problems);
        }
        if found.is_none() && options.bootstrap_tokens {
            let user = self.authenticate_bootstrap_token(token);
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

    /// Records a request with a client certificate that expires in that many seconds.
    pub fn record_client_certificate(&self, expires_in: i64) {
        self.credentials.certificate(expires_in);
    }

    /// Adds its series, and those of all authenticators, to a scrape.
    pub fn collect(&self, out: &mut Families) {
        self.metrics.collect(out);
        self.credentials.collect(out);
        let authenticators = &self.options.authentication.authenticators;
        authenticators.iter().for_each(|other| other.collect(out));
    }
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
pub fn warning(claim: &PeerClaim, headers: &HeaderMap) -> Option<String> {
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
