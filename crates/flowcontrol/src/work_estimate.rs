//! The estimated work of a request: seats, and for how long they are occupied.

use std::fmt::{self, Display};
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::time::Duration;

/// Times and durations of the queue set, in nanoseconds.
pub(super) type Nanos = u64;

/// The seats of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WorkEstimate {
    /// While it executes.
    pub initial_seats: usize,
    /// After the response, while watchers are notified of the write.
    pub final_seats: usize,
    /// How long the final seats are occupied.
    pub additional_latency: Duration,
}

impl WorkEstimate {
    /// One seat, the default.
    pub(super) const ONE: WorkEstimate = WorkEstimate::seats(1);

    /// Work without final seats.
    pub(super) const fn seats(first: usize) -> WorkEstimate {
        WorkEstimate {
            initial_seats: first,
            final_seats: 0,
            additional_latency: Duration::ZERO,
        }
    }

    /// The seats that are reserved from dispatch to release.
    pub(super) fn max_seats(&self) -> usize {
        self.initial_seats.max(self.final_seats)
    }

    /// The estimated cost, if execution takes `service`.
    pub(super) fn cost(&self, service: Duration) -> SeatSeconds {
        SeatSeconds::of(self.initial_seats as f64, service) + self.final_seat_seconds()
    }

    /// The same final work on at most `limit` seats: fewer seats for longer.
    pub(super) fn limit_final_seats(self, limit: usize) -> WorkEstimate {
        if self.final_seats <= limit || limit == 0 {
            return self;
        }
        WorkEstimate {
            final_seats: limit,
            additional_latency: self.final_seat_seconds().per_seat(limit),
            ..self
        }
    }

    fn final_seat_seconds(&self) -> SeatSeconds {
        SeatSeconds::of(self.final_seats as f64, self.additional_latency)
    }
}

/// An amount of work, in units of 1e-8 seat-seconds.
///
/// Invariant: 600 busy seats do not overflow within four years.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SeatSeconds(i64);

const SCALE: i64 = 100_000_000;
const NANOS: f64 = 10.0;

impl SeatSeconds {
    pub(super) const MAX: SeatSeconds = SeatSeconds(i64::MAX);

    pub(super) fn of(seats: f64, duration: Duration) -> SeatSeconds {
        SeatSeconds((seats * duration.as_nanos() as f64 / NANOS).round() as i64)
    }

    pub(super) fn as_f64(self) -> f64 {
        self.0 as f64 / SCALE as f64
    }

    /// The duration of the work on that many seats.
    pub(super) fn per_seat(self, seats: usize) -> Duration {
        Duration::from_nanos((self.0.max(0) as f64 / seats as f64 * NANOS) as u64)
    }
}

impl Display for SeatSeconds {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let (sign, size) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs());
        write!(
            f,
            "{sign}{}.{:08}ss",
            size / SCALE as u64,
            size % SCALE as u64
        )
    }
}

impl Add for SeatSeconds {
    type Output = SeatSeconds;

    fn add(self, other: SeatSeconds) -> SeatSeconds {
        SeatSeconds(self.0.saturating_add(other.0))
    }
}

impl Sub for SeatSeconds {
    type Output = SeatSeconds;

    fn sub(self, other: SeatSeconds) -> SeatSeconds {
        SeatSeconds(self.0.saturating_sub(other.0))
    }
}

impl AddAssign for SeatSeconds {
    fn add_assign(&mut self, other: SeatSeconds) {
        *self = *self + other;
    }
}

impl SubAssign for SeatSeconds {
    fn sub_assign(&mut self, other: SeatSeconds) {
        *self = *self - other;
    }
}
