//! How does the API hear of nodes, and that they live? Registration, leases, and a status now and then.

mod keep;
mod object;

pub use keep::{Heard, keep};
pub use object::{object, usual_capacity};
