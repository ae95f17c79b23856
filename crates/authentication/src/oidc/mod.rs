//! OpenID Connect: JWTs of the issuers of an AuthenticationConfiguration.
//!
//! `configuration` decodes and validates the file, `keys` fetches the JWKS of an issuer,
//! `claim_mappings` maps claims to a user, `expression` evaluates CEL.

mod claim_mappings;
mod configuration;
mod expression;
mod keys;
mod metrics;

use parking_lot::RwLock;
use std::fmt;
use std::sync::Arc;

use mizzen_metrics::Families;
use mizzen_metrics::Reloads;
use mizzen_object::User;
use mizzen_outgoing::OutgoingClient;
use mizzen_registry::{BoxFuture, Registry};
use mizzen_value::{Str, Value, json, time};
use tokio::time::Instant;

use super::{AuthenticatedToken, AuthenticationResult, Authenticator};
use crate::jose::{ALGORITHMS, Algorithm, Unverified, quote_list};
pub use configuration::AuthenticationConfiguration;
use configuration::IssuerConfiguration;
use keys::RemoteKeySet;

/// Kubernetes: the leeway of `nbf`, in seconds (go-oidc).
const LEEWAY: f64 = 300.0;

/// The authenticator of all issuers. Their configuration can be replaced while the server runs.
pub struct Issuers {
    registry: Registry,
    client: OutgoingClient,
    algorithms: Vec<&'static Algorithm>,
    /// The audiences of this server.
    own: Vec<Str>,
    current: RwLock<Arc<Vec<Issuer>>>,
    reloads: Reloads,
}

struct Issuer {
    configuration: IssuerConfiguration,
    keys: Arc<RemoteKeySet>,
}

impl Issuers {
    /// The issuers of a configuration, for a server with the audiences `own`. Tokens must be signed
    /// with one of the algorithms; any if empty.
    pub fn new(
        registry: &Registry,
        configuration: AuthenticationConfiguration,
        algorithms: Vec<&'static Algorithm>,
        own: &[Str],
    ) -> Issuers {
        let algorithms = if algorithms.is_empty() {
            ALGORITHMS.iter().collect()
        } else {
            algorithms
        };
        let issuers = Issuers {
            registry: registry.clone(),
            client: OutgoingClient::plain(registry, None),
            algorithms,
            own: own.to_vec(),
            current: RwLock::default(),
            reloads: Reloads::new("authentication"),
        };
        issuers.replace(configuration);
        issuers
    }

    /// Replaces the configuration. The keys of an issuer with the same endpoint are kept.
    pub fn replace(&self, configuration: AuthenticationConfiguration) {
        let old = self.current();
        let join = |configuration: IssuerConfiguration| {
            let kept = old
                .iter()
                .map(|issuer| &issuer.keys)
                .find(|keys| keys.endpoint == configuration.endpoint);
            let fresh = || {
                Arc::new(RemoteKeySet::new(
                    configuration.endpoint.clone(),
                    self.client.clone(),
                    &self.registry,
                ))
            };
            Issuer {
                keys: kept.cloned().unwrap_or_else(fresh),
                configuration,
            }
        };
        let new = configuration.issuers.into_iter().map(join).collect();
        *self.current.write() = Arc::new(new);
    }

    /// Sets the content of the file in effect, for metrics.
    pub fn set_file_content(&self, text: &str) {
        self.reloads.set_content(text.as_bytes());
    }

    /// Records a reload of the file, for metrics.
    pub fn record_reload(&self, good: bool) {
        self.reloads.record_reload(good, self.registry.now());
    }

    fn current(&self) -> Arc<Vec<Issuer>> {
        self.current.read().clone()
    }

    async fn authenticate_token(&self, text: &str, audiences: &[Str]) -> AuthenticationResult {
        let (issuers, Some(token)) = (self.current(), Unverified::parse(text)) else {
            return Ok(None);
        };
        // Kubernetes: Google has two names.
        let name = match token.claims["iss"].str() {
            "accounts.google.com" => "https://accounts.google.com",
            issuer => issuer,
        };
        let mut issuers = issuers.iter();
        let Some(issuer) = issuers.find(|known| known.configuration.endpoint.issuer == name) else {
            return Ok(None);
        };
        // Tokens of issuers are for this server: no verification if the caller wants other
        // audiences.
        if AuthenticatedToken::for_server(Default::default(), &self.own, audiences).is_none() {
            return Ok(None);
        }
        let started = Instant::now();
        let user = self.verify_and_map(issuer, &token).await;
        issuer
            .keys
            .metrics
            .observe_authentication(user.is_ok(), started.elapsed());
        Ok(AuthenticatedToken::for_server(user?, &self.own, audiences))
    }

    async fn verify_and_map(
        &self,
        issuer: &Issuer,
        token: &Unverified<'_>,
    ) -> Result<User, String> {
        let verified = self.verify(issuer, token).await;
        verified.map_err(|problem| format!("oidc: verify token: {problem}"))?;
        issuer.configuration.mappings.map_user(&token.claims)
    }

    /// Kubernetes: in the order of go-oidc, so that no keys are fetched for a token that is invalid
    /// anyway.
    async fn verify(&self, issuer: &Issuer, token: &Unverified<'_>) -> Result<(), String> {
        let algorithm = token.header["alg"].str();
        if !self.algorithms.iter().any(|known| known.name == algorithm) {
            let known: Vec<Str> = self
                .algorithms
                .iter()
                .map(|known| known.name.into())
                .collect();
            let (algorithm, known) = (json::quote(algorithm), quote_list(&known));
            return Err(format!(
                "oidc: malformed jwt: unexpected signature algorithm {algorithm}; expected {known}"
            ));
        }
        check_audience(&issuer.configuration.audiences, &token.audiences())?;
        check_time(&token.claims, self.registry.now())?;
        issuer.keys.verify(token).await
    }
}

fn check_audience(wanted: &[Str], given: &[Str]) -> Result<(), String> {
    if given.iter().any(|audience| wanted.contains(audience)) {
        return Ok(());
    }
    let given = quote_list(given);
    Err(match wanted {
        [one] => format!("oidc: expected audience {} got {given}", json::quote(one)),
        many => format!(
            "oidc: expected audience in {} got {given}",
            quote_list(many)
        ),
    })
}

/// Kubernetes: a token without `exp` is expired; `iat` is not checked.
fn check_time(claims: &Value, now: i64) -> Result<(), String> {
    let end = claims["exp"].as_f64().unwrap_or(f64::NEG_INFINITY);
    if end < now as f64 {
        return Err(format!(
            "oidc: token is expired (Token Expiry: {})",
            go_time(end)
        ));
    }
    match claims["nbf"].as_f64() {
        Some(begin) if now as f64 + LEEWAY < begin => Err(format!(
            "oidc: current time {} before the nbf (not before) time: {}",
            go_time(now as f64),
            go_time(begin)
        )),
        _ => Ok(()),
    }
}

/// A time as Go prints it, with the year limited to four digits.
fn go_time(seconds: f64) -> String {
    const FIRST: f64 = -62_135_596_800.0;
    const LAST: f64 = 253_402_300_799.0;
    let text = time::from_unix(seconds.clamp(FIRST, LAST) as i64);
    text.replace('T', " ").replace('Z', " +0000 UTC")
}

impl Authenticator for Issuers {
    fn authenticate<'a>(
        &'a self,
        token: &'a str,
        audiences: &'a [Str],
    ) -> BoxFuture<'a, AuthenticationResult> {
        Box::pin(self.authenticate_token(token, audiences))
    }

    fn collect(&self, out: &mut Families) {
        self.reloads.collect(out);
        for issuer in self.current().iter() {
            issuer.keys.metrics.collect(out);
        }
    }
}

impl fmt::Debug for Issuers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let current = self.current();
        f.debug_list()
            .entries(
                current
                    .iter()
                    .map(|issuer| &issuer.configuration.endpoint.issuer),
            )
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::value;

    #[track_caller]
    fn check_at(claims: Value, now: i64, expected: Result<(), &str>) {
        assert_eq!(check_time(&claims, now), expected.map_err(String::from));
    }

    #[test]
    fn a_token_has_a_lifetime() {
        let claims = || value!({ "nbf": 1000, "iat": 5000, "exp": 2000 });
        check_at(claims(), 700, Ok(()));
        check_at(claims(), 2000, Ok(()));
        let early = "oidc: current time 1970-01-01 00:11:39 +0000 UTC before the nbf (not before) time: 1970-01-01 00:16:40 +0000 UTC";
        check_at(claims(), 699, Err(early));
        let late = "oidc: token is expired (Token Expiry: 1970-01-01 00:33:20 +0000 UTC)";
        check_at(claims(), 2001, Err(late));
        let endless = "oidc: token is expired (Token Expiry: 0001-01-01 00:00:00 +0000 UTC)";
        check_at(value!({ "nbf": 0 }), 1, Err(endless));
        check_at(value!({ "exp": "2000" }), 1, Err(endless));
    }

    #[test]
    fn a_token_needs_one_of_the_audiences() {
        let check = |wanted: &[&str], given: &[&str], expected: Result<(), &str>| {
            let texts =
                |list: &[&str]| list.iter().map(|text| Str::from(*text)).collect::<Vec<_>>();
            let found = check_audience(&texts(wanted), &texts(given));
            assert_eq!(found, expected.map_err(String::from));
        };
        check(&["a", "b"], &["b", "c"], Ok(()));
        check(
            &["a"],
            &["b"],
            Err(r#"oidc: expected audience "a" got ["b"]"#),
        );
        check(
            &["a", "b"],
            &[],
            Err(r#"oidc: expected audience in ["a" "b"] got []"#),
        );
    }
}
