//! Requests under way, each in its place: nothing is allocated where one left before.

use std::ops::{Index, IndexMut};
use std::time::Duration;

use http::Uri;
use mizzen_value::Str;
use tokio::sync::oneshot::Sender;

use super::schema::Distinguisher;
use super::work::{Nanos, SeatSeconds, Work};
use crate::request::RequestInfo;

/// A request that comes.
pub(super) struct Newcomer {
    /// The tally of its flow schema.
    pub slot: usize,
    /// Of which flow it is.
    pub hash: u64,
    pub work: Work,
    /// How many watchers will hear of what it writes.
    pub watchers: Option<usize>,
    pub about: About,
}

/// What people are told who ask what is going on.
#[derive(Default)]
pub(super) struct About {
    pub user: Str,
    /// What tells its flow from others of the schema.
    pub flow: Distinguisher,
    pub info: RequestInfo,
    pub uri: Uri,
}

/// A request under way.
pub(super) struct Entry {
    pub slot: usize,
    pub work: Work,
    pub cost: SeatSeconds,
    /// The queue that it came through, if there are any.
    pub queue: Option<usize>,
    pub arrived: Nanos,
    /// The progress when it came.
    pub came_at: SeatSeconds,
    /// When it went; none while it waits.
    pub started: Option<Nanos>,
    /// Whether it has been answered, and only its seats are still taken.
    pub is_done: bool,
    /// Who waits for it to go.
    pub ready: Option<Sender<()>>,
    pub about: About,
}

impl Entry {
    pub(super) fn new(
        newcomer: Newcomer,
        queue: Option<usize>,
        arrived: Nanos,
        came_at: SeatSeconds,
        service: Duration,
    ) -> Entry {
        let Newcomer {
            slot, work, about, ..
        } = newcomer;
        let cost = work.cost(service);
        Entry {
            slot,
            work,
            cost,
            queue,
            arrived,
            came_at,
            started: None,
            is_done: false,
            ready: None,
            about,
        }
    }
}

/// The place of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(usize);

/// Requests by place.
#[derive(Default)]
pub(super) struct Entries {
    places: Vec<Option<Entry>>,
    free: Vec<usize>,
}

impl Entries {
    pub(super) fn insert(&mut self, entry: Entry) -> Key {
        match self.free.pop() {
            Some(place) => {
                self.places[place] = Some(entry);
                Key(place)
            }
            None => {
                self.places.push(Some(entry));
                Key(self.places.len() - 1)
            }
        }
    }

    /// Takes an entry out. Its place may be given to another.
    pub(super) fn remove(&mut self, key: Key) -> Entry {
        self.free.push(key.0);
        self.places[key.0].take().expect(HELD)
    }

    /// All that are there.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.places.iter().flatten()
    }
}

/// Invariant: a key is with one [`Place`](super::place::Place), or with the queues after that has left, and nowhere else.
const HELD: &str = "whoever has a key has not left";

impl Index<Key> for Entries {
    type Output = Entry;

    fn index(&self, key: Key) -> &Entry {
        self.places[key.0].as_ref().expect(HELD)
    }
}

impl IndexMut<Key> for Entries {
    fn index_mut(&mut self, key: Key) -> &mut Entry {
        self.places[key.0].as_mut().expect(HELD)
    }
}
