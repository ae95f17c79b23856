//! The fair queues of one priority level (upstream's queueset): requests that execute, and requests
//! that wait for seats.
//!
//! Fair queuing for server requests (KEP-1040). The progress meter R advances with the work done
//! per active queue. A queue's next-dispatch R is the reading at which its next request starts if
//! all queues get equal work; the request that would finish first is dispatched. The cost of a
//! request is estimated at dispatch and corrected when it finishes.
//!
//! Pure: the caller passes the time. Seats that linger after the response are released by the next
//! call, as of the time they were due; while requests wait, the caller must call
//! [`QueueSet::settle`] at [`QueueSet::next_wakeup`].

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use tokio::sync::oneshot::{self, Receiver};

use super::RejectReason;
use super::demand::DemandIntegrator;
use super::entry::{ArrivingRequest, RequestEntries, RequestEntry, RequestKey};
use super::flow_schema_counts::FlowSchemaCounts;
use super::level::LimitResponse;
use super::queue::{DispatchReadings, ReadingBounds, RequestQueue};
use super::shuffle_sharding::Hand;
use super::utilization::LevelUtilization;
use super::work_estimate::{Nanos, SeatSeconds};

/// The estimated execution time of a request.
const SERVICE: Duration = Duration::from_millis(3);

pub(super) struct QueueSet {
    shape: LimitResponse,
    /// The current limit of seats.
    limit: usize,
    queues: Vec<RequestQueue>,
    pub entries: RequestEntries,
    /// The progress meter R: the work that an always active queue has got done.
    pub progress: SeatSeconds,
    at: Nanos,
    /// The queue that was served last.
    last_served: usize,
    n_enqueued: usize,
    /// How many queues have waiting or executing requests.
    n_active: usize,
    pub waiting: usize,
    pub executing: usize,
    seats_waiting: usize,
    pub seats_in_use: usize,
    /// Seats that linger after the response, by the time of their release.
    lingering: BinaryHeap<Reverse<(Nanos, RequestKey)>>,
    pub demand: DemandIntegrator,
    pub usage: LevelUtilization,
    /// The scale of utilization where there is no limit.
    unlimited: usize,
    pub schema_counts: Vec<FlowSchemaCounts>,
    pub totals: Totals,
    pub last_dispatch: DispatchReadings,
}

/// Counts since the level was created.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Totals {
    pub dispatched: u64,
    pub rejected: u64,
    pub cancelled: u64,
}

impl QueueSet {
    pub(super) fn new(
        now: Nanos,
        shape: LimitResponse,
        limit: usize,
        unlimited: usize,
    ) -> QueueSet {
        let mut queues = QueueSet {
            shape,
            limit,
            queues: Vec::new(),
            entries: RequestEntries::default(),
            progress: SeatSeconds::default(),
            at: now,
            last_served: 0,
            n_enqueued: 0,
            n_active: 0,
            waiting: 0,
            executing: 0,
            seats_waiting: 0,
            seats_in_use: 0,
            lingering: BinaryHeap::new(),
            demand: DemandIntegrator::default(),
            usage: LevelUtilization::default(),
            unlimited,
            schema_counts: Vec::new(),
            totals: Totals::default(),
            last_dispatch: DispatchReadings::default(),
        };
        queues.demand.set(now, 0);
        queues.configure(now, shape, limit);
        queues
    }

    /// Applies another configuration or limit. Surplus queues are removed once they are empty.
    pub(super) fn configure(&mut self, now: Nanos, shape: LimitResponse, limit: usize) {
        self.settle(now);
        (self.shape, self.limit) = (shape, limit);
        self.usage.set_capacity(
            shape.max_waiting(),
            if limit > 0 { limit } else { self.unlimited },
        );
        let wanted = shape.n_queues();
        if self.queues.len() < wanted {
            self.queues.resize_with(wanted, RequestQueue::default);
        }
        self.remove_empty_queues();
        self.dispatch(None);
    }

    /// Dispatches, queues or rejects a request.
    pub(super) fn start_request(
        &mut self,
        now: Nanos,
        arriving: ArrivingRequest,
    ) -> Result<RequestKey, RejectReason> {
        self.settle(now);
        self.schema_counts[arriving.counts_idx].observe_arrival(&arriving.work, arriving.watchers);
        let refused = match self.shape {
            LimitResponse::Exempt => None,
            LimitResponse::Reject => (!self.can_accommodate(arriving.work.max_seats()))
                .then_some(RejectReason::ConcurrencyLimit),
            LimitResponse::Queue {
                queues,
                length,
                hand,
            } => {
                let queue = self.choose_queue(arriving.flow_hash, queues, hand);
                let full =
                    self.seats_in_use >= self.limit && self.queues[queue].waiting.len() >= length;
                if !full {
                    return Ok(self.enqueue(queue, arriving));
                }
                Some(RejectReason::QueueFull)
            }
        };
        match refused {
            Some(reason) => {
                self.reject(arriving.counts_idx, reason);
                self.schema_counts[arriving.counts_idx].waits[0].observe(0.0);
                Err(reason)
            }
            None => Ok(self.dispatch_unqueued(arriving)),
        }
    }

    /// Notifies a waiting request of its dispatch. None if it is executing already.
    pub(super) fn wait_receiver(&mut self, key: RequestKey) -> Option<Receiver<()>> {
        let entry = &mut self.entries[key];
        if entry.started.is_some() {
            return None;
        }
        let (ready, dispatched) = oneshot::channel();
        entry.ready = Some(ready);
        Some(dispatched)
    }

    /// Removes a waiting request. Returns false if it was dispatched meanwhile.
    pub(super) fn cancel(&mut self, now: Nanos, key: RequestKey) -> bool {
        self.settle(now);
        if self.entries[key].started.is_some() {
            return false;
        }
        let at = self.entries[key]
            .queue
            .expect("who waits does so in a queue");
        self.unqueue(at, key);
        let entry = self.entries.remove(key);
        // Kubernetes: only requests rejected on arrival have the label `execute="false"`
        // (apf_filter.go).
        self.schema_counts[entry.counts_idx].waits[1].observe(seconds(now - entry.arrived));
        // Kubernetes: the reason is time-out even if the client is gone (queueset.go).
        self.reject(entry.counts_idx, RejectReason::TimeOut);
        self.totals.cancelled += 1;
        self.update_demand();
        self.bound_next_dispatch(at);
        self.remove_empty_queues();
        // The removed request may have needed more seats than the ones behind it.
        self.dispatch(None);
        true
    }

    /// Finishes a request: it was served, or its client is gone.
    pub(super) fn finish(&mut self, now: Nanos, key: RequestKey) {
        if self.cancel(now, key) {
            return;
        }
        let entry = &mut self.entries[key];
        let took = Duration::from_nanos(now.saturating_sub(entry.started.unwrap_or(now)));
        entry.is_finished = true;
        let (counts_idx, queue, work) = (entry.counts_idx, entry.queue, entry.work);
        self.executing -= 1;
        self.schema_counts[counts_idx].executing -= 1;
        self.schema_counts[counts_idx].executions[usize::from(entry.digest.info.verb() == "watch")]
            .observe(took.as_secs_f64());
        if let Some(at) = queue {
            self.update_queue(at, |queue| queue.executing -= 1);
            let first = work.initial_seats as f64;
            let queue = &mut self.queues[at];
            queue.next_dispatch_r += SeatSeconds::of(first, took);
            queue.next_dispatch_r -= SeatSeconds::of(first, SERVICE);
            self.bound_next_dispatch(at);
        }
        match u64::try_from(work.additional_latency.as_nanos()) {
            Ok(latency) if latency > 0 => self.lingering.push(Reverse((now + latency, key))),
            _ => self.release(now, key),
        }
        self.dispatch(None);
    }

    /// When [`QueueSet::settle`] must be called at the latest. None if no request waits for
    /// lingering seats.
    pub(super) fn next_wakeup(&self) -> Option<Nanos> {
        let Reverse((at, _)) = self.lingering.peek().filter(|_| self.waiting > 0)?;
        Some(*at)
    }

    /// Brings the state up to `now`.
    pub(super) fn settle(&mut self, now: Nanos) {
        while let Some(Reverse((at, key))) = self
            .lingering
            .peek()
            .copied()
            .filter(|next| next.0.0 <= now)
        {
            self.lingering.pop();
            self.advance(at);
            self.release(at, key);
            self.dispatch(None);
        }
        self.advance(now);
    }

    /// Whether no request waits or executes.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting == 0 && self.executing == 0
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    pub(super) fn all(&self) -> &[RequestQueue] {
        &self.queues
    }

    /// Advances the progress meter and the utilization histograms.
    fn advance(&mut self, now: Nanos) {
        let nanos = now.saturating_sub(self.at);
        let passed = Duration::from_nanos(nanos);
        self.at = self.at.max(now);
        self.usage.waiting.observe_for(self.waiting, nanos);
        self.usage.executing.observe_for(self.executing, nanos);
        self.usage.seats.observe_for(self.seats_in_use, nanos);
        self.usage
            .demand
            .observe_for(self.seats_in_use + self.seats_waiting, nanos);
        if self.n_active > 0 {
            let seats = (self.seats_in_use + self.seats_waiting).min(self.limit);
            self.progress += SeatSeconds::of(seats as f64 / self.n_active as f64, passed);
        }
    }

    /// The queue of the flow's hand with the least work waiting.
    fn choose_queue(&mut self, hash: u64, deck: usize, hand: usize) -> usize {
        let turn = self.n_enqueued;
        self.n_enqueued = self.n_enqueued.wrapping_add(1);
        let hand = Hand::deal(hash, deck, hand);
        let least = hand
            .beginning_at(turn)
            .min_by_key(|queue| self.queues[*queue].work_waiting);
        least.expect("a hand has at least one card")
    }

    fn enqueue(&mut self, at: usize, arriving: ArrivingRequest) -> RequestKey {
        if !self.queues[at].is_active() {
            self.queues[at].next_dispatch_r = self.progress;
        }
        let entry = RequestEntry::new(arriving, Some(at), self.at, self.progress, SERVICE);
        let (counts_idx, seats, first, cost) = (
            entry.counts_idx,
            entry.work.max_seats(),
            entry.work.initial_seats,
            entry.cost,
        );
        let key = self.entries.insert(entry);
        self.update_queue(at, |queue| {
            queue.waiting.push_back(key);
            queue.seats_waiting += seats;
            queue.first_seats_waiting += first;
            queue.work_waiting += cost;
        });
        self.waiting += 1;
        self.seats_waiting += seats;
        self.update_demand();
        self.schema_counts[counts_idx].record_queued(seats);
        self.schema_counts[counts_idx]
            .queue_lengths
            .observe(self.queues[at].waiting.len() as f64);
        self.bound_next_dispatch(at);
        let only = (self.waiting == 1).then_some(at);
        self.dispatch(only);
        key
    }

    /// Dispatches a request at a level without queues.
    fn dispatch_unqueued(&mut self, arriving: ArrivingRequest) -> RequestKey {
        let key = self.entries.insert(RequestEntry::new(
            arriving,
            None,
            self.at,
            self.progress,
            SERVICE,
        ));
        self.start(key);
        key
    }

    fn start(&mut self, key: RequestKey) {
        let entry = &mut self.entries[key];
        entry.started = Some(self.at);
        // The receiver is gone if the client is about to leave.
        let _ = entry.ready.take().map(|ready| ready.send(()));
        let (counts_idx, seats, waited) = (
            entry.counts_idx,
            entry.work.max_seats(),
            self.at - entry.arrived,
        );
        self.executing += 1;
        self.seats_in_use += seats;
        self.totals.dispatched += 1;
        self.schema_counts[counts_idx].record_dispatched(seats);
        if self.shape != LimitResponse::Exempt {
            self.schema_counts[counts_idx].waits[1].observe(seconds(waited));
        }
        self.update_demand();
    }

    /// Dispatches requests while seats are free. `only` is the one queue with waiting requests, if
    /// that is known.
    fn dispatch(&mut self, only: Option<usize>) {
        while self.waiting > 0 && self.seats_in_use < self.limit {
            let at = only.unwrap_or_else(|| self.select_queue());
            let key = *self.queues[at]
                .waiting
                .front()
                .expect("somebody waits here");
            if !self.can_accommodate(self.entries[key].work.max_seats()) {
                self.schema_counts[self.entries[key].counts_idx].not_accommodated += 1;
                return;
            }
            self.last_served = at;
            self.unqueue(at, key);
            self.last_dispatch.progress = self.progress;
            self.last_dispatch.next = self.queues[at].next_dispatch_r;
            let entry = &mut self.entries[key];
            entry.work = entry.work.limit_final_seats(self.limit);
            let (seats, cost) = (entry.work.max_seats(), entry.cost);
            self.update_queue(at, |queue| {
                queue.executing += 1;
                queue.seats_in_use += seats;
                queue.next_dispatch_r += cost;
            });
            self.start(key);
            self.bound_next_dispatch(at);
        }
    }

    /// The queue whose next request would finish first, by round robin among equals.
    fn select_queue(&mut self) -> usize {
        let n_queues = self.queues.len();
        let mut first = (SeatSeconds::MAX, self.last_served);
        let (mut bounds, mut discounted) = (ReadingBounds::default(), ReadingBounds::default());
        for at in (1..=n_queues).map(|step| (self.last_served + step) % n_queues) {
            let queue = &self.queues[at];
            let Some(key) = queue.waiting.front() else {
                continue;
            };
            bounds.include(queue.next_dispatch_r);
            discounted.include(
                queue.next_dispatch_r - SeatSeconds::of(queue.seats_in_use as f64, SERVICE),
            );
            let through = queue.next_dispatch_r + self.entries[*key].cost;
            if through < first.0 {
                first = (through, at);
            }
        }
        (self.last_dispatch.bounds, self.last_dispatch.discounted) = (bounds.0, discounted.0);
        first.1
    }

    /// Whether that many seats are free. A request wider than the limit needs an idle level.
    fn can_accommodate(&self, seats: usize) -> bool {
        match self.shape {
            LimitResponse::Exempt => true,
            _ if seats > self.limit => self.executing == 0,
            _ => self.seats_in_use + seats <= self.limit,
        }
    }

    fn unqueue(&mut self, at: usize, key: RequestKey) {
        let entry = &self.entries[key];
        let (counts_idx, seats, first, cost) = (
            entry.counts_idx,
            entry.work.max_seats(),
            entry.work.initial_seats,
            entry.cost,
        );
        self.update_queue(at, |queue| {
            match queue.waiting.front() == Some(&key) {
                true => drop(queue.waiting.pop_front()),
                false => queue.waiting.retain(|other| *other != key),
            }
            queue.seats_waiting -= seats;
            queue.first_seats_waiting -= first;
            queue.work_waiting -= cost;
        });
        self.waiting -= 1;
        self.seats_waiting -= seats;
        self.schema_counts[counts_idx].record_unqueued(seats);
    }

    fn release(&mut self, now: Nanos, key: RequestKey) {
        let entry = self.entries.remove(key);
        let seats = entry.work.max_seats();
        self.seats_in_use -= seats;
        self.schema_counts[entry.counts_idx].executing_seats -= seats;
        if let Some(at) = entry.queue {
            self.queues[at].seats_in_use -= seats;
        }
        self.demand.set(now, self.seats_in_use + self.seats_waiting);
        self.remove_empty_queues();
    }

    fn reject(&mut self, counts_idx: usize, reason: RejectReason) {
        self.totals.rejected += 1;
        self.schema_counts[counts_idx].record_rejected(reason);
    }

    fn update_demand(&mut self) {
        self.demand
            .set(self.at, self.seats_in_use + self.seats_waiting);
    }

    /// A queue accumulates no credit: its next request starts no earlier than it arrived.
    fn bound_next_dispatch(&mut self, at: usize) {
        let queue = &mut self.queues[at];
        if let Some(key) = queue.waiting.front() {
            queue.next_dispatch_r = queue.next_dispatch_r.max(self.entries[*key].arrival_r);
        }
    }

    /// Updates a queue and the number of active queues.
    fn update_queue(&mut self, at: usize, change: impl FnOnce(&mut RequestQueue)) {
        let queue = &mut self.queues[at];
        let before = queue.is_active();
        change(queue);
        self.n_active = self.n_active + usize::from(queue.is_active()) - usize::from(before);
    }

    /// Removes surplus queues from the end once they are empty. No flow is dealt them any more.
    fn remove_empty_queues(&mut self) {
        let wanted = self.shape.n_queues();
        let is_empty = |queue: &RequestQueue| !queue.is_active() && queue.seats_in_use == 0;
        while self.queues.len() > wanted && self.queues.last().is_some_and(is_empty) {
            self.queues.pop();
        }
        self.last_served = self.last_served.min(self.queues.len().saturating_sub(1));
    }
}

fn seconds(nanos: Nanos) -> f64 {
    nanos as f64 / 1e9
}
