//! One queue of a level, and where it stands on the meter of progress.

use std::collections::VecDeque;

use super::entry::Key;
use super::work::SeatSeconds;

/// The state of the meter when a request last went.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Dispatch {
    pub progress: SeatSeconds,
    pub next: SeatSeconds,
    /// The least and the greatest `next` of queues in which somebody waited.
    pub bounds: [SeatSeconds; 2],
    /// The same less what is thought to be under way.
    pub discounted: [SeatSeconds; 2],
}

/// Requests that wait in line.
#[derive(Default)]
pub(super) struct Queue {
    pub waiting: VecDeque<Key>,
    pub executing: usize,
    pub seats_waiting: usize,
    pub first_seats_waiting: usize,
    pub work_waiting: SeatSeconds,
    pub seats_in_use: usize,
    /// The reading of the meter at which the next request is due.
    pub next: SeatSeconds,
}

impl Queue {
    /// Whether it wants something done.
    pub(super) fn is_active(&self) -> bool {
        self.executing > 0 || !self.waiting.is_empty()
    }
}

/// The least and the greatest of some readings.
pub(super) struct Bounds(pub [SeatSeconds; 2]);

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds([SeatSeconds::MAX, SeatSeconds::default()])
    }
}

impl Bounds {
    pub(super) fn note(&mut self, reading: SeatSeconds) {
        self.0 = [self.0[0].min(reading), self.0[1].max(reading)];
    }
}
