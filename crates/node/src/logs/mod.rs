//! What did containers write, and what does a node say of itself? Served over HTTPS, as a kubelet serves it.

mod authorize;
mod choose;
mod node;
mod serve;
mod trust;

pub(crate) use choose::{Life, Refusal};
pub(crate) use serve::{Body, FOLLOW, Teller, serve, text};
pub(crate) use trust::is_loopback_v4;
pub use trust::{ServeError, Serving, client_authority};
