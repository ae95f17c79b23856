//! Nodes in the API: registration, leases and status.

mod capacity;
mod heartbeat;
mod object;

pub use capacity::parse_capacity;
pub(crate) use capacity::{allocatable, default_capacity};
pub(crate) use heartbeat::run_heartbeats;
pub(crate) use object::node_object;
