//! What the client of etcd and the engine on it promise, tried on real servers.

mod calls;
mod engine;
mod failover;
mod lists;
mod progress;
mod progress_proxy;
mod revisions;
mod server;
mod tls;
mod watch;
