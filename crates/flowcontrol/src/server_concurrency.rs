//! What all priority levels share: the server's seats, the epoch of their clocks, and gauges of
//! reads and writes.

use parking_lot::Mutex;
use std::time::Duration;

use mizzen_metrics::Histogram;
use tokio::time::Instant;

use super::utilization::Utilization;
use super::work_estimate::Nanos;

/// The concurrency of the whole server.
pub(super) struct ServerConcurrency {
    /// The server's seats.
    pub limit: usize,
    /// Time is counted from here.
    epoch: Instant,
    gauges: Mutex<[RequestGauge; 4]>,
}

/// The phase of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Waiting,
    Executing,
}

/// The class in which a request is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestClass {
    pub phase: Phase,
    pub is_write: bool,
}

impl RequestClass {
    const ALL: [RequestClass; 4] = [
        RequestClass {
            phase: Phase::Waiting,
            is_write: false,
        },
        RequestClass {
            phase: Phase::Waiting,
            is_write: true,
        },
        RequestClass {
            phase: Phase::Executing,
            is_write: false,
        },
        RequestClass {
            phase: Phase::Executing,
            is_write: true,
        },
    ];

    fn index(self) -> usize {
        2 * usize::from(self.phase == Phase::Executing) + usize::from(self.is_write)
    }

    /// Upstream's labels: `phase` and `request_kind`.
    pub(super) fn labels(self) -> [&'static str; 2] {
        let phase = if self.phase == Phase::Waiting {
            "waiting"
        } else {
            "executing"
        };
        [
            phase,
            if self.is_write {
                "mutating"
            } else {
                "readOnly"
            },
        ]
    }
}

/// The requests of one class, now and over time.
struct RequestGauge {
    size: usize,
    since: Nanos,
    usage: Utilization,
}

impl RequestGauge {
    fn advance(&mut self, now: Nanos) {
        self.usage
            .observe_for(self.size, now.saturating_sub(self.since));
        self.since = self.since.max(now);
    }
}

impl ServerConcurrency {
    pub(super) fn new(limit: usize) -> ServerConcurrency {
        let gauge = || RequestGauge {
            size: 0,
            since: 0,
            usage: Utilization::for_request_class(),
        };
        ServerConcurrency {
            limit,
            epoch: Instant::now(),
            gauges: Mutex::new([gauge(), gauge(), gauge(), gauge()]),
        }
    }

    pub(super) fn now(&self) -> Nanos {
        Nanos::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(Nanos::MAX)
    }

    /// The instant of a time on this clock.
    pub(super) fn instant_at(&self, at: Nanos) -> Instant {
        self.epoch + Duration::from_nanos(at)
    }

    /// The scale of utilization where there is no limit. Kubernetes: a tenth of the server
    /// (apf_controller.go).
    pub(super) fn unlimited_scale(&self) -> usize {
        self.limit.saturating_add(5) / 10
    }

    /// Sets the scales of utilization: the requests that may wait at all levels, and their nominal
    /// seats.
    pub(super) fn resize(&self, max_waiting: usize, seats: usize) {
        let now = self.now();
        for (class, gauge) in RequestClass::ALL.iter().zip(&mut *self.gauges.lock()) {
            gauge.advance(now);
            gauge.usage.set_capacity(if class.phase == Phase::Waiting {
                max_waiting
            } else {
                seats
            });
        }
    }

    pub(super) fn add_request(&self, class: RequestClass, now: Nanos) {
        let gauge = &mut self.gauges.lock()[class.index()];
        gauge.advance(now);
        gauge.size += 1;
    }

    pub(super) fn remove_request(&self, class: RequestClass, now: Nanos) {
        let gauge = &mut self.gauges.lock()[class.index()];
        gauge.advance(now);
        gauge.size -= 1;
    }

    /// Calls `look` with the size and the histogram of each class.
    pub(super) fn for_each_class(&self, mut look: impl FnMut(RequestClass, usize, &Histogram)) {
        let now = self.now();
        for (class, gauge) in RequestClass::ALL.into_iter().zip(&mut *self.gauges.lock()) {
            gauge.advance(now);
            look(class, gauge.size, &gauge.usage.histogram);
        }
    }
}
