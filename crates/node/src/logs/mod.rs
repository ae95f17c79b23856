//! What did containers write? Told over HTTPS, as a kubelet tells it to the API server.

mod choose;
mod serve;
mod trust;

pub(crate) use choose::{Life, Refusal};
pub(crate) use serve::{Body, FOLLOW, Teller, serve, text};
pub(crate) use trust::is_loopback_v4;
pub use trust::{ServeError, Serving, client_authority};
