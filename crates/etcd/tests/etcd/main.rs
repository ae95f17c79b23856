//! What the client of etcd promises, tried on real servers.

mod calls;
mod failover;
mod server;
mod tls;
mod watch;
