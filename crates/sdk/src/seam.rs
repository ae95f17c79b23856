//! Where the time of day and chance come from. Nothing else in this crate reads the wall clock or draws a number; waiting
//! is tokio's, which tests pause.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

/// Tells the time of day.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Draws a number from 0 up to 1, another each time.
pub type Chance = Arc<dyn Fn() -> f64 + Send + Sync>;

/// The time of day.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the clock that loops read"
)]
pub fn wall_clock() -> Clock {
    Arc::new(Timestamp::now)
}

/// The time of day as another part's clock tells it: one that runs beside a server may go by the server's.
pub fn told_by(clock: impl mizzen_value::clock::Clock + 'static) -> Clock {
    Arc::new(move || {
        let (seconds, nanos) = clock.now();
        Timestamp::new(seconds, nanos.cast_signed()).unwrap_or_default()
    })
}

/// Numbers from the keys that the standard library draws for its hash maps.
pub fn chance() -> Chance {
    Arc::new(|| (RandomState::new().hash_one(0) >> 11) as f64 / (1u64 << 53) as f64)
}
