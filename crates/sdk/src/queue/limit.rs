//! Rate limiters of work queues.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// Decides how long a failed key waits.
///
/// ```
/// use std::time::Duration;
/// use mizzen_sdk::queue::Limiter;
///
/// /// Every failed key waits for a minute.
/// struct Minute;
///
/// impl Limiter<String> for Minute {
///     fn when(&self, _key: &String) -> Duration {
///         Duration::from_secs(60)
///     }
///     fn forget(&self, _key: &String) {}
///     fn failures(&self, _key: &String) -> usize {
///         0
///     }
/// }
///
/// assert_eq!(Minute.when(&"web".into()).as_secs(), 60);
/// ```
pub trait Limiter<T>: Send + Sync {
    /// Counts a failure of `key`, and returns how long it waits.
    fn when(&self, key: &T) -> Duration;

    /// Resets the failures of `key`.
    fn forget(&self, key: &T);

    /// The number of failures of `key`.
    fn failures(&self, key: &T) -> usize;
}

/// The number of failures of each key.
struct Failures<T>(Mutex<HashMap<T, u32, foldhash::fast::RandomState>>);

impl<T: Eq + Hash + Clone> Failures<T> {
    fn new() -> Failures<T> {
        Failures(Mutex::default())
    }

    /// Counts one more; returns the number before.
    fn count(&self, key: &T) -> u32 {
        let mut failures = self.0.lock();
        match failures.get_mut(key) {
            Some(count) => {
                *count = count.saturating_add(1);
                *count - 1
            }
            None => {
                failures.insert(key.clone(), 1);
                0
            }
        }
    }

    fn forget(&self, key: &T) {
        self.0.lock().remove(key);
    }

    fn get(&self, key: &T) -> usize {
        self.0.lock().get(key).map_or(0, |count| *count as usize)
    }
}

/// Exponential back-off per key.
///
/// ```
/// use std::time::Duration;
/// use mizzen_sdk::queue::{Exponential, Limiter};
///
/// let limiter = Exponential::new(Duration::from_millis(10), Duration::from_millis(30));
/// let waits = [0; 3].map(|_| limiter.when(&"web").as_millis());
/// assert_eq!(waits, [10, 20, 30]);
/// limiter.forget(&"web");
/// assert_eq!(limiter.when(&"web").as_millis(), 10);
/// ```
pub struct Exponential<T> {
    base: Duration,
    max: Duration,
    failures: Failures<T>,
}

impl<T: Eq + Hash + Clone> Exponential<T> {
    /// Waits `base`, doubled after each failure, up to `max`.
    pub fn new(base: Duration, max: Duration) -> Exponential<T> {
        Exponential {
            base,
            max,
            failures: Failures::new(),
        }
    }
}

impl<T: Eq + Hash + Clone + Send + Sync> Limiter<T> for Exponential<T> {
    fn when(&self, key: &T) -> Duration {
        let factor = 1u32
            .checked_shl(self.failures.count(key))
            .unwrap_or(u32::MAX);
        self.base.saturating_mul(factor).min(self.max)
    }

    fn forget(&self, key: &T) {
        self.failures.forget(key);
    }

    fn failures(&self, key: &T) -> usize {
        self.failures.get(key)
    }
}

/// A few fast retries, then slow ones.
///
/// ```
/// use std::time::Duration;
/// use mizzen_sdk::queue::{FastSlow, Limiter};
///
/// let limiter = FastSlow::new(Duration::from_millis(5), Duration::from_secs(10), 2);
/// let waits = [0; 3].map(|_| limiter.when(&"web").as_millis());
/// assert_eq!(waits, [5, 5, 10_000]);
/// ```
pub struct FastSlow<T> {
    fast: Duration,
    slow: Duration,
    quick_tries: u32,
    failures: Failures<T>,
}

impl<T: Eq + Hash + Clone> FastSlow<T> {
    /// Waits `fast` for the first `quick_tries` failures of a key, then `slow`.
    pub fn new(fast: Duration, slow: Duration, quick_tries: u32) -> FastSlow<T> {
        FastSlow {
            fast,
            slow,
            quick_tries,
            failures: Failures::new(),
        }
    }
}

impl<T: Eq + Hash + Clone + Send + Sync> Limiter<T> for FastSlow<T> {
    fn when(&self, key: &T) -> Duration {
        if self.failures.count(key) < self.quick_tries {
            self.fast
        } else {
            self.slow
        }
    }

    fn forget(&self, key: &T) {
        self.failures.forget(key);
    }

    fn failures(&self, key: &T) -> usize {
        self.failures.get(key)
    }
}

/// A token bucket for all keys together.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
/// use mizzen_sdk::queue::{Limiter, TokenBucket};
///
/// let limiter = TokenBucket::new(10.0, 2);
/// let waits = ["a", "b", "c", "d"].map(|key| limiter.when(&key).as_millis());
/// assert_eq!(waits, [0, 0, 100, 200]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TokenBucket {
    per_second: f64,
    burst: f64,
    /// The number of tokens at a time. Negative if tokens are reserved.
    tokens: Mutex<(f64, Instant)>,
}

impl TokenBucket {
    /// `burst` at once, then `per_second`.
    pub fn new(per_second: f64, burst: u32) -> TokenBucket {
        let burst = f64::from(burst);
        TokenBucket {
            per_second,
            burst,
            tokens: Mutex::new((burst, Instant::now())),
        }
    }

    /// Takes a token, and returns how long it takes until it is available.
    pub(crate) fn take(&self, now: Instant) -> Duration {
        let mut tokens = self.tokens.lock();
        *tokens = (self.refilled(*tokens, now) - 1.0, now);
        self.time_until(-tokens.0)
    }

    /// How long it takes until a token is available; none is taken.
    pub(crate) fn wait(&self, now: Instant) -> Duration {
        self.time_until(1.0 - self.refilled(*self.tokens.lock(), now))
    }

    fn refilled(&self, (tokens, since): (f64, Instant), now: Instant) -> f64 {
        let added = now.saturating_duration_since(since).as_secs_f64() * self.per_second;
        (tokens + added).min(self.burst)
    }

    /// How long it takes until this many tokens are added.
    fn time_until(&self, missing: f64) -> Duration {
        match missing > 0.0 {
            true => Duration::try_from_secs_f64(missing / self.per_second).unwrap_or(Duration::MAX),
            false => Duration::ZERO,
        }
    }
}

impl<T> Limiter<T> for TokenBucket {
    fn when(&self, _key: &T) -> Duration {
        self.take(Instant::now())
    }

    fn forget(&self, _key: &T) {}

    fn failures(&self, _key: &T) -> usize {
        0
    }
}

/// The longest wait of several limiters.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
/// use std::time::Duration;
/// use mizzen_sdk::queue::{Exponential, Limiter, MaxOf, TokenBucket};
///
/// let per_key = Exponential::new(Duration::from_millis(5), Duration::from_secs(1000));
/// let limiter: MaxOf<&str> = MaxOf(vec![Box::new(per_key), Box::new(TokenBucket::new(10.0, 100))]);
/// assert_eq!(limiter.when(&"web").as_millis(), 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MaxOf<T>(pub Vec<Box<dyn Limiter<T>>>);

impl<T> Limiter<T> for MaxOf<T> {
    fn when(&self, key: &T) -> Duration {
        self.0
            .iter()
            .map(|limiter| limiter.when(key))
            .max()
            .unwrap_or_default()
    }

    fn forget(&self, key: &T) {
        self.0.iter().for_each(|limiter| limiter.forget(key));
    }

    fn failures(&self, key: &T) -> usize {
        self.0
            .iter()
            .map(|limiter| limiter.failures(key))
            .max()
            .unwrap_or_default()
    }
}

/// Adds jitter to another limiter, so that keys that failed together are not retried together.
///
/// ```
/// use std::time::Duration;
/// use mizzen_sdk::queue::{Exponential, Jittered, Limiter};
///
/// let limiter = Exponential::new(Duration::from_millis(100), Duration::from_secs(1));
/// let limiter = Jittered::new(limiter, 0.5, || 0.2); // in production: mizzen_sdk::clock::rng()
/// assert_eq!(limiter.when(&"web").as_millis(), 110);
/// ```
pub struct Jittered<L> {
    inner: L,
    share: f64,
    /// The random source: from 0 up to 1.
    chance: Box<dyn Fn() -> f64 + Send + Sync>,
}

impl<L> Jittered<L> {
    /// Waits as `inner` says, and up to `share` of that longer, by `chance` (from 0 to 1).
    pub fn new(
        inner: L,
        share: f64,
        chance: impl Fn() -> f64 + Send + Sync + 'static,
    ) -> Jittered<L> {
        Jittered {
            inner,
            share,
            chance: Box::new(chance),
        }
    }
}

impl<T, L: Limiter<T>> Limiter<T> for Jittered<L> {
    fn when(&self, key: &T) -> Duration {
        let wait = self.inner.when(key);
        let longer = wait.as_secs_f64() * self.share * (self.chance)();
        wait.saturating_add(Duration::try_from_secs_f64(longer).unwrap_or_default())
    }

    fn forget(&self, key: &T) {
        self.inner.forget(key);
    }

    fn failures(&self, key: &T) -> usize {
        self.inner.failures(key)
    }
}
