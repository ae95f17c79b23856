//! The clocks of [`mizzen_sdk::timeline`] as moments.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use mizzen_sdk::clock::Clock;

use crate::moment::Moment;

pub(crate) struct MomentTimeline(mizzen_sdk::timeline::Timeline);

impl MomentTimeline {
    /// A timeline that starts now.
    pub(crate) fn new(clock: Clock) -> MomentTimeline {
        MomentTimeline(mizzen_sdk::timeline::Timeline::new(clock))
    }

    pub(crate) fn now(&self) -> Moment {
        let now = self.0.now();
        Moment::new(since_1970(now.monotonic), since_1970(now.wall))
    }

    /// The latest moment at which the wall clock showed `wall`.
    pub(crate) fn find(&self, wall: Duration) -> Moment {
        let nanos = i128::try_from(wall.as_nanos()).unwrap_or(i128::MAX);
        let found = self
            .0
            .find(Timestamp::from_nanosecond(nanos).unwrap_or(Timestamp::MAX));
        Moment::new(since_1970(found), wall)
    }
}

fn since_1970(time: Timestamp) -> Duration {
    Duration::from_nanos(u64::try_from(time.as_nanosecond()).unwrap_or_default())
}
