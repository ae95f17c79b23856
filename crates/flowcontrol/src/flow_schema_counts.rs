//! Counts and histograms of one flow schema at one priority level.

use std::collections::BTreeMap;

use mizzen_metrics::Histogram;
use mizzen_value::Str;

use super::RejectReason;
use super::work_estimate::WorkEstimate;

/// Upstream's buckets of durations, in seconds.
const SECONDS: &[f64] = &[
    0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0,
];
const LENGTHS: &[f64] = &[0.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0];
const SEATS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 100.0];
const WATCHES: &[f64] = &[0.0, 1.0, 10.0, 100.0, 1000.0, 10000.0];

pub(super) struct FlowSchemaCounts {
    pub schema: Str,
    pub dispatched: u64,
    pub rejected: BTreeMap<RejectReason, u64>,
    pub waiting: usize,
    pub waiting_seats: usize,
    pub executing: usize,
    pub executing_seats: usize,
    /// How often the next request needed more seats than were free.
    pub not_accommodated: u64,
    /// Wait durations: of requests rejected on arrival, and of all that were queued or dispatched.
    pub waits: [Histogram; 2],
    /// Execution durations: of regular requests, and of watches until they are initialized.
    pub executions: [Histogram; 2],
    pub queue_lengths: Histogram,
    pub seats: Histogram,
    pub watches: Histogram,
}

impl FlowSchemaCounts {
    pub(super) fn new(schema: Str) -> FlowSchemaCounts {
        let seconds = || [Histogram::new(SECONDS), Histogram::new(SECONDS)];
        FlowSchemaCounts {
            schema,
            dispatched: 0,
            rejected: BTreeMap::new(),
            waiting: 0,
            waiting_seats: 0,
            executing: 0,
            executing_seats: 0,
            not_accommodated: 0,
            waits: seconds(),
            executions: seconds(),
            queue_lengths: Histogram::new(LENGTHS),
            seats: Histogram::new(SEATS),
            watches: Histogram::new(WATCHES),
        }
    }

    /// Observes the seats of an arriving request and the watchers of its write.
    pub(super) fn observe_arrival(&mut self, work: &WorkEstimate, watchers: Option<usize>) {
        self.seats.observe(work.max_seats() as f64);
        if let Some(watchers) = watchers {
            self.watches.observe(watchers as f64);
        }
    }

    pub(super) fn record_queued(&mut self, seats: usize) {
        self.waiting += 1;
        self.waiting_seats += seats;
    }

    pub(super) fn record_unqueued(&mut self, seats: usize) {
        self.waiting -= 1;
        self.waiting_seats -= seats;
    }

    pub(super) fn record_dispatched(&mut self, seats: usize) {
        self.dispatched += 1;
        self.executing += 1;
        self.executing_seats += seats;
    }

    pub(super) fn record_rejected(&mut self, reason: RejectReason) {
        *self.rejected.entry(reason).or_default() += 1;
    }
}
