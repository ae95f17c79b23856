//! What all levels share: the seats of the server, the beginning of their time, and how many reads and writes there are.

use parking_lot::Mutex;
use std::time::Duration;

use mizzen_metrics::Histogram;
use tokio::time::Instant;

use super::usage::Usage;
use super::work::Nanos;
use crate::metrics::lock;

/// The whole server.
pub(super) struct House {
    /// Its seats.
    pub limit: usize,
    /// Time is counted from here.
    epoch: Instant,
    crowds: Mutex<[Crowd; 4]>,
}

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Waiting,
    Executing,
}

/// What a request is, and does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Standing {
    pub phase: Phase,
    pub is_write: bool,
}

impl Standing {
    const ALL: [Standing; 4] = [
        Standing {
            phase: Phase::Waiting,
            is_write: false,
        },
        Standing {
            phase: Phase::Waiting,
            is_write: true,
        },
        Standing {
            phase: Phase::Executing,
            is_write: false,
        },
        Standing {
            phase: Phase::Executing,
            is_write: true,
        },
    ];

    fn place(self) -> usize {
        2 * usize::from(self.phase == Phase::Executing) + usize::from(self.is_write)
    }

    /// As upstream calls it: the phase, and the kind of requests.
    pub(super) fn words(self) -> [&'static str; 2] {
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
struct Crowd {
    size: usize,
    since: Nanos,
    usage: Usage,
}

impl Crowd {
    fn pass(&mut self, now: Nanos) {
        self.usage.lasted(self.size, now.saturating_sub(self.since));
        self.since = self.since.max(now);
    }
}

impl House {
    /// A server of so many seats.
    pub(super) fn new(limit: usize) -> House {
        let crowd = || Crowd {
            size: 0,
            since: 0,
            usage: Usage::of_kind(),
        };
        House {
            limit,
            epoch: Instant::now(),
            crowds: Mutex::new([crowd(), crowd(), crowd(), crowd()]),
        }
    }

    pub(super) fn now(&self) -> Nanos {
        Nanos::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(Nanos::MAX)
    }

    /// The moment that [`House::now`] calls so.
    pub(super) fn moment(&self, at: Nanos) -> Instant {
        self.epoch + Duration::from_nanos(at)
    }

    /// By what use is measured where there is no limit. Kubernetes: a tenth of the server (apf_controller.go).
    pub(super) fn tenth(&self) -> usize {
        self.limit.saturating_add(5) / 10
    }

    /// All levels together let so many wait, and have so many seats of their own.
    pub(super) fn resize(&self, room_to_wait: usize, seats: usize) {
        let now = self.now();
        for (standing, crowd) in Standing::ALL.iter().zip(&mut *lock(&self.crowds)) {
            crowd.pass(now);
            crowd.usage.resize(if standing.phase == Phase::Waiting {
                room_to_wait
            } else {
                seats
            });
        }
    }

    /// Somebody comes.
    pub(super) fn join(&self, standing: Standing, now: Nanos) {
        let crowd = &mut lock(&self.crowds)[standing.place()];
        crowd.pass(now);
        crowd.size += 1;
    }

    /// Somebody goes.
    pub(super) fn part(&self, standing: Standing, now: Nanos) {
        let crowd = &mut lock(&self.crowds)[standing.place()];
        crowd.pass(now);
        crowd.size -= 1;
    }

    /// Looks at every crowd: how many it is, and was over time.
    pub(super) fn look(&self, mut look: impl FnMut(Standing, usize, &Histogram)) {
        let now = self.now();
        for (standing, crowd) in Standing::ALL.into_iter().zip(&mut *lock(&self.crowds)) {
            crowd.pass(now);
            look(standing, crowd.size, &crowd.usage.spread);
        }
    }
}
