//! Who is next? The requests of one level: those that are answered, and those that wait for a seat in fair queues.
//!
//! Each queue should get the same work done as every other that wants something done. What a queue has got is measured
//! on a meter, the progress: it runs as fast as work is done for a queue. A queue's `next` is the reading at which its
//! next request is due if all got the same; the request that would be through first is the one that goes. What a request
//! will cost is guessed when it goes, and put right when it is known.
//!
//! Pure: time is told. Seats that are kept a while after the answer are given back when somebody next looks, as of the
//! moment they were due; somebody must look at [`Queues::look_at`] while requests wait.

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

/// How long answering a request is thought to take.
const SERVICE: Duration = Duration::from_millis(3);

/// The requests of one level.
pub(super) struct QueueSet {
    shape: LimitResponse,
    /// The seats that there are now.
    limit: usize,
    queues: Vec<RequestQueue>,
    pub entries: RequestEntries,
    /// How much work a queue has got done, that always wanted something done.
    pub progress: SeatSeconds,
    at: Nanos,
    /// The queue that was last served.
    last_served: usize,
    n_enqueued: usize,
    /// How many queues have requests that wait or are answered.
    n_active: usize,
    pub waiting: usize,
    pub executing: usize,
    seats_waiting: usize,
    pub seats_in_use: usize,
    /// Seats that are given back at some moment, soonest first.
    lingering: BinaryHeap<Reverse<(Nanos, RequestKey)>>,
    pub demand: DemandIntegrator,
    pub usage: LevelUtilization,
    /// By what use is measured where there is no limit.
    unlimited: usize,
    /// What is counted, by flow schema.
    pub schema_counts: Vec<FlowSchemaCounts>,
    pub totals: Totals,
    pub last_dispatch: DispatchReadings,
}

/// What was counted since the level is there.
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

    /// Other queues or another number of seats from now on. Queues that are too many are used until they are empty.
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

    /// A request comes: it goes at once, waits, or is turned away.
    pub(super) fn start_request(
        &mut self,
        now: Nanos,
        newcomer: ArrivingRequest,
    ) -> Result<RequestKey, RejectReason> {
        self.settle(now);
        self.schema_counts[newcomer.counts_idx].observe_arrival(&newcomer.work, newcomer.watchers);
        let refused = match self.shape {
            LimitResponse::Exempt => None,
            LimitResponse::Reject => (!self.can_accommodate(newcomer.work.max_seats()))
                .then_some(RejectReason::ConcurrencyLimit),
            LimitResponse::Queue {
                queues,
                length,
                hand,
            } => {
                let queue = self.choose_queue(newcomer.flow_hash, queues, hand);
                let full =
                    self.seats_in_use >= self.limit && self.queues[queue].waiting.len() >= length;
                if !full {
                    return Ok(self.enqueue(queue, newcomer));
                }
                Some(RejectReason::QueueFull)
            }
        };
        match refused {
            Some(reason) => {
                self.reject(newcomer.counts_idx, reason);
                self.schema_counts[newcomer.counts_idx].waits[0].observe(0.0);
                Err(reason)
            }
            None => Ok(self.dispatch_unqueued(newcomer)),
        }
    }

    /// How a request that waits is told to go. None if it need not wait.
    pub(super) fn wait_receiver(&mut self, key: RequestKey) -> Option<Receiver<()>> {
        let entry = &mut self.entries[key];
        if entry.started.is_some() {
            return None;
        }
        let (ready, told) = oneshot::channel();
        entry.ready = Some(ready);
        Some(told)
    }

    /// A request waits no longer, unless it has been told to go meanwhile. Returns whether it is gone.
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
        // Kubernetes: only who is turned away at the door counts as such (apf_filter.go).
        self.schema_counts[entry.counts_idx].waits[1].observe(seconds(now - entry.arrived));
        // Kubernetes: it waited for too long, even if its client is gone (queueset.go).
        self.reject(entry.counts_idx, RejectReason::TimeOut);
        self.totals.cancelled += 1;
        self.update_demand();
        self.bound_next_dispatch(at);
        self.remove_empty_queues();
        // It may have needed more seats than those behind it.
        self.dispatch(None);
        true
    }

    /// A request is answered, or its client is gone.
    pub(super) fn finish(&mut self, now: Nanos, key: RequestKey) {
        if self.cancel(now, key) {
            return;
        }
        let entry = &mut self.entries[key];
        let took = Duration::from_nanos(now.saturating_sub(entry.started.unwrap_or(now)));
        entry.is_finished = true;
        let (slot, queue, work) = (entry.counts_idx, entry.queue, entry.work);
        self.executing -= 1;
        self.schema_counts[slot].executing -= 1;
        self.schema_counts[slot].executions[usize::from(entry.digest.info.verb() == "watch")]
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

    /// When to call [`Queues::settle`] at the latest. None if nobody waits for it.
    pub(super) fn next_wakeup(&self) -> Option<Nanos> {
        let Reverse((at, _)) = self.lingering.peek().filter(|_| self.waiting > 0)?;
        Some(*at)
    }

    /// Brings everything up to `now`.
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

    /// Whether nobody waits and nobody is answered.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting == 0 && self.executing == 0
    }

    /// The seats that there are now.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// The queues, for whoever wants to look at them.
    pub(super) fn all(&self) -> &[RequestQueue] {
        &self.queues
    }

    /// The meter runs as fast as work is done for each queue that wants something done.
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

    /// The queue of the flow's hand with the least work in it.
    fn choose_queue(&mut self, hash: u64, deck: usize, hand: usize) -> usize {
        let turn = self.n_enqueued;
        self.n_enqueued = self.n_enqueued.wrapping_add(1);
        let hand = Hand::deal(hash, deck, hand);
        let least = hand
            .beginning_at(turn)
            .min_by_key(|queue| self.queues[*queue].work_waiting);
        least.expect("a hand has at least one card")
    }

    fn enqueue(&mut self, at: usize, newcomer: ArrivingRequest) -> RequestKey {
        if !self.queues[at].is_active() {
            self.queues[at].next_dispatch_r = self.progress;
        }
        let entry = RequestEntry::new(newcomer, Some(at), self.at, self.progress, SERVICE);
        let (slot, seats, first, cost) = (
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
        self.schema_counts[slot].record_queued(seats);
        self.schema_counts[slot]
            .queue_lengths
            .observe(self.queues[at].waiting.len() as f64);
        self.bound_next_dispatch(at);
        let only = (self.waiting == 1).then_some(at);
        self.dispatch(only);
        key
    }

    /// Where nobody waits, nobody is passed over either.
    fn dispatch_unqueued(&mut self, newcomer: ArrivingRequest) -> RequestKey {
        let key = self.entries.insert(RequestEntry::new(
            newcomer,
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
        // Who does not listen is about to leave.
        let _ = entry.ready.take().map(|ready| ready.send(()));
        let (slot, seats, waited) = (
            entry.counts_idx,
            entry.work.max_seats(),
            self.at - entry.arrived,
        );
        self.executing += 1;
        self.seats_in_use += seats;
        self.totals.dispatched += 1;
        self.schema_counts[slot].record_dispatched(seats);
        if self.shape != LimitResponse::Exempt {
            self.schema_counts[slot].waits[1].observe(seconds(waited));
        }
        self.update_demand();
    }

    /// Lets go who can go. `only` is the queue in which somebody waits, if it is known to be the only one.
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

    /// The queue whose next request would be through first. Those after the one that was last served come first.
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

    /// Whether so many seats are free. Who wants more than there are gets all of them.
    fn can_accommodate(&self, seats: usize) -> bool {
        match self.shape {
            LimitResponse::Exempt => true,
            _ if seats > self.limit => self.executing == 0,
            _ => self.seats_in_use + seats <= self.limit,
        }
    }

    fn unqueue(&mut self, at: usize, key: RequestKey) {
        let entry = &self.entries[key];
        let (slot, seats, first, cost) = (
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
        self.schema_counts[slot].record_unqueued(seats);
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

    fn reject(&mut self, slot: usize, reason: RejectReason) {
        self.totals.rejected += 1;
        self.schema_counts[slot].record_rejected(reason);
    }

    fn update_demand(&mut self) {
        self.demand
            .set(self.at, self.seats_in_use + self.seats_waiting);
    }

    /// Nothing is due before it came: a queue that could not use what it got saves nothing up.
    fn bound_next_dispatch(&mut self, at: usize) {
        let queue = &mut self.queues[at];
        if let Some(key) = queue.waiting.front() {
            queue.next_dispatch_r = queue.next_dispatch_r.max(self.entries[*key].arrival_r);
        }
    }

    /// Changes a queue, and counts whether it is active.
    fn update_queue(&mut self, at: usize, change: impl FnOnce(&mut RequestQueue)) {
        let queue = &mut self.queues[at];
        let before = queue.is_active();
        change(queue);
        self.n_active = self.n_active + usize::from(queue.is_active()) - usize::from(before);
    }

    /// Drops queues that are too many, from the end, once they are empty. No flow is dealt them any more.
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
