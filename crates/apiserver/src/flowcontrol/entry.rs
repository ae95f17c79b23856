//! Requests under way, each in its place: nothing is allocated where one left before.

use std::ops::{Index, IndexMut};
use std::time::Duration;

use http::Uri;
use mizzen_value::Str;
use tokio::sync::oneshot::Sender;

use super::schema::Distinguisher;
use super::work_estimate::{Nanos, SeatSeconds, WorkEstimate};
use crate::request::RequestInfo;

/// A request that comes.
pub(super) struct ArrivingRequest {
    /// The tally of its flow schema.
    pub counts_idx: usize,
    /// Of which flow it is.
    pub flow_hash: u64,
    pub work: WorkEstimate,
    /// How many watchers will hear of what it writes.
    pub watchers: Option<usize>,
    pub digest: RequestDigest,
}

/// What people are told who ask what is going on.
#[derive(Default)]
pub(super) struct RequestDigest {
    pub user: Str,
    /// What tells its flow from others of the schema.
    pub flow: Distinguisher,
    pub info: RequestInfo,
    pub uri: Uri,
}

/// A request under way.
pub(super) struct RequestEntry {
    pub counts_idx: usize,
    pub work: WorkEstimate,
    pub cost: SeatSeconds,
    /// The queue that it came through, if there are any.
    pub queue: Option<usize>,
    pub arrived: Nanos,
    /// The progress when it came.
    pub arrival_r: SeatSeconds,
    /// When it went; none while it waits.
    pub started: Option<Nanos>,
    /// Whether it has been answered, and only its seats are still taken.
    pub is_finished: bool,
    /// Who waits for it to go.
    pub ready: Option<Sender<()>>,
    pub digest: RequestDigest,
}

impl RequestEntry {
    pub(super) fn new(
        newcomer: ArrivingRequest,
        queue: Option<usize>,
        arrived: Nanos,
        came_at: SeatSeconds,
        service: Duration,
    ) -> RequestEntry {
        let ArrivingRequest {
            counts_idx: slot,
            work,
            digest: about,
            ..
        } = newcomer;
        let cost = work.cost(service);
        RequestEntry {
            counts_idx: slot,
            work,
            cost,
            queue,
            arrived,
            arrival_r: came_at,
            started: None,
            is_finished: false,
            ready: None,
            digest: about,
        }
    }
}

/// The place of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RequestKey(usize);

/// Requests by place.
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

    /// Takes an entry out. Its place may be given to another.
    pub(super) fn remove(&mut self, key: RequestKey) -> RequestEntry {
        self.free.push(key.0);
        self.slots[key.0].take().expect(HELD)
    }

    /// All that are there.
    pub(super) fn iter(&self) -> impl Iterator<Item = &RequestEntry> {
        self.slots.iter().flatten()
    }
}

/// Invariant: a key is with one [`Place`](super::place::Place), or with the queues after that has left, and nowhere else.
const HELD: &str = "whoever has a key has not left";

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
