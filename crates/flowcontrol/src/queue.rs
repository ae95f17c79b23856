//! One queue of a level, and its position on the progress meter.

use std::collections::VecDeque;

use super::entry::RequestKey;
use super::work_estimate::SeatSeconds;

/// Readings of the progress meter at the last dispatch.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct DispatchReadings {
    pub progress: SeatSeconds,
    pub next: SeatSeconds,
    /// The least and the greatest next-dispatch R of queues with waiting requests.
    pub bounds: [SeatSeconds; 2],
    /// The same, less the estimated work of executing requests.
    pub discounted: [SeatSeconds; 2],
}

/// A FIFO of waiting requests.
#[derive(Default)]
pub(super) struct RequestQueue {
    pub waiting: VecDeque<RequestKey>,
    pub executing: usize,
    pub seats_waiting: usize,
    pub first_seats_waiting: usize,
    pub work_waiting: SeatSeconds,
    pub seats_in_use: usize,
    /// The reading of the progress meter at which the next request starts.
    pub next_dispatch_r: SeatSeconds,
}

impl RequestQueue {
    /// Whether requests wait or execute.
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
