//! exec, attach and port-forward over SPDY/3.1 and WebSocket, as a kubelet serves them.
//!
//! In the order of a request: `serve` (routes, checks, the upgrade), `spdy` and `websocket` (frames
//! into [`stream::UpgradedStream`]s and back), `remote_command` (exec and attach: the roles of
//! streams, and the exit status), `attach` (a container's own streams), `port_forward` (pairs of
//! streams into connections), `tunnel` (the connections of the API server's proxies). The runtime is
//! behind the streams
//! ([`crate::runtime::ContainerRuntime::exec`], [`crate::runtime::ContainerRuntime::connect`]).
//!
//! Kubernetes: k8s.io/cri-streaming, and the kubelet's server in front of it. There a WebSocket is
//! translated into SPDY for the runtime; here both are served alike.
//!
//! Invariant: everything has a limit ([`limits::StreamLimits`]): idle time, streams, frames,
//! messages. When a client has gone, what it started is dropped.

mod attach;
mod limits;
mod port_forward;
mod query;
mod remote_command;
mod serve;
mod spdy;
mod stream;
mod tunnel;
mod websocket;

pub use limits::STREAMING_IDLE_TIMEOUT;
pub(crate) use serve::{SessionStarter, Sessions, is_stream};
pub(crate) use spdy::client as spdy_client;
