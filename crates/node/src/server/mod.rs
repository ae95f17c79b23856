//! The HTTPS server of the nodes: the endpoints of a kubelet.

mod authenticate;
mod authorize;
mod container_logs;
mod log_file;
mod measured;
mod node;
mod reviews;
mod serve;
mod tls;

pub(crate) use container_logs::{ContainerInstance, HttpError};
pub use reviews::ReviewConfig;
pub(crate) use serve::{Body, FOLLOW, KubeletServer, serve, text};
pub(crate) use tls::is_loopback_v4;
pub use tls::{ServeError, Serving, client_authority};
