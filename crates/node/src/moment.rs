//! When? A moment is the time since 1970; in objects it is a text with whole seconds.

use std::time::Duration;

use mizzen_object::Value;
use mizzen_object::time::{from_unix, to_unix};

/// The time that has passed since 1970.
pub type Moment = Duration;

/// A moment as objects have it.
pub fn to_value(moment: Moment) -> Value {
    from_unix(i64::try_from(moment.as_secs()).unwrap_or_default()).into()
}

/// The moment that an object names; none if it names none.
pub fn from_value(value: &Value) -> Option<Moment> {
    let seconds = to_unix(value.as_str()?)?;
    u64::try_from(seconds).ok().map(Moment::from_secs)
}

/// So many seconds, as objects count them; negative ones are none.
pub fn seconds(value: &Value) -> Duration {
    Duration::from_secs(u64::try_from(value.int()).unwrap_or_default())
}

/// The earlier of two moments that may never come.
pub fn earlier(one: Option<Moment>, other: Option<Moment>) -> Option<Moment> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
