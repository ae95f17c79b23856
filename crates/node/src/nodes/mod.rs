//! How does the API hear of nodes, and that they live? Registration, leases, and a status now and then.

mod capacity;
mod keep;
mod object;

pub use capacity::parse_capacity;
pub(crate) use capacity::usual_capacity;
pub(crate) use keep::keep;
pub(crate) use object::object;
