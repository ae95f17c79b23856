//! What did containers write? Told over HTTPS, as a kubelet tells it to the API server.

mod choose;
mod serve;
mod trust;

pub use serve::serve;
pub use trust::{ServeError, Serving, client_authority, is_loopback_v4};
