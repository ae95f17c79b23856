//! A cache of token authentication results.
//!
//! The cache key is a keyed hash of token and audiences. Invariant: tokens are not kept, so that they
//! cannot be read from memory, and clients cannot choose tokens that collide.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use mizzen_metrics::Families;
use mizzen_outgoing::LruCache;
use mizzen_registry::Registry;
use mizzen_value::Str;
use ring::hmac;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::cache_metrics::CacheMetrics;
use super::{AuthenticatedToken, AuthenticationResult};

/// The capacity.
const ROOM: usize = 4096;

/// A cache of token authentication results, with a single fetch per token at a time.
pub struct TokenCache {
    key: hmac::Key,
    results: LruCache<Option<AuthenticatedToken>>,
    ttl: Duration,
    /// Fetches under way. A concurrent lookup of the same token shares the result.
    fetches: Mutex<HashMap<String, Arc<OnceCell<AuthenticationResult>>>>,
    counts: CacheMetrics,
}

impl TokenCache {
    /// Keeps each result for `ttl`. Failures are not cached.
    pub fn new(registry: &Registry, ttl: Duration) -> TokenCache {
        let mut key = [0; 32];
        registry.random().fill(&mut key);
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        TokenCache {
            key,
            results: LruCache::new(ROOM),
            ttl,
            fetches: Mutex::default(),
            counts: Default::default(),
        }
    }

    /// The cached result, or the result of `ask`.
    pub async fn get_or_fetch(
        &self,
        token: &str,
        audiences: &[Str],
        ask: impl Future<Output = AuthenticationResult> + Send,
    ) -> AuthenticationResult {
        let (key_text, started) = (self.cache_key(token, audiences), Instant::now());
        if let Some(known) = self.results.get(&key_text) {
            self.counts.observe_request(true, started.elapsed());
            return Ok(known);
        }
        let (fetch, _blocked) = (
            SharedFetch::join(self, &key_text),
            self.counts.enter_blocked(),
        );
        let result = fetch
            .cell
            .get_or_init(|| self.counts.fetch(ask))
            .await
            .clone();
        self.counts.observe_request(false, started.elapsed());
        if let Ok(answer) = &result {
            self.results.put(key_text.clone(), answer.clone(), self.ttl);
        }
        result
    }

    /// Adds its series to a scrape.
    pub fn collect(&self, out: &mut Families) {
        self.counts.collect(out);
    }

    /// Each part is preceded by its length, so that different inputs have different keys.
    fn cache_key(&self, token: &str, audiences: &[Str]) -> String {
        let mut hash = hmac::Context::with_key(&self.key);
        let mut add = |text: &str| {
            hash.update(&(text.len() as u64).to_be_bytes());
            hash.update(text.as_bytes());
        };
        add(token);
        audiences.iter().for_each(|audience| add(audience));
        STANDARD_NO_PAD.encode(hash.sign())
    }
}

/// A lookup that takes part in a fetch. The last one to leave removes the fetch.
struct SharedFetch<'a> {
    cache: &'a TokenCache,
    key_text: &'a str,
    cell: Arc<OnceCell<AuthenticationResult>>,
}

impl<'a> SharedFetch<'a> {
    fn join(cache: &'a TokenCache, key_text: &'a str) -> SharedFetch<'a> {
        let mut flights = cache.fetches.lock();
        let cell = flights.entry(key_text.to_owned()).or_default().clone();
        SharedFetch {
            cache,
            key_text,
            cell,
        }
    }
}

impl Drop for SharedFetch<'_> {
    fn drop(&mut self) {
        let mut flights = self.cache.fetches.lock();
        // One reference is the map's, one is this one's.
        if self.cell.initialized() || Arc::strong_count(&self.cell) <= 2 {
            flights.remove(self.key_text);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use mizzen_registry::Store;

    use super::*;
    use mizzen_object::User;
    use mizzen_registry::clock::{CountingRandom, VirtualClock};

    fn cache(seconds: u64) -> TokenCache {
        let clock = Arc::new(VirtualClock::starting_at(0));
        let store = Store::in_memory(Default::default());
        let registry = Registry::new(store, clock, Arc::new(CountingRandom::default()));
        TokenCache::new(&registry, Duration::from_secs(seconds))
    }

    fn jane() -> AuthenticationResult {
        let user = User {
            name: "jane".into(),
            ..User::default()
        };
        Ok(Some(AuthenticatedToken {
            user,
            audiences: Vec::new(),
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn responses_are_cached_and_failures_are_not() {
        let (cache, asked) = (cache(120), AtomicUsize::new(0));
        let ask = async |token: &str, result: AuthenticationResult| {
            let answer = async {
                asked.fetch_add(1, Ordering::Relaxed);
                result
            };
            (
                cache.get_or_fetch(token, &["a".into()], answer).await,
                asked.load(Ordering::Relaxed),
            )
        };
        assert_eq!(ask("t", Err("down".into())).await, (Err("down".into()), 1));
        assert_eq!(ask("t", jane()).await, (jane(), 2));
        assert_eq!(ask("t", Ok(None)).await, (jane(), 2));
        assert_eq!(ask("u", Ok(None)).await, (Ok(None), 3));
        assert_eq!(ask("u", jane()).await, (Ok(None), 3));
        tokio::time::advance(Duration::from_secs(120)).await;
        assert_eq!(ask("t", Ok(None)).await, (Ok(None), 4));
        assert!(cache.fetches.lock().is_empty());
        let mut families = Families::default();
        cache.collect(&mut families);
        let out = families.to_string();
        for line in [
            r#"request_total{status="hit"} 2"#,
            r#"request_total{status="miss"} 4"#,
            r#"request_duration_seconds_count{status="miss"} 4"#,
            r#"fetch_total{status="ok"} 3"#,
            r#"fetch_total{status="error"} 1"#,
            r#"active_fetch_count{status="blocked"} 0"#,
        ] {
            let line = format!("authentication_token_cache_{line}");
            assert!(
                out.lines().any(|known| known == line),
                "{line} is not in\n{out}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_lookups_of_a_token_share_one_fetch() {
        let (cache, asked) = (cache(0), AtomicUsize::new(0));
        let ask = || {
            cache.get_or_fetch("t", &[], async {
                asked.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_secs(1)).await;
                jane()
            })
        };
        let (first, second) = tokio::join!(ask(), ask());
        assert_eq!(
            (first, second, asked.load(Ordering::Relaxed)),
            (jane(), jane(), 1)
        );
        let _ = tokio::time::timeout(Duration::from_millis(1), ask()).await;
        assert!(
            cache.fetches.lock().is_empty(),
            "one who left is waited for"
        );
    }

    #[test]
    fn cache_keys_are_unique_and_do_not_contain_the_token() {
        let clock = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let _inside = clock.enter();
        let cache = cache(1);
        let questions = [
            cache.cache_key("ab", &[]),
            cache.cache_key("a", &["b".into()]),
            cache.cache_key("", &["a".into(), "b".into()]),
            cache.cache_key("", &["ab".into()]),
        ];
        let distinct: std::collections::HashSet<_> = questions.iter().collect();
        assert_eq!(distinct.len(), questions.len());
        assert!(!cache.cache_key("swordfish", &[]).contains("swordfish"));
    }
}
