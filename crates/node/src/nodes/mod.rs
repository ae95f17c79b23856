//! Nodes in the API: registration, leases and status.

mod capacity;
mod heartbeat;
mod object;

pub(crate) use capacity::default_capacity;
pub use capacity::parse_capacity;
pub(crate) use heartbeat::run_heartbeats;
pub(crate) use object::node_object;
