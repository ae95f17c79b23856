//! What a request has of its turn: of which flow schema it is, and the place that it holds.

use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};

use http::HeaderName;

use super::OwnedSemaphorePermit;
use super::flows::FlowSchema;
use super::seat_lease::SeatLease;
use super::watch_tracker::WatchRegistration;
use crate::answer::Answer;

const LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");
const SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");

/// The turn of one request. What it holds is given back when the request is dropped, unless somebody takes it over.
#[derive(Default)]
pub(crate) struct FlowTicket {
    schema: OnceLock<Arc<FlowSchema>>,
    held: Mutex<HeldSeats>,
}

/// What a request holds.
#[derive(Default)]
pub(crate) struct HeldSeats {
    lease: Option<SeatLease>,
    permit: Option<OwnedSemaphorePermit>,
    /// Counted for as long as it is held.
    _watching: Option<WatchRegistration>,
}

impl HeldSeats {
    pub(super) fn from_lease(place: SeatLease, watching: Option<WatchRegistration>) -> HeldSeats {
        HeldSeats {
            lease: Some(place),
            _watching: watching,
            permit: None,
        }
    }

    pub(super) fn from_permit(seat: Option<OwnedSemaphorePermit>) -> HeldSeats {
        HeldSeats {
            permit: seat,
            ..HeldSeats::default()
        }
    }

    /// A watch has sent what was there: from now on it takes no seat, but still counts as a watch.
    pub(crate) fn release_seats(&mut self) {
        (self.lease, self.permit) = (None, None);
    }
}

impl FlowTicket {
    pub(super) fn set_schema(&self, schema: Arc<FlowSchema>) {
        let _ = self.schema.set(schema);
    }

    pub(super) fn hold(&self, held: HeldSeats) {
        *self.held.lock() = held;
    }

    /// Takes over what the request holds, for what goes on after it was answered.
    pub(crate) fn take_held(&self) -> HeldSeats {
        std::mem::take(&mut self.held.lock())
    }

    /// Says in an answer of which schema and level the request was. Not by name: that is nobody's business.
    pub(crate) fn set_response_headers(&self, answer: &mut Answer) {
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
