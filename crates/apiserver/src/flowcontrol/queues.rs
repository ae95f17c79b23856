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

use super::Reason;
use super::deal::Hand;
use super::demand::Demand;
use super::entry::{Entries, Entry, Key, Newcomer};
use super::level::Shape;
use super::queue::{Bounds, Dispatch, Queue};
use super::tally::Tally;
use super::usage::LevelUsage;
use super::work::{Nanos, SeatSeconds};

/// How long answering a request is thought to take.
const SERVICE: Duration = Duration::from_millis(3);

/// The requests of one level.
pub(super) struct Queues {
    shape: Shape,
    /// The seats that there are now.
    limit: usize,
    queues: Vec<Queue>,
    pub entries: Entries,
    /// How much work a queue has got done, that always wanted something done.
    pub progress: SeatSeconds,
    at: Nanos,
    /// The queue that was last served.
    robin: usize,
    n_enqueued: usize,
    /// How many queues have requests that wait or are answered.
    n_active: usize,
    pub waiting: usize,
    pub executing: usize,
    seats_waiting: usize,
    pub seats_in_use: usize,
    /// Seats that are given back at some moment, soonest first.
    lingering: BinaryHeap<Reverse<(Nanos, Key)>>,
    pub demand: Demand,
    pub usage: LevelUsage,
    /// By what use is measured where there is no limit.
    unlimited: usize,
    /// What is counted, by flow schema.
    pub tallies: Vec<Tally>,
    pub totals: Totals,
    pub last_dispatch: Dispatch,
}

/// What was counted since the level is there.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Totals {
    pub dispatched: u64,
    pub rejected: u64,
    pub cancelled: u64,
}

impl Queues {
    pub(super) fn new(now: Nanos, shape: Shape, limit: usize, unlimited: usize) -> Queues {
        let mut queues = Queues {
            shape,
            limit,
            queues: Vec::new(),
            entries: Entries::default(),
            progress: SeatSeconds::default(),
            at: now,
            robin: 0,
            n_enqueued: 0,
            n_active: 0,
            waiting: 0,
            executing: 0,
            seats_waiting: 0,
            seats_in_use: 0,
            lingering: BinaryHeap::new(),
            demand: Demand::default(),
            usage: LevelUsage::default(),
            unlimited,
            tallies: Vec::new(),
            totals: Totals::default(),
            last_dispatch: Dispatch::default(),
        };
        queues.demand.set(now, 0);
        queues.configure(now, shape, limit);
        queues
    }

    /// Other queues or another number of seats from now on. Queues that are too many are used until they are empty.
    pub(super) fn configure(&mut self, now: Nanos, shape: Shape, limit: usize) {
        self.settle(now);
        (self.shape, self.limit) = (shape, limit);
        self.usage.resize(
            shape.room_to_wait(),
            if limit > 0 { limit } else { self.unlimited },
        );
        let wanted = shape.n_queues();
        if self.queues.len() < wanted {
            self.queues.resize_with(wanted, Queue::default);
        }
        self.trim();
        self.dispatch(None);
    }

    /// A request comes: it goes at once, waits, or is turned away.
    pub(super) fn begin(&mut self, now: Nanos, newcomer: Newcomer) -> Result<Key, Reason> {
        self.settle(now);
        self.tallies[newcomer.slot].came(&newcomer.work, newcomer.watchers);
        let refused = match self.shape {
            Shape::Exempt => None,
            Shape::Reject => (!self.fits(newcomer.work.most())).then_some(Reason::ConcurrencyLimit),
            Shape::Queue {
                queues,
                length,
                hand,
            } => {
                let queue = self.choose(newcomer.hash, queues, hand);
                let full =
                    self.seats_in_use >= self.limit && self.queues[queue].waiting.len() >= length;
                if !full {
                    return Ok(self.enqueue(queue, newcomer));
                }
                Some(Reason::QueueFull)
            }
        };
        match refused {
            Some(reason) => {
                self.reject(newcomer.slot, reason);
                self.tallies[newcomer.slot].waits[0].observe(0.0);
                Err(reason)
            }
            None => Ok(self.start_at_once(newcomer)),
        }
    }

    /// How a request that waits is told to go. None if it need not wait.
    pub(super) fn wait(&mut self, key: Key) -> Option<Receiver<()>> {
        let entry = &mut self.entries[key];
        if entry.started.is_some() {
            return None;
        }
        let (ready, told) = oneshot::channel();
        entry.ready = Some(ready);
        Some(told)
    }

    /// A request waits no longer, unless it has been told to go meanwhile. Returns whether it is gone.
    pub(super) fn give_up(&mut self, now: Nanos, key: Key) -> bool {
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
        self.tallies[entry.slot].waits[1].observe(seconds(now - entry.arrived));
        // Kubernetes: it waited for too long, even if its client is gone (queueset.go).
        self.reject(entry.slot, Reason::TimeOut);
        self.totals.cancelled += 1;
        self.want();
        self.bound(at);
        self.trim();
        // It may have needed more seats than those behind it.
        self.dispatch(None);
        true
    }

    /// A request is answered, or its client is gone.
    pub(super) fn leave(&mut self, now: Nanos, key: Key) {
        if self.give_up(now, key) {
            return;
        }
        let entry = &mut self.entries[key];
        let took = Duration::from_nanos(now.saturating_sub(entry.started.unwrap_or(now)));
        entry.is_done = true;
        let (slot, queue, work) = (entry.slot, entry.queue, entry.work);
        self.executing -= 1;
        self.tallies[slot].executing -= 1;
        self.tallies[slot].executions[usize::from(entry.about.info.verb() == "watch")]
            .observe(took.as_secs_f64());
        if let Some(at) = queue {
            self.change(at, |queue| queue.executing -= 1);
            let first = work.first as f64;
            let queue = &mut self.queues[at];
            queue.next += SeatSeconds::of(first, took);
            queue.next -= SeatSeconds::of(first, SERVICE);
            self.bound(at);
        }
        match u64::try_from(work.latency.as_nanos()) {
            Ok(latency) if latency > 0 => self.lingering.push(Reverse((now + latency, key))),
            _ => self.release(now, key),
        }
        self.dispatch(None);
    }

    /// When to call [`Queues::settle`] at the latest. None if nobody waits for it.
    pub(super) fn look_at(&self) -> Option<Nanos> {
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
            self.pass(at);
            self.release(at, key);
            self.dispatch(None);
        }
        self.pass(now);
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
    pub(super) fn all(&self) -> &[Queue] {
        &self.queues
    }

    /// The meter runs as fast as work is done for each queue that wants something done.
    fn pass(&mut self, now: Nanos) {
        let nanos = now.saturating_sub(self.at);
        let passed = Duration::from_nanos(nanos);
        self.at = self.at.max(now);
        self.usage.waiting.lasted(self.waiting, nanos);
        self.usage.executing.lasted(self.executing, nanos);
        self.usage.seats.lasted(self.seats_in_use, nanos);
        self.usage
            .demand
            .lasted(self.seats_in_use + self.seats_waiting, nanos);
        if self.n_active > 0 {
            let seats = (self.seats_in_use + self.seats_waiting).min(self.limit);
            self.progress += SeatSeconds::of(seats as f64 / self.n_active as f64, passed);
        }
    }

    /// The queue of the flow's hand with the least work in it.
    fn choose(&mut self, hash: u64, deck: usize, hand: usize) -> usize {
        let turn = self.n_enqueued;
        self.n_enqueued = self.n_enqueued.wrapping_add(1);
        let hand = Hand::deal(hash, deck, hand);
        let least = hand
            .beginning_at(turn)
            .min_by_key(|queue| self.queues[*queue].work_waiting);
        least.expect("a hand has at least one card")
    }

    fn enqueue(&mut self, at: usize, newcomer: Newcomer) -> Key {
        if !self.queues[at].is_active() {
            self.queues[at].next = self.progress;
        }
        let entry = Entry::new(newcomer, Some(at), self.at, self.progress, SERVICE);
        let (slot, seats, first, cost) =
            (entry.slot, entry.work.most(), entry.work.first, entry.cost);
        let key = self.entries.insert(entry);
        self.change(at, |queue| {
            queue.waiting.push_back(key);
            queue.seats_waiting += seats;
            queue.first_seats_waiting += first;
            queue.work_waiting += cost;
        });
        self.waiting += 1;
        self.seats_waiting += seats;
        self.want();
        self.tallies[slot].queued(seats);
        self.tallies[slot]
            .queue_lengths
            .observe(self.queues[at].waiting.len() as f64);
        self.bound(at);
        let only = (self.waiting == 1).then_some(at);
        self.dispatch(only);
        key
    }

    /// Where nobody waits, nobody is passed over either.
    fn start_at_once(&mut self, newcomer: Newcomer) -> Key {
        let key = self
            .entries
            .insert(Entry::new(newcomer, None, self.at, self.progress, SERVICE));
        self.start(key);
        key
    }

    fn start(&mut self, key: Key) {
        let entry = &mut self.entries[key];
        entry.started = Some(self.at);
        // Who does not listen is about to leave.
        let _ = entry.ready.take().map(|ready| ready.send(()));
        let (slot, seats, waited) = (entry.slot, entry.work.most(), self.at - entry.arrived);
        self.executing += 1;
        self.seats_in_use += seats;
        self.totals.dispatched += 1;
        self.tallies[slot].started(seats);
        if self.shape != Shape::Exempt {
            self.tallies[slot].waits[1].observe(seconds(waited));
        }
        self.want();
    }

    /// Lets go who can go. `only` is the queue in which somebody waits, if it is known to be the only one.
    fn dispatch(&mut self, only: Option<usize>) {
        while self.waiting > 0 && self.seats_in_use < self.limit {
            let at = only.unwrap_or_else(|| self.earliest());
            let key = *self.queues[at]
                .waiting
                .front()
                .expect("somebody waits here");
            if !self.fits(self.entries[key].work.most()) {
                self.tallies[self.entries[key].slot].not_accommodated += 1;
                return;
            }
            self.robin = at;
            self.unqueue(at, key);
            self.last_dispatch.progress = self.progress;
            self.last_dispatch.next = self.queues[at].next;
            let entry = &mut self.entries[key];
            entry.work = entry.work.narrowed(self.limit);
            let (seats, cost) = (entry.work.most(), entry.cost);
            self.change(at, |queue| {
                queue.executing += 1;
                queue.seats_in_use += seats;
                queue.next += cost;
            });
            self.start(key);
            self.bound(at);
        }
    }

    /// The queue whose next request would be through first. Those after the one that was last served come first.
    fn earliest(&mut self) -> usize {
        let n_queues = self.queues.len();
        let mut first = (SeatSeconds::MAX, self.robin);
        let (mut bounds, mut discounted) = (Bounds::default(), Bounds::default());
        for at in (1..=n_queues).map(|step| (self.robin + step) % n_queues) {
            let queue = &self.queues[at];
            let Some(key) = queue.waiting.front() else {
                continue;
            };
            bounds.note(queue.next);
            discounted.note(queue.next - SeatSeconds::of(queue.seats_in_use as f64, SERVICE));
            let through = queue.next + self.entries[*key].cost;
            if through < first.0 {
                first = (through, at);
            }
        }
        (self.last_dispatch.bounds, self.last_dispatch.discounted) = (bounds.0, discounted.0);
        first.1
    }

    /// Whether so many seats are free. Who wants more than there are gets all of them.
    fn fits(&self, seats: usize) -> bool {
        match self.shape {
            Shape::Exempt => true,
            _ if seats > self.limit => self.executing == 0,
            _ => self.seats_in_use + seats <= self.limit,
        }
    }

    fn unqueue(&mut self, at: usize, key: Key) {
        let entry = &self.entries[key];
        let (slot, seats, first, cost) =
            (entry.slot, entry.work.most(), entry.work.first, entry.cost);
        self.change(at, |queue| {
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
        self.tallies[slot].unqueued(seats);
    }

    fn release(&mut self, now: Nanos, key: Key) {
        let entry = self.entries.remove(key);
        let seats = entry.work.most();
        self.seats_in_use -= seats;
        self.tallies[entry.slot].executing_seats -= seats;
        if let Some(at) = entry.queue {
            self.queues[at].seats_in_use -= seats;
        }
        self.demand.set(now, self.seats_in_use + self.seats_waiting);
        self.trim();
    }

    fn reject(&mut self, slot: usize, reason: Reason) {
        self.totals.rejected += 1;
        self.tallies[slot].reject(reason);
    }

    fn want(&mut self) {
        self.demand
            .set(self.at, self.seats_in_use + self.seats_waiting);
    }

    /// Nothing is due before it came: a queue that could not use what it got saves nothing up.
    fn bound(&mut self, at: usize) {
        let queue = &mut self.queues[at];
        if let Some(key) = queue.waiting.front() {
            queue.next = queue.next.max(self.entries[*key].came_at);
        }
    }

    /// Changes a queue, and counts whether it is active.
    fn change(&mut self, at: usize, change: impl FnOnce(&mut Queue)) {
        let queue = &mut self.queues[at];
        let before = queue.is_active();
        change(queue);
        self.n_active = self.n_active + usize::from(queue.is_active()) - usize::from(before);
    }

    /// Drops queues that are too many, from the end, once they are empty. No flow is dealt them any more.
    fn trim(&mut self) {
        let wanted = self.shape.n_queues();
        let is_empty = |queue: &Queue| !queue.is_active() && queue.seats_in_use == 0;
        while self.queues.len() > wanted && self.queues.last().is_some_and(is_empty) {
            self.queues.pop();
        }
        self.robin = self.robin.min(self.queues.len().saturating_sub(1));
    }
}

fn seconds(nanos: Nanos) -> f64 {
    nanos as f64 / 1e9
}
