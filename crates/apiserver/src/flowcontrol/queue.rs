//! One queue of a level, and where it stands on the meter of progress.

use std::collections::VecDeque;

use super::entry::RequestKey;
use super::work_estimate::SeatSeconds;

/// The state of the meter when a request last went.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct DispatchReadings {
    pub progress: SeatSeconds,
    pub next: SeatSeconds,
    /// The least and the greatest `next` of queues in which somebody waited.
    pub bounds: [SeatSeconds; 2],
    /// The same less what is thought to be under way.
    pub discounted: [SeatSeconds; 2],
}

/// Requests that wait in line.
#[derive(Default)]
pub(super) struct RequestQueue {
    pub waiting: VecDeque<RequestKey>,
    pub executing: usize,
    pub seats_waiting: usize,
    pub first_seats_waiting: usize,
    pub work_waiting: SeatSeconds,
    pub seats_in_use: usize,
    /// The reading of the meter at which the next request is due.
    pub next_dispatch_r: SeatSeconds,
}

impl RequestQueue {
    /// Whether it wants something done.
    pub(super) fn is_active(&self) -> bool {
        self.executing > 0 || !self.waiting.is_empty()
    }
}

/// The least and the greatest of some readings.
pub(super) struct ReadingBounds(pub [SeatSeconds; 2]);

impl Default for ReadingBounds {
    fn default() -> ReadingBounds {
        ReadingBounds([SeatSeconds::MAX, SeatSeconds::default()])
    }
}

impl ReadingBounds {
    pub(super) fn include(&mut self, reading: SeatSeconds) {
        self.0 = [self.0[0].min(reading), self.0[1].max(reading)];
    }
}
