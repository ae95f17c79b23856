//! Where is each key: waiting, with a worker, or both?

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

use super::Next;
use super::delayed::Delayed;
use super::metrics::Metrics;
use super::ready::{Ready, Waiting};

pub(super) struct State<T> {
    places: HashMap<T, Place, foldhash::fast::RandomState>,
    ready: Ready<T>,
    delayed: Delayed<T>,
    waiting: usize,
    working: usize,
    tickets: u64,
    is_closed: bool,
    /// Until when somebody watches the clock for delayed keys.
    watched: Option<Instant>,
    pub metrics: Metrics,
}

/// Where a key is. A key that is nowhere has no entry.
enum Place {
    Waiting {
        priority: i32,
        ticket: u64,
    },
    /// With a worker since, and added again since then with this priority.
    Working {
        since: Instant,
        again: Option<i32>,
    },
}

impl<T: Eq + Hash + Clone> State<T> {
    pub(super) fn new(name: String, aging: Duration) -> State<T> {
        State {
            places: HashMap::default(),
            ready: Ready::new(aging),
            delayed: Delayed::new(),
            waiting: 0,
            working: 0,
            tickets: 0,
            is_closed: false,
            watched: None,
            metrics: Metrics::new(name),
        }
    }

    /// Adds a key; whether there is now one more to be taken.
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
            Some(Place::Working { again, .. }) => {
                if again.is_none() {
                    self.metrics.adds += 1;
                }
                *again = Some(again.map_or(priority, |known| known.max(priority)));
                false
            }
            Some(Place::Waiting {
                priority: known, ..
            }) if *known >= priority => false,
            Some(Place::Waiting { .. }) => {
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
            .insert(key.clone(), Place::Waiting { priority, ticket });
        self.ready.push(
            priority,
            Waiting {
                key,
                ticket,
                since: now,
            },
        );
        self.waiting += 1;
    }

    /// Adds a key later; whether that is sooner than whoever watches the clock knows.
    pub(super) fn delay(&mut self, key: T, due: Instant) -> bool {
        !self.is_closed && self.delayed.push(key, due)
    }

    /// Enqueues the delayed keys that are due, each as of the moment it became due: the queue duration counts from
    /// there, and keys that were added later come later.
    pub(super) fn enqueue_due(&mut self, now: Instant) {
        while let Some((key, due)) = self.delayed.pop(now) {
            self.add(key, 0, due);
        }
    }

    /// Hands out the next key.
    pub(super) fn take(&mut self, now: Instant) -> Next<T> {
        while let Some(waiting) = self.ready.pop() {
            if let Some(key) = self.hand_out(waiting, now) {
                return Next::Key(key);
            }
        }
        if self.is_closed && !self.will_come_again() {
            return Next::Closed;
        }
        let due = self
            .delayed
            .next_due()
            .filter(|due| self.watched.is_none_or(|known| *due < known));
        self.watched = due.or(self.watched);
        Next::Nothing { due }
    }

    /// Ends a watch of the clock, unless somebody has taken it over who is to watch for an earlier key.
    pub(super) fn end_watch(&mut self, due: Instant) {
        self.watched = self.watched.filter(|watched| *watched != due);
    }

    fn hand_out(&mut self, waiting: Waiting<T>, now: Instant) -> Option<T> {
        let Waiting { key, ticket, since } = waiting;
        match self.places.get_mut(&key) {
            Some(place @ Place::Waiting { .. }) if place.has(ticket) => {
                *place = Place::Working {
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

    /// Ends the work on a key; whether it can be taken again.
    pub(super) fn done(&mut self, key: &T, now: Instant) -> bool {
        let Entry::Occupied(place) = self.places.entry(key.clone()) else {
            return false;
        };
        let Place::Working { since, again } = *place.get() else {
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

    /// Whether somebody else should be woken: there is more to take, or a clock to be watched.
    pub(super) fn has_more(&mut self) -> bool {
        self.waiting > 0 || self.watched.is_none() && self.delayed.next_due().is_some()
    }

    /// Whether a key that a worker has was added again and is handed out once more.
    fn will_come_again(&self) -> bool {
        self.working > 0
            && self
                .places
                .values()
                .any(|place| matches!(place, Place::Working { again: Some(_), .. }))
    }

    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.delayed.clear();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether the queue is closed and nothing is left.
    pub(super) fn is_drained(&self) -> bool {
        self.is_closed && self.waiting == 0 && self.working == 0
    }

    pub(super) fn len(&self) -> usize {
        self.waiting
    }

    /// What happened so far, and how it stands now.
    pub(super) fn measure(&self, now: Instant) -> Metrics {
        let running = self.places.values().filter_map(|place| match place {
            Place::Working { since, .. } => Some(now - *since),
            Place::Waiting { .. } => None,
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

impl Place {
    fn has(&self, wanted: u64) -> bool {
        matches!(self, Place::Waiting { ticket, .. } if *ticket == wanted)
    }
}
