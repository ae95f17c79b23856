//! What all levels share: the seats of the server, the beginning of their time, and how many reads and writes there are.

use parking_lot::Mutex;
use std::time::Duration;

use mizzen_metrics::Histogram;
use tokio::time::Instant;

use super::utilization::Utilization;
use super::work_estimate::Nanos;
use crate::metrics::lock;

/// The whole server.
pub(super) struct ServerConcurrency {
    /// Its seats.
    pub limit: usize,
    /// Time is counted from here.
    epoch: Instant,
    gauges: Mutex<[RequestGauge; 4]>,
}

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Waiting,
    Executing,
}

/// What a request is, and does.
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

    /// As upstream calls it: the phase, and the kind of requests.
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

/// Those who do the same.
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
    /// A server of so many seats.
    pub(super) fn new(limit: usize) -> ServerConcurrency {
        let crowd = || RequestGauge {
            size: 0,
            since: 0,
            usage: Utilization::for_request_class(),
        };
        ServerConcurrency {
            limit,
            epoch: Instant::now(),
            gauges: Mutex::new([crowd(), crowd(), crowd(), crowd()]),
        }
    }

    pub(super) fn now(&self) -> Nanos {
        Nanos::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(Nanos::MAX)
    }

    /// The moment that [`House::now`] calls so.
    pub(super) fn instant_at(&self, at: Nanos) -> Instant {
        self.epoch + Duration::from_nanos(at)
    }

    /// By what use is measured where there is no limit. Kubernetes: a tenth of the server (apf_controller.go).
    pub(super) fn unlimited_scale(&self) -> usize {
        self.limit.saturating_add(5) / 10
    }

    /// All levels together let so many wait, and have so many seats of their own.
    pub(super) fn resize(&self, room_to_wait: usize, seats: usize) {
        let now = self.now();
        for (standing, crowd) in RequestClass::ALL.iter().zip(&mut *lock(&self.gauges)) {
            crowd.advance(now);
            crowd
                .usage
                .set_capacity(if standing.phase == Phase::Waiting {
                    room_to_wait
                } else {
                    seats
                });
        }
    }

    /// Somebody comes.
    pub(super) fn add_request(&self, standing: RequestClass, now: Nanos) {
        let crowd = &mut lock(&self.gauges)[standing.index()];
        crowd.advance(now);
        crowd.size += 1;
    }

    /// Somebody goes.
    pub(super) fn remove_request(&self, standing: RequestClass, now: Nanos) {
        let crowd = &mut lock(&self.gauges)[standing.index()];
        crowd.advance(now);
        crowd.size -= 1;
    }

    /// Looks at every crowd: how many it is, and was over time.
    pub(super) fn for_each_class(&self, mut look: impl FnMut(RequestClass, usize, &Histogram)) {
        let now = self.now();
        for (standing, crowd) in RequestClass::ALL.into_iter().zip(&mut *lock(&self.gauges)) {
            crowd.advance(now);
            look(standing, crowd.size, &crowd.usage.histogram);
        }
    }
}
