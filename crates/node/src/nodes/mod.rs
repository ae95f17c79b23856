//! Nodes in the API: registration, leases and status.

mod capacity;
mod events;
mod heartbeat;
mod node_address;
mod object;

pub use capacity::parse_capacity;
pub(crate) use capacity::{allocatable, default_capacity, without_huge_pages};
pub(crate) use heartbeat::{LEASE_DURATION, STATUS_INTERVAL, run_heartbeats};
pub use node_address::NodeAddress;
pub(crate) use object::node_object;
