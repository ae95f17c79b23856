//! What a request has of its turn: of which flow schema it is, and the place that it holds.

use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};

use http::HeaderName;

use super::OwnedSemaphorePermit;
use super::flows::Schema;
use super::place::Place;
use super::watchers::Watching;
use crate::answer::Answer;

const LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");
const SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");

/// The turn of one request. What it holds is given back when the request is dropped, unless somebody takes it over.
#[derive(Default)]
pub(crate) struct Turn {
    schema: OnceLock<Arc<Schema>>,
    held: Mutex<Held>,
}

/// What a request holds.
#[derive(Default)]
pub(crate) struct Held {
    place: Option<Place>,
    seat: Option<OwnedSemaphorePermit>,
    /// Counted for as long as it is held.
    _watching: Option<Watching>,
}

impl Held {
    pub(super) fn place(place: Place, watching: Option<Watching>) -> Held {
        Held {
            place: Some(place),
            _watching: watching,
            seat: None,
        }
    }

    pub(super) fn seat(seat: Option<OwnedSemaphorePermit>) -> Held {
        Held {
            seat,
            ..Held::default()
        }
    }

    /// A watch has sent what was there: from now on it takes no seat, but still counts as a watch.
    pub(crate) fn begun(&mut self) {
        (self.place, self.seat) = (None, None);
    }
}

impl Turn {
    pub(super) fn is_of(&self, schema: Arc<Schema>) {
        let _ = self.schema.set(schema);
    }

    pub(super) fn hold(&self, held: Held) {
        *self.held.lock() = held;
    }

    /// Takes over what the request holds, for what goes on after it was answered.
    pub(crate) fn take(&self) -> Held {
        std::mem::take(&mut self.held.lock())
    }

    /// Says in an answer of which schema and level the request was. Not by name: that is nobody's business.
    pub(crate) fn mark(&self, answer: &mut Answer) {
        let Some(schema) = self.schema.get() else {
            return;
        };
        let [level, schema] = schema.uids.clone();
        answer.headers_mut().insert(LEVEL_UID, level);
        answer.headers_mut().insert(SCHEMA_UID, schema);
    }
}

/// Whether a verb changes nothing.
pub(super) fn is_read(verb: &str) -> bool {
    matches!(verb, "get" | "list" | "watch")
}
