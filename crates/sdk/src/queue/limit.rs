//! How long does a key wait that failed?

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// Decides how long a key waits before it is tried again.
pub trait Limiter<T>: Send + Sync {
    /// Counts a failure of `key`, and says how long it waits.
    fn when(&self, key: &T) -> Duration;

    /// Forgets that `key` ever failed.
    fn forget(&self, key: &T);

    /// How often `key` has failed.
    fn failures(&self, key: &T) -> usize;
}

/// How often each key has failed.
struct Failures<T>(Mutex<HashMap<T, u32, foldhash::fast::RandomState>>);

impl<T: Eq + Hash + Clone> Failures<T> {
    fn new() -> Failures<T> {
        Failures(Mutex::default())
    }

    /// Counts one more; how many there were before.
    fn count(&self, key: &T) -> u32 {
        let mut failures = lock(&self.0);
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
        lock(&self.0).remove(key);
    }

    fn get(&self, key: &T) -> usize {
        lock(&self.0).get(key).map_or(0, |count| *count as usize)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

/// Twice as long with each failure of a key.
pub struct Exponential<T> {
    base: Duration,
    max: Duration,
    failures: Failures<T>,
}

impl<T: Eq + Hash + Clone> Exponential<T> {
    /// Waits `base`, then twice that, and so on up to `max`.
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

/// A few quick tries, then slow ones.
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

/// So many a second for all keys together, and a burst before that.
pub struct TokenBucket {
    per_second: f64,
    burst: f64,
    /// How many tokens there were when. Below zero are those that are promised.
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

    /// Takes a token, and says how long it takes until that is there.
    pub(crate) fn take(&self, now: Instant) -> Duration {
        let mut tokens = lock(&self.tokens);
        *tokens = (self.refilled(*tokens, now) - 1.0, now);
        self.time_until(-tokens.0)
    }

    /// How long it takes until a token is there; none is taken.
    pub(crate) fn wait(&self, now: Instant) -> Duration {
        self.time_until(1.0 - self.refilled(*lock(&self.tokens), now))
    }

    fn refilled(&self, (tokens, since): (f64, Instant), now: Instant) -> f64 {
        let added = now.saturating_duration_since(since).as_secs_f64() * self.per_second;
        (tokens + added).min(self.burst)
    }

    /// How long it takes until so many tokens have been added.
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

/// Another limiter's wait, longer by up to a share of it, so that what failed together is not tried together.
pub struct Jittered<L> {
    inner: L,
    share: f64,
    /// A number from 0 up to 1, another each time.
    chance: Box<dyn Fn() -> f64 + Send + Sync>,
}

impl<L> Jittered<L> {
    /// Waits as `inner` says and up to `share` of that longer, as `chance` (from 0 to 1) has it.
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
