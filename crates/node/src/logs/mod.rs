//! What did containers write? Told over HTTPS, as a kubelet tells it to the API server.

mod choose;
mod serve;
mod trust;

pub use choose::{Life, Refusal};
pub use serve::{Body, Reader, Teller, serve, text};
pub use trust::{ServeError, Serving, client_authority, is_loopback_v4};
