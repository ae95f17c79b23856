//! The state of each key: queued, with a worker, or both.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

use super::NextKey;
use super::delayed::Delayed;
use super::metrics::Metrics;
use super::ready::{ReadyKey, ReadyKeys};

pub(super) struct State<T> {
    places: HashMap<T, KeyState, foldhash::fast::RandomState>,
    ready: ReadyKeys<T>,
    delayed: Delayed<T>,
    waiting: usize,
    working: usize,
    tickets: u64,
    is_closed: bool,
    /// Until when a worker watches the clock for delayed keys.
    watched: Option<Instant>,
    pub metrics: Metrics,
}

/// The state of a key. A key that is neither queued nor with a worker has no entry.
enum KeyState {
    Queued {
        priority: i32,
        ticket: u64,
    },
    /// With a worker since then, and added again with this priority.
    Working {
        since: Instant,
        again: Option<i32>,
    },
}

impl<T: Eq + Hash + Clone> State<T> {
    pub(super) fn new(name: String, aging: Duration) -> State<T> {
        State {
            places: HashMap::default(),
            ready: ReadyKeys::new(aging),
            delayed: Delayed::new(),
            waiting: 0,
            working: 0,
            tickets: 0,
            is_closed: false,
            watched: None,
            metrics: Metrics::new(name),
        }
    }

    /// Adds a key; true if there is one more to take.
    pub(super) fn add(&mut self, key: T, priority: i32, now: Instant) -> bool {
        if self.is_closed {
            return false;
        }
        match self.places.get_mut(&key) {
            None => {
                self.metrics.adds += 1;
                self.enqueue(key, priority, now);
                true
            }
            Some(KeyState::Working { again, .. }) => {
                if again.is_none() {
                    self.metrics.adds += 1;
                }
                *again = Some(again.map_or(priority, |known| known.max(priority)));
                false
            }
            Some(KeyState::Queued {
                priority: known, ..
            }) if *known >= priority => false,
            Some(KeyState::Queued { .. }) => {
                self.waiting -= 1;
                self.enqueue(key, priority, now);
                false
            }
        }
    }

    fn enqueue(&mut self, key: T, priority: i32, now: Instant) {
        self.tickets += 1;
        let ticket = self.tickets;
        self.places
            .insert(key.clone(), KeyState::Queued { priority, ticket });
        self.ready.push(
            priority,
            ReadyKey {
                key,
                ticket,
                since: now,
            },
        );
        self.waiting += 1;
    }

    /// Adds a delayed key; true if it is due before the time that is watched.
    pub(super) fn delay(&mut self, key: T, due: Instant) -> bool {
        !self.is_closed && self.delayed.push(key, due)
    }

    /// Enqueues the due delayed keys, each as of its due time: the queue duration counts from
    /// there, and keys that were added later come later.
    pub(super) fn enqueue_due(&mut self, now: Instant) {
        while let Some((key, due)) = self.delayed.pop(now) {
            self.add(key, 0, due);
        }
    }

    /// Hands out the next key.
    pub(super) fn take(&mut self, now: Instant) -> NextKey<T> {
        while let Some(waiting) = self.ready.pop() {
            if let Some(key) = self.hand_out(waiting, now) {
                return NextKey::Key(key);
            }
        }
        if self.is_closed && !self.will_come_again() {
            return NextKey::Closed;
        }
        let due = self
            .delayed
            .next_due()
            .filter(|due| self.watched.is_none_or(|known| *due < known));
        self.watched = due.or(self.watched);
        NextKey::Nothing { due }
    }

    /// Ends a watch of the clock, unless another worker watches for an earlier key.
    pub(super) fn end_watch(&mut self, due: Instant) {
        self.watched = self.watched.filter(|watched| *watched != due);
    }

    fn hand_out(&mut self, waiting: ReadyKey<T>, now: Instant) -> Option<T> {
        let ReadyKey { key, ticket, since } = waiting;
        match self.places.get_mut(&key) {
            Some(place @ KeyState::Queued { .. }) if place.has(ticket) => {
                *place = KeyState::Working {
                    since: now,
                    again: None,
                };
            }
            _ => return None,
        }
        self.waiting -= 1;
        self.working += 1;
        self.metrics.queued.observe((now - since).as_secs_f64());
        Some(key)
    }

    /// Ends the work on a key; true if it can be taken again.
    pub(super) fn done(&mut self, key: &T, now: Instant) -> bool {
        let Entry::Occupied(place) = self.places.entry(key.clone()) else {
            return false;
        };
        let KeyState::Working { since, again } = *place.get() else {
            return false;
        };
        let (key, _) = place.remove_entry();
        self.working -= 1;
        self.metrics.worked.observe((now - since).as_secs_f64());
        if let Some(priority) = again {
            self.enqueue(key, priority, now);
        }
        again.is_some()
    }

    /// Whether another worker must be notified: there is more to take, or the clock must be
    /// watched.
    pub(super) fn has_more(&mut self) -> bool {
        self.waiting > 0 || self.watched.is_none() && self.delayed.next_due().is_some()
    }

    /// Whether a key with a worker was added again.
    fn will_come_again(&self) -> bool {
        self.working > 0
            && self
                .places
                .values()
                .any(|place| matches!(place, KeyState::Working { again: Some(_), .. }))
    }

    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.delayed.clear();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether the queue is closed and empty.
    pub(super) fn is_drained(&self) -> bool {
        self.is_closed && self.waiting == 0 && self.working == 0
    }

    pub(super) fn len(&self) -> usize {
        self.waiting
    }

    /// The current metrics.
    pub(super) fn measure(&self, now: Instant) -> Metrics {
        let running = self.places.values().filter_map(|place| match place {
            KeyState::Working { since, .. } => Some(now - *since),
            KeyState::Queued { .. } => None,
        });
        let mut metrics = self.metrics.clone();
        metrics.depth = self.waiting;
        for time in running {
            metrics.unfinished += time;
            metrics.longest_running = metrics.longest_running.max(time);
        }
        metrics
    }
}

impl KeyState {
    fn has(&self, wanted: u64) -> bool {
        matches!(self, KeyState::Queued { ticket, .. } if *ticket == wanted)
    }
}
