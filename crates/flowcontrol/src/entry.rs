//! Waiting and executing requests in reused slots, so that a request in steady state allocates
//! nothing.

use std::ops::{Index, IndexMut};
use std::time::Duration;

use http::Uri;
use mizzen_request::RequestInfo;
use mizzen_value::Str;
use tokio::sync::oneshot::Sender;

use super::schema::Distinguisher;
use super::work_estimate::{Nanos, SeatSeconds, WorkEstimate};

/// A request before it is queued or dispatched.
pub(super) struct ArrivingRequest {
    /// The index of its flow schema's counts.
    pub counts_idx: usize,
    /// The hash of its flow.
    pub flow_hash: u64,
    pub work: WorkEstimate,
    /// How many watchers are notified of its write.
    pub watchers: Option<usize>,
    pub digest: RequestDigest,
}

/// What debug dumps show of a request.
#[derive(Default)]
pub(super) struct RequestDigest {
    pub user: Str,
    /// How its flow is distinguished within the schema.
    pub flow: Distinguisher,
    pub info: RequestInfo,
    pub uri: Uri,
}

/// A waiting or executing request.
pub(super) struct RequestEntry {
    pub counts_idx: usize,
    pub work: WorkEstimate,
    pub cost: SeatSeconds,
    /// Its queue; none at a level without queues.
    pub queue: Option<usize>,
    pub arrived: Nanos,
    /// The progress meter at its arrival.
    pub arrival_r: SeatSeconds,
    /// When it was dispatched; none while it waits.
    pub started: Option<Nanos>,
    /// Whether it is finished and only its seats linger.
    pub is_finished: bool,
    /// Notifies the waiting request of its dispatch.
    pub ready: Option<Sender<()>>,
    pub digest: RequestDigest,
}

impl RequestEntry {
    pub(super) fn new(
        arriving: ArrivingRequest,
        queue: Option<usize>,
        arrived: Nanos,
        arrival_r: SeatSeconds,
        service: Duration,
    ) -> RequestEntry {
        let ArrivingRequest {
            counts_idx,
            work,
            digest,
            ..
        } = arriving;
        let cost = work.cost(service);
        RequestEntry {
            counts_idx,
            work,
            cost,
            queue,
            arrived,
            arrival_r,
            started: None,
            is_finished: false,
            ready: None,
            digest,
        }
    }
}

/// The slot of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RequestKey(usize);

#[derive(Default)]
pub(super) struct RequestEntries {
    slots: Vec<Option<RequestEntry>>,
    free: Vec<usize>,
}

impl RequestEntries {
    pub(super) fn insert(&mut self, entry: RequestEntry) -> RequestKey {
        match self.free.pop() {
            Some(place) => {
                self.slots[place] = Some(entry);
                RequestKey(place)
            }
            None => {
                self.slots.push(Some(entry));
                RequestKey(self.slots.len() - 1)
            }
        }
    }

    /// Removes an entry and frees its slot.
    pub(super) fn remove(&mut self, key: RequestKey) -> RequestEntry {
        self.free.push(key.0);
        self.slots[key.0].take().expect(HELD)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &RequestEntry> {
        self.slots.iter().flatten()
    }
}

/// Invariant: a key is held by one [`SeatLease`](super::seat_lease::SeatLease), or by the queue set
/// after that was dropped.
const HELD: &str = "a key that is held has an entry";

impl Index<RequestKey> for RequestEntries {
    type Output = RequestEntry;

    fn index(&self, key: RequestKey) -> &RequestEntry {
        self.slots[key.0].as_ref().expect(HELD)
    }
}

impl IndexMut<RequestKey> for RequestEntries {
    fn index_mut(&mut self, key: RequestKey) -> &mut RequestEntry {
        self.slots[key.0].as_mut().expect(HELD)
    }
}
