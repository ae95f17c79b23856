//! The clock and the random source. Nothing else in this crate reads the wall clock or a random
//! source; timers are tokio's, which tests pause.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

/// Reads the wall clock.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Returns a random number from 0 up to 1.
pub type Rng = Arc<dyn Fn() -> f64 + Send + Sync>;

/// The system clock.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the clock that loops read"
)]
pub fn wall_clock() -> Clock {
    Arc::new(Timestamp::now)
}

/// A clock that follows that of a server in the same process.
pub fn following(clock: impl mizzen_value::clock::Clock + 'static) -> Clock {
    Arc::new(move || {
        let (seconds, nanos) = clock.now();
        Timestamp::new(seconds, nanos.cast_signed()).unwrap_or_default()
    })
}

/// Random numbers from the hash keys of the standard library.
pub fn rng() -> Rng {
    Arc::new(|| (RandomState::new().hash_one(0) >> 11) as f64 / (1u64 << 53) as f64)
}
