//! The JWKS of an issuer: fetched when a token has an unknown key, and cached.
//!
//! Invariant: an issuer that is down, or a flood of tokens with invented keys, costs each request a
//! bounded time and the issuer a bounded number of fetches. Cached keys stay valid meanwhile.

use parking_lot::RwLock;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mizzen_outgoing::{CallLimit, OutgoingClient, Trust};
use mizzen_registry::Registry;
use mizzen_value::{Value, json};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use super::metrics::IssuerMetrics;
use crate::jose::{PublicKey, Unverified};

/// The path of the discovery document.
const WELL_KNOWN: &str = "/.well-known/openid-configuration";
/// The time limit of a request, including the wait for a fetch of another request.
const PATIENCE: Duration = Duration::from_secs(10);
/// The maximum size of a response.
const MAX_ANSWER: usize = 1024 * 1024;
/// The burst of fetches, and the period after which one more is allowed.
const BURST: u32 = 5;
const RECOVERY: Duration = Duration::from_secs(10);

/// Where an issuer is.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct IssuerEndpoint {
    /// The issuer URL.
    pub issuer: String,
    /// The URL of the discovery document, if it is not below the issuer URL.
    pub discovery: String,
    pub trust: Trust,
}

impl IssuerEndpoint {
    fn discovery_url(&self) -> String {
        match self.discovery.as_str() {
            "" => format!("{}{WELL_KNOWN}", self.issuer.trim_end_matches('/')),
            url => url.to_owned(),
        }
    }
}

/// The cached keys of one issuer.
pub(super) struct RemoteKeySet {
    pub endpoint: IssuerEndpoint,
    pub metrics: IssuerMetrics,
    registry: Registry,
    client: OutgoingClient,
    key_set: RwLock<KeySet>,
    fetch_state: Mutex<FetchState>,
}

#[derive(Default, Clone)]
struct KeySet {
    keys: Arc<Vec<PublicKey>>,
    /// How often they were fetched.
    generation: u64,
}

/// Held by the request that fetches.
struct FetchState {
    /// The JWKS URL, once discovered.
    keys_url: Option<String>,
    tokens: u32,
    refilled: Instant,
}

impl RemoteKeySet {
    pub(super) fn new(
        endpoint: IssuerEndpoint,
        client: OutgoingClient,
        registry: &Registry,
    ) -> RemoteKeySet {
        let fetch_state = FetchState {
            keys_url: None,
            tokens: BURST,
            refilled: Instant::now(),
        };
        let (metrics, registry) = (IssuerMetrics::new(&endpoint.issuer), registry.clone());
        RemoteKeySet {
            endpoint,
            metrics,
            registry,
            client,
            key_set: RwLock::default(),
            fetch_state: Mutex::new(fetch_state),
        }
    }

    /// Whether the issuer has signed a token; the error says why not, or why that is unknown.
    pub(super) async fn verify(&self, token: &Unverified<'_>) -> Result<(), String> {
        let known = self.current();
        if is_signed(token, &known.keys) {
            return Ok(());
        }
        let until = Instant::now() + PATIENCE;
        let fetched = match timeout_at(until, self.fetch(known.generation, until)).await {
            Ok(fetched) => fetched,
            Err(_) => Err("context deadline exceeded".into()),
        };
        let keys =
            fetched.map_err(|why| format!("failed to verify signature: fetching keys {why}"))?;
        match is_signed(token, &keys) {
            true => Ok(()),
            false => Err("failed to verify signature: failed to verify id token signature".into()),
        }
    }

    fn current(&self) -> KeySet {
        self.key_set.read().clone()
    }

    /// Keys newer than `generation`. One request fetches at a time; waiting ones use its result.
    async fn fetch(&self, generation: u64, until: Instant) -> Result<Arc<Vec<PublicKey>>, String> {
        let mut fetch_state = self.fetch_state.lock().await;
        let known = self.current();
        if known.generation > generation {
            return Ok(known.keys);
        }
        fetch_state.take_token()?;
        let fetched = self
            .fetch_key_set(
                &mut fetch_state,
                CallLimit {
                    until,
                    bytes: MAX_ANSWER,
                },
            )
            .await;
        self.metrics
            .record_fetch(fetched.is_ok(), self.registry.now());
        let keys = Arc::new(fetched.inspect_err(|problem| {
            tracing::warn!(
                issuer = self.endpoint.issuer,
                problem,
                "cannot fetch the keys of an issuer"
            );
        })?);
        let known = KeySet {
            keys: keys.clone(),
            generation: generation + 1,
        };
        *self.key_set.write() = known;
        Ok(keys)
    }

    async fn fetch_key_set(
        &self,
        fetch_state: &mut FetchState,
        limit: CallLimit,
    ) -> Result<Vec<PublicKey>, String> {
        let url = match &fetch_state.keys_url {
            Some(url) => url.clone(),
            None => {
                let url = self.discover(limit).await?;
                fetch_state.keys_url.insert(url).clone()
            }
        };
        let body = self.fetch_text(&url, limit).await?;
        let set = read(&url, &body)?;
        self.metrics.set_key_set(&body);
        Ok(set["keys"]
            .list()
            .iter()
            .filter_map(PublicKey::from_jwk)
            .collect())
    }

    /// The JWKS URL of the discovery document, which must name the same issuer.
    async fn discover(&self, limit: CallLimit) -> Result<String, String> {
        let IssuerEndpoint { issuer, .. } = &self.endpoint;
        let url = self.endpoint.discovery_url();
        let description = read(&url, &self.fetch_text(&url, limit).await?)?;
        let (said, url) = (description["issuer"].str(), description["jwks_uri"].str());
        if said != issuer {
            let (wanted, said) = (json::quote(issuer), json::quote(said));
            return Err(format!(
                "oidc: issuer did not match the issuer returned by provider, expected {wanted} got {said}"
            ));
        }
        match url.is_empty() {
            true => Err("provider did not return JWKS URL".into()),
            false => Ok(url.to_owned()),
        }
    }

    async fn fetch_text(&self, url: &str, limit: CallLimit) -> Result<Bytes, String> {
        self.client
            .get(url, &self.endpoint.trust, limit)
            .await
            .map_err(|error| error.to_string())
    }
}

fn read(url: &str, body: &[u8]) -> Result<Value, String> {
    json::parse(body).map_err(|error| format!("oidc: {url} is no JSON: {error}"))
}

/// Kubernetes: a token without `kid` may be signed by any key.
fn is_signed(token: &Unverified, keys: &[PublicKey]) -> bool {
    let id = token.header["kid"].str();
    keys.iter()
        .filter(|key| id.is_empty() || key.id == id)
        .any(|key| token.is_signed_by(key))
}

impl FetchState {
    /// Takes a token of the rate limit, which refills over time.
    fn take_token(&mut self) -> Result<(), String> {
        let periods = self.refilled.elapsed().div_duration_f64(RECOVERY) as u32;
        self.tokens = self.tokens.saturating_add(periods).min(BURST);
        self.refilled += RECOVERY * periods;
        if self.tokens == BURST {
            self.refilled = Instant::now();
        }
        self.tokens = self
            .tokens
            .checked_sub(1)
            .ok_or("oidc: the issuer was asked too often")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn fetches_of_keys_are_rate_limited() {
        let mut fetch_state = FetchState {
            keys_url: None,
            tokens: BURST,
            refilled: Instant::now(),
        };
        let mut spend = |expected: usize| {
            let n_granted = (0..20).filter(|_| fetch_state.take_token().is_ok()).count();
            assert_eq!(n_granted, expected);
        };
        spend(5);
        tokio::time::advance(RECOVERY - Duration::from_millis(1)).await;
        spend(0);
        tokio::time::advance(Duration::from_millis(1)).await;
        spend(1);
        tokio::time::advance(RECOVERY * 100).await;
        spend(5);
    }
}
