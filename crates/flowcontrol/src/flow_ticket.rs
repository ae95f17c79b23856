//! What a request carries through the filters: its flow schema, and the seats that it holds.

use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};

use http::{HeaderMap, HeaderName};

use super::OwnedSemaphorePermit;
use super::flows::FlowSchema;
use super::seat_lease::SeatLease;
use super::watch_tracker::WatchRegistration;

const LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");
const SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");

/// The flow control state of one request. Seats are released when the request is dropped, unless
/// they are taken over.
#[derive(Default)]
pub struct FlowTicket {
    schema: OnceLock<Arc<FlowSchema>>,
    held: Mutex<HeldSeats>,
}

/// The seats that a request holds.
#[derive(Default)]
pub struct HeldSeats {
    lease: Option<SeatLease>,
    permit: Option<OwnedSemaphorePermit>,
    _watching: Option<WatchRegistration>,
}

impl HeldSeats {
    pub(super) fn from_lease(lease: SeatLease, watching: Option<WatchRegistration>) -> HeldSeats {
        HeldSeats {
            lease: Some(lease),
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

    /// Releases the seats of a watch after its initial events. It is still tracked as a watch.
    pub fn release_seats(&mut self) {
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

    /// Takes the seats over, for a response that outlives the request.
    pub fn take_held(&self) -> HeldSeats {
        std::mem::take(&mut self.held.lock())
    }

    /// Adds the UIDs of the flow schema and priority level to the response. Names are not
    /// disclosed.
    pub fn set_response_headers(&self, headers: &mut HeaderMap) {
        let Some(schema) = self.schema.get() else {
            return;
        };
        let [level, schema] = schema.uids.clone();
        headers.insert(LEVEL_UID, level);
        headers.insert(SCHEMA_UID, schema);
    }
}

pub(super) fn is_read(verb: &str) -> bool {
    matches!(verb, "get" | "list" | "watch")
}
