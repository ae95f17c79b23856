//! A [`Moment`] has a monotonic reading, for comparison and timers, and a wall-clock reading, for
//! objects. As in Go's `time.Time`, a step of the wall clock changes no distance between moments.

use std::cmp::Ordering;
use std::ops::{Add, AddAssign};
use std::time::Duration;

use mizzen_value::Value;
use mizzen_value::time::{from_unix, to_unix};

/// A point in time on both clocks. Moments are ordered by the monotonic reading alone.
#[derive(Debug, Clone, Copy, Default)]
pub struct Moment {
    /// The monotonic reading, since the agent's origin.
    at: Duration,
    /// The wall-clock reading: the time since 1970.
    wall: Duration,
}

impl Moment {
    /// A moment from both readings.
    pub const fn new(at: Duration, wall: Duration) -> Moment {
        Moment { at, wall }
    }

    /// Seconds after 1970, on both clocks.
    pub const fn from_secs(seconds: u64) -> Moment {
        let at = Duration::from_secs(seconds);
        Moment { at, wall: at }
    }

    /// The monotonic reading.
    pub fn monotonic(self) -> Duration {
        self.at
    }

    /// The wall-clock reading: the time since 1970.
    pub fn wall(self) -> Duration {
        self.wall
    }

    /// The time since `other`; zero if it is later.
    pub fn saturating_since(self, other: Moment) -> Duration {
        self.at.saturating_sub(other.at)
    }

    /// The moment `time` before this one.
    pub fn saturating_before(self, time: Duration) -> Moment {
        Moment {
            at: self.at.saturating_sub(time),
            wall: self.wall.saturating_sub(time),
        }
    }

    /// The moment at which the wall clock shows `wall`, if it continues as `now`.
    fn on_wall(wall: Duration, now: Moment) -> Moment {
        let at =
            (now.at + wall.saturating_sub(now.wall)).saturating_sub(now.wall.saturating_sub(wall));
        Moment { at, wall }
    }
}

impl PartialEq for Moment {
    fn eq(&self, other: &Moment) -> bool {
        self.at == other.at
    }
}

impl Eq for Moment {}

impl PartialOrd for Moment {
    fn partial_cmp(&self, other: &Moment) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Moment {
    fn cmp(&self, other: &Moment) -> Ordering {
        self.at.cmp(&other.at)
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, time: Duration) -> Moment {
        Moment {
            at: self.at.saturating_add(time),
            wall: self.wall.saturating_add(time),
        }
    }
}

impl AddAssign<Duration> for Moment {
    fn add_assign(&mut self, time: Duration) {
        *self = *self + time;
    }
}

/// A moment as a timestamp of an object.
pub(crate) fn to_value(moment: Moment) -> Value {
    from_unix(i64::try_from(moment.wall.as_secs()).unwrap_or_default()).into()
}

/// The wall-clock time of a timestamp; `None` if it has none.
pub(crate) fn wall_of(value: &Value) -> Option<Duration> {
    let seconds = to_unix(value.as_str()?)?;
    u64::try_from(seconds).ok().map(Duration::from_secs)
}

/// The moment of a timestamp, by the wall clock of `now`.
pub(crate) fn from_value(value: &Value, now: Moment) -> Option<Moment> {
    wall_of(value).map(|wall| Moment::on_wall(wall, now))
}

/// The moment of a timestamp in the past: not after `now`, even if the wall clock was set back
/// since. Its text stays the same.
pub(crate) fn from_past(value: &Value, now: Moment) -> Option<Moment> {
    from_value(value, now).map(|moment| Moment {
        at: moment.at.min(now.at),
        ..moment
    })
}

/// The moment at which the wall clock showed a time of the past: not after `now`.
pub(crate) fn past_wall(wall: Duration, now: Moment) -> Moment {
    let moment = Moment::on_wall(wall, now);
    Moment {
        at: moment.at.min(now.at),
        ..moment
    }
}

/// An RFC 3339 timestamp with a fraction of `digits` digits.
pub(crate) fn to_rfc3339(moment: Moment, digits: usize) -> String {
    let nanos = format!("{:09}", moment.wall.subsec_nanos());
    let seconds = from_unix(i64::try_from(moment.wall.as_secs()).unwrap_or_default());
    format!("{}.{}Z", seconds.trim_end_matches('Z'), &nanos[..digits])
}

/// Seconds of an object; negative ones count as zero.
pub(crate) fn seconds(value: &Value) -> Duration {
    Duration::from_secs(u64::try_from(value.int()).unwrap_or_default())
}

/// The earlier of two optional moments.
pub(crate) fn earlier(one: Option<Moment>, other: Option<Moment>) -> Option<Moment> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn at(monotonic: u64, wall: u64) -> Moment {
        Moment::new(Duration::from_secs(monotonic), Duration::from_secs(wall))
    }

    #[test]
    fn a_step_of_the_wall_clock_changes_no_distance() {
        let before = at(10_000, 10_000);
        for wall in [10_005 - 3600, 10_005, 10_005 + 3600] {
            let after = at(10_005, wall);
            assert_eq!(
                after.saturating_since(before),
                Duration::from_secs(5),
                "{wall}"
            );
            assert!(
                before < after && before + Duration::from_secs(5) == after,
                "{wall}"
            );
        }
    }

    #[test]
    fn a_text_keeps_its_wall_clock_time() {
        let now = at(10_000, 10_000);
        for wall in [9_000, 10_000, 20_000] {
            let text = to_value(at(0, wall));
            assert_eq!(to_value(from_value(&text, now).unwrap()), text);
            assert_eq!(to_value(from_past(&text, now).unwrap()), text);
        }
    }

    #[test]
    fn past_timestamps_stay_in_the_past_after_the_clock_was_set_back() {
        let now = at(10_000, 10_000);
        let text = to_value(now + HOUR);
        assert_eq!(from_value(&text, now), Some(now + HOUR));
        assert_eq!(from_past(&text, now), Some(now));
        let text = to_value(now.saturating_before(HOUR));
        assert_eq!(from_past(&text, now), Some(now.saturating_before(HOUR)));
    }
}
