//! How does the API hear of nodes, and that they live? Registration, leases, and a status now and then.

mod capacity;
mod keep;
mod object;

pub use capacity::{parse_capacity, usual_capacity};
pub use keep::keep;
pub use object::object;
