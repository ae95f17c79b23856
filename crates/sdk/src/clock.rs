//! The clock and the random source. Nothing else in this crate reads the wall clock or a random
//! source; timers are tokio's, which tests pause.

use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

/// Reads the wall clock.
///
/// ```
/// use std::sync::Arc;
/// use k8s_openapi::jiff::Timestamp;
/// use mizzen_sdk::clock::Clock;
///
/// let still: Clock = Arc::new(|| Timestamp::UNIX_EPOCH); // for a test
/// assert_eq!(still().as_second(), 0);
/// ```
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Returns a random number from 0 up to 1.
///
/// ```
/// use std::sync::Arc;
/// use mizzen_sdk::clock::Rng;
///
/// let fixed: Rng = Arc::new(|| 0.5); // for a test
/// assert_eq!(fixed(), 0.5);
/// ```
pub type Rng = Arc<dyn Fn() -> f64 + Send + Sync>;

/// The system clock.
///
/// ```
/// let clock = mizzen_sdk::clock::wall_clock();
/// assert!(clock().as_second() > 1_700_000_000);
/// ```
#[expect(
    clippy::disallowed_methods,
    reason = "this is the clock that loops read"
)]
pub fn wall_clock() -> Clock {
    Arc::new(Timestamp::now)
}

/// A clock that follows that of a server in the same process.
///
/// ```
/// use mizzen_sdk::clock;
///
/// struct ServerClock;
///
/// impl mizzen_value::clock::Clock for ServerClock {
///     fn now(&self) -> (i64, u32) {
///         (1_700_000_000, 0)
///     }
/// }
///
/// assert_eq!(clock::following(ServerClock)().as_second(), 1_700_000_000);
/// ```
pub fn following(clock: impl mizzen_value::clock::Clock + 'static) -> Clock {
    Arc::new(move || {
        let (seconds, nanos) = clock.now();
        Timestamp::new(seconds, nanos.cast_signed()).unwrap_or_default()
    })
}

thread_local! {
    /// What replaces the random numbers of [`rng`] on this thread.
    static SIMULATED: RefCell<Option<Rng>> = const { RefCell::new(None) };
}

/// Random numbers from the hash keys of the standard library, unless the thread
/// [simulates](simulate_rng) them.
///
/// ```
/// let rng = mizzen_sdk::clock::rng();
/// assert!((0.0..1.0).contains(&rng()));
/// ```
pub fn rng() -> Rng {
    Arc::new(|| match SIMULATED.with_borrow(Clone::clone) {
        Some(simulated) => simulated(),
        None => (RandomState::new().hash_one(0) >> 11) as f64 / (1u64 << 53) as f64,
    })
}

/// Makes every [`rng`] draw from `simulated` on this thread: a simulation needs the same numbers in
/// every run, also where no caller passes a source.
///
/// ```
/// use std::sync::Arc;
/// use mizzen_sdk::clock;
///
/// let rng = clock::rng();
/// clock::simulate_rng(Arc::new(|| 0.5));
/// assert_eq!(rng(), 0.5);
/// ```
pub fn simulate_rng(simulated: Rng) {
    SIMULATED.set(Some(simulated));
}
